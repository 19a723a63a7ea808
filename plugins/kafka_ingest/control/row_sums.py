"""How many rows were published and how many records filtered, per feed and partition.

Commits update it, so that years need not be summed up.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, bindparam, func, or_, select, union_all, update

from kafka_ingest.control.log_cuts import resets
from kafka_ingest.control.offset_statements import each_stored_offset, place_of
from kafka_ingest.control.passed_offsets import same_topic
from kafka_ingest.control.schema import batch, batch_range, feed, folded_range, stored_offset
from kafka_ingest.model.batch import Batch, BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot, StartOver
from kafka_ingest.model.offsets import TopicPartition

OF_THE_OUTPUT = (BatchKind.LIVE.value, BatchKind.BACKFILL.value, BatchKind.REPLAY.value)
"""Kinds of batches whose rows count: not copies, and not replacements, whose rows were counted before."""


SUMS = ("rows", "filtered")
"""The columns of a stored offset that sum up what the ranges of its partition have."""

Sums = tuple[int, int]


def add_to_partitions(connection: Connection, committed: Batch) -> int:
    """Add what a backfill or a replay commits to the sums of its partitions; return how many rows count for the feed.

    A live batch's are added where its stored offsets move, in the same statement.
    """
    plan = committed.plan
    if plan.kind.value not in OF_THE_OUTPUT:
        return 0
    if plan.kind is not BatchKind.LIVE:
        connection.execute(
            update(stored_offset)
            .where(
                stored_offset.c.feed_id == plan.feed_id,
                batch.c.batch_id == plan.batch_id,
                batch_range.c.batch_id == batch.c.batch_id,
                same_topic(connection, plan.feed_id),
            )
            .values({name: stored_offset.c[name] + func.coalesce(batch_range.c[name], 0) for name in SUMS})
        )
    return committed.rows or 0


def rows_kept(connection: Connection, feed_id: UUID, topics: Sequence[StartOver]) -> dict[TopicPartition, Sums]:
    """Return the sums that stay where topics start over: of topics with the same id, or the same records."""
    same = {topic.topic for topic in topics if topic.same_records}
    ids = {row.topic_partition: row.topic_id for topic in topics for row in topic.rows}
    place = (stored_offset.c.topic, stored_offset.c.partition, stored_offset.c.topic_id)
    query = select(*place, *(stored_offset.c[name] for name in SUMS))
    of_topics = (stored_offset.c.feed_id == feed_id, stored_offset.c.topic.in_([topic.topic for topic in topics]))
    has_sums = or_(*(stored_offset.c[name] > 0 for name in SUMS))
    found = {
        TopicPartition(topic, number): (topic_id, (rows, filtered))
        for topic, number, topic_id, rows, filtered in connection.execute(query.where(*of_topics, has_sums))
    }
    return {
        tp: sums for tp, (topic_id, sums) in found.items() if tp in ids and (tp.topic in same or ids[tp] == topic_id)
    }


def write_rows_kept(connection: Connection, feed_id: UUID, kept: Mapping[TopicPartition, Sums]) -> None:
    """Write the sums that stay; the other partitions that start over have committed nothing."""
    if not kept:
        return
    connection.execute(
        each_stored_offset(feed_id).values({name: bindparam(f"kept_{name}") for name in SUMS}),
        [
            place_of(tp) | {f"kept_{name}": value for name, value in zip(SUMS, sums, strict=True)}
            for tp, sums in sorted(kept.items())
        ],
    )


def topics_that_came_back(connection: Connection, known: FeedSnapshot, topics: Sequence[StartOver]) -> list[str]:
    """Return which topics start over with an id that they had earlier: only for those are batches summed up again."""
    before = {
        (entry["topic"], entry["topic_id"])
        for reset in resets(connection, known.feed_id)
        for entry in reset.detail["removed"]
    }
    now = {(tp.topic, row.topic_id) for tp, row in known.stored.items()}
    return [topic.topic for topic in topics if (topic.topic, topic.topic_id) in before - now]


def count_again(connection: Connection, feed_id: UUID) -> None:
    """Count what is committed, batch by batch: after an operator's step wrote batches. Years of them take minutes."""
    total = select(func.coalesce(func.sum(batch.c["rows"]), 0)).where(*committed_of(feed_id)).scalar_subquery()
    connection.execute(update(feed).where(feed.c.feed_id == feed_id).values(rows_committed=total))
    count_partitions(connection, feed_id)


def committed_of(feed_id: UUID) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a batch gave rows to its feed's output."""
    return (
        batch.c.feed_id == feed_id,
        batch.c.kind.in_(OF_THE_OUTPUT),
        batch.c.state == BatchState.COMMITTED.value,
    )


def count_partitions(connection: Connection, feed_id: UUID, topics: Sequence[str] | None = None) -> None:
    """Count what is committed of each partition, of some topics or all."""
    of_topics = (
        stored_offset.c.feed_id == feed_id,
        *([stored_offset.c.topic.in_(topics)] if topics is not None else []),
    )
    one_by_one = (
        select(*(batch_range.c[name] for name in ("topic", "partition", *SUMS)))
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .join(stored_offset, same_topic(connection, feed_id))
        .where(*committed_of(feed_id), *of_topics)
    )
    folded = (
        select(*(folded_range.c[name] for name in ("topic", "partition", *SUMS)))
        .join(stored_offset, same_topic(connection, feed_id, folded_range))
        .where(folded_range.c.feed_id == feed_id, *of_topics)
    )
    ranges = union_all(one_by_one, folded).subquery()
    place = (ranges.c.topic, ranges.c.partition)
    sums = (func.coalesce(func.sum(ranges.c[name]), 0).label(name) for name in SUMS)
    counted = select(*place, *sums).group_by(*place).cte("counted")
    connection.execute(update(stored_offset).where(*of_topics).values(dict.fromkeys(SUMS, 0)))
    connection.execute(
        update(stored_offset)
        .where(
            stored_offset.c.feed_id == feed_id,
            stored_offset.c.topic == counted.c.topic,
            stored_offset.c.partition == counted.c.partition,
        )
        .values({name: counted.c[name] for name in SUMS})
    )
