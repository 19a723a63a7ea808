"""Count what readers see of a batch, row by row, from the position columns of its files. Importing this imports pyarrow."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafka_ingest.errors import NotADataFileError
from kafka_ingest.model.offset_sets import merged, span_of
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.model.published_output import FileProblem, PublishedCount, PublishedLook
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.file_differences import partitions_that_differ
from kafka_ingest.sinks.parquet_contents import DataFile, FileContents, PartitionContents


def look_at_files(directory: Path, receipt: Receipt | None, *, closely: bool) -> PublishedLook:
    """Return what the files of a directory hold, and which are not what the receipt says; a damaged one stops no other.

    Raises OSError where the system cannot read one: that proves nothing about its content.
    """
    expected = {file.name: file for file in receipt.files} if receipt is not None else {}
    there = sorted(directory.iterdir()) if directory.is_dir() else []
    files: dict[TopicPartition, list[tuple[Path, PartitionContents]]] = {}
    problems: list[FileProblem] = []
    for path in there:
        written = expected.get(path.name)
        try:
            contents = DataFile(path).contents(intervals=0)
            if closely:
                DataFile(path).read_all()
        except NotADataFileError as error:
            problems.append(FileProblem(path.name, written, str(error), is_there=True))
            continue
        for held in contents.partitions:
            files.setdefault(held.topic_partition, []).append((path, held))
        if written is not None and (differences := listing(other_than(written, contents))):
            problems.append(FileProblem(path.name, written, f"{path}: {differences}", is_there=True))
    found = {path.name for path in there}
    problems += [
        FileProblem(name, written, f"{directory / name} is not there", is_there=False)
        for name, written in expected.items()
        if name not in found
    ]
    counts = [count_of(topic_partition, of_partition) for topic_partition, of_partition in sorted(files.items())]
    return PublishedLook(counts, problems, sorted(found - expected.keys()))


def other_than(written: WrittenFile, contents: FileContents) -> Iterator[str]:
    """Yield in which respects the records of a file are not those that its receipt names; another writer's bytes are none."""
    for what, expected, found in (
        ("rows", written.rows, contents.rows),
        ("different offsets", written.rows, contents.distinct_offsets),
    ):
        if expected != found:
            yield f"{what}: the receipt says {expected}, found {found}"
    yield from partitions_that_differ(written, contents)


def count_of(topic_partition: TopicPartition, files: Sequence[tuple[Path, PartitionContents]]) -> PublishedCount:
    """Return what the files that hold some of a partition hold of it together."""
    bounds = sorted((each.smallest_offset, each.largest_offset) for _, each in files)
    offsets = sum(each.distinct_offsets for _, each in files)
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(bounds)):
        # They may share offsets: which ones are in both is only seen by looking at all of them.
        whole = (DataFile(path).contents(intervals=sys.maxsize).intervals for path, _ in files)
        of_partition = (
            each for each in itertools.chain.from_iterable(whole) if each.topic_partition == topic_partition
        )
        offsets = span_of(merged(of_partition))
    return PublishedCount(
        topic_partition, sum(each.rows for _, each in files), offsets, bounds[0][0], max(b[1] for b in bounds)
    )
