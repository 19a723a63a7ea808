"""Where all feeds stand, as several lists show it: open batch, newest commit, how many records became no row."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Label, Select, func, literal, select, union_all

from kafka_ingest.control.batch_conditions import NOT_COMMITTED, OF_THE_FEED
from kafka_ingest.control.coverage_rows import HAS_DEAD_LETTERS
from kafka_ingest.control.schema import batch, batch_range, event, feed, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.summaries import NotRows, ReadCounts


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


COMMITTED = batch.c.state == BatchState.COMMITTED.value
GIVEN_UP = "dead_letters_given_up"
"""The event that notes that the dead letters of a batch were given up."""
OF_A_BATCH = ("rows", "filtered", "dead_letters")
COUNTED = ("filtered", "left", *(f"newest_{name}" for name in OF_A_BATCH))


def not_rows(connection: Connection) -> dict[UUID, NotRows]:
    """Return the counts of each feed that has any, by one statement; years of ranges are not read."""
    filtered = func.sum(stored_offset.c.filtered)
    # Summed up first: the ranges with dead letters lead, and not years of batches.
    left = func.sum(batch_range.c.dead_letters - batch_range.c.replayed).label("left")
    of_batch = select(batch_range.c.batch_id, left).where(HAS_DEAD_LETTERS).group_by(batch_range.c.batch_id)
    letters = of_batch.cte("letters")
    given_up = select(event.c.event_id).where(
        event.c.feed_id == batch.c.feed_id, event.c.kind == GIVEN_UP, event.c.batch_id == batch.c.batch_id
    )
    of_feed = (batch.c.feed_id == feed.c.feed_id, batch.c.kind == BatchKind.LIVE.value, COMMITTED)
    newest_id = select(batch.c.batch_id).where(*of_feed).order_by(batch.c.batch_id.desc()).limit(1).scalar_subquery()
    newest = select(feed.c.feed_id, newest_id.label("batch_id")).subquery()
    parts = (
        counts(stored_offset.c.feed_id, filtered=filtered),
        counts(batch.c.feed_id, left=func.sum(letters.c.left))
        .join(letters, letters.c.batch_id == batch.c.batch_id)
        .where(OF_THE_FEED, COMMITTED, ~given_up.exists()),
        counts(newest.c.feed_id, **{f"newest_{name}": func.sum(batch_range.c[name]) for name in OF_A_BATCH}).join(
            batch_range, batch_range.c.batch_id == newest.c.batch_id
        ),
    )
    each = union_all(*parts).subquery()
    query = select(each.c.feed_id, *(func.sum(each.c[name]) for name in COUNTED)).group_by(each.c.feed_id)
    return {
        feed_id: NotRows(int(filtered), int(left), ReadCounts(*map(int, newest)))
        for feed_id, filtered, left, *newest in connection.execute(query)
    }


def counts(feed_id: ColumnElement[UUID], **sums: ColumnElement[int]) -> Select[Any]:
    """Return a query for some of what is counted of each feed; the rest is 0."""
    columns: list[Any] = [func.coalesce(sums.get(name, literal(0)), 0).label(name) for name in COUNTED]
    return select(feed_id, *columns).group_by(feed_id)
