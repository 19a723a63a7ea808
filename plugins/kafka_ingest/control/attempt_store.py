"""Attempts: the tries at writing a batch, how long they took, and what the one that counts has read."""

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import and_, bindparam, func, or_, select, update

from kafka_ingest.control.batch_statements import insert_attempt, locked_batch
from kafka_ingest.control.database import Store
from kafka_ingest.control.feed_statements import touch_feed
from kafka_ingest.control.schema import attempt, batch, batch_range
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import Attempt, AttemptState, BatchState
from kafka_ingest.model.control_rows import RESTORED_BY
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.receipt import RangeCount

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
        """Return the offsets per second of the committed ones of the feed's twenty newest batches, newest first."""
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
        """Add an attempt to a PLANNED batch; raises FeedChangedError where its number is taken."""
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
