"""Which batch has read an offset whose range is folded: the control tables know its time, and its receipt the rest."""

from collections.abc import Callable, Sequence

from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.coverage import BatchOfOffset
from kafka_ingest.model.folded import FoldedBatch, FoldedRange
from kafka_ingest.model.offsets import OffsetRange

PlanOf = Callable[[FoldedBatch], BatchPlan]
"""Reads a folded batch's plan from its receipt."""


def batch_that_read(
    folded: FoldedRange, offset: int, batches: Sequence[FoldedBatch], plan_of: PlanOf
) -> BatchOfOffset | None:
    """Return the batch of a folded range that has read an offset; None where no receipt says so.

    ``batches`` are those of the range's time, in the order of their commits. Each began where the one before ended, so
    few of their receipts are read; only where the range was put together in another order, all are.
    """
    first, last = 0, len(batches)
    while first < last:
        middle = (first + last) // 2
        found = None
        for number in range(middle, last):  # not each has read the partition
            if (found := range_in(batches[number], folded, plan_of)) is not None:
                break
        if found is None or offset < found.start_offset:
            last = middle
        elif offset >= found.end_offset:
            first = number + 1
        else:
            return batch_of_offset(batches[number], found, folded)
    for each in batches:
        found = range_in(each, folded, plan_of)
        if found is not None and found.start_offset <= offset < found.end_offset:
            return batch_of_offset(each, found, folded)
    return None


def range_in(batch: FoldedBatch, folded: FoldedRange, plan_of: PlanOf) -> OffsetRange | None:
    """Return what a batch has read of a folded range's partition, None where that is nothing of the range."""
    plan, span = plan_of(batch), folded.offset_range
    for planned in plan.ranges:
        if planned.topic_partition == span.topic_partition and plan.topic_ids[planned.topic] == folded.topic_id:
            is_part = span.start_offset <= planned.start_offset and planned.end_offset <= span.end_offset
            return planned if is_part else None
    return None


def batch_of_offset(batch: FoldedBatch, planned: OffsetRange, folded: FoldedRange) -> BatchOfOffset:
    return BatchOfOffset(
        batch_id=batch.batch_id,
        kind=BatchKind.LIVE,
        state=BatchState.COMMITTED,
        planned_at=batch.planned_at,
        planned_by=batch.planned_by,
        committed_at=batch.committed_at,
        committed_by=batch.committed_by,
        reason=None,
        offset_range=planned,
        topic_id=folded.topic_id,
        dead_letters=0,
        filtered=0,
        output=batch.output,
    )
