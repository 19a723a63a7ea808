"""Complete hours and days of feeds, and who has heard of them.

No step of the protocol depends on them, so they take no feed's lock and raise no revision: each write is one statement
that compares, or begins with one.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, func, insert, or_, select, update

from kafka_ingest.control.database import Store, reads, transaction
from kafka_ingest.control.rows import insert_rows
from kafka_ingest.control.schema import batch, feed, period
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.completion import LateCount, OnLate, Period, Unit
from kafka_ingest.model.documents import read_row

IS_COMPLETE, IS_WAITED_FOR = period.c.completed_at.is_not(None), period.c.completed_at.is_(None)


def found_periods(connection: Connection, query: Select[tuple[object, ...]]) -> list[Period]:
    return [read_row(Period, row) for row in connection.execute(query).mappings()]


def of(feed_id: UUID, unit: Unit, *conditions: ColumnElement[bool]) -> tuple[ColumnElement[bool], ...]:
    return (period.c.feed_id == feed_id, period.c.unit == unit.value, *conditions)


def waiting_period(connection: Connection, feed_id: UUID, unit: Unit) -> datetime | None:
    return connection.execute(select(period.c.began_at).where(*of(feed_id, unit, IS_WAITED_FOR))).scalar()


class CompletionStore(Store):
    """Each hour is completed once, by one process; each batch's late rows are added once."""

    waiting_period = reads(waiting_period)

    def periods(self, feed_id: UUID, unit: Unit, *, before: datetime | None = None, limit: int) -> list[Period]:
        older = [] if before is None else [period.c.began_at < before]
        with self.reading() as connection:
            query = select(period).where(*of(feed_id, unit, *older)).order_by(period.c.began_at.desc()).limit(limit)
            return found_periods(connection, query)

    def complete_span(self, feed_id: UUID, unit: Unit) -> tuple[datetime, datetime] | None:
        with self.reading() as connection:
            query = select(func.min(period.c.began_at), func.max(period.c.began_at)).where(*of(feed_id, unit))
            first, before = connection.execute(query).one()
        return (first, before) if first != before else None

    def begin_periods(self, feed_id: UUID, unit: Unit, first: datetime, *, counted: UUID | None) -> datetime:
        with transaction(self._engine, "write") as connection:
            # Two first looks at once take turns.
            connection.execute(select(feed.c.feed_id).where(feed.c.feed_id == feed_id).with_for_update())
            there = waiting_period(connection, feed_id, unit)
            if there is None:
                new = {"feed_id": feed_id, "unit": unit.value, "began_at": first, "counted_batch": counted}
                connection.execute(insert(period).values(new))
            return there or first

    def complete_periods(
        self, feed_id: UUID, unit: Unit, periods: Sequence[datetime], now: datetime, *, actor: str
    ) -> bool:
        first, *others = periods
        done = {"completed_at": now, "completed_by": actor}
        with transaction(self._engine, "write") as connection:
            waited_for = of(feed_id, unit, IS_WAITED_FOR, period.c.began_at == first)
            taken = connection.execute(update(period).where(*waited_for).values(done).returning(period.c.counted_batch))
            row = taken.one_or_none()
            if row is None:
                return False
            new = {"feed_id": feed_id, "unit": unit.value, "completed_at": None, "completed_by": None}
            rows = [new | {"began_at": each, "counted_batch": row.counted_batch} for each in others]
            insert_rows(connection, period, [*(each | done for each in rows[:-1]), rows[-1]])
            return True

    def counted_batch(self, feed_id: UUID, unit: Unit) -> UUID | None:
        with self.reading() as connection:
            query = select(period.c.counted_batch).where(*of(feed_id, unit, IS_WAITED_FOR))
            return connection.execute(query).scalar()

    def live_batches_after(self, feed_id: UUID, after: UUID | None, *, limit: int) -> list[UUID]:
        conditions = [batch.c.kind == BatchKind.LIVE.value, batch.c.state == BatchState.COMMITTED.value]
        if after is not None:
            conditions.append(batch.c.batch_id > after)
        with self.reading() as connection:
            query = select(batch.c.batch_id).where(batch.c.feed_id == feed_id, *conditions)
            return list(connection.execute(query.order_by(batch.c.batch_id).limit(limit)).scalars())

    def add_late_rows(
        self, feed_id: UUID, unit: Unit, rows: Mapping[datetime, LateCount], *, before: datetime, counted: UUID
    ) -> int:
        is_new = or_(period.c.counted_batch.is_(None), period.c.counted_batch < counted)
        waited_for = of(feed_id, unit, IS_WAITED_FOR, period.c.began_at == before, is_new)
        with transaction(self._engine, "write") as connection:
            noted = update(period).where(*waited_for).values(counted_batch=counted)
            if not connection.execute(noted).rowcount:
                return 0
            added = 0
            for began_at, late in sorted(rows.items()):
                found = of(feed_id, unit, IS_COMPLETE, period.c.began_at == began_at)
                more = {
                    "late_rows": period.c.late_rows + late.rows,
                    "announced_rows": period.c.announced_rows + late.aside,
                }
                added += late.rows * connection.execute(update(period).where(*found).values(more)).rowcount
            return added

    def periods_to_mark(self, feed_id: UUID, unit: Unit, *, limit: int) -> list[Period]:
        return self._oldest(of(feed_id, unit, IS_COMPLETE, period.c.success_file_at.is_(None)), limit)

    def periods_to_announce(self, feed_id: UUID, unit: Unit, on_late: OnLate, *, limit: int) -> list[Period]:
        is_due: ColumnElement[bool] = period.c.announced_at.is_(None)
        if on_late is not OnLate.COUNT:
            is_due = or_(is_due, period.c.announced_rows < period.c.late_rows)
        return self._oldest(of(feed_id, unit, IS_COMPLETE, is_due), limit)

    def _oldest(self, conditions: tuple[ColumnElement[bool], ...], limit: int) -> list[Period]:
        with self.reading() as connection:
            query = select(period).where(*conditions).order_by(period.c.began_at).limit(limit)
            return found_periods(connection, query)

    def note_success_files(self, feed_id: UUID, unit: Unit, periods: Collection[Period], now: datetime) -> None:
        with transaction(self._engine, "write") as connection:
            those = of(feed_id, unit, period.c.began_at.in_([each.began_at for each in periods]))
            connection.execute(update(period).where(*those).values(success_file_at=now))

    def note_periods_announced(self, feed_id: UUID, unit: Unit, periods: Collection[Period], now: datetime) -> None:
        with transaction(self._engine, "write") as connection:
            for each in periods:
                # Rows set aside have been added to both since it was read; another process may have noted it.
                unchanged = period.c.announced_at.is_not_distinct_from(each.announced_at)
                that = of(feed_id, unit, period.c.began_at == each.began_at, unchanged)
                rows = period.c.announced_rows + (each.late_rows - each.announced_rows)
                connection.execute(update(period).where(*that).values(announced_at=now, announced_rows=rows))
