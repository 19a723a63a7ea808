"""Conditions on batches that several questions share."""

from uuid import UUID

from sqlalchemy import ColumnElement, literal, select

from kafka_ingest.control.schema import batch
from kafka_ingest.model.batch import OPEN_STATES, BatchKind, BatchState

# Written out, not bound: SQLite takes a partial index only where it sees that its condition holds.
NOT_COMMITTED = batch.c.state != literal(BatchState.COMMITTED.value, literal_execute=True)
NOT_LIVE = batch.c.kind != literal(BatchKind.LIVE.value, literal_execute=True)


def not_live_of(feed_id: UUID) -> ColumnElement[bool]:
    """Return the condition that a batch is one of a feed's that are not live.

    On its own in a statement: beside other conditions SQLite reads all of years of batches, once ANALYZE has counted
    those of one feed.
    """
    return batch.c.batch_id.in_(select(batch.c.batch_id).where(batch.c.feed_id == feed_id, NOT_LIVE))


COUNTS = batch.c.state.in_(sorted(state.value for state in {*OPEN_STATES, BatchState.COMMITTED}))
"""A batch that is abandoned holds nothing."""

OF_THE_FEED = batch.c.kind != BatchKind.COPY.value
"""Ranges in another output do not count for the feed's own."""

IN_LEDGER = batch.c.kind.in_((BatchKind.LIVE.value, BatchKind.BACKFILL.value))
"""The batches that have committed offsets. One that replaces rows reads offsets that others have committed."""
