"""The column by which a row of a table names its batch, since no path tells it."""

from typing import Final

BATCH_COLUMN: Final = "kafka_batch"
NEVER_NULL: Final = frozenset({"kafka_topic", "kafka_partition", "kafka_offset", BATCH_COLUMN})
"""The columns that have a value in each row, although tables allow nulls in all."""
