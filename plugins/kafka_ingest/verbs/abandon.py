"""``abandon``: give an open batch up."""

from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.documents import range_document
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.offsets import listing
from kafka_ingest.operating.abandon import abandon as abandon_batch
from kafka_ingest.operating.abandon import abandonable
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.verbs.decided import Decided


def abandon(
    batch_id: UUID, control: ControlTables, sinks: Sinks, decided: Decided | None, *, output_is_lost: bool
) -> Answer:
    """Abandon a batch, or show what that comes to."""
    if decided is None:
        return would_abandon(batch_id, control, sinks, output_is_lost=output_is_lost)
    was = abandon_batch(
        batch_id, control, sinks, reason=decided.reason, actor=decided.actor, output_is_lost=output_is_lost
    )
    files = "its staged files were revoked" if was is BatchState.COMMITTING else "its files stay where they are"
    return Answer(
        {
            "batch_id": str(batch_id),
            "was": was.value,
            "state": BatchState.ABANDONED.value,
            "executed": True,
        },
        [Line(f"batch {batch_id} is abandoned; {files}, and no offset moved")],
    )


def would_abandon(batch_id: UUID, control: ControlTables, sinks: Sinks, *, output_is_lost: bool) -> Answer:
    """Show what abandoning a batch comes to."""
    batch, may_be_published = abandonable(batch_id, control, sinks, output_is_lost=output_is_lost)
    if may_be_published:
        files = "its commit has begun to publish it: refused if readers see it, else its staged files would be revoked"
    elif batch.state is BatchState.COMMITTING:
        files = "its staged files would be revoked"
    else:
        files = "its files would stay where they are"
    kind, ranges = batch.plan.kind, batch.plan.ranges
    return Answer(
        {
            "batch_id": str(batch_id),
            "was": batch.state.value,
            "state": batch.state.value,
            "feed": batch.feed_name,
            "kind": kind.value,
            "ranges": [range_document(each) for each in ranges],
            "may_be_published": may_be_published,
            "executed": False,
        },
        [
            Line(f"would abandon {kind} batch {batch_id} of feed {batch.feed_name}, which is {batch.state}; {files}"),
            Line(f"no offset would move: {listing(ranges)} can be planned again"),
        ],
        only_shown=True,
    )
