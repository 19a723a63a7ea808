"""Read positions in files of another writer, with any type of text columns. Importing this imports pyarrow."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.foundation.storage import Opened, open_to_read
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.parquet_contents import may_hold, partitions_of
from kafka_ingest.sinks.tables.replaced_rows import TYPES


def rows_of_file(
    path: Opened, columns: list[str], batch_id: UUID | None, known: Mapping[str, Any] = MappingProxyType({})
) -> Iterator["pa.Table"]:
    """Yield some columns of a file's rows, of one batch or of all; row groups without the batch are not read.

    ``known`` are values that all rows have, by the columns that the table is partitioned by.
    """
    read = [*columns, *([BATCH_COLUMN] if batch_id is not None and BATCH_COLUMN not in columns else [])]
    types = pa.schema([(name, TYPES[name]) for name in read])
    with open_to_read(path) as source, pyarrow.parquet.ParquetFile(source) as file:
        there = [name for name in read if name in file.schema_arrow.names]
        if not set(read) <= {*there, *known}:
            return  # another writer's, from before the table had these columns: no batch has rows in it
        for group in range(file.num_row_groups):
            if batch_id is not None and not may_hold(file.metadata.row_group(group), BATCH_COLUMN, str(batch_id)):
                continue
            for batch in file.iter_batches(row_groups=[group], columns=there):
                table = pa.Table.from_batches([batch])
                for name in set(read).difference(there):
                    table = table.append_column(name, pa.array([known[name]] * len(table), TYPES[name]))
                table = table.select(read).cast(types)
                if batch_id is not None:
                    table = table.filter(pc.equal(table[BATCH_COLUMN], pa.scalar(str(batch_id))))
                if table.num_rows:
                    yield table.select(columns)


def hold(positions: "Iterable[pa.Table]", topic_partition: TopicPartition, offset: int) -> bool:
    """Whether one of the rows is the record of that partition and offset."""
    wanted = pa.scalar(offset, pa.int64())
    found = (table.filter(pc.equal(table["kafka_offset"], wanted)) for table in positions)
    return any(topic_partition in partitions_of(table) for table in found)
