"""What a table holds of a batch: in the files as they were published, and in rows that other programs have moved.

Importing this imports pyarrow.
"""

import sys
from collections.abc import Collection, Iterable

import pyarrow as pa

from kafka_ingest.errors import NotADataFileError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offset_sets import span_of, union
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import FileProblem, PartitionContents, PublishedCount, PublishedLook
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.file_counts import count_of, look_into
from kafka_ingest.sinks.parquet_contents import DataFile, contents_of, partitions_of, rows_of
from kafka_ingest.sinks.staged_parquet import staged_sizes

Held = dict[TopicPartition, list[tuple[Opened, PartitionContents]]]


def look_at_batch(
    place: Opened, receipt: Receipt, named: Collection[str], moved: Iterable[pa.Table], *, closely: bool
) -> PublishedLook:
    """Return what readers see of a batch; a damaged file stops no other.

    ``named`` are those of the receipt's files that the table names as they were published, ``moved`` the positions of
    the batch's rows that are elsewhere.
    """
    there = staged_sizes(place, receipt)
    own: Held = {}
    problems: list[FileProblem] = []
    gone = [file for file in receipt.files if file.name not in named]
    for file in receipt.files:
        path = place / file.name
        if file.name not in named:
            continue
        if file.name not in there:
            said = f"{path} is not there, and the table names it"
            problems.append(FileProblem(file.name, file, said, is_there=False))
            continue
        partitions, problem = look_into(path, file.name, file, closely=closely)
        problems += [problem] if problem is not None else []
        for held in partitions:
            own.setdefault(held.topic_partition, []).append((path, held))
    elsewhere = contents_by_partition(moved)
    if sum(held.rows for held in elsewhere.values()) < sum(file.rows for file in gone):
        lost = "the table does not name it as it was published, nor hold all of its rows elsewhere"
        problems += [FileProblem(file.name, file, f"{place / file.name}: {lost}", is_there=False) for file in gone]
    counts = [count_of_all(each, own.get(each, []), elsewhere.get(each)) for each in sorted(own.keys() | elsewhere)]
    return PublishedLook(counts, problems)


def contents_by_partition(positions: Iterable[pa.Table]) -> dict[TopicPartition, PartitionContents]:
    """Return what pieces of rows hold of each partition together."""
    offsets: dict[TopicPartition, list[pa.Array[pa.Int64Scalar]]] = {}
    for table in positions:
        for topic_partition in partitions_of(table):
            found = rows_of(table, topic_partition)["kafka_offset"].combine_chunks()
            offsets.setdefault(topic_partition, []).append(found)
    return {
        topic_partition: contents_of(topic_partition, pa.concat_arrays(chunks), sys.maxsize)
        for topic_partition, chunks in offsets.items()
    }


def contents_of_files(files: Iterable[Opened]) -> list[PartitionContents]:
    """Return what staged files hold, one by one; raises StagedOutputUnusableError where one is damaged."""
    try:
        return [held for file in files for held in DataFile(file).contents(intervals=sys.maxsize).partitions]
    except NotADataFileError as error:
        raise StagedOutputUnusableError(str(error)) from error


def count_of_all(
    topic_partition: TopicPartition, own: list[tuple[Opened, PartitionContents]], elsewhere: PartitionContents | None
) -> PublishedCount:
    """Return what a batch's own files and other ones hold of a partition together."""
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
