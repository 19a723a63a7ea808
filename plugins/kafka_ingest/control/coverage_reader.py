"""Which offset is where, and which batches are no live ones: every method one read transaction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, or_, select

from kafka_ingest.control.coverage_rows import (
    NOT_LIVE,
    committed_batches_after,
    copied_ranges,
    copy_outputs,
    coverage_rows,
)
from kafka_ingest.control.database import transaction
from kafka_ingest.control.feed_reader import SqlFeedReader, snapshot
from kafka_ingest.control.folded_rows import folded_feed
from kafka_ingest.control.passed_offsets import committed_ahead, committed_within, starts_since
from kafka_ingest.control.rows import (
    batch_of,
    is_of_run,
)
from kafka_ingest.control.schema import batch, event, feed
from kafka_ingest.model.batch import OPEN_STATES, Batch
from kafka_ingest.model.control_rows import BackfillRange, CommittedBatch, CoverageRows, FoldedFeed
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.output_location import OutputLocation

ANNOUNCED_AT_ONCE = 100
"""How many batches one task announces that earlier ones did not: their events travel in one answer of the task."""


class SqlCoverageReader(SqlFeedReader):
    """The control tables, read for backfills, resets and coverage."""

    def coverage(self, feed_name: str) -> CoverageRows | None:
        """Return what the control rows say of which offset is where; None where the feed was never planned."""
        with transaction(self._engine, "read") as connection:
            found = snapshot(connection, select(feed).where(feed.c.name == feed_name))
            if found is None:
                return None
            rows = coverage_rows(connection, found)
            stored = {tp: row.next_offset or 0 for tp, row in found.stored.items()}
            went_back = any(
                each.offset_range.end_offset > stored.get(each.offset_range.topic_partition, 0) for each in rows.rewinds
            )
            ahead = committed_ahead(connection, found.feed_id) if went_back else ()
            return replace(rows, committed_ahead=ahead)

    def copied_ranges(self, feed_id: UUID, output: OutputLocation) -> list[BackfillRange]:
        """Return what the feed's copies into another output hold, or are about to."""
        with transaction(self._engine, "read") as connection:
            return copied_ranges(connection, feed_id, output)

    def copy_outputs(self) -> list[tuple[UUID, OutputLocation]]:
        """Return where copies of all feeds lie, or are about to, with the feeds' ids."""
        with transaction(self._engine, "read") as connection:
            return copy_outputs(connection)

    def backfill_of(self, feed_id: UUID, who: str) -> list[Batch]:
        """Return the backfills and copies that somebody planned, in the order of their ids."""
        return self._batches(batch.c.feed_id == feed_id, NOT_LIVE, batch.c.planned_by == who)

    def backfill_request(self, feed_id: UUID, who: str) -> Mapping[str, Any] | None:
        """Return what ``who`` asked for with the newest backfill that it planned, None where that is not known."""
        query = select(event.c.detail).where(
            event.c.feed_id == feed_id, event.c.kind == "backfill_planned", event.c.who == who
        )
        with transaction(self._engine, "read") as connection:
            detail = connection.execute(query.order_by(event.c.event_id.desc()).limit(1)).scalar()
        return None if detail is None else detail.get("request")

    def to_announce(self, feed_id: UUID) -> list[Batch]:
        """Return the batches that DAG runs committed and whose Asset event may be lost, oldest first, a hundred at most."""
        return self._batches(batch.c.feed_id == feed_id, batch.c.to_announce, limit=ANNOUNCED_AT_ONCE)

    def open_backfills(self, feed_id: UUID) -> list[Batch]:
        """Return the backfills and copies that are open, in the order of their ids."""
        is_open = batch.c.state.in_(sorted(OPEN_STATES))
        return self._batches(batch.c.feed_id == feed_id, NOT_LIVE, is_open)

    def batches_of_run(self, feed_id: UUID, run_id: str) -> list[Batch]:
        """Return the batches that a DAG run planned or committed, oldest first."""
        by_run = [
            column.startswith("airflow:") & column.endswith(f"/{run_id}", autoescape=True)
            for column in (batch.c.planned_by, batch.c.committed_by)
        ]
        # LIKE finds more: SQLite's takes capital letters for small ones, and another run's id may end like this one.
        return [
            found
            for found in self._batches(batch.c.feed_id == feed_id, or_(*by_run))
            if is_of_run(found.planned_by, run_id) or is_of_run(found.committed_by, run_id)
        ]

    def _batches(self, *conditions: ColumnElement[bool], limit: int | None = None) -> list[Batch]:
        query = select(batch, feed.c.name.label("feed_name")).join(feed).where(*conditions).order_by(batch.c.batch_id)
        query = query.limit(limit)
        with transaction(self._engine, "read") as connection:
            return [batch_of(row) for row in connection.execute(query).mappings()]

    def starts_since(self, batch_id: UUID) -> dict[TopicPartition, int]:
        """Return where a live batch began in each partition, or the first one after it that read the partition."""
        with transaction(self._engine, "read") as connection:
            return starts_since(connection, batch_id)

    def committed_within(
        self, feed_id: UUID, intervals: Sequence[OffsetRange], *, apart_from: UUID | None = None
    ) -> list[OffsetRange]:
        """Return what committed batches hold of intervals of the topics as they are now: of the feed's output, no copies."""
        with transaction(self._engine, "read") as connection:
            return committed_within(connection, feed_id, intervals, apart_from=apart_from)

    def committed_ahead(self, feed_id: UUID) -> list[OffsetRange]:
        """Return what committed batches hold at or above the stored offsets, sorted; nothing before an operator went back."""
        with transaction(self._engine, "read") as connection:
            return committed_ahead(connection, feed_id)

    def folded(self, feed_id: UUID) -> FoldedFeed:
        """Return which of the feed's batches are folded, and what they have read."""
        with transaction(self._engine, "read") as connection:
            return folded_feed(connection, feed_id)

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
