"""Batches: one by its id, or those that a question is about. Every method is one transaction."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, or_, select, update

from kafka_ingest.control.database import Store, reads, transaction
from kafka_ingest.control.feed_statements import lock_feed
from kafka_ingest.control.rows import (
    NEWEST_OF_KINDS,
    NOT_COMMITTED,
    NOT_LIVE,
    SINK,
    batch_of,
    batch_row,
    is_of_run,
    left_out_of,
    newest_published,
    output_of,
    ranges_of,
)
from kafka_ingest.control.schema import batch, batch_range, feed
from kafka_ingest.model.batch import OPEN_STATES, Batch, BatchKind, BatchState
from kafka_ingest.model.control_rows import PublishedBatch
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.place import OutputLocation, place_of
from kafka_ingest.model.summaries import BatchSummary, ReadCounts

ANNOUNCED_AT_ONCE = 100
"""How many batches one task announces that earlier ones did not: their events travel in one answer of the task."""


class BatchStore(Store):
    """Batches as they are; :mod:`kafka_ingest.control.batch_life` moves them."""

    newest_published = reads(newest_published)

    def batch(self, batch_id: UUID) -> Batch:
        with self.reading() as connection:
            return batch_of(batch_row(connection, batch_id))

    def newest_of_kinds(self, feed_id: UUID) -> dict[BatchKind, PublishedBatch]:
        with self.reading() as connection:
            rows = connection.execute(NEWEST_OF_KINDS, {"feed_id": feed_id}).mappings()
            return {BatchKind(row["kind"]): PublishedBatch(row["batch_id"], output_of(row)) for row in rows}

    def committed_counts(self, feed_id: UUID, output: OutputLocation, least: int) -> ReadCounts:
        filtered, dead = (
            func.coalesce(select(func.sum(each)).where(batch_range.c.batch_id == batch.c.batch_id).scalar_subquery(), 0)
            for each in (batch_range.c.filtered, batch_range.c.dead_letters - batch_range.c.replayed)
        )
        in_output = (SINK["format"].as_string() == output.format) & (SINK["path"].as_string() == output.uri)
        is_committed = batch.c.state == BatchState.COMMITTED.value
        query = select(batch.c.rows, filtered, dead).where(batch.c.feed_id == feed_id, is_committed, in_output)
        decoded, found = batch.c.rows + filtered, ReadCounts()
        with self.reading() as connection:
            # Years of batches have some decoded, and the first few found are enough.
            for some in (decoded > 0, (decoded == 0) & (dead > 0)):
                for rows, *others in connection.execute(query.where(some).limit(least)):
                    found = found.plus(ReadCounts(rows, *map(int, others)))
                if found.rows + found.filtered >= least:
                    break
        return found

    def batch_states(self, feed_id: UUID, since: UUID | None = None) -> dict[UUID, BatchState]:
        query = select(batch.c.batch_id, batch.c.state).where(batch.c.feed_id == feed_id)
        queries = [query]
        if since is not None:
            planned_at = select(batch.c.planned_at).where(batch.c.batch_id == since).scalar_subquery()
            abandoned = (batch.c.state == BatchState.ABANDONED.value, batch.c.updated_at >= planned_at)
            is_open = batch.c.state.in_(sorted(OPEN_STATES))
            # One by one, because each has its own index.
            queries = [
                query.where(batch.c.batch_id >= since),
                query.where(NOT_COMMITTED, *abandoned),
                query.where(NOT_COMMITTED, is_open),
            ]
        with self.reading() as connection:
            return {row.batch_id: BatchState(row.state) for each in queries for row in connection.execute(each)}

    def to_announce(self, feed_id: UUID) -> list[Batch]:
        return self._batches(batch.c.feed_id == feed_id, batch.c.to_announce, limit=ANNOUNCED_AT_ONCE)

    def feeds_to_announce(self) -> set[str]:
        """Return the names of feeds that have such batches."""
        of_feeds = select(batch.c.feed_id).where(batch.c.to_announce)
        with self.reading() as connection:
            return set(connection.execute(select(feed.c.name).where(feed.c.feed_id.in_(of_feeds))).scalars())

    def open_backfills(self, feed_id: UUID) -> list[Batch]:
        is_open = batch.c.state.in_(sorted(OPEN_STATES))
        return self._batches(batch.c.feed_id == feed_id, NOT_LIVE, is_open)

    def backfill_of(self, feed_id: UUID, actor: str) -> list[Batch]:
        return self._batches(batch.c.feed_id == feed_id, NOT_LIVE, batch.c.planned_by == actor)

    def batches_of_run(self, feed_id: UUID, run_id: str) -> list[Batch]:
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
        with self.reading() as connection:
            return [batch_of(row) for row in connection.execute(query).mappings()]

    def batch_summaries(
        self,
        feed_name: str | None = None,
        *,
        kinds: Collection[BatchKind] = (),
        states: Collection[BatchState] = (),
        since: datetime | None = None,
        limit: int | None = None,
    ) -> list[BatchSummary]:
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
        with self.reading() as connection:
            # Not joined: sorted together with feed names, every batch of years would be read for the newest few.
            names: dict[UUID, str] = dict(connection.execute(select(feed.c.feed_id, feed.c.name)).all())
            if feed_name is not None:
                feed_id = next((each for each, name in names.items() if name == feed_name), None)
                query = query.where(batch.c.feed_id == feed_id)
            rows = connection.execute(query).mappings().all()
            ranges = ranges_of(connection, select(query.subquery().c.batch_id))
            return [
                read_row(
                    BatchSummary,
                    row,
                    feed=names[row["feed_id"]],
                    attempt=row["pinned_attempt"],
                    output=place_of(row["plan"]["sink"]["path"]),
                    ranges=tuple(ranges.get(row["batch_id"], [])),
                    folded=row["folded_at"] is not None,
                    left_out=left_out_of(row),
                )
                for row in rows
            ]

    def note_announced(self, feed_id: UUID, batch_ids: Collection[UUID]) -> None:
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            # No decision depends on it, so the feed's revision stays.
            these = batch.c.batch_id.in_(list(batch_ids)), batch.c.feed_id == feed_id
            connection.execute(update(batch).where(*these).values(to_announce=False))
