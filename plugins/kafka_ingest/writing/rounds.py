"""Read what can be read: where retention deletes part of a range, the same attempt reads the other ranges again."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.left_out import LeftOut, ranges_read, to_leave_out
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing

Stage = Callable[[Sequence[OffsetRange], Path], int]
LogStarts = Callable[[Sequence[OffsetRange]], Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class Staged:
    """What was read: how many records Spark counted, and which planned ranges were left out."""

    rows_read: int
    left_out: tuple[LeftOut, ...] = ()


def read_in_rounds(plan: BatchPlan, data: Path, stage: Stage, log_starts: LogStarts) -> Staged:
    """Stage the plan's ranges below ``data``; ranges of which Kafka has deleted records since then are left out.

    ``stage`` reads ranges into a directory that does not exist, and returns how many records it counted. Where it
    fails, ``log_starts`` says what was lost. Without a loss, and where nothing would be left to read, its error
    stands. Each round has fewer ranges than the one before, so the last one comes. Only a live batch leaves ranges
    out: the next plan decides on those.
    """
    left_out: tuple[LeftOut, ...] = ()
    here = data
    while True:
        ranges = ranges_read(plan.ranges, left_out)
        try:
            rows_read = stage(ranges, here)
        except (Py4JJavaError, PySparkException):
            lost = to_leave_out(ranges, log_starts(ranges)) if plan.kind is BatchKind.LIVE else ()
            if not lost:
                raise
        else:
            break
        sys.stderr.write(f"Kafka deleted records of {listing(lost)}: the other ranges are read again, without those.\n")
        left_out += lost
        # Tasks of the round before may continue for a moment: what they still write is in another directory.
        shutil.rmtree(here, ignore_errors=True)
        here = data.with_name(f"{data.name}-without-{len(left_out)}")
    if here != data:
        shutil.rmtree(data, ignore_errors=True)
        here.rename(data)
    return Staged(rows_read, tuple(sorted(left_out)))
