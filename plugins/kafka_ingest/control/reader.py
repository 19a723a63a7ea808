"""What is stored: every method one read transaction, so that its answer is of one instant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, Select, and_, func, select

from kafka_ingest.batch import Attempt, AttemptState, Batch, BatchPlan, BatchState
from kafka_ingest.boundaries import Event, FeedSnapshot
from kafka_ingest.control.database import check_version, transaction
from kafka_ingest.control.schema import LEDGER_KINDS, attempt, batch, batch_range, event, feed, gap, hold, stored_offset
from kafka_ingest.errors import BatchStateError, ControlSchemaError, UnknownBatchError
from kafka_ingest.gap import Gap, GapCause
from kafka_ingest.hold import Hold, HoldCause
from kafka_ingest.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.receipt import RangeCount


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
class BatchRange:
    """One range of a batch as the control tables hold it; the counts are None before WRITTEN."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    rows: int | None
    filtered: int | None
    dead_letters: int | None
    invisible: int | None


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One line of ``kafka-ingest batches``."""

    batch_id: UUID
    feed: str
    kind: str
    state: BatchState
    planned_at: datetime
    written_at: datetime | None
    committed_at: datetime | None
    committed_by: str | None
    rows: int | None
    size_bytes: int | None
    reason: str | None
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
            )

    def batch(self, batch_id: UUID) -> Batch:
        """Return a batch; raises UnknownBatchError."""
        with transaction(self._engine, "read") as connection:
            return batch_of(batch_row(connection, batch_id))

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
        self, feed_name: str | None = None, *, since: datetime | None = None, limit: int | None = None
    ) -> list[BatchSummary]:
        """Return batches with their ranges, newest first."""
        query: Select[Any] = select(batch, feed.c.name.label("feed")).join(feed, feed.c.feed_id == batch.c.feed_id)
        if feed_name is not None:
            query = query.where(feed.c.name == feed_name)
        if since is not None:
            query = query.where(batch.c.planned_at >= since)
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
                    written_at=row["written_at"],
                    committed_at=row["committed_at"],
                    committed_by=row["committed_by"],
                    rows=row["rows"],
                    size_bytes=row["size_bytes"],
                    reason=row["reason"],
                    ranges=tuple(ranges.get(row["batch_id"], [])),
                )
                for row in rows
            ]


def stored_offsets(connection: Connection, feed_id: UUID) -> dict[TopicPartition, StoredOffset]:
    """Return a feed's stored offsets, by partition."""
    query = select(stored_offset).where(stored_offset.c.feed_id == feed_id)
    rows = [
        StoredOffset(
            topic_partition=TopicPartition(row["topic"], row["partition"]),
            topic_id=row["topic_id"],
            first_offset=row["first_offset"],
            next_offset=row["next_offset"],
            seeded_by=row["seeded_by"],
            leader_epoch=row["leader_epoch"],
            batch_id=row["batch_id"],
            updated_at=row["updated_at"],
        )
        for row in connection.execute(query).mappings()
    ]
    return {row.topic_partition: row for row in sorted(rows, key=lambda row: row.topic_partition)}


def gaps_of(connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]) -> list[Gap]:
    """Return a feed's gaps, by partition and offset."""
    query = select(gap).where(gap.c.feed_id == feed_id, *conditions)
    gaps = [
        Gap(
            gap_id=row["gap_id"],
            offset_range=OffsetRange(
                TopicPartition(row["topic"], row["partition"]), row["start_offset"], row["end_offset"]
            ),
            topic_id=row["topic_id"],
            cause=GapCause(row["cause"]),
            reason=row["reason"],
            decided_by=row["decided_by"],
            decided_at=row["decided_at"],
            applied_at=row["applied_at"],
            closed_by_batch=row["closed_by_batch"],
        )
        for row in connection.execute(query).mappings()
    ]
    return sorted(gaps, key=lambda gap: gap.offset_range)


def holds_of(connection: Connection, feed_id: UUID) -> list[Hold]:
    """Return what takes no part in a feed's batches for now."""
    query = select(hold).where(hold.c.feed_id == feed_id)
    holds = [
        Hold(
            topic=row["topic"],
            partition=row["partition"],
            cause=HoldCause(row["cause"]),
            reason=row["reason"],
            since=row["since"],
            at_offset=row["at_offset"],
        )
        for row in connection.execute(query).mappings()
    ]
    # Not by the database: each has its own order of names, and of what is null.
    return sorted(holds, key=lambda hold: (hold.topic, -1 if hold.partition is None else hold.partition, hold.cause))


def ranges_of(connection: Connection, batch_ids: Select[Any] | Sequence[UUID]) -> dict[UUID, list[BatchRange]]:
    """Return the ranges of some batches; many are better named by a query than one by one."""
    ranges: dict[UUID, list[BatchRange]] = {}
    query = (
        select(batch_range)
        .where(batch_range.c.batch_id.in_(batch_ids))
        .order_by(batch_range.c.topic, batch_range.c.partition)
    )
    for row in connection.execute(query).mappings():
        ranges.setdefault(row["batch_id"], []).append(
            BatchRange(**{name: row[name] for name in BatchRange.__dataclass_fields__})
        )
    return ranges


def batch_row(connection: Connection, batch_id: UUID, *, for_update: bool = False) -> RowMapping:
    """Return a batch's row; raises UnknownBatchError."""
    query = select(batch, feed.c.name.label("feed_name")).join(feed).where(batch.c.batch_id == batch_id)
    row = connection.execute(query.with_for_update(of=batch) if for_update else query).mappings().one_or_none()
    if row is None:
        raise UnknownBatchError(f"no batch {batch_id} in the control tables; `kafka-ingest batches` lists them")
    return row


def batch_of(row: Mapping[Any, Any]) -> Batch:
    """Return the batch that a row describes."""
    try:
        plan = BatchPlan.from_document(row["plan"])
    except (ValueError, KeyError, TypeError) as error:
        raise ControlSchemaError(
            f"batch {row['batch_id']}: its plan cannot be read ({error}). Finish or abandon it with the version that made it."
        ) from error
    if plan.fingerprint != row["plan_fingerprint"]:
        raise ControlSchemaError(
            f"batch {row['batch_id']}: expected the plan with fingerprint {row['plan_fingerprint']}, found {plan.fingerprint}. "
            "Plans never change, so somebody wrote to the control tables by hand. Nothing was done."
        )
    return Batch(
        feed_name=row["feed_name"],
        plan=plan,
        state=BatchState(row["state"]),
        planned_by=row["planned_by"],
        updated_at=row["updated_at"],
        pinned_attempt=row["pinned_attempt"],
        committed_at=row["committed_at"],
        committed_by=row["committed_by"],
        reason=row["reason"],
        rows=row["rows"],
        size_bytes=row["size_bytes"],
    )


def attempt_of(row: Mapping[Any, Any]) -> Attempt:
    """Return the attempt that a row describes."""
    return Attempt(
        batch_id=row["batch_id"],
        attempt=row["attempt"],
        state=AttemptState(row["state"]),
        directory=Path(row["directory"]),
        document_sha256=row["document_sha256"],
        opened_at=row["opened_at"],
        opened_by=row["opened_by"],
        receipt_sha256=row["receipt_sha256"],
        reason=row["reason"],
    )


def event_of(row: Mapping[Any, Any]) -> Event:
    """Return the event that a row describes."""
    return Event(
        event_id=row["event_id"],
        kind=row["kind"],
        at=row["at"],
        who=row["who"],
        batch_id=row["batch_id"],
        detail=row["detail"],
    )
