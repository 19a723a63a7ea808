"""Give an open batch up: plainly before it is committed, by revoking while it is, never once it is published."""

from uuid import UUID

from kafka_ingest.batches.used_output import check_output_there
from kafka_ingest.committing.commit_batch import pinned_attempt
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sinks


def abandonable(
    batch_id: UUID, control: ControlTables, sinks: Sinks, *, output_is_lost: bool = False
) -> tuple[Batch, bool]:
    """Return a batch that may be abandoned, and whether it may be published already; nothing is written.

    A receipt is kept before its files become visible, so only revoking can find out which came first. Raises
    BatchStateError where the batch has ended or readers see its rows, OutputUnavailableError where its output is not
    available.
    """
    batch = control.batch(batch_id)
    if not batch.state.is_open:
        raise BatchStateError(ended(batch))
    if batch.state is not BatchState.COMMITTING or output_is_lost:
        return batch, False
    check_output_there(batch.plan.feed_id, batch.plan.output, control, sinks)
    sink = sinks(batch.plan.output)
    if str(batch_id) not in sink.publisher.known_batches(since=batch_id):
        return batch, False
    if sink.inspector is not None and sink.inspector.look_at(batch_id).counts:
        raise BatchStateError(
            f"batch {batch_id} is published already, so it cannot be abandoned any more: it only rolls forward. Run "
            "the feed, or its commit task, again. Nothing was changed."
        )
    return batch, True


def ended(batch: Batch) -> str:
    """Return why there is nothing to abandon."""
    return f"batch {batch.batch_id} {batch.end}: there is nothing to abandon. Nothing was changed."


def abandon(
    batch_id: UUID, control: ControlTables, sinks: Sinks, *, reason: str, actor: str, output_is_lost: bool = False
) -> BatchState:
    """→ ABANDONED, and return the former state; no offset moves, so the next plan reads the ranges again.

    A COMMITTING batch is revoked first: its staged files are taken from a task that may be publishing them, and only
    then the control tables change. A crash in between leaves it COMMITTING and unpublishable; running this again
    finishes it. Raises BatchStateError where the batch is published or has ended, OutputUnavailableError where its
    output is not available: ``output_is_lost`` means that it never will be again.
    """
    batch = control.batch(batch_id)
    was = batch.state
    try:
        if was is BatchState.COMMITTING:
            revoke(batch, control, sinks, output_is_lost=output_is_lost)
            control.abandon(batch_id, only_from={BatchState.COMMITTING}, reason=reason, actor=actor)
        else:
            control.abandon(batch_id, reason=reason, actor=actor)
    except BatchStateError as error:
        found = control.batch(batch_id)
        if not found.state.is_open:
            raise BatchStateError(ended(found)) from error
        if found.state is was or found.state is not BatchState.COMMITTING:
            raise
        # A commit began in the meantime.
        return abandon(batch_id, control, sinks, reason=reason, actor=actor, output_is_lost=output_is_lost)
    return was


def revoke(batch: Batch, control: ControlTables, sinks: Sinks, *, output_is_lost: bool) -> None:
    """Take the staged files of a COMMITTING batch from every publisher."""
    sink = sinks(batch.plan.output)
    if output_is_lost:
        sink.publisher.prepare()
    else:
        check_output_there(batch.plan.feed_id, batch.plan.output, control, sinks)
    sink.publisher.revoke(pinned_attempt(batch, control).directory, batch.batch_id, rows=batch.rows or 0)
