"""Which rows of a table a batch replaces: by ``kafka_batch`` and partition, wherever they are.

And the columns by which a row of a table is found. Importing this imports pyarrow.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.dead_letter_files import TYPES as LETTERS

TYPES: dict[str, pa.DataType] = {
    "kafka_topic": pa.string(),
    "kafka_topic_id": pa.string(),
    "kafka_partition": pa.int32(),
    "kafka_offset": pa.int64(),
    BATCH_COLUMN: pa.string(),
}
"""The columns by which a row is found, with their types; those of earlier versions have no topic id."""


def types_of(columns: Iterable[str]) -> pa.Schema:
    """Return such columns with their types, or those of dead letters."""
    known = {**LETTERS, **TYPES}
    return pa.schema([(name, known[name]) for name in columns])


KEY = (BATCH_COLUMN, "kafka_partition", "kafka_topic")


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """All rows of some batches in some of their partitions."""

    keys: "pa.Array[pa.StringScalar]"
    batches: Collection[UUID]

    @classmethod
    def of(cls, replaced: Collection[ReplacedRange]) -> "ReplacedRows":
        keys = {key_of(each.batch_id, each.topic_partition) for each in replaced}
        return cls(pa.array(sorted(keys), pa.string()), {each.batch_id for each in replaced})

    def are(self, rows: "pa.Table") -> "pa.BooleanArray":
        """Return for each row whether it is replaced; one of which a part of its key is null is not."""
        texts: list[Any] = [rows[name].cast(TYPES[name]).cast(pa.string()) for name in KEY]
        keys: pa.StringArray = pc.binary_join_element_wise(*texts, pa.scalar("/"))
        return pc.is_in(keys, value_set=self.keys)


def key_of(batch_id: UUID, topic_partition: TopicPartition) -> str:
    return f"{batch_id}/{topic_partition.partition}/{topic_partition.topic}"


@contextlib.contextmanager
def read_to_replace(path: Opened | str) -> Iterator[None]:
    """Raise OutputConflictError where a file with rows that may be replaced is damaged or missing.

    Errors of the storage itself are left to the caller: trying again helps there.
    """
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:
        # Arrow raises OSError for a damaged file, too, but only the system's errors have a number.
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
            raise
        raise OutputConflictError(
            f"expected a readable file of the table, which may hold rows that are to be replaced, found that {path} "
            f"cannot be read: {error}. Nothing was replaced. `kafka-ingest coverage FEED --verify` says which batches "
            "that concerns. Restore the file from a backup. If it cannot be, take it out of the table (for Delta: "
            "delete it, then FSCK REPAIR TABLE), and replace the batches' ranges, which reads their records again."
        ) from error
