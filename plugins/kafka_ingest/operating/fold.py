"""Old batches' ranges become sums in the control tables; their receipts beside the output keep each batch's own.

Each transaction takes a few batches whole, under the feed's lock, so a run waits for none for long, and whatever ends the
process in between leaves nothing half done: the next call continues. Of two at once each takes what the other has left.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.control_rows import FoldCut, Folded
from kafka_ingest.ports.control import FoldingTables

LEAST_RETENTION = timedelta(days=7)
"""What runs, retries and whoever looks after them still ask about is younger."""


def cut_before(before: datetime, now: datetime) -> FoldCut:
    """Return what may be folded; raises WrongUseError on a time that is too near."""
    if before > now - LEAST_RETENTION:
        raise WrongUseError(
            f"expected a time {LEAST_RETENTION.days} days ago or earlier, found {before.isoformat()}: of younger batches the "
            "control tables keep every range. Nothing was changed."
        )
    return FoldCut(before)


def fold(feed_id: UUID, cut: FoldCut, control: FoldingTables, *, actor: str) -> Iterator[Folded]:
    """Fold all that is old, and yield what each transaction has folded; the journal says so at the end."""
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
        control.record_event(feed_id, "folded", actor=actor, batch_id=None, detail=detail)
