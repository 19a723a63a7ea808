"""Count what a Delta table holds of a batch, from the position columns of its rows. Importing this imports pyarrow."""

import sys
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.model.data_file import PartitionContents
from kafka_ingest.model.offset_sets import span_of, union
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import FileProblem, PublishedCount, PublishedLook
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.delta.table_rows import TableRows
from kafka_ingest.sinks.file_counts import count_of, look_into
from kafka_ingest.sinks.parquet_contents import (
    POSITION,
    DataFile,
    contents_of,
    partitions_of,
    rows_of,
)

Held = dict[TopicPartition, list[tuple[Path, PartitionContents]]]


def look_at_batch(output: Path, place: Path, receipt: Receipt, rows: TableRows, *, closely: bool) -> PublishedLook:
    """Return what readers see of a batch; a damaged file stops no other."""
    own: Held = {}
    problems: list[FileProblem] = []
    gone = []
    for file in receipt.files:
        path = place / file.name
        if path.relative_to(output).as_posix() not in rows.files:
            gone.append(file)
            continue
        if not path.exists():
            problems.append(
                FileProblem(file.name, file, f"{path} is not there, and the table names it", is_there=False)
            )
            continue
        partitions, problem = look_into(path, file.name, file, closely=closely)
        problems += [problem] if problem is not None else []
        for held in partitions:
            own.setdefault(held.topic_partition, []).append((path, held))
    elsewhere = rewritten_rows(rows, receipt.batch_id)
    if sum(held.rows for held in elsewhere.values()) < sum(file.rows for file in gone):
        said = f"the table {output} does not name it any more, nor hold all of its rows elsewhere"
        problems += [FileProblem(file.name, file, f"{place / file.name}: {said}", is_there=False) for file in gone]
    counts = [
        count_of_all(each, own.get(each, []), elsewhere.get(each)) for each in sorted(own.keys() | elsewhere.keys())
    ]
    return PublishedLook(counts, problems)


def rewritten_rows(rows: TableRows, batch_id: UUID) -> dict[TopicPartition, PartitionContents]:
    """Return what files that were rewritten hold of a batch."""
    offsets: dict[TopicPartition, list[pa.Array[pa.Int64Scalar]]] = {}
    for table in rows.read_rewritten(list(POSITION), batch_id):
        for topic_partition in partitions_of(table):
            found = rows_of(table, topic_partition)["kafka_offset"].combine_chunks()
            offsets.setdefault(topic_partition, []).append(found)
    return {
        topic_partition: contents_of(topic_partition, pa.concat_arrays(chunks), sys.maxsize)
        for topic_partition, chunks in offsets.items()
    }


def count_of_all(
    topic_partition: TopicPartition, own: list[tuple[Path, PartitionContents]], elsewhere: PartitionContents | None
) -> PublishedCount:
    """Return what a batch's own files and rewritten ones hold of a partition together."""
    if elsewhere is None:
        return count_of(topic_partition, own)
    intervals = list(elsewhere.intervals)
    for path, _ in own:
        found = DataFile(path).contents(intervals=sys.maxsize).intervals
        intervals += [each for each in found if each.topic_partition == topic_partition]
    parts = [elsewhere, *(held for _, held in own)]
    return PublishedCount(
        topic_partition,
        sum(held.rows for held in parts),
        span_of(union(intervals)),
        min(held.smallest_offset for held in parts),
        max(held.largest_offset for held in parts),
    )


def is_in_rewritten(rows: TableRows, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
    """Whether a batch's record is in a file that was rewritten."""
    return any(
        topic_partition in partitions_of(table.filter(pc.equal(table["kafka_offset"], pa.scalar(offset, pa.int64()))))
        for table in rows.read_rewritten(list(POSITION), batch_id)
    )
