"""The control rows of feeds as of one instant: the number of statements does not grow with that of feeds."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Label,
    RowMapping,
    Select,
    bindparam,
    func,
    literal,
    select,
    union_all,
)

from kafka_ingest.control.coverage_rows import HAS_DEAD_LETTERS
from kafka_ingest.control.rows import (
    BEHIND_LOSSES,
    NOT_COMMITTED,
    OF_FEEDS,
    OF_STORED_OFFSETS,
    OF_THE_FEED,
    PUBLISHED_TO,
    batch_of,
    output_of,
)
from kafka_ingest.control.schema import batch, batch_range, event, feed, gap, hold, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import RECENT_BATCHES, FeedSnapshot
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.offsets import StoredOffset, TopicPartition
from kafka_ingest.model.summaries import NotRows, ReadCounts

Noun = TypeVar("Noun")


def are_open(feed_ids: Select[Any] | BindParameter[Any]) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that batches are the open live ones of feeds: feed by feed, each is one index lookup."""
    return (
        # On its own: with a kind or state SQLite may use another index, or none, once ANALYZE has counted years of one
        # feed.
        batch.c.batch_id.in_(select(batch.c.batch_id).where(batch.c.feed_id.in_(feed_ids), NOT_COMMITTED)),
        batch.c.kind == BatchKind.LIVE.value,
        batch.c.state.in_([state.value for state in BatchState if state.is_open]),
    )


# Put together once: a feed's rows are asked for before and after nearly every step.
OPEN_BATCHES = select(batch).where(*are_open(OF_FEEDS))
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
ALL_STORED = select(stored_offset.c.feed_id, *OF_STORED_OFFSETS)
STORED = ALL_STORED.where(stored_offset.c.feed_id.in_(OF_FEEDS))
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
    open_batches, stored = (
        of_feeds(OPEN_BATCHES, dict),
        stored_of(connection, STORED, {"feed_ids": [row["feed_id"] for row in rows]}),
    )
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


def stored_of(
    connection: Connection, query: Select[Any], which: Mapping[str, object]
) -> dict[UUID, dict[TopicPartition, StoredOffset]]:
    """Return the stored offsets of feeds, by partition: without names, as a feed may have 10,000."""
    found: dict[UUID, dict[TopicPartition, StoredOffset]] = {}
    rows = sorted(connection.execute(query, which), key=lambda row: (row.topic, row.partition))
    for feed_id, topic, number, *values in rows:
        tp = TopicPartition(topic, number)
        found.setdefault(feed_id, {})[tp] = StoredOffset(tp, *values)
    return found


def place_of_hold(hold: Hold) -> tuple[str, int, str]:
    """Return what holds are sorted by; not by the database: databases differ in the order of names and of nulls."""
    return hold.topic, -1 if hold.partition is None else hold.partition, hold.cause


def open_live_batches(connection: Connection) -> dict[UUID, Any]:
    """Return id, state and last change of the open live batch of each feed that has one."""
    query = select(batch.c.feed_id, batch.c.batch_id, batch.c.state, batch.c.updated_at)
    return {row.feed_id: row for row in connection.execute(query.where(*are_open(select(feed.c.feed_id))))}


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
