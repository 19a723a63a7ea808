"""Count what readers see of a batch, row by row, from its files' position columns. Importing this imports pyarrow."""

from pathlib import Path
from typing import TYPE_CHECKING

from kafka_ingest.model.published_output import FileProblem, PublishedLook
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.file_counts import count_of, look_into

if TYPE_CHECKING:
    from kafka_ingest.model.data_file import PartitionContents
    from kafka_ingest.model.offsets import TopicPartition


def look_at_files(directory: Path, receipt: Receipt | None, *, closely: bool) -> PublishedLook:
    """Return what the files of a directory hold, and which differ from the receipt; a damaged one stops no other.

    Raises OSError where the system cannot read one: that proves nothing about its content.
    """
    expected = {file.name: file for file in receipt.files} if receipt is not None else {}
    there = sorted(directory.iterdir()) if directory.is_dir() else []
    files: dict[TopicPartition, list[tuple[Path, PartitionContents]]] = {}
    problems: list[FileProblem] = []
    for path in there:
        partitions, problem = look_into(path, path.name, expected.get(path.name), closely=closely)
        problems += [problem] if problem is not None else []
        for held in partitions:
            files.setdefault(held.topic_partition, []).append((path, held))
    found = {path.name for path in there}
    problems += [
        FileProblem(name, written, f"{directory / name} is not there", is_there=False)
        for name, written in expected.items()
        if name not in found
    ]
    counts = [count_of(topic_partition, of_partition) for topic_partition, of_partition in sorted(files.items())]
    return PublishedLook(counts, problems, sorted(found - expected.keys()))
