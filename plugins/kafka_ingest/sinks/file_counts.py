"""What published data files together hold of each partition, and where one differs from its receipt.

Of a table also what is in rows that other programs have moved. Importing this imports pyarrow.
"""

import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from kafka_ingest.errors import NotADataFileError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import TopicPartition, listing
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


Files = Iterable[tuple[str, Opened, WrittenFile | None]]
"""Existing files: the name, the place, and the entry in the receipt."""
Held = dict[TopicPartition, list[tuple[Opened, PartitionContents]]]
Offsets = Any
"""An array of Arrow's."""


def held_in(files: Files, *, closely: bool) -> tuple[Held, list[FileProblem]]:
    found: Held = {}
    problems: list[FileProblem] = []
    for name, path, written in files:
        partitions, problem = look_into(path, name, written, closely=closely)
        problems += [problem] if problem is not None else []
        for held in partitions:
            found.setdefault(held.topic_partition, []).append((path, held))
    return found, problems


def look_at_named(
    path_of: Callable[[str], Opened], there: Collection[str], receipt: Receipt | None, *, closely: bool
) -> PublishedLook:
    """Return what the files of a batch hold, by their names, and which differ from the receipt.

    A damaged one stops no other. Raises OSError where the system cannot read one: that proves nothing about its
    content.
    """
    expected = {file.name: file for file in receipt.files} if receipt is not None else {}
    found, problems = held_in(((name, path_of(name), expected.get(name)) for name in sorted(there)), closely=closely)
    problems += [
        FileProblem(name, written, f"{path_of(name)} is not there", is_there=False)
        for name, written in expected.items()
        if name not in there
    ]
    counts = [count_of(each, found[each]) for each in sorted(found)]
    return PublishedLook(counts, problems, sorted(set(there) - expected.keys()))


def look_at_batch(
    place: Opened, receipt: Receipt, named: Collection[str], moved: Iterable[pa.Table], *, closely: bool
) -> PublishedLook:
    """Return what readers see of a batch; a damaged file stops no other.

    ``named`` are those of the receipt's files that the table names as they were published, ``moved`` the positions of
    the batch's rows that are elsewhere.
    """
    there = staged_sizes(place, receipt)
    own, gone = ([file for file in receipt.files if (file.name in named) is is_named] for is_named in (True, False))
    found, problems = held_in(
        ((file.name, place / file.name, file) for file in own if file.name in there), closely=closely
    )
    problems += [
        FileProblem(file.name, file, f"{place / file.name} is not there, and the table names it", is_there=False)
        for file in own
        if file.name not in there
    ]
    elsewhere = offsets_by_partition(moved)
    if sum(map(len, elsewhere.values())) < sum(file.rows for file in gone):
        lost = "the table does not name it as it was published, nor hold all of its rows elsewhere"
        problems += [FileProblem(file.name, file, f"{place / file.name}: {lost}", is_there=False) for file in gone]
    counts = [count_of(each, found.get(each, []), elsewhere.get(each)) for each in sorted(found.keys() | elsewhere)]
    return PublishedLook(counts, problems)


def count_of(
    topic_partition: TopicPartition, files: Sequence[tuple[Opened, PartitionContents]], moved: Offsets | None = None
) -> PublishedCount:
    """Return what files hold of a partition, and rows that are elsewhere, by their offsets."""
    parts = [held for _, held in files]
    parts += [contents_of(topic_partition, moved, 0)] if moved is not None else []
    bounds = sorted((each.smallest_offset, each.largest_offset) for each in parts)
    offsets = sum(each.distinct_offsets for each in parts)
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(bounds)):
        # They may share offsets: only reading all of them shows which are in both.
        every = [DataFile(path).offsets(topic_partition) for path, _ in files]
        offsets = len(pa.concat_arrays([*every, *([moved] if moved is not None else [])]).unique())
    rows = sum(each.rows for each in parts)
    return PublishedCount(topic_partition, rows, offsets, bounds[0][0], max(largest for _, largest in bounds))


def offsets_by_partition(positions: Iterable[pa.Table]) -> dict[TopicPartition, Offsets]:
    offsets: dict[TopicPartition, list[Offsets]] = {}
    for table in positions:
        for topic_partition in partitions_of(table):
            found = rows_of(table, topic_partition)["kafka_offset"].combine_chunks()
            offsets.setdefault(topic_partition, []).append(found)
    return {topic_partition: pa.concat_arrays(chunks) for topic_partition, chunks in offsets.items()}


def contents_by_partition(positions: Iterable[pa.Table]) -> dict[TopicPartition, PartitionContents]:
    found = offsets_by_partition(positions)
    return {each: contents_of(each, offsets, sys.maxsize) for each, offsets in found.items()}


def contents_of_files(files: Iterable[Opened]) -> list[PartitionContents]:
    """Return what staged files hold, one by one; raises StagedOutputUnusableError where one is damaged."""
    try:
        return [held for file in files for held in DataFile(file).contents(intervals=sys.maxsize).partitions]
    except NotADataFileError as error:
        raise StagedOutputUnusableError(str(error)) from error
