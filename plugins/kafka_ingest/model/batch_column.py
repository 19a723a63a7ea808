"""The column by which a row names its batch: of a table it is written, of a directory readers take it from the path."""

from typing import Final

BATCH_COLUMN: Final = "kafka_batch"
NEVER_NULL: Final = frozenset({"kafka_topic", "kafka_partition", "kafka_offset", BATCH_COLUMN})
"""The columns that have a value in each row, although tables allow nulls in all."""
