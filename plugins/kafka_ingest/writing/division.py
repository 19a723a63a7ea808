"""How the records of a batch get into files of one partition of a table each, so that these are not too many.

Each task writes a file for each partition that it reads records of. So their number is bounded by what the tasks read,
and by the days or hours of the records, which a producer chooses. Where that may be too many, the records of one
partition are brought together first, by a shuffle, so that one task writes them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kafka_ingest.model.attempt_directory import TOO_MANY_TABLE_PARTITIONS
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.partition_term import MOST_FILES, PartitionTerm
from kafka_ingest.writing.share_out import records_per_task, shared_out

ENOUGH_TIMES = 6
"""How many days or hours a batch that is up to date has at most, with those to come, where clocks differ."""


class TooManyFilesError(Exception):
    """A batch has records of more partitions of a table than it may have files."""


@dataclass(frozen=True, slots=True)
class Division:
    """``together``: whether records are brought together first. ``times``: of how many days or hours they may be.

    ``times`` is None where no number of them would be too many.
    """

    together: bool
    times: int | None = None


def uncounted(ranges: Collection[OffsetRange], terms: Sequence[PartitionTerm], processors: int) -> Division | None:
    """Return how ranges can be written at once, None where the files have to be counted first."""
    files, partitions = most_of_one_time(ranges, terms, processors)
    if not any(term.is_of_time for term in terms):
        return chosen(files, partitions)
    for together, number in ((False, files), (True, partitions)):
        times = MOST_FILES // number - 1  # and the partition of records without a time
        if times >= ENOUGH_TIMES:
            return Division(together, times)
    return None


def chosen(files: int, partitions: int) -> Division:
    """Return how records of so many partitions are written, which would be so many files as they are read.

    Raises TooManyFilesError where it cannot be done.
    """
    if files <= MOST_FILES:
        return Division(together=False)
    if partitions <= MOST_FILES:
        return Division(together=True)
    raise TooManyFilesError(
        f"{TOO_MANY_TABLE_PARTITIONS}: expected records of at most {MOST_FILES:,} partitions of the table, each of "
        f"which is a file, found {partitions:,}"
    )


def most_of_one_time(
    ranges: Collection[OffsetRange], terms: Sequence[PartitionTerm], processors: int
) -> tuple[int, int]:
    """Return how many files there are at most, and partitions of the table, where all records are of one time."""
    columns = {term.column for term in terms}
    by_topic, by_partition = bool(columns & {"kafka_topic", "kafka_topic_id"}), "kafka_partition" in columns
    partitions = {(each.topic if by_topic else "", each.partition if by_partition else 0) for each in ranges}
    at_most = records_per_task([each.span for each in ranges], processors)
    return len(shared_out(sorted(ranges), at_most)), len(partitions)
