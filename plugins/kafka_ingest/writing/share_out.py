"""What one Spark task reads: one range, a part of a large one, or several small ones.

A partition that holds most of a batch is shared out over the processors. Where many ranges are small they share tasks
and files: starting a task and writing a file takes longer than reading some thousand records.
"""

import itertools
import math
from collections.abc import Collection, Sequence

from kafka_ingest.model.offsets import OffsetRange

TASKS_PER_PROCESSOR = 2
"""More of them even out what takes longer than its number of records says; each one is a file."""

TOLERATED = 1.5
"""A range of up to this many times its share is still one file."""

WORTH_A_TASK = 100_000

SMALL = 10_000
"""A range of fewer offsets may share its file with others."""

WORTH_A_FILE_EACH = 32
"""Up to this number of small ranges are one file each, which suits readers that look for one partition."""

RANGES_A_TASK = 50
"""Spark keeps a consumer for each range of a task until the task ends."""

CONSUMERS_METADATA = 100_000
"""How many partitions all running consumers together may know: each knows its whole topic's, in 0.6 kB a partition."""


def records_per_task(spans: Collection[int], processors: int) -> int | None:
    """Return how many records a task reads at most, None where every range is read by one task.

    ``spans`` are the numbers of offsets of the planned ranges. Where no range has much more than its share, none is
    cut: a file a partition is what readers like best.
    """
    share = max(WORTH_A_TASK, math.ceil(sum(spans) / (TASKS_PER_PROCESSOR * processors)))
    return share if max(spans) > TOLERATED * share else None


def shared_out(ranges: Sequence[OffsetRange], at_most: int | None) -> list[OffsetRange]:
    """Return the ranges, those longer than ``at_most`` cut into equal parts that are not."""
    return [part for offset_range in ranges for part in parts_of(offset_range, at_most)]


def parts_of(offset_range: OffsetRange, at_most: int | None) -> list[OffsetRange]:
    """Return a range in the smallest number of equal parts of at most ``at_most`` offsets."""
    count = math.ceil(offset_range.span / at_most) if at_most is not None else 1
    bounds = [offset_range.start_offset + offset_range.span * number // count for number in range(count + 1)]
    return [OffsetRange(offset_range.topic_partition, *part) for part in itertools.pairwise(bounds)]


def small_ranges(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges that share tasks and files; none where those that could are few."""
    small = [offset_range for offset_range in ranges if offset_range.span < SMALL]
    return small if len(small) > WORTH_A_FILE_EACH else []


def shared_tasks(small: Collection[OffsetRange], processors: int) -> int:
    """Return by how many tasks small ranges are read, each of which writes one file."""
    ranges_a_task = min(RANGES_A_TASK, max(1, CONSUMERS_METADATA // (processors * len(small))))
    records = sum(offset_range.span for offset_range in small)
    return max(processors, math.ceil(len(small) / ranges_a_task), math.ceil(records / WORTH_A_TASK))
