"""The columns of this project's own, with their types, as a receipt lists those of decoded rows.

A row names its batch: of a table the column is written, of a directory readers take it from the path.
"""

from collections.abc import Mapping
from typing import Final

BATCH_COLUMN: Final = "kafka_batch"
NEVER_NULL: Final = frozenset({"kafka_topic", "kafka_partition", "kafka_offset", BATCH_COLUMN})
"""The columns that have a value in each row, although tables allow nulls in all."""

KAFKAS_OWN: Final[Mapping[str, str]] = {
    "kafka_topic": "string",
    "kafka_partition": "int",
    "kafka_offset": "bigint",
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_ms": "bigint",
    "kafka_topic_id": "string",
    BATCH_COLUMN: "string",
}
