"""What a plan decided, written down in one transaction before anything is read (invariant 1)."""

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import and_, bindparam, func, or_, select, update

from kafka_ingest.control.backfill_statements import insert_backfill
from kafka_ingest.control.batch_statements import insert_attempt, insert_plan, locked_batch
from kafka_ingest.control.database import Store, transaction
from kafka_ingest.control.feed_statements import append_event, insert_feed, replace_holds, require_revision, touch_feed
from kafka_ingest.control.offset_statements import apply_jumps, note_leader_epochs, seed_detail, upsert_seeds
from kafka_ingest.control.rows import batched
from kafka_ingest.control.schema import attempt, batch, batch_range
from kafka_ingest.control.schema import feed as feed_table
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import Attempt, AttemptState, BatchState
from kafka_ingest.model.control_rows import RESTORED_BY, BackfillRecord, FeedSnapshot, NewFeed, PlanRecord
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.receipt import RangeCount


class PlanStore(Store):
    """The plans of batches."""

    def record_plan(self, feed: FeedSnapshot | NewFeed, record: PlanRecord, *, actor: str) -> None:
        values = {
            "topics": sorted(record.topics),
            "topic_pattern": record.topic_pattern,
            "waiting_since": record.waiting_since,
            "planned_at": record.planned_at,
        }
        with transaction(self._engine, "write") as connection:
            if isinstance(feed, NewFeed):
                insert_feed(connection, feed, cluster_id=record.cluster_id, **values)
            else:
                require_revision(connection, feed)
                touch_feed(connection, feed.feed_id, **values)
            if record.seeds:
                upsert_seeds(connection, feed.feed_id, record.seeds)
                detail = {"partitions": [seed_detail(seed) for seed in record.seeds]}
                append_event(connection, feed.feed_id, "seeded", actor, None, detail)
            apply_jumps(connection, feed.feed_id, record.jumps, actor=actor)
            note_leader_epochs(connection, feed.feed_id, record.leader_epochs)
            replace_holds(connection, feed.feed_id, record.holds)
            if record.plan is not None:
                insert_plan(connection, record.plan, actor, lag=record.lag)

    def note_unchanged(self, feeds: Collection[FeedSnapshot], planned_at: datetime) -> set[UUID]:
        known, noted = {each.feed_id: each.revision for each in feeds}, set[UUID]()
        for some in batched(sorted(known)):
            with transaction(self._engine, "write") as connection:
                rows = select(feed_table.c.feed_id, feed_table.c.revision).where(feed_table.c.feed_id.in_(some))
                locked = connection.execute(rows.order_by(feed_table.c.feed_id).with_for_update(skip_locked=True))
                same = [row.feed_id for row in locked if row.revision == known[row.feed_id]]
                values = {
                    "planned_at": planned_at,
                    "updated_at": datetime.now(UTC),
                    "revision": feed_table.c.revision + 1,
                }
                connection.execute(update(feed_table).where(feed_table.c.feed_id.in_(same)).values(values))
                noted.update(same)
        return noted

    def record_backfill(self, feed: FeedSnapshot, record: BackfillRecord, *, actor: str) -> None:
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            insert_backfill(connection, feed, record, actor)


BATCHES_OF_SPEED = 20
ATTEMPTS = select(attempt).where(attempt.c.batch_id == bindparam("batch_id")).order_by(attempt.c.attempt)
COUNTS = (
    select(batch_range)
    .where(batch_range.c.batch_id == bindparam("batch_id"), batch_range.c["rows"].is_not(None))
    .order_by(batch_range.c.topic, batch_range.c.partition)
)


class AttemptStore(Store):
    """Attempts and the counts of their receipts."""

    def attempts(self, batch_id: UUID) -> list[Attempt]:
        with self.reading() as connection:
            return [read_row(Attempt, row) for row in connection.execute(ATTEMPTS, {"batch_id": batch_id}).mappings()]

    def ended_attempts(self, feed_id: UUID, *, ended_before: datetime) -> list[Attempt]:
        """Return the attempts that ended before then: those of ended batches, and discarded ones; oldest first.

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
        # A recently cleaned attempt is checked again: its Spark may still run and have created the directory again.
        # Each by its index, and unsorted: sorting would read every attempt of years.
        cleaned = (attempt.c.cleaned_at.is_(None), attempt.c.cleaned_at >= ended_before)
        with self.reading() as connection:
            found = [
                read_row(Attempt, row) for when in cleaned for row in connection.execute(query.where(when)).mappings()
            ]
        return sorted(found, key=lambda each: (each.batch_id, each.attempt))

    def speeds(self, feed_id: UUID) -> list[float]:
        # Of all states and kinds: with a condition, years of batches would be sorted.
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
        with self.reading() as connection:
            timed = [
                (int(row.read), (row.written_at - row.opened_at).total_seconds())
                for row in connection.execute(query)
                if row.written_at is not None
                # For adopted batches only the attempt, from its receipt, shows that they were restored.
                and not any(actor.startswith(RESTORED_BY) for actor in (row.planned_by, row.opened_by))
            ]
        # The two clocks may be of two machines; and a batch adopted from an output has no times of its own.
        return [offsets / seconds for offsets, seconds in timed if seconds > 0]

    def range_counts(self, batch_id: UUID) -> list[RangeCount]:
        with self.reading() as connection:
            counts = [
                read_row(RangeCount, row) for row in connection.execute(COUNTS, {"batch_id": batch_id}).mappings()
            ]
        return sorted(counts, key=lambda count: count.offset_range)

    def open_attempt(self, attempt: Attempt) -> None:
        with locked_batch(self._engine, attempt.batch_id) as (connection, row):
            if (found := BatchState(row["state"])) is not BatchState.PLANNED:
                raise BatchStateError(
                    f"batch {attempt.batch_id}: expected PLANNED to open an attempt, found {found}. Nothing was "
                    "changed."
                )
            insert_attempt(connection, attempt)
            touch_feed(connection, row["feed_id"])

    def note_cleaned(self, cleaned: Attempt) -> None:
        with locked_batch(self._engine, cleaned.batch_id) as (connection, _):
            connection.execute(
                update(attempt)
                .where(attempt.c.batch_id == cleaned.batch_id, attempt.c.attempt == cleaned.attempt)
                .values(cleaned_at=datetime.now(UTC))
            )
