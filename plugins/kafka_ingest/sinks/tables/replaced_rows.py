"""Which rows of a table a batch replaces: by ``kafka_batch`` and partition, wherever they are.

Importing this imports pyarrow.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.model.batch_column import BATCH_COLUMN
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.replaced import ReplacedRange
from kafka_ingest.sinks.tables.row_columns import TYPES

KEY = (BATCH_COLUMN, "kafka_partition", "kafka_topic")


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """All rows of some batches in some of their partitions."""

    keys: "pa.Array[pa.StringScalar]"
    batches: Collection[UUID]

    @classmethod
    def of(cls, replaced: Collection[ReplacedRange]) -> "ReplacedRows":
        """Return the rows of some ranges."""
        keys = {key_of(each.batch_id, each.topic_partition) for each in replaced}
        return cls(pa.array(sorted(keys), pa.string()), {each.batch_id for each in replaced})

    def are(self, rows: "pa.Table") -> "pa.BooleanArray":
        """Return for each row whether it is replaced; one of which a part of its key is null is not."""
        texts: list[Any] = [rows[name].cast(TYPES[name]).cast(pa.string()) for name in KEY]
        keys: pa.StringArray = pc.binary_join_element_wise(*texts, pa.scalar("/"))
        return pc.is_in(keys, value_set=self.keys)


def key_of(batch_id: UUID, topic_partition: TopicPartition) -> str:
    """Return what a row of a batch and a partition is known by."""
    return f"{batch_id}/{topic_partition.partition}/{topic_partition.topic}"
