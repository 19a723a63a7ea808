"""Give an open batch up: plainly before it is committed, by revoking while it is, never once it is published."""

from uuid import UUID

from kafka_ingest.batch import BatchState
from kafka_ingest.boundaries import ControlTables, Sinks
from kafka_ingest.committing.commit_batch import pinned_attempt
from kafka_ingest.errors import BatchStateError


def abandon(batch_id: UUID, control: ControlTables, sinks: Sinks, *, reason: str, who: str) -> BatchState:
    """→ ABANDONED, and return the state before; no offset moves, so the next plan reads the ranges again.

    A COMMITTING batch is revoked first: its staged files are taken from whoever may be publishing them at this moment, and
    only then the control tables say so. A crash in between leaves it COMMITTING and unpublishable; this finishes it.
    Raises BatchStateError where the batch is published or was ended before.
    """
    batch = control.batch(batch_id)
    if not batch.state.is_open:
        raise BatchStateError(f"batch {batch_id} {batch.end}: there is nothing to give up. Nothing was changed.")
    if batch.state is not BatchState.COMMITTING:
        try:
            control.abandon(batch_id, reason=reason, who=who)
        except BatchStateError:
            if control.batch(batch_id).state is not BatchState.COMMITTING:
                raise
        else:
            return batch.state
        batch = control.batch(batch_id)  # a commit began meanwhile
    attempt = pinned_attempt(batch, control)
    sinks(batch.plan).revoke(attempt.directory, batch_id, rows=batch.rows or 0)
    control.abandon(batch_id, only_from={BatchState.COMMITTING}, reason=reason, who=who)
    return BatchState.COMMITTING
