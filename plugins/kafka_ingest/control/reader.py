"""What people ask of the control tables: summaries, the journal, where an offset is. Every method one read transaction."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Label, Select, func, select

from kafka_ingest.control.coverage_reader import SqlCoverageReader
from kafka_ingest.control.coverage_rows import NOT_LIVE
from kafka_ingest.control.database import transaction
from kafka_ingest.control.feed_reader import NOT_COMMITTED
from kafka_ingest.control.folded_rows import folded_batches
from kafka_ingest.control.history_reader import OffsetRows, journal, offset_rows
from kafka_ingest.control.rows import (
    BatchRange,
    event_of,
    gaps_of,
    left_out_of,
    ranges_of,
)
from kafka_ingest.control.schema import batch, event, feed, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FoldedBatch
from kafka_ingest.model.event import Event
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.left_out import LeftOut
from kafka_ingest.model.offsets import TopicPartition


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
    """None once the batch is folded."""
    folded: bool = False
    left_out: tuple[LeftOut, ...] = ()
    """Planned ranges of which Kafka had deleted records when the batch was read; they are not among ``ranges``."""


def last_committed_at(kind: BatchKind) -> Label[datetime | None]:
    """Return the column of when a feed's newest commit was: asked of each, since a grouped one would read every batch."""
    newest = select(func.max(batch.c.committed_at)).where(
        batch.c.feed_id == feed.c.feed_id, batch.c.kind == kind.value, batch.c.state == BatchState.COMMITTED.value
    )
    return newest.scalar_subquery().label(f"last_{kind.value}")


class SqlControlReader(SqlCoverageReader):
    """The control tables, read only."""

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

    def folded_batches(self, feed_id: UUID, oldest: datetime, newest: datetime) -> list[FoldedBatch]:
        """Return the folded batches that were committed between two times, in the order of their commits."""
        with transaction(self._engine, "read") as connection:
            return folded_batches(connection, feed_id, oldest, newest)

    def feed_summaries(self) -> list[FeedSummary]:
        """Return a line for each feed that was ever planned, by name."""
        with transaction(self._engine, "read") as connection:
            counts = select(stored_offset.c.feed_id, func.count()).group_by(stored_offset.c.feed_id)
            partitions: dict[UUID, int] = dict(connection.execute(counts).all())
            open_batches = {
                row.feed_id: row
                for row in connection.execute(
                    select(batch.c.feed_id, batch.c.batch_id, batch.c.state).where(
                        # Feed by feed: each is one look into an index.
                        batch.c.feed_id.in_(select(feed.c.feed_id)),
                        batch.c.kind == "live",
                        NOT_COMMITTED,
                        batch.c.state.in_([state.value for state in BatchState if state.is_open]),
                    )
                )
            }
            feeds = select(feed, last_committed_at(BatchKind.LIVE), last_committed_at(BatchKind.BACKFILL))
            return [
                FeedSummary(
                    name=row["name"],
                    cluster_id=row["cluster_id"],
                    partitions=partitions.get(row["feed_id"], 0),
                    open_batch=open_row.batch_id if open_row is not None else None,
                    open_batch_state=BatchState(open_row.state) if open_row is not None else None,
                    last_committed_at=max(filter(None, (row["last_live"], row["last_backfill"])), default=None),
                    rows_committed=row["rows_committed"],
                )
                for row in connection.execute(feeds.order_by(feed.c.name)).mappings()
                for open_row in [open_batches.get(row["feed_id"])]
            ]

    def rows_by_partition(self, feed_id: UUID) -> dict[TopicPartition, int]:
        """Return how many rows the feed's output was given of the topics as they are now, by partition; backfills included."""
        query = select(stored_offset.c.topic, stored_offset.c.partition, stored_offset.c["rows"])
        with transaction(self._engine, "read") as connection:
            found = connection.execute(query.where(stored_offset.c.feed_id == feed_id, stored_offset.c["rows"] > 0))
            return {TopicPartition(topic, number): rows for topic, number, rows in found}

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
        query: Select[Any] = select(batch)
        if since is not None:
            query = query.where(batch.c.planned_at >= since)
        if kinds:
            query = query.where(batch.c.kind.in_(sorted(kind.value for kind in kinds)))
            if BatchKind.LIVE not in kinds:
                query = query.where(NOT_LIVE)
        if states:
            query = query.where(batch.c.state.in_(sorted(state.value for state in states)))
            if BatchState.COMMITTED not in states:
                query = query.where(NOT_COMMITTED)
        query = query.order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc()).limit(limit)
        with transaction(self._engine, "read") as connection:
            # Not joined: sorted beside its feed's name, every batch of years would be read for the newest few.
            names: dict[UUID, str] = dict(connection.execute(select(feed.c.feed_id, feed.c.name)).all())
            if feed_name is not None:
                feed_id = next((each for each, name in names.items() if name == feed_name), None)
                query = query.where(batch.c.feed_id == feed_id)
            rows = connection.execute(query).mappings().all()
            ranges = ranges_of(connection, select(query.subquery().c.batch_id))
            return [
                BatchSummary(
                    batch_id=row["batch_id"],
                    feed=names[row["feed_id"]],
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
                    folded=row["folded_at"] is not None,
                    left_out=left_out_of(row),
                )
                for row in rows
            ]

    def gaps(self, feed_id: UUID) -> list[Gap]:
        """Return a feed's gaps, by partition and offset."""
        with transaction(self._engine, "read") as connection:
            return gaps_of(connection, feed_id)
