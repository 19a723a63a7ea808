"""How many records one Spark task reads: a partition that holds most of a batch is shared out over the processors."""

import math
from collections.abc import Collection

TASKS_PER_PROCESSOR = 2
"""More of them even out what takes longer than its number of records says; each one is a file."""

TOLERATED = 1.5
"""So many times its share a range may have and still be one file."""

WORTH_A_TASK = 100_000


def records_per_task(spans: Collection[int], processors: int) -> int | None:
    """Return how many records a task reads at most, None where every range is read by one task.

    ``spans`` are the numbers of offsets of the planned ranges. Where no range has much more than its share, none is cut: a file
    a partition is what readers like best.
    """
    share = max(WORTH_A_TASK, math.ceil(sum(spans) / (TASKS_PER_PROCESSOR * processors)))
    return share if max(spans) > TOLERATED * share else None
