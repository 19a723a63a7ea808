"""Read what can be read: where retention deletes part of a range, the same attempt reads the other ranges again."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing
from kafka_ingest.model.omissions import LeftOut, ranges_read, to_leave_out
from kafka_ingest.model.place import Place, local
from kafka_ingest.writing.session import say

Result = TypeVar("Result")
Remove = Callable[[Place], None]
LogStarts = Callable[[Sequence[OffsetRange]], Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class Staged(Generic[Result]):
    """What was read of which planned ranges, and where the last round wrote it."""

    records: Result
    place: Place
    left_out: tuple[LeftOut, ...] = ()


def remove_from_disk(data: Place) -> None:
    """Remove what was staged on a disk; tasks of that round may still write to it."""
    shutil.rmtree(local(data), ignore_errors=True)


def read_in_rounds(
    plan: BatchPlan,
    data: Place,
    stage: Callable[[Sequence[OffsetRange], Place], Result],
    log_starts: LogStarts,
    remove: Remove = remove_from_disk,
) -> Staged[Result]:
    """Stage the plan's ranges below ``data``; ranges of which Kafka has deleted records since then are left out.

    ``stage`` reads ranges into a directory that does not exist, and returns what it staged. Where it fails,
    ``log_starts`` says what was lost. Without a loss, and where nothing would be left to read, its error
    stands. Each round has fewer ranges than the one before, so the last one comes. Only a live batch leaves ranges
    out: the next plan decides on those.
    """
    left_out: tuple[LeftOut, ...] = ()
    here = data
    while True:
        ranges = ranges_read(plan.ranges, left_out)
        try:
            records = stage(ranges, here)
        except (Py4JJavaError, PySparkException):
            lost = to_leave_out(ranges, log_starts(ranges)) if plan.kind is BatchKind.LIVE else ()
            if not lost:
                raise
        else:
            break
        say(f"Kafka deleted records of {listing(lost)}: the other ranges are read again, without those.")
        left_out += lost
        # Tasks of the round before may continue for a moment: what they still write is in another directory.
        remove(here)
        # In a store nothing can be renamed: what this round writes stays in a folder of its own.
        above = data.parent if isinstance(data, Path) else data
        here = above / f"{data.name}-without-{len(left_out)}"
    move_on_disk(here, data, remove)
    return Staged(records, here, tuple(sorted(left_out)))


def move_on_disk(here: Place, place: Place, remove: Remove) -> None:
    """Move what was staged to another place, if there is any; in a store it stays where it is."""
    if isinstance(here, Path) and isinstance(place, Path) and here != place and here.is_dir():
        remove(place)
        here.rename(place)
