"""What published data files together hold of each partition, and where one differs from its receipt.

Of a table also what is in rows that other programs have moved. Importing this imports pyarrow.
"""

import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from kafka_ingest.errors import NotADataFileError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import TopicPartition, listing, span_of, union
from kafka_ingest.model.published_output import (
    FileContents,
    FileProblem,
    PartitionContents,
    PublishedCount,
    PublishedLook,
    partitions_that_differ,
)
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.parquet_contents import DataFile, contents_of, partitions_of, rows_of
from kafka_ingest.sinks.staged_parquet import staged_sizes


def look_into(
    path: Opened, name: str, written: WrittenFile | None, *, closely: bool
) -> tuple[Sequence[PartitionContents], FileProblem | None]:
    """Return what an existing file holds, and what is wrong with it; nothing of a damaged one.

    ``name`` is its name in a receipt, ``written`` its entry there, None where it has none. Raises OSError where the
    system cannot read it: that proves nothing about its content.
    """
    try:
        contents = DataFile(path).contents(intervals=0)
        if closely:
            DataFile(path).read_all()
    except NotADataFileError as error:
        return (), FileProblem(name, written, str(error), is_there=True)
    if written is not None and (differences := listing(other_than(written, contents))):
        return contents.partitions, FileProblem(name, written, f"{path}: {differences}", is_there=True)
    return contents.partitions, None


def other_than(written: WrittenFile, contents: FileContents) -> Iterator[str]:
    """Yield how the records of a file differ from its receipt; the size of a file of another writer does not count."""
    for what, expected, found in (
        ("rows", written.rows, contents.rows),
        ("different offsets", written.rows, contents.distinct_offsets),
    ):
        if expected != found:
            yield f"{what}: the receipt says {expected}, found {found}"
    yield from partitions_that_differ(written, contents)


def look_at_named(
    path_of: Callable[[str], Opened], there: Collection[str], receipt: Receipt | None, *, closely: bool
) -> PublishedLook:
    """Return what the files of a batch hold, by their names, and which differ from the receipt.

    A damaged one stops no other. Raises OSError where the system cannot read one: that proves nothing about its
    content.
    """
    expected = {file.name: file for file in receipt.files} if receipt is not None else {}
    files: dict[TopicPartition, list[tuple[Opened, PartitionContents]]] = {}
    problems: list[FileProblem] = []
    for name in sorted(there):
        partitions, problem = look_into(path_of(name), name, expected.get(name), closely=closely)
        problems += [problem] if problem is not None else []
        for held in partitions:
            files.setdefault(held.topic_partition, []).append((path_of(name), held))
    problems += [
        FileProblem(name, written, f"{path_of(name)} is not there", is_there=False)
        for name, written in expected.items()
        if name not in there
    ]
    counts = [count_of(topic_partition, of_partition) for topic_partition, of_partition in sorted(files.items())]
    return PublishedLook(counts, problems, sorted(set(there) - expected.keys()))


def count_of(topic_partition: TopicPartition, files: Sequence[tuple[Opened, PartitionContents]]) -> PublishedCount:
    bounds = sorted((each.smallest_offset, each.largest_offset) for _, each in files)
    offsets = sum(each.distinct_offsets for _, each in files)
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(bounds)):
        # They may share offsets: only reading all of them shows which are in both.
        offsets = len(pa.concat_arrays([DataFile(path).offsets(topic_partition) for path, _ in files]).unique())
    return PublishedCount(
        topic_partition, sum(each.rows for _, each in files), offsets, bounds[0][0], max(b[1] for b in bounds)
    )


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
