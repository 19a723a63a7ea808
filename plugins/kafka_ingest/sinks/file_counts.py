"""What published data files together hold of each partition, and where one differs from its receipt.

Importing this imports pyarrow.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from kafka_ingest.errors import NotADataFileError
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
from kafka_ingest.sinks.parquet_contents import DataFile


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


def look_at_named(folder: Opened, there: Collection[str], receipt: Receipt | None, *, closely: bool) -> PublishedLook:
    """Return what the files of a folder hold, by their names, and which differ from the receipt.

    A damaged one stops no other. Raises OSError where the system cannot read one: that proves nothing about its
    content.
    """
    expected = {file.name: file for file in receipt.files} if receipt is not None else {}
    files: dict[TopicPartition, list[tuple[Opened, PartitionContents]]] = {}
    problems: list[FileProblem] = []
    for name in sorted(there):
        partitions, problem = look_into(folder / name, name, expected.get(name), closely=closely)
        problems += [problem] if problem is not None else []
        for held in partitions:
            files.setdefault(held.topic_partition, []).append((folder / name, held))
    problems += [
        FileProblem(name, written, f"{folder / name} is not there", is_there=False)
        for name, written in expected.items()
        if name not in there
    ]
    counts = [count_of(topic_partition, of_partition) for topic_partition, of_partition in sorted(files.items())]
    return PublishedLook(counts, problems, sorted(set(there) - expected.keys()))


def count_of(topic_partition: TopicPartition, files: Sequence[tuple[Opened, PartitionContents]]) -> PublishedCount:
    """Return what the files that hold some of a partition hold of it together."""
    bounds = sorted((each.smallest_offset, each.largest_offset) for _, each in files)
    offsets = sum(each.distinct_offsets for _, each in files)
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(bounds)):
        # They may share offsets: only reading all of them shows which are in both.
        offsets = len(pa.concat_arrays([DataFile(path).offsets(topic_partition) for path, _ in files]).unique())
    return PublishedCount(
        topic_partition, sum(each.rows for _, each in files), offsets, bounds[0][0], max(b[1] for b in bounds)
    )
