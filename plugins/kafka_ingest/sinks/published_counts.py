"""Count what readers see of a batch, row by row, from the position columns of its files. Importing this imports pyarrow."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from kafka_ingest.boundaries import PublishedCount
from kafka_ingest.errors import NotADataFileError, OutputConflictError
from kafka_ingest.offset_sets import merged, span_of
from kafka_ingest.offsets import TopicPartition
from kafka_ingest.sinks.parquet_contents import DataFile, FileContents


def published_counts(directory: Path) -> list[PublishedCount]:
    """Return what the files of a directory hold, by partition; none where there is no such directory.

    Raises OutputConflictError where one is not a data file of this project, OSError where it cannot be read.
    """
    files: dict[TopicPartition, list[FileContents]] = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        try:
            contents = DataFile(path).contents(intervals=0)
            if contents.topic_partition is not None:
                files.setdefault(contents.topic_partition, []).append(contents)
        except NotADataFileError as error:
            raise OutputConflictError(str(error)) from error
    return [count_of(directory, topic_partition, found) for topic_partition, found in sorted(files.items())]


def count_of(directory: Path, topic_partition: TopicPartition, files: Sequence[FileContents]) -> PublishedCount:
    """Return what the files of one partition hold together."""
    bounds = sorted((each.smallest_offset or 0, each.largest_offset or 0) for each in files)
    offsets = sum(each.distinct_offsets for each in files)
    if any(later[0] <= earlier[1] for earlier, later in itertools.pairwise(bounds)):
        # They may share offsets: which ones are in both is only seen by looking at all of them.
        whole = [DataFile(path).contents(intervals=offsets) for path in sorted(directory.iterdir())]
        of_partition = [each.intervals for each in whole if each.topic_partition == topic_partition]
        offsets = span_of(merged(itertools.chain.from_iterable(of_partition)))
    return PublishedCount(
        topic_partition, sum(each.rows for each in files), offsets, bounds[0][0], max(b[1] for b in bounds)
    )
