"""A feed's control rows as of one instant."""

from typing import Any

from sqlalchemy import Connection, Select, literal, select

from kafka_ingest.control.batch_conditions import NOT_COMMITTED
from kafka_ingest.control.rows import batch_of, behind_losses, gaps_of, holds_of, newest_published, stored_offsets
from kafka_ingest.control.schema import batch, gap
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import RECENT_BATCHES, FeedSnapshot


def snapshot(connection: Connection, query: Select[Any]) -> FeedSnapshot | None:
    """Return a feed's control rows; ``query`` finds its row."""
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        return None
    # On its own: with a kind or state SQLite may use another index, or none, once ANALYZE has counted years of one
    # feed.
    not_committed = select(batch.c.batch_id).where(batch.c.feed_id == row["feed_id"], NOT_COMMITTED)
    open_batch = connection.execute(
        select(batch, literal(row["name"]).label("feed_name")).where(
            batch.c.batch_id.in_(not_committed),
            batch.c.kind == "live",
            batch.c.state.in_([state.value for state in BatchState if state.is_open]),
        )
    )
    ids = select(batch.c.batch_id).where(batch.c.feed_id == row["feed_id"]).order_by(batch.c.batch_id.desc()).limit(1)
    published = newest_published(connection, row["feed_id"])
    open_row = open_batch.mappings().one_or_none()
    return FeedSnapshot(
        feed_id=row["feed_id"],
        name=row["name"],
        cluster_id=row["cluster_id"],
        revision=row["revision"],
        topics=tuple(row["topics"]),
        stored=stored_offsets(connection, row["feed_id"]),
        open_batch=batch_of(open_row) if open_row is not None else None,
        topic_pattern=row["topic_pattern"],
        gaps_ahead=gaps_of(connection, row["feed_id"], gap.c.applied_at.is_(None)),
        behind_losses=behind_losses(connection, row["feed_id"]),
        holds=holds_of(connection, row["feed_id"]),
        waiting_since=row["waiting_since"],
        newest_batch=connection.execute(ids).scalar(),
        published_to=published.output if published is not None else None,
        planned_at=row["planned_at"],
        recent_batch=connection.execute(ids.offset(RECENT_BATCHES - 1)).scalar(),
    )
