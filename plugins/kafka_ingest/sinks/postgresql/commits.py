"""What changes a table in PostgreSQL: the one transaction that publishes a batch, or revokes it, decides.

It is all in the server: the mark first, whose primary key lets a rival of the same batch wait, then the rows, which
were copied there before (:mod:`.copied_rows`).
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    Connection,
    Table,
    Text,
    cast,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as insert_new
from sqlalchemy.exc import DBAPIError

from kafka_ingest.errors import (
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.omissions import MOST_REFUSED, RefusedRows, refused_by_cause
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.table_options import CurrentState
from kafka_ingest.ports.outputs import Within
from kafka_ingest.sinks.kept_receipts import how_to_abandon
from kafka_ingest.sinks.postgresql.current_rows import StagedEvents, Truncation, known_truncations
from kafka_ingest.sinks.postgresql.dead_letters import LettersTable
from kafka_ingest.sinks.postgresql.named_table import (
    ANY_CHANGE,
    IN_ONE,
    INSERTION,
    LETTERS,
    NamedTable,
    OtherCountError,
)
from kafka_ingest.sinks.postgresql.refused_rows import Add, Refused, all_refused, cause_of, is_refusal, refused_rows
from kafka_ingest.sinks.postgresql.table_rows import PostgresqlRows, check_gone, delete_all, of_batch, of_ranges
from kafka_ingest.sinks.postgresql.time_partitions import make_partitions
from kafka_ingest.sinks.tables.table_format import CleanUp, Mark, ReplacedFile, Staged


def in_one(*, one: bool) -> BindParameter[Any]:
    """Return what a proof says besides: whether this transaction moved the stored offsets, too."""
    return literal({IN_ONE: one}, JSONB())


@dataclass(frozen=True, slots=True)
class Copied:
    """The table with an attempt's rows, so many, for one of the output's tables."""

    table: NamedTable
    rows: Table
    number: int


def of_rows(copies: Sequence[Copied]) -> list[Copied]:
    """Return the copies without that of dead letters, none of which a table refuses."""
    return [each for each in copies if each.table.beside is not LETTERS]


class PostgresqlCommits:
    """Looks at one table and adds to it: a :class:`.TableCommits`."""

    def __init__(
        self,
        table: NamedTable,
        late: NamedTable,
        complete: Within | None = None,
        letters: LettersTable | None = None,
    ) -> None:
        self.says = f"the marks of {table} say"
        self._table = table
        self._late = late
        self._complete = complete
        self._letters = letters

    def mark(self, batch_id: UUID) -> Mark | None:
        table = self._table
        with table.transaction() as connection:
            return table.mark_in(connection, batch_id) if table.has(connection, table.marks) else None

    def rows(self) -> PostgresqlRows:
        table = self._table
        with table.transaction() as connection:
            there = list(self._there(connection))
            marks = table.marks if table.has(connection, table.marks) else None
        return PostgresqlRows(table.database, str(table), there, marks)

    def _there(self, connection: Connection) -> Iterator[Table]:
        """Yield the table and that of late rows, those of them that exist."""
        for table in (self._table, self._late):
            if columns := table.columns_in(connection):
                yield table.with_columns(columns)

    def clean_up(self) -> CleanUp:
        """Return that no other program takes staged files, which lie in a folder of their own."""
        return CleanUp("no program", math.inf)

    def check_can_remove(self, *, replacing: bool = False) -> None:
        """Raise OutputNotUsableError where rows are of keys, or a policy may hide some from the role."""
        if self._table.state is not None:
            what = "replaced" if replacing else "expired"
            raise OutputNotUsableError(
                f"{self._table}: expected a row for each record, found the newest state of each key (sink.mode: "
                f"current): its rows are of keys, not of batches, and cannot be {what} batch by batch. Nothing was "
                "changed. Let another feed make another table, from the beginning of its topics."
            )
        with self._table.transaction() as connection:
            self._check_sees_all(connection)

    def _check_sees_all(self, connection: Connection) -> None:
        for table in (self._table, self._late):
            if table is self._table or table.columns_in(connection):  # by that name there may be a stranger's
                table.check_sees_all(connection)

    def check_files(self, staged: Staged) -> None:
        """Check the files, compare their columns with the table's, and copy the rows; raises ColumnsChangedError."""
        from kafka_ingest.sinks.tables.staged_checks import check_files  # noqa: PLC0415 - see _copy

        check_files(staged.data, staged.receipt, lambda _: (), (), alike=True)
        copies = of_rows(self._copy(staged))
        self._make_partitions(copies)
        if copies and self._table.state is not None:
            self._table.make_marks()
            with self._table.transaction() as connection:
                events = self._events(connection, staged, copies[0].rows)
                if events.truncations(connection):
                    self._table.check_sees_all(connection)
                self._check_moved(events, connection, self._truncations(events, connection), staged.receipt.batch_id)

    def refused(self, staged: Staged) -> tuple[RefusedRows, ...]:
        """Return which rows of a staged attempt the table refuses now, up to one more than may become dead letters.

        Raises what :meth:`check_files` raises where they cannot be copied.
        """
        batch_id, rows = staged.receipt.batch_id, staged.receipt.rows
        for _ in range(2):
            if self.mark(batch_id) is not None or not (copies := of_rows(self._copy(staged))):
                return ()
            self._make_partitions(copies)
            there, found = 0, list[Refused]()
            with self._undone() as connection:
                for each in copies:
                    # A crash of the server empties what is unlogged; no row is refused then.
                    there += connection.execute(select(func.count()).select_from(each.rows)).scalar_one()
                    add = self._adding(connection, batch_id, each.table)
                    found += all_refused(connection, add, each.rows, MOST_REFUSED + 1)
            if found or there != rows:
                with self._table.transaction() as connection:
                    self._table.drop_copies(connection, batch_id, str(staged.receipt.attempt))
            if there == rows:
                return refused_by_cause((at, offset, cause_of(error)) for at, offset, error in found)
        raise StagedOutputUnusableError(
            f"batch {batch_id}: expected {counted(rows, 'row')} in its files, found {there:,} after copying them twice."
        )

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        for piece in self.rows().positions_of(replaced):
            yield ReplacedFile(str(self._table), size_bytes=0, rows=piece.num_rows, leaving=piece)

    def land(self, mark: Mark, staged: Staged | None = None, replaced: Sequence[ReplacedRange] = ()) -> Mark:
        """Commit as the port says; raises OutputConflictError where the table refuses a row."""
        self._table.make_marks()
        copies: Sequence[Copied] = ()
        try:
            copies = self._copy(staged)
            try:
                return self.try_once(mark, copies, staged, replaced)
            except OtherCountError:
                # A crash of the server empties what is unlogged. A table that swallows rows fails again.
                with self._table.transaction() as connection:
                    self._table.drop_copies(connection, mark.batch_id)
                return self.try_once(mark, self._copy(staged), staged, replaced)
        except OtherCountError as error:
            raise OutputConflictError(
                f"{self._table}: {error}. A trigger, a rule or a policy keeps rows out. Nothing was published and no "
                f"offset was moved. Take it away and run the commit again, or {how_to_abandon(mark.batch_id)}."
            ) from error
        except (DBAPIError, OutputUnavailableError) as error:
            if isinstance(error, DBAPIError) and is_refusal(error):
                raise self._refused(mark, staged, () if replaced else of_rows(copies), error) from None
            # Landed, a rival's, or neither: the mark says it. Where there is none, the next run asks again.
            if (found := self.mark(mark.batch_id)) is not None:
                return found
            if isinstance(error, DBAPIError):
                raise self._table.database.named(str(self._table), error) from None
            raise

    def try_once(
        self, mark: Mark, copies: Sequence[Copied], staged: Staged | None, replaced: Sequence[ReplacedRange]
    ) -> Mark:
        """Run the transaction that decides; after an error of the connection it is unknown whether it landed.

        The mark comes first: its primary key lets a rival of the same batch wait until this has ended.
        """
        with self._table.database.transaction() as connection:
            values = {"batch_id": mark.batch_id, "outcome": mark.outcome.value, "plan_fingerprint": mark.fingerprint}
            proof = cast(literal(mark.proof or None, Text()), JSONB)
            said = proof.op("||")(in_one(one=False))
            first = insert_new(self._table.marks).values(**values, proof=said).on_conflict_do_nothing()
            if connection.execute(first.returning(self._table.marks.c.batch_id)).first() is None:
                self._table.drop_copies(connection, mark.batch_id)
                if (rivals := self._table.mark_in(connection, mark.batch_id)) is not None:
                    return rivals
                raise OutputConflictError(
                    f"{self._table}: expected a mark of batch {mark.batch_id} in {self._table.marks.name}, found that "
                    "none was added. A trigger, a rule or a policy keeps it out. Nothing was published and no offset "
                    "was moved. Take it away and run the commit again."
                )
            leaving = [(each, of_ranges(each, replaced)) for each in self._there(connection)] if replaced else []
            for table, which in leaving:
                connection.execute(delete(table).where(which))
            if leaving:
                self._check_sees_all(connection)
            for each in copies:
                if staged is not None and each.table.state is not None:
                    self._apply(connection, staged, each.rows, each.table.state)
                else:
                    changes = ANY_CHANGE if replaced else INSERTION
                    each.table.add(connection, mark.batch_id, each.rows, each.number, changes)
            for table, which in leaving:  # after the new rows, for which a foreign key may wait
                check_gone(connection, table, which)
            self._table.drop_copies(connection, mark.batch_id)
            if self._complete is not None and self._complete(connection):
                marks = self._table.marks
                said = marks.c.proof.op("||")(in_one(one=True))
                connection.execute(update(marks).where(marks.c.batch_id == mark.batch_id).values(proof=said))
        return mark

    def _apply(self, connection: Connection, staged: Staged, copied: Table, state: CurrentState) -> None:
        """Change the rows of keys by a batch's events, and add to its mark what was done."""
        # One at a time: what a key's row is from decides, and truncations of others count.
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"states of {self._table}", 0))))
        batch_id, marks = staged.receipt.batch_id, self._table.marks
        events = self._events(connection, staged, copied)
        own = events.truncations(connection)
        truncations = self._truncations(events, connection)
        if truncations:  # which will have removed rows, of whichever partition
            self._check_moved(events, connection, truncations, batch_id)
        moved, short, changes = events.apply(connection, batch_id, state, truncations)
        if own:
            self._table.check_sees_all(connection)
        if moved:
            self._check_moved(events, connection, truncations, batch_id)
        if short or changes.records != staged.receipt.rows:
            raise OtherCountError(
                f"expected {counted(staged.receipt.rows, 'event')} and all rows of keys that they change, found "
                f"{changes.records:,} and {counted(short, 'row')} too few"
            )
        rows = changes.inserted + changes.updated + (0 if state.removes else changes.deleted)
        self._table.check_stayed(connection, batch_id, rows, ANY_CHANGE)
        said = replace(changes, truncations=own).as_document()
        connection.execute(update(marks).where(marks.c.batch_id == batch_id).values(changes=said))

    def _events(self, connection: Connection, staged: Staged, copied: Table) -> StagedEvents:
        assert self._table.state is not None  # noqa: S101 - callers have looked
        from kafka_ingest.sinks.postgresql import copied_rows  # noqa: PLC0415 - see _copy

        there = self._table.columns_in(connection)
        key = copied_rows.events_of(staged, self._table.state).key
        return StagedEvents(copied, self._table.with_columns(there), key, there)

    def _truncations(self, events: StagedEvents, connection: Connection) -> list[Truncation]:
        """Return the newest truncations of a batch and of all that were published."""
        known = known_truncations(connection, self._table.marks)
        newest = {each[:3]: each for each in sorted([*known, *events.truncations(connection)], key=itemgetter(3))}
        return list(newest.values())

    def _check_moved(
        self, events: StagedEvents, connection: Connection, truncations: list[Truncation], batch_id: UUID
    ) -> None:
        """Raise OutputConflictError where no offset orders a key's events."""
        if found := events.moved(connection, truncations):
            raise OutputConflictError(
                f"{self._table}: expected all events of a key in one partition of one topic, whose offsets order them, "
                f"found in batch {batch_id} {listing(found)}. Nothing was published and no offset was moved. Were "
                "partitions added to the topic, was it made again, or does another topic have the same keys? Where the "
                "earlier partition or topic has no newer event of its keys, delete the rows that are from it and run "
                "the commit again; or give the feed another sink.path and sink.table, and "
                f"{how_to_abandon(batch_id)}."
            )

    def delete_rows(self, batch_id: UUID) -> None:
        with self._table.transaction() as connection:
            for table in self._there(connection):
                delete_all(connection, table, of_batch(table, batch_id))
            self._check_sees_all(connection)

    def make_durable(self) -> None:
        """Do nothing: a transaction that was answered is on the disk."""

    def _copy(self, staged: Staged | None) -> list[Copied]:
        """Return the tables with an attempt's rows and dead letters, which are copied where they are not yet."""
        if staged is None:
            return []
        # A third of a second and a driver, in the task that commits only.
        from kafka_ingest.sinks.postgresql.copied_rows import copied  # noqa: PLC0415

        parts = [(self._table, staged.part(late=False)), (self._late, staged.part(late=True))]
        if self._letters is not None and (letters := self._letters.of(staged)) is not None:
            parts.append((self._letters.table, letters))
        return [Copied(table, copied(part, table), part.receipt.rows) for table, part in parts if part.receipt.files]

    def _make_partitions(self, copies: Sequence[Copied]) -> None:
        for each in copies:
            if each.table.by_time is not None:
                make_partitions(each.table, each.rows, each.table.by_time)

    def _refused(
        self, mark: Mark, staged: Staged | None, copies: Sequence[Copied], error: DBAPIError
    ) -> OutputConflictError:
        """Return the error that names the record whose row the table refuses, if copied rows alone show which."""
        found: Sequence[Refused] = ()
        for each in copies:
            with self._undone() as connection:
                is_of_state = staged is not None and each.table.state is not None
                events = self._events(connection, staged, each.rows) if staged and is_of_state else None
                rows = events.newest() if events is not None else select(each.rows)
                add = self._adding(connection, mark.batch_id, each.table, events)
                found = found or refused_rows(connection, add, rows, each.rows, most=1)
        record = f"{found[0][0]}@{found[0][1]}" if found else "a row"
        return OutputConflictError(
            f"{self._table}: expected to add all rows of batch {mark.batch_id}, found that the table refuses {record}: "
            f"{self._table.database.cause(error)}. Nothing was published and no offset was moved. Change the table's "
            f"constraint, or the row that is in the way, and run the commit again; or {how_to_abandon(mark.batch_id)}, "
            "as the feed then decodes them: with sink.on_refused: dead_letter, rows that are refused are dead letters."
        )

    def _adding(
        self, connection: Connection, batch_id: UUID, to: NamedTable, events: StagedEvents | None = None
    ) -> Add:
        """Return what adds some of a batch's rows, or applies some of its events."""
        state = to.state
        if events is not None and state is not None:
            return lambda part: replace(events, events=part).apply(connection, batch_id, state, ())
        return lambda part: connection.execute(to.insertion(connection, batch_id, part))

    @contextmanager
    def _undone(self) -> Iterator[Connection]:
        """Run what is undone at its end in one transaction."""
        with self._table.transaction() as connection, connection.begin_nested() as undone:
            yield connection
            undone.rollback()
