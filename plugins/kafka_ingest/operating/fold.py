"""Old batches' ranges become sums in the control tables; their receipts beside the output keep each batch's ranges.

Each transaction folds a few whole batches under the feed's lock, so a run never waits long, and an interruption leaves
no batch half folded: the next call continues. Two calls at once share the work.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.control_rows import FoldCut, Folded
from kafka_ingest.ports.control import FoldingTables

LEAST_RETENTION = timedelta(days=7)
"""Runs, retries and the operators who watch them only ask about younger batches."""


def cut_before(before: datetime, now: datetime) -> FoldCut:
    """Return what may be folded; raises WrongUseError on a time that is too near."""
    if before > now - LEAST_RETENTION:
        raise WrongUseError(
            f"expected a time {LEAST_RETENTION.days} days ago or earlier, found {before.isoformat()}: the control "
            "tables keep every range of younger batches. Nothing was changed."
        )
    return FoldCut(before)


def fold(
    feed_id: UUID, cut: FoldCut, control: FoldingTables, *, actor: str, reason: str | None = None
) -> Iterator[Folded]:
    """Fold everything old enough, and yield what each transaction has folded; finally add a line to the journal."""
    total = Folded()
    while not (folded := control.fold(feed_id, cut)).is_nothing:
        total = Folded(
            total.batches + folded.batches,
            total.ranges + folded.ranges,
            total.attempts + folded.attempts,
            total.events + folded.events,
        )
        yield folded
    if not total.is_nothing:
        detail = {"before": cut.before.astimezone(UTC).isoformat(), "batches": total.batches, "ranges": total.ranges}
        detail |= {"attempts": total.attempts, "events": total.events}
        detail |= {"reason": reason} if reason is not None else {}
        control.record_event(feed_id, "folded", actor=actor, batch_id=None, detail=detail)
