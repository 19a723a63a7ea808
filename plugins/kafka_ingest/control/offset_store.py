"""Stored offsets: their sums of rows, and the steps by which an operator moves them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, false, or_, select, update

from kafka_ingest.control.batch_statements import abandon_batch
from kafka_ingest.control.database import Store, reads, transaction
from kafka_ingest.control.feed_statements import append_event, require_revision, touch_feed
from kafka_ingest.control.offset_statements import (
    apply_jumps,
    each_stored_offset,
    insert_gaps,
    insert_seeds,
    place_of,
    row_detail,
    with_commas,
)
from kafka_ingest.control.passed_offsets import starts_since
from kafka_ingest.control.row_sums import count_partitions, rows_kept, topics_that_came_back, write_rows_kept
from kafka_ingest.control.rows import batch_row, gaps_of, stored_offsets
from kafka_ingest.control.schema import batch, gap, hold, stored_offset
from kafka_ingest.errors import BatchStateError, OffsetsMovedError
from kafka_ingest.model.batch import OPEN_STATES, BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot, ResetMove, StartOver
from kafka_ingest.model.gap import ended_gaps
from kafka_ingest.model.hold import DECIDED_BY_TOPIC
from kafka_ingest.model.offsets import StoredOffset, TopicPartition, listing


def require_none_open(connection: Connection, feed: FeedSnapshot) -> None:
    """Raise BatchStateError where an open batch was planned on the stored offsets; copies do not depend on them."""
    query = select(batch.c.batch_id, batch.c.kind, batch.c.state).where(
        batch.c.feed_id == feed.feed_id,
        batch.c.kind != BatchKind.COPY.value,
        batch.c.state.in_([state.value for state in OPEN_STATES]),
    )
    found = connection.execute(query.order_by(batch.c.batch_id).limit(1)).one_or_none()
    if found is not None:
        raise BatchStateError(
            f"feed {feed.name}: {found.kind} batch {found.batch_id} is {found.state}: expected no open batch where "
            "stored offsets are reset. Finish it or abandon it, then reset. Nothing was changed."
        )


def reset_rows(feed: FeedSnapshot, moves: Sequence[ResetMove]) -> list[StoredOffset]:
    """Return the rows after the moves; raises OffsetsMovedError where a move does not begin at the stored offset."""
    elsewhere = [
        f"{move.topic_partition}: expected {move.from_offset:,}, found {with_commas(row.next_offset if row else None)}"
        for move in moves
        for row in [feed.stored.get(move.topic_partition)]
        if row is None or row.next_offset != move.from_offset
    ]
    if elsewhere:
        raise OffsetsMovedError(f"stored offsets are not where a reset begins: {listing(elsewhere)}. None was moved.")
    return [
        replace(
            row,
            first_offset=min(row.first_offset or 0, move.to_offset),
            next_offset=move.to_offset,
            batch_id=None,
            # The log reached the old offset; how far beyond is unknown.
            leader_epoch=row.leader_epoch if move.to_offset <= move.from_offset else None,
        )
        for move in moves
        for row in [feed.stored[move.topic_partition]]
    ]


def write_rows(connection: Connection, feed_id: UUID, rows: Sequence[StoredOffset], moves: Sequence[ResetMove]) -> None:
    """Write the rows; those that pass gaps stay, because the gaps move them."""
    connection.execute(
        each_stored_offset(feed_id).values(
            first_offset=bindparam("to_first"),
            next_offset=bindparam("to_next"),
            batch_id=None,
            leader_epoch=bindparam("to_epoch"),
            updated_at=datetime.now(UTC),
        ),
        [
            {
                **place_of(row.topic_partition),
                "to_first": row.first_offset,
                "to_epoch": row.leader_epoch,
                "to_next": row.next_offset if move.jump is None else move.from_offset,
            }
            for row, move in zip(rows, moves, strict=True)
        ],
    )


def end_gaps(connection: Connection, feed_id: UUID, was: Sequence[StoredOffset], now: Sequence[StoredOffset]) -> None:
    """End the open gaps above stored offsets that went back in the same topic: what they hold is read now."""
    open_gaps = gaps_of(connection, feed_id, gap.c.applied_at.is_not(None), gap.c.closed_by_batch.is_(None))
    ended = ended_gaps(open_gaps, was, now)
    if ended:
        connection.execute(delete(gap).where(gap.c.gap_id == bindparam("ended")), [{"ended": each} for each in ended])
        insert_gaps(connection, feed_id, [left for left in ended.values() if left is not None])


def reset_detail(
    feed: FeedSnapshot, was: Sequence[StoredOffset], now: Sequence[StoredOffset], reason: str
) -> dict[str, Any]:
    """Return what the journal keeps of a reset: as of topics that start over, but the records are the same."""
    return {
        "reason": reason,
        "cluster_id": {"was": feed.cluster_id, "is": feed.cluster_id},
        "same_records": sorted({row.topic_partition.topic for row in now}),
        "untouched": [],
        "removed": [row_detail(row) for row in was],
        "partitions": [row_detail(row) for row in now],
    }


class OffsetStore(Store):
    """Stored offsets, as a commit left them and as an operator resets them."""

    stored_offsets = reads(stored_offsets)
    starts_since = reads(starts_since)

    def rows_by_partition(self, feed_id: UUID) -> dict[TopicPartition, int]:
        query = select(stored_offset.c.topic, stored_offset.c.partition, stored_offset.c["rows"])
        with self.reading() as connection:
            found = connection.execute(query.where(stored_offset.c.feed_id == feed_id, stored_offset.c["rows"] > 0))
            return {TopicPartition(topic, number): rows for topic, number, rows in found}

    def start_over(
        self,
        feed: FeedSnapshot,
        cluster_id: str,
        topics: Sequence[StartOver],
        *,
        reason: str,
        actor: str,
        abandoned: UUID | None = None,
    ) -> None:
        names = [topic.topic for topic in topics]
        rows = [row for topic in topics for row in topic.rows]
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id, cluster_id=cluster_id, **topics_known(feed, cluster_id))
            if abandoned is not None:
                row = batch_row(connection, abandoned, for_update=True)
                abandon_batch(connection, row, reason=reason, actor=actor, only_from={BatchState.PLANNED})
            old = [row for row in feed.stored.values() if row.topic_partition.topic in names]
            came_back = topics_that_came_back(connection, feed, topics)
            kept = rows_kept(connection, feed.feed_id, topics)
            connection.execute(
                delete(stored_offset).where(stored_offset.c.feed_id == feed.feed_id, stored_offset.c.topic.in_(names))
            )
            insert_seeds(connection, feed.feed_id, rows)
            write_rows_kept(connection, feed.feed_id, kept)
            end_gaps(connection, feed.feed_id, old, rows)
            keep_gaps(connection, feed, topics)
            end_holds(connection, feed, topics)
            detail = {
                "reason": reason,
                "cluster_id": {"was": feed.cluster_id, "is": cluster_id},
                "same_records": [topic.topic for topic in topics if topic.same_records],
                "untouched": [str(tp) for topic in topics for tp in topic.untouched],
                "removed": [row_detail(row) for row in old],
                "partitions": [row_detail(row) for row in rows],
            }
            append_event(connection, feed.feed_id, "reset", actor, None, detail)
            if came_back:
                count_partitions(connection, feed.feed_id, came_back)

    def reset_offsets(self, feed: FeedSnapshot, moves: Sequence[ResetMove], *, reason: str, actor: str) -> None:
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            require_none_open(connection, feed)
            touch_feed(connection, feed.feed_id)
            now = reset_rows(feed, moves)
            was = [feed.stored[move.topic_partition] for move in moves]
            write_rows(connection, feed.feed_id, now, moves)
            end_gaps(connection, feed.feed_id, was, now)
            # The gaps of what is skipped follow it in the journal: a replay finds the rows moved already.
            append_event(connection, feed.feed_id, "reset", actor, None, reset_detail(feed, was, now, reason))
            apply_jumps(connection, feed.feed_id, [move.jump for move in moves if move.jump is not None], actor=actor)


def topics_known(feed: FeedSnapshot, cluster_id: str) -> dict[str, object]:
    """Return the feed's topics for the next plan: on another cluster none counts as created since the last plan."""
    return {} if cluster_id == feed.cluster_id else {"topics": [], "topic_pattern": None}


def keep_gaps(connection: Connection, feed: FeedSnapshot, topics: Sequence[StartOver]) -> None:
    """Carry gaps over where the records are the same; elsewhere gaps ahead are meaningless and end."""
    for topic in topics:
        of_topic = [gap.c.feed_id == feed.feed_id, gap.c.topic == topic.topic]
        if topic.same_records:
            # Those of a topic that had the name before it are of other records.
            ids = {row.topic_id for tp, row in feed.stored.items() if tp.topic == topic.topic}
            same = or_(false(), *(gap.c.topic_id.is_not_distinct_from(topic_id) for topic_id in ids))
            connection.execute(update(gap).where(*of_topic, same).values(topic_id=topic.topic_id))
        else:
            stay = [tp.partition for tp in topic.untouched]
            connection.execute(delete(gap).where(*of_topic, gap.c.applied_at.is_(None), gap.c.partition.not_in(stay)))


def end_holds(connection: Connection, feed: FeedSnapshot, topics: Sequence[StartOver]) -> None:
    """End the holds that were decided on, and those on offsets that mean other records now."""
    for topic in topics:
        of_topic = [hold.c.feed_id == feed.feed_id, hold.c.topic == topic.topic]
        stay = [tp.partition for tp in topic.untouched]
        is_decided = hold.c.cause.in_([cause.value for cause in DECIDED_BY_TOPIC])
        means_others = or_(hold.c.partition.is_(None), hold.c.partition.not_in(stay))
        connection.execute(
            delete(hold).where(*of_topic, is_decided if topic.same_records else is_decided | means_others)
        )
