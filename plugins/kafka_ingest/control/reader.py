"""What is stored: every method one read transaction, so that its answer is of one instant."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, Select, and_, func, or_, select

from kafka_ingest.batch import OPEN_STATES, Attempt, AttemptState, Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.boundaries import (
    BackfillRange,
    CommittedBatch,
    CoverageRows,
    Event,
    FeedSnapshot,
    Output,
    PublishedBatch,
)
from kafka_ingest.control.coverage_rows import NOT_LIVE, committed_batches_after, copied_ranges, coverage_rows
from kafka_ingest.control.database import check_version, transaction
from kafka_ingest.control.history_reader import OffsetRows, journal, offset_rows
from kafka_ingest.control.passed_offsets import committed_ahead, starts_since
from kafka_ingest.control.rows import (
    BatchRange,
    attempt_of,
    batch_of,
    batch_row,
    event_of,
    gaps_of,
    holds_of,
    is_of_run,
    newest_published,
    ranges_of,
    stored_offsets,
)
from kafka_ingest.control.schema import LEDGER_KINDS, attempt, batch, batch_range, event, feed, gap, stored_offset
from kafka_ingest.errors import BatchStateError
from kafka_ingest.gap import Gap
from kafka_ingest.offsets import OffsetRange, TopicPartition
from kafka_ingest.receipt import RangeCount


def snapshot(connection: Connection, query: Select[Any]) -> FeedSnapshot | None:
    """Return a feed's control rows; ``query`` finds its row."""
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        return None
    open_batch = connection.execute(
        select(batch, feed.c.name.label("feed_name"))
        .join(feed)
        .where(
            batch.c.feed_id == row["feed_id"],
            batch.c.kind == "live",
            batch.c.state.in_([state.value for state in BatchState if state.is_open]),
        )
    )
    newest = select(batch.c.batch_id).where(batch.c.feed_id == row["feed_id"])
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
        holds=holds_of(connection, row["feed_id"]),
        waiting_since=row["waiting_since"],
        newest_batch=connection.execute(newest.order_by(batch.c.batch_id.desc()).limit(1)).scalar(),
        published_to=published.output if published is not None else None,
    )


@dataclass(frozen=True, slots=True)
class FeedSummary:
    """One line of ``kafka-ingest status``."""

    name: str
    cluster_id: str
    partitions: int
    open_batch: UUID | None
    open_batch_state: BatchState | None
    last_committed_at: datetime | None
    rows_committed: int


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One line of ``kafka-ingest batches``."""

    batch_id: UUID
    feed: str
    kind: str
    state: BatchState
    planned_at: datetime
    planned_by: str
    written_at: datetime | None
    committed_at: datetime | None
    committed_by: str | None
    rows: int | None
    size_bytes: int | None
    reason: str | None
    abandoned_by: str | None
    attempt: int | None
    """The one whose receipt counts."""
    output: Path
    ranges: tuple[BatchRange, ...]


class SqlControlReader:
    """The control tables, read only. The schema's version is checked once, at the first use."""

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

    def coverage(self, feed_name: str) -> CoverageRows | None:
        """Return what the control rows say of which offset is where; None where the feed was never planned."""
        with transaction(self._engine, "read") as connection:
            found = snapshot(connection, select(feed).where(feed.c.name == feed_name))
            return coverage_rows(connection, found) if found is not None else None

    def copied_ranges(self, feed_id: UUID, output: Output) -> list[BackfillRange]:
        """Return what the feed's copies into another output hold, or are about to."""
        with transaction(self._engine, "read") as connection:
            return copied_ranges(connection, feed_id, output)

    def backfill_of(self, feed_id: UUID, who: str) -> list[Batch]:
        """Return the backfills and copies that somebody planned, in the order of their ids."""
        return self._batches(batch.c.feed_id == feed_id, NOT_LIVE, batch.c.planned_by == who)

    def open_backfills(self, feed_id: UUID) -> list[Batch]:
        """Return the backfills and copies that are open, in the order of their ids."""
        is_open = batch.c.state.in_(sorted(OPEN_STATES))
        return self._batches(batch.c.feed_id == feed_id, NOT_LIVE, is_open)

    def plans_of_run(self, feed_id: UUID, run_id: str) -> list[BatchPlan]:
        """Return the plans of the batches that a DAG run planned or committed, oldest first."""
        by_run = [
            column.startswith("airflow:") & column.endswith(f"/{run_id}", autoescape=True)
            for column in (batch.c.planned_by, batch.c.committed_by)
        ]
        # LIKE finds more: SQLite's takes capital letters for small ones, and another run's id may end like this one.
        return [
            found.plan
            for found in self._batches(batch.c.feed_id == feed_id, or_(*by_run))
            if is_of_run(found.planned_by, run_id) or is_of_run(found.committed_by, run_id)
        ]

    def _batches(self, *conditions: ColumnElement[bool]) -> list[Batch]:
        query = select(batch, feed.c.name.label("feed_name")).join(feed).where(*conditions).order_by(batch.c.batch_id)
        with transaction(self._engine, "read") as connection:
            return [batch_of(row) for row in connection.execute(query).mappings()]

    def batch(self, batch_id: UUID) -> Batch:
        """Return a batch; raises UnknownBatchError."""
        with transaction(self._engine, "read") as connection:
            return batch_of(batch_row(connection, batch_id))

    def newest_published(self, feed_id: UUID) -> PublishedBatch | None:
        """Return the feed's newest live batch that was committed, None where none was."""
        with transaction(self._engine, "read") as connection:
            return newest_published(connection, feed_id)

    def batch_states(self, feed_id: UUID) -> dict[UUID, BatchState]:
        """Return every batch of a feed with its state."""
        with transaction(self._engine, "read") as connection:
            query = select(batch.c.batch_id, batch.c.state).where(batch.c.feed_id == feed_id)
            return {row.batch_id: BatchState(row.state) for row in connection.execute(query)}

    def gaps(self, feed_id: UUID) -> list[Gap]:
        """Return a feed's gaps, by partition and offset."""
        with transaction(self._engine, "read") as connection:
            return gaps_of(connection, feed_id)

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
                # One that was cleaned up lately is looked at again: its Spark may go on, and have made it anew.
                or_(attempt.c.cleaned_at.is_(None), attempt.c.cleaned_at >= ended_before),
            )
            .order_by(attempt.c.batch_id, attempt.c.attempt)
        )
        with transaction(self._engine, "read") as connection:
            return [attempt_of(row) for row in connection.execute(query).mappings()]

    def starts_since(self, batch_id: UUID) -> dict[TopicPartition, int]:
        """Return where a live batch began in each partition, or the first one after it that read the partition."""
        with transaction(self._engine, "read") as connection:
            return starts_since(connection, batch_id)

    def committed_ahead(self, feed_id: UUID) -> list[OffsetRange]:
        """Return what committed batches hold at or above the stored offsets, sorted; nothing before an operator went back."""
        with transaction(self._engine, "read") as connection:
            return committed_ahead(connection, feed_id)

    def committed_batches(self, feed_id: UUID) -> Iterator[CommittedBatch]:
        """Yield the feed's committed batches with all their ranges, oldest first; copies are not among them."""
        newest: UUID | None = None
        while True:
            # A few at a time, each in a transaction of its own: over years of them somebody else has to write, too.
            with transaction(self._engine, "read") as connection:
                found = committed_batches_after(connection, feed_id, newest)
            if not found:
                return
            yield from found
            newest = found[-1].batch_id

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
            select(theirs.c.topic, theirs.c.partition, theirs.c.start_offset, theirs.c.end_offset)
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
            return sorted(
                OffsetRange(TopicPartition(row.topic, row.partition), row.start_offset, row.end_offset)
                for row in connection.execute(query)
            )

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

    def events(self, feed_id: UUID, kind: str, limit: int = 1) -> list[Event]:
        """Return the feed's newest events of a kind, newest first."""
        with transaction(self._engine, "read") as connection:
            query = (
                select(event)
                .where(event.c.feed_id == feed_id, event.c.kind == kind)
                .order_by(event.c.event_id.desc())
                .limit(limit)
            )
            return [event_of(row) for row in connection.execute(query).mappings()]

    def journal(
        self,
        feed_id: UUID,
        *,
        kinds: Collection[str] = (),
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """Return a feed's events, newest first; of all kinds where none is named."""
        with transaction(self._engine, "read") as connection:
            return journal(connection, feed_id, kinds=kinds, since=since, limit=limit)

    def offset_rows(self, feed_name: str, topic_partition: TopicPartition, offset: int) -> OffsetRows | None:
        """Return what the control rows say of one offset; None where the feed was never planned."""
        with transaction(self._engine, "read") as connection:
            return offset_rows(connection, feed_name, topic_partition, offset)

    def feed_summaries(self) -> list[FeedSummary]:
        """Return a line for each feed that was ever planned, by name."""
        with transaction(self._engine, "read") as connection:
            counts = select(stored_offset.c.feed_id, func.count()).group_by(stored_offset.c.feed_id)
            partitions: dict[UUID, int] = dict(connection.execute(counts).all())
            committed = {
                row.feed_id: row
                for row in connection.execute(
                    select(
                        batch.c.feed_id,
                        func.max(batch.c.committed_at).label("last"),
                        func.sum(batch.c["rows"]).label("total"),
                    )
                    .where(batch.c.state == BatchState.COMMITTED.value, batch.c.kind == "live")
                    .group_by(batch.c.feed_id)
                )
            }
            open_batches = {
                row.feed_id: row
                for row in connection.execute(
                    select(batch.c.feed_id, batch.c.batch_id, batch.c.state).where(
                        batch.c.kind == "live",
                        batch.c.state.in_([state.value for state in BatchState if state.is_open]),
                    )
                )
            }
            return [
                FeedSummary(
                    name=row["name"],
                    cluster_id=row["cluster_id"],
                    partitions=partitions.get(row["feed_id"], 0),
                    open_batch=open_row.batch_id if open_row is not None else None,
                    open_batch_state=BatchState(open_row.state) if open_row is not None else None,
                    last_committed_at=done.last if done is not None else None,
                    rows_committed=int(done.total) if done is not None else 0,
                )
                for row in connection.execute(select(feed).order_by(feed.c.name)).mappings()
                for open_row in [open_batches.get(row["feed_id"])]
                for done in [committed.get(row["feed_id"])]
            ]

    def rows_by_partition(self, feed_id: UUID) -> dict[TopicPartition, int]:
        """Return how many rows live batches have committed of the topics as they are now, by partition."""
        same_topic = and_(
            stored_offset.c.feed_id == feed_id,
            stored_offset.c.topic == batch_range.c.topic,
            stored_offset.c.partition == batch_range.c.partition,
            stored_offset.c.topic_id.is_not_distinct_from(batch_range.c.topic_id),
        )
        with transaction(self._engine, "read") as connection:
            query = (
                select(batch_range.c.topic, batch_range.c.partition, func.sum(batch_range.c["rows"]))
                .join(batch, batch.c.batch_id == batch_range.c.batch_id)
                .join(stored_offset, same_topic)
                .where(batch.c.feed_id == feed_id, batch.c.state == BatchState.COMMITTED.value, batch.c.kind == "live")
                .group_by(batch_range.c.topic, batch_range.c.partition)
            )
            return {TopicPartition(topic, number): int(rows) for topic, number, rows in connection.execute(query)}

    def batch_summaries(
        self,
        feed_name: str | None = None,
        *,
        kinds: Collection[BatchKind] = (),
        states: Collection[BatchState] = (),
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[BatchSummary]:
        """Return batches with their ranges, newest first; of all kinds and states where none is named."""
        query: Select[Any] = select(batch, feed.c.name.label("feed")).join(feed, feed.c.feed_id == batch.c.feed_id)
        if feed_name is not None:
            query = query.where(feed.c.name == feed_name)
        if since is not None:
            query = query.where(batch.c.planned_at >= since)
        if kinds:
            query = query.where(batch.c.kind.in_(sorted(kind.value for kind in kinds)))
        if states:
            query = query.where(batch.c.state.in_(sorted(state.value for state in states)))
        query = query.order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc()).limit(limit)
        with transaction(self._engine, "read") as connection:
            rows = connection.execute(query).mappings().all()
            ranges = ranges_of(connection, select(query.subquery().c.batch_id))
            return [
                BatchSummary(
                    batch_id=row["batch_id"],
                    feed=row["feed"],
                    kind=row["kind"],
                    state=BatchState(row["state"]),
                    planned_at=row["planned_at"],
                    planned_by=row["planned_by"],
                    written_at=row["written_at"],
                    committed_at=row["committed_at"],
                    committed_by=row["committed_by"],
                    rows=row["rows"],
                    size_bytes=row["size_bytes"],
                    reason=row["reason"],
                    abandoned_by=row["abandoned_by"],
                    attempt=row["pinned_attempt"],
                    output=Path(row["plan"]["sink"]["path"]),
                    ranges=tuple(ranges.get(row["batch_id"], [])),
                )
                for row in rows
            ]
