"""Count what readers see of a batch, row by row, from the position columns of its files. Importing this imports pyarrow."""

from pathlib import Path

from kafka_ingest.errors import NotADataFileError
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.model.published_output import FileProblem, PublishedLook
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.file_counts import count_of, other_than
from kafka_ingest.sinks.parquet_contents import DataFile, PartitionContents


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
