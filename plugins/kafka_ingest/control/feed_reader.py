"""What is stored of a feed and its batches: every method one read transaction, so that its answer is of one instant."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Select, and_, exists, func, literal, or_, select

from kafka_ingest.control.database import check_version, transaction
from kafka_ingest.control.folded_rows import folded_ranges, kept_of
from kafka_ingest.control.removed_output import kept
from kafka_ingest.control.rows import (
    attempt_of,
    batch_of,
    batch_row,
    behind_losses,
    event_of,
    gaps_of,
    holds_of,
    newest_published,
    stored_offsets,
)
from kafka_ingest.control.schema import LEDGER_KINDS, attempt, batch, batch_range, event, feed, folded_range, gap
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import OPEN_STATES, Attempt, AttemptState, Batch, BatchKind, BatchState
from kafka_ingest.model.control_rows import RECENT_BATCHES, RESTORED_BY, FeedSnapshot, PublishedBatch
from kafka_ingest.model.event import Event
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.receipt import RangeCount

BATCHES_OF_SPEED = 20

# Written out, not bound: SQLite takes a partial index only where it sees that its condition holds.
NOT_COMMITTED = batch.c.state != literal(BatchState.COMMITTED.value, literal_execute=True)


def snapshot(connection: Connection, query: Select[Any]) -> FeedSnapshot | None:
    """Return a feed's control rows; ``query`` finds its row."""
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        return None
    open_batch = connection.execute(
        select(batch, literal(row["name"]).label("feed_name")).where(
            batch.c.feed_id == row["feed_id"],
            batch.c.kind == "live",
            NOT_COMMITTED,
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


class SqlFeedReader:
    """Feeds, batches, attempts and the ledger, read only. The schema's version is checked once, at the first use."""

    def __init__(self, engine: Engine) -> None:
        check_version(engine)
        self._engine = engine

    def feed(self, name: str) -> FeedSnapshot | None:
        """Return the feed's control rows as of one instant, None where it was never planned."""
        return self._snapshot(select(feed).where(feed.c.name == name))

    def feed_of_id(self, feed_id: UUID) -> FeedSnapshot | None:
        """Return the same by the feed's own id, whatever it is called now."""
        return self._snapshot(select(feed).where(feed.c.feed_id == feed_id))

    def _snapshot(self, query: Select[Any]) -> FeedSnapshot | None:
        with transaction(self._engine, "read") as connection:
            return snapshot(connection, query)

    def batch(self, batch_id: UUID) -> Batch:
        """Return a batch; raises UnknownBatchError."""
        with transaction(self._engine, "read") as connection:
            return batch_of(batch_row(connection, batch_id))

    def newest_published(self, feed_id: UUID, kind: BatchKind = BatchKind.LIVE) -> PublishedBatch | None:
        """Return the feed's newest batch of a kind that was committed, None where none was."""
        with transaction(self._engine, "read") as connection:
            return newest_published(connection, feed_id, kind)

    def batch_states(self, feed_id: UUID, since: UUID | None = None) -> dict[UUID, BatchState]:
        """Return every batch of a feed with its state.

        ``since`` is a batch: only those from its id on, and older ones that are open, or were given up since it was planned.
        """
        query = select(batch.c.batch_id, batch.c.state).where(batch.c.feed_id == feed_id)
        queries = [query]
        if since is not None:
            planned_at = select(batch.c.planned_at).where(batch.c.batch_id == since).scalar_subquery()
            given_up = (batch.c.state == BatchState.ABANDONED.value, batch.c.updated_at >= planned_at)
            is_open = batch.c.state.in_(sorted(OPEN_STATES))
            # One by one, since each has an index of its own.
            queries = [
                query.where(batch.c.batch_id >= since),
                query.where(NOT_COMMITTED, *given_up),
                query.where(NOT_COMMITTED, is_open),
            ]
        with transaction(self._engine, "read") as connection:
            return {row.batch_id: BatchState(row.state) for each in queries for row in connection.execute(each)}

    def speeds(self, feed_id: UUID) -> list[float]:
        """Return how many offsets a second the committed ones of the feed's twenty newest batches read; newest first."""
        # Of all states and kinds: narrowed before, years of batches would be sorted.
        columns = ("batch_id", "state", "planned_at", "planned_by", "pinned_attempt", "written_at")
        newest = (
            select(*(batch.c[name] for name in columns))
            .where(batch.c.feed_id == feed_id)
            .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
            .limit(BATCHES_OF_SPEED)
            .subquery()
        )
        pinned = and_(attempt.c.batch_id == newest.c.batch_id, attempt.c.attempt == newest.c.pinned_attempt)
        read = func.sum(batch_range.c.end_offset - batch_range.c.start_offset).label("read")
        query = (
            select(newest.c.written_at, newest.c.planned_by, attempt.c.opened_at, attempt.c.opened_by, read)
            .join(attempt, pinned)
            .join(batch_range, batch_range.c.batch_id == newest.c.batch_id)
            .where(newest.c.state == BatchState.COMMITTED.value)
            .group_by(
                newest.c.batch_id,
                newest.c.planned_at,
                newest.c.planned_by,
                newest.c.written_at,
                attempt.c.opened_at,
                attempt.c.opened_by,
            )
            .order_by(newest.c.planned_at.desc(), newest.c.batch_id.desc())
        )
        with transaction(self._engine, "read") as connection:
            timed = [
                (int(row.read), (row.written_at - row.opened_at).total_seconds())
                for row in connection.execute(query)
                if row.written_at is not None
                # Of adopted batches only the attempt, from its receipt, says that they were restored.
                and not any(who.startswith(RESTORED_BY) for who in (row.planned_by, row.opened_by))
            ]
        # The two clocks may be of two machines; and what was adopted from an output has no times of its own.
        return [offsets / seconds for offsets, seconds in timed if seconds > 0]

    def attempts(self, batch_id: UUID) -> list[Attempt]:
        """Return a batch's attempts, in order."""
        with transaction(self._engine, "read") as connection:
            query = select(attempt).where(attempt.c.batch_id == batch_id).order_by(attempt.c.attempt)
            return [attempt_of(row) for row in connection.execute(query).mappings()]

    def ended_attempts(self, feed_id: UUID, *, ended_before: datetime) -> list[Attempt]:
        """Return the attempts that are over since before then: of ended batches, and discarded ones; oldest first.

        Those that were cleaned up before then are left out.
        """
        ended = batch.c.state.in_([BatchState.COMMITTED.value, BatchState.ABANDONED.value])
        query = (
            select(attempt)
            .join(batch, batch.c.batch_id == attempt.c.batch_id)
            .where(
                batch.c.feed_id == feed_id,
                or_(ended, attempt.c.state == AttemptState.DISCARDED.value),
                batch.c.updated_at < ended_before,
            )
        )
        # One that was cleaned up lately is looked at again: its Spark may go on, and have made it anew. Each by its index, and
        # not in order: for that every attempt of years would be read.
        cleaned = (attempt.c.cleaned_at.is_(None), attempt.c.cleaned_at >= ended_before)
        with transaction(self._engine, "read") as connection:
            found = [attempt_of(row) for when in cleaned for row in connection.execute(query.where(when)).mappings()]
        return sorted(found, key=lambda each: (each.batch_id, each.attempt))

    def committed_ranges(self, batch_id: UUID) -> list[OffsetRange]:
        """Return what the feed's output holds of this batch's topics and partitions, where committed batches overlap it."""
        mine, theirs = batch_range.alias("mine"), batch_range.alias("theirs")
        this, other = batch.alias("this"), batch.alias("other")
        overlaps = and_(
            theirs.c.topic == mine.c.topic,
            theirs.c.partition == mine.c.partition,
            theirs.c.topic_id.is_not_distinct_from(mine.c.topic_id),
            theirs.c.start_offset < mine.c.end_offset,
            theirs.c.end_offset > mine.c.start_offset,
        )
        query = (
            select(theirs)
            .select_from(mine)
            .join(this, this.c.batch_id == mine.c.batch_id)
            .join(theirs, overlaps)
            .join(other, and_(other.c.batch_id == theirs.c.batch_id, other.c.feed_id == this.c.feed_id))
            .where(
                mine.c.batch_id == batch_id,
                other.c.state == BatchState.COMMITTED.value,
                other.c.kind != BatchKind.COPY.value,
            )
        )
        with transaction(self._engine, "read") as connection:
            rows = connection.execute(query).all()
            found = [
                (row.batch_id, OffsetRange(TopicPartition(row.topic, row.partition), row.start_offset, row.end_offset))
                for row in rows
            ]
            of_feed = batch_row(connection, batch_id)["feed_id"]
            # Of each range of the batch: sums of years are as few rows as the feed has partitions.
            touching = and_(
                mine.c.batch_id == batch_id,
                mine.c.topic == folded_range.c.topic,
                mine.c.partition == folded_range.c.partition,
                mine.c.topic_id.is_not_distinct_from(folded_range.c.topic_id),
                folded_range.c.start_offset < mine.c.end_offset,
                folded_range.c.end_offset > mine.c.start_offset,
            )
            folded = folded_ranges(connection, of_feed, exists().where(touching))
            return sorted([*kept(connection, of_feed, found), *kept_of(connection, of_feed, folded, {})])

    def range_counts(self, batch_id: UUID) -> list[RangeCount]:
        """Return what a written batch's receipt says of each range, in the plan's order."""
        with transaction(self._engine, "read") as connection:
            query = (
                select(batch_range)
                .where(batch_range.c.batch_id == batch_id, batch_range.c["rows"].is_not(None))
                .order_by(batch_range.c.topic, batch_range.c.partition)
            )
            counts = [
                RangeCount(
                    offset_range=OffsetRange(
                        TopicPartition(row["topic"], row["partition"]), row["start_offset"], row["end_offset"]
                    ),
                    rows=row["rows"],
                    smallest_offset=row["smallest_offset"],
                    largest_offset=row["largest_offset"],
                )
                for row in connection.execute(query).mappings()
            ]
        return sorted(counts, key=lambda count: count.offset_range)

    def ledger_of_feed(self, feed_id: UUID) -> list[Event]:
        """Return all seeds, gaps and resets of a feed, oldest first."""
        query = (
            select(event).where(event.c.feed_id == feed_id, event.c.kind.in_(LEDGER_KINDS)).order_by(event.c.event_id)
        )
        with transaction(self._engine, "read") as connection:
            return [event_of(row) for row in connection.execute(query).mappings()]

    def ledger(self, batch_id: UUID) -> list[Event]:
        """Return the seeds, gaps and resets between the feed's previous published batch and this COMMITTING one."""
        with transaction(self._engine, "read") as connection:
            row = batch_row(connection, batch_id)
            if row["ledger_upto"] is None:
                raise BatchStateError(
                    f"batch {batch_id} is {row['state']}: only a COMMITTING one has a place in the ledger"
                )
            query = (
                select(event)
                .where(
                    event.c.feed_id == row["feed_id"],
                    event.c.kind.in_(LEDGER_KINDS),
                    event.c.event_id > row["ledger_after"],
                    event.c.event_id <= row["ledger_upto"],
                )
                .order_by(event.c.event_id)
            )
            return [event_of(entry) for entry in connection.execute(query).mappings()]
