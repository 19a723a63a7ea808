"""How many records of each feed became no row: what was filtered, and the dead letters that are left."""

from uuid import UUID

from sqlalchemy import Connection, func, select

from kafka_ingest.control.batch_conditions import OF_THE_FEED
from kafka_ingest.control.coverage_rows import HAS_DEAD_LETTERS
from kafka_ingest.control.schema import batch, batch_range, event, feed, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.summaries import NotRows, ReadCounts

COMMITTED = batch.c.state == BatchState.COMMITTED.value
GIVEN_UP = "dead_letters_given_up"
"""The event that notes that the dead letters of a batch were given up."""


def not_rows(connection: Connection) -> dict[UUID, NotRows]:
    """Return the counts of each feed that has any; years of ranges are not read."""
    filtered = select(stored_offset.c.feed_id, func.sum(stored_offset.c.filtered)).group_by(stored_offset.c.feed_id)
    given_up = select(event.c.event_id).where(
        event.c.feed_id == batch.c.feed_id, event.c.kind == GIVEN_UP, event.c.batch_id == batch.c.batch_id
    )
    left = (
        select(batch.c.feed_id, func.sum(batch_range.c.dead_letters - batch_range.c.replayed))
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .where(HAS_DEAD_LETTERS, OF_THE_FEED, COMMITTED, ~given_up.exists())
        .group_by(batch.c.feed_id)
    )
    of_feed = (batch.c.feed_id == feed.c.feed_id, batch.c.kind == BatchKind.LIVE.value, COMMITTED)
    newest_id = select(batch.c.batch_id).where(*of_feed).order_by(batch.c.batch_id.desc()).limit(1).scalar_subquery()
    newest_ids = select(feed.c.feed_id, newest_id.label("batch_id")).subquery()
    sums = (func.sum(batch_range.c[name]) for name in ("rows", "filtered", "dead_letters"))
    newest = (
        select(newest_ids.c.feed_id, *sums)
        .join(batch_range, batch_range.c.batch_id == newest_ids.c.batch_id)
        .group_by(newest_ids.c.feed_id)
    )
    of_filtered, of_left = (
        {feed_id: int(total or 0) for feed_id, total in connection.execute(query)} for query in (filtered, left)
    )
    of_newest = {
        feed_id: ReadCounts(*(int(count or 0) for count in counts)) for feed_id, *counts in connection.execute(newest)
    }
    return {
        feed_id: NotRows(of_filtered.get(feed_id, 0), of_left.get(feed_id, 0), of_newest.get(feed_id, ReadCounts()))
        for feed_id in of_filtered.keys() | of_left.keys() | of_newest.keys()
    }
