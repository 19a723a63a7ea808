"""The control rows of feeds as of one instant: the number of statements does not grow with that of feeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection, RowMapping, Select, bindparam, select

from kafka_ingest.control.batch_conditions import NOT_COMMITTED
from kafka_ingest.control.output_columns import output_of
from kafka_ingest.control.rows import BEHIND_LOSSES, OF_FEEDS, OF_STORED_OFFSETS, PUBLISHED_TO, batch_of
from kafka_ingest.control.schema import batch, feed, gap, hold, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import RECENT_BATCHES, FeedSnapshot
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.offsets import StoredOffset, TopicPartition

Noun = TypeVar("Noun")

# Put together once: a feed's rows are asked for before and after nearly every step.
OPEN_BATCHES = select(batch).where(
    # On its own: with a kind or state SQLite may use another index, or none, once ANALYZE has counted years of one
    # feed.
    batch.c.batch_id.in_(select(batch.c.batch_id).where(batch.c.feed_id.in_(OF_FEEDS), NOT_COMMITTED)),
    batch.c.kind == BatchKind.LIVE.value,
    batch.c.state.in_([state.value for state in BatchState if state.is_open]),
)
NEWEST = select(batch.c.batch_id).where(batch.c.feed_id == feed.c.feed_id).order_by(batch.c.batch_id.desc()).limit(1)
PUBLISHED = NEWEST.where(batch.c.kind == BatchKind.LIVE.value, batch.c.state == BatchState.COMMITTED.value)
FEED = select(
    feed,
    NEWEST.scalar_subquery().label("newest_batch"),
    NEWEST.offset(RECENT_BATCHES - 1).scalar_subquery().label("recent_batch"),
    PUBLISHED.scalar_subquery().label("published_batch"),
)
FEED_OF_NAME = FEED.where(feed.c.name == bindparam("name", type_=feed.c.name.type))
FEEDS_OF_NAMES = FEED.where(feed.c.name.in_(bindparam("names", type_=feed.c.name.type, expanding=True)))
FEED_OF_ID = FEED.where(feed.c.feed_id == bindparam("of_feed"))
STORED = select(stored_offset.c.feed_id, *OF_STORED_OFFSETS).where(stored_offset.c.feed_id.in_(OF_FEEDS))
GAPS_AHEAD = select(gap).where(gap.c.feed_id.in_(OF_FEEDS), gap.c.applied_at.is_(None))
HOLDS = select(hold).where(hold.c.feed_id.in_(OF_FEEDS))
OUTPUTS = PUBLISHED_TO.where(batch.c.batch_id.in_(bindparam("batch_ids", type_=batch.c.batch_id.type, expanding=True)))


def snapshot(connection: Connection, query: Select[Any], which: Mapping[str, object]) -> FeedSnapshot | None:
    """Return a feed's control rows; ``query`` finds its row, by these parameters."""
    return next(iter(snapshots(connection, query, which)), None)


def snapshots(connection: Connection, query: Select[Any], which: Mapping[str, object]) -> list[FeedSnapshot]:
    """Return the control rows of feeds; ``query`` finds theirs, by these parameters."""
    if not (rows := connection.execute(query, which).mappings().all()):
        return []

    def of_feeds(query: Select[Any], noun_of: Callable[[RowMapping], Noun]) -> dict[UUID, list[Noun]]:
        found: dict[UUID, list[Noun]] = {row["feed_id"]: [] for row in rows}
        for row in connection.execute(query, {"feed_ids": list(found)}).mappings():
            found[row["feed_id"]].append(noun_of(row))
        return found

    losses = of_feeds(BEHIND_LOSSES, lambda row: TopicPartition(row["topic"], row["partition"]))
    gaps, holds = of_feeds(GAPS_AHEAD, lambda row: read_row(Gap, row)), of_feeds(HOLDS, lambda row: read_row(Hold, row))
    open_batches, stored = of_feeds(OPEN_BATCHES, dict), stored_of(connection, [row["feed_id"] for row in rows])
    published = {"batch_ids": [row["published_batch"] for row in rows if row["published_batch"] is not None]}
    outputs = (
        {row["batch_id"]: output_of(row) for row in connection.execute(OUTPUTS, published).mappings()}
        if published["batch_ids"]
        else {}
    )
    return [
        read_row(
            FeedSnapshot,
            row,
            topics=tuple(row["topics"]),
            stored=stored.get(row["feed_id"], {}),
            open_batch=next(
                (batch_of({**each, "feed_name": row["name"]}) for each in open_batches[row["feed_id"]]), None
            ),
            gaps_ahead=sorted(gaps[row["feed_id"]], key=lambda gap: (gap.offset_range, gap.decided_at)),
            behind_losses=frozenset(losses[row["feed_id"]]),
            holds=sorted(holds[row["feed_id"]], key=place_of_hold),
            published_to=outputs.get(row["published_batch"]),
        )
        for row in rows
    ]


def stored_of(connection: Connection, feed_ids: Sequence[UUID]) -> dict[UUID, dict[TopicPartition, StoredOffset]]:
    """Return the stored offsets of feeds, by partition: without names, as a feed may have 10,000."""
    found: dict[UUID, dict[TopicPartition, StoredOffset]] = {}
    rows = sorted(connection.execute(STORED, {"feed_ids": feed_ids}), key=lambda row: (row.topic, row.partition))
    for feed_id, topic, number, *values in rows:
        tp = TopicPartition(topic, number)
        found.setdefault(feed_id, {})[tp] = StoredOffset(tp, *values)
    return found


def place_of_hold(hold: Hold) -> tuple[str, int, str]:
    """Return what holds are sorted by; not by the database: databases differ in the order of names and of nulls."""
    return hold.topic, -1 if hold.partition is None else hold.partition, hold.cause
