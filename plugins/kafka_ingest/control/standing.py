"""Where all feeds stand, as several lists show it: the open batch and the newest commit of each."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Label, func, select

from kafka_ingest.control.batch_conditions import NOT_COMMITTED
from kafka_ingest.control.schema import batch, feed
from kafka_ingest.model.batch import BatchKind, BatchState


def open_live_batches(connection: Connection) -> dict[UUID, Any]:
    """Return id, state and last change of the open live batch of each feed that has one."""
    query = select(batch.c.feed_id, batch.c.batch_id, batch.c.state, batch.c.updated_at).where(
        # Feed by feed, and on its own: each is one index lookup, as in kafka_ingest.control.feed_snapshot.
        batch.c.batch_id.in_(
            select(batch.c.batch_id).where(batch.c.feed_id.in_(select(feed.c.feed_id)), NOT_COMMITTED)
        ),
        batch.c.kind == BatchKind.LIVE.value,
        batch.c.state.in_([state.value for state in BatchState if state.is_open]),
    )
    return {row.feed_id: row for row in connection.execute(query)}


def last_committed_at(kind: BatchKind) -> Label[datetime | None]:
    """Return the column with the time of a feed's newest commit: per feed, as grouping would read every batch."""
    newest = select(func.max(batch.c.committed_at)).where(
        batch.c.feed_id == feed.c.feed_id, batch.c.kind == kind.value, batch.c.state == BatchState.COMMITTED.value
    )
    return newest.scalar_subquery().label(f"last_{kind.value}")
