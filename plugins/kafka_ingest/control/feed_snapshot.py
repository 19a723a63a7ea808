"""A feed's control rows as of one instant."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, String, bindparam, select

from kafka_ingest.control.batch_conditions import NOT_COMMITTED
from kafka_ingest.control.rows import batch_of, behind_losses, gaps_of, holds_of, newest_published, stored_offsets
from kafka_ingest.control.schema import batch, feed, gap
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import RECENT_BATCHES, FeedSnapshot
from kafka_ingest.model.documents import read_row

# Put together once: a feed's rows are asked for before and after nearly every step.
OPEN_BATCH = select(batch, bindparam("name", type_=String()).label("feed_name")).where(
    # On its own: with a kind or state SQLite may use another index, or none, once ANALYZE has counted years of one
    # feed.
    batch.c.batch_id.in_(select(batch.c.batch_id).where(batch.c.feed_id == bindparam("feed_id"), NOT_COMMITTED)),
    batch.c.kind == "live",
    batch.c.state.in_([state.value for state in BatchState if state.is_open]),
)
NEWEST = select(batch.c.batch_id).where(batch.c.feed_id == feed.c.feed_id).order_by(batch.c.batch_id.desc()).limit(1)
FEED = select(
    feed,
    NEWEST.scalar_subquery().label("newest_batch"),
    NEWEST.offset(RECENT_BATCHES - 1).scalar_subquery().label("recent_batch"),
)
FEED_OF_NAME = FEED.where(feed.c.name == bindparam("name"))
FEED_OF_ID = FEED.where(feed.c.feed_id == bindparam("of_feed"))
NOT_APPLIED = gap.c.applied_at.is_(None)


def snapshot(connection: Connection, query: Select[Any], which: Mapping[str, object]) -> FeedSnapshot | None:
    """Return a feed's control rows; ``query`` finds its row, by these parameters."""
    row = connection.execute(query, which).mappings().one_or_none()
    if row is None:
        return None
    open_row = connection.execute(OPEN_BATCH, {"feed_id": row["feed_id"], "name": row["name"]}).mappings().one_or_none()
    published = newest_published(connection, row["feed_id"])
    return read_row(
        FeedSnapshot,
        row,
        topics=tuple(row["topics"]),
        stored=stored_offsets(connection, row["feed_id"]),
        open_batch=batch_of(open_row) if open_row is not None else None,
        gaps_ahead=gaps_of(connection, row["feed_id"], NOT_APPLIED),
        behind_losses=behind_losses(connection, row["feed_id"]),
        holds=holds_of(connection, row["feed_id"]),
        published_to=published.output if published is not None else None,
    )
