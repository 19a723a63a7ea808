"""What changes a table in PostgreSQL: the one transaction that publishes a batch, or revokes it, decides.

It is all in the server: the mark first, whose primary key lets a rival of the same batch wait, then the rows, which
were copied there before (:mod:`.copied_rows`).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, FromClause, Insert, Table, Text, Uuid, cast, delete, func, insert, literal, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as insert_new
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from kafka_ingest.errors import OutputConflictError, OutputUnavailableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch_column import BATCH_COLUMN
from kafka_ingest.model.replaced import ReplacedRange
from kafka_ingest.sinks.postgresql import columns as its
from kafka_ingest.sinks.postgresql.named_table import NamedTable
from kafka_ingest.sinks.postgresql.table_rows import POSITION, PostgresqlRows, of_ranges
from kafka_ingest.sinks.publish_or_revoke import how_to_abandon
from kafka_ingest.sinks.tables.table_format import CleanUp, Mark, ReplacedFile, Staged

REFUSALS: Final = {"P0001", "428C9"}
"""A trigger's RAISE EXCEPTION, and a value for a column that is GENERATED ALWAYS."""


class OtherCountError(Exception):
    """A transaction inserted another number of rows than the receipt says; it was undone."""


def is_refusal(error: DBAPIError) -> bool:
    """Whether the table refuses a row: by a constraint, its type, a trigger or a column that is always generated."""
    return isinstance(error, (IntegrityError, DataError)) or getattr(error.orig, "sqlstate", None) in REFUSALS


class PostgresqlCommits:
    """Looks at one table and adds to it: a :class:`.TableCommits`."""

    def __init__(self, table: NamedTable) -> None:
        self.says = f"the marks of {table} say"
        self._table = table

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark as of now, None where it has none."""
        table = self._table
        with table.transaction() as connection:
            return table.mark_in(connection, batch_id) if table.has(connection, table.marks) else None

    def rows(self) -> PostgresqlRows:
        """Return what the table holds."""
        table = self._table
        with table.transaction() as connection:
            there = table.columns_in(connection)
            marks = table.marks if table.has(connection, table.marks) else None
        return PostgresqlRows(table.database, str(table), table.with_columns(there) if there else None, marks)

    def clean_up(self) -> CleanUp:
        """Return that no other program takes staged files, which lie in a folder of their own."""
        return CleanUp("no program", math.inf)

    def check_can_remove(self, *, replacing: bool = False) -> None:
        """Do nothing: rows can be deleted; the role's right is asked for by the statement."""

    def check_files(self, staged: Staged) -> None:
        """Check the files, compare their columns with the table's, and copy the rows; raises ColumnsChangedError."""
        from kafka_ingest.sinks.tables.staged_checks import check_files  # noqa: PLC0415 - see _copy

        check_files(staged.data, staged.receipt, lambda _: (), (), alike=True)
        self._copy(staged)

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        """Yield the rows of some ranges, as if they were a file of their own."""
        for piece in self.rows().positions_of(replaced):
            yield ReplacedFile(str(self._table), size_bytes=0, rows=piece.num_rows, leaving=piece)

    def land(self, mark: Mark, staged: Staged | None = None, replaced: Sequence[ReplacedRange] = ()) -> Mark:
        """Commit a batch's mark with its rows; return the mark that it then has, which is the first writer's.

        Raises OutputConflictError where the table refuses a row, StagedOutputUnusableError where the staged files are
        not the receipt's.
        """
        self._table.make_marks()
        copied = None
        try:
            copied = self._copy(staged)
            try:
                return self.try_once(mark, copied, staged, replaced)
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
                raise self._refused(mark, None if replaced else copied, error) from None
            # Landed, a rival's, or neither: the mark says it. Where there is none, the next run asks again.
            if (found := self.mark(mark.batch_id)) is not None:
                return found
            if isinstance(error, DBAPIError):
                raise self._table.database.named(str(self._table), error) from None
            raise

    def try_once(
        self, mark: Mark, copied: Table | None, staged: Staged | None, replaced: Sequence[ReplacedRange]
    ) -> Mark:
        """Run the transaction that decides; after an error of the connection it is unknown whether it landed.

        The mark comes first: its primary key lets a rival of the same batch wait until this has ended.
        """
        rows = staged.receipt.rows if staged is not None else 0
        with self._table.database.transaction() as connection:
            values = {"batch_id": mark.batch_id, "outcome": mark.outcome.value, "plan_fingerprint": mark.fingerprint}
            proof = cast(literal(mark.proof or None, Text()), JSONB)
            first = insert_new(self._table.marks).values(**values, proof=proof).on_conflict_do_nothing()
            if connection.execute(first.returning(self._table.marks.c.batch_id)).first() is None:
                self._table.drop_copies(connection, mark.batch_id)
                if (rivals := self._table.mark_in(connection, mark.batch_id)) is not None:
                    return rivals
                raise OutputConflictError(
                    f"{self._table}: expected a mark of batch {mark.batch_id} in {self._table.marks.name}, found that "
                    "none was added. A trigger, a rule or a policy keeps it out. Nothing was published and no offset "
                    "was moved. Take it away and run the commit again."
                )
            if replaced:
                table = self._table.with_columns(self._table.columns_in(connection))
                connection.execute(delete(table).where(of_ranges(table, replaced)))
            if copied is not None:
                counting = connection.execution_options(preserve_rowcount=True)
                found = counting.execute(self._insertion(connection, mark.batch_id, copied)).rowcount
                if found != rows:
                    raise OtherCountError(f"expected to add {counted(rows, 'row')}, found that {found:,} were added")
            self._table.drop_copies(connection, mark.batch_id)
        return mark

    def delete_rows(self, batch_id: UUID) -> None:
        """Delete a batch's rows in one transaction; its mark stays."""
        with self._table.transaction() as connection:
            if there := self._table.columns_in(connection):
                table = self._table.with_columns(there)
                connection.execute(delete(table).where(table.c[BATCH_COLUMN] == batch_id))

    def make_durable(self) -> None:
        """Do nothing: a transaction that was answered is on the disk."""

    def _copy(self, staged: Staged | None) -> Table | None:
        """Return the table with an attempt's rows, which are copied where they are not yet; None without rows."""
        if staged is None or not staged.receipt.files:
            return None
        # A third of a second and a driver, in the task that commits only.
        from kafka_ingest.sinks.postgresql import copied_rows  # noqa: PLC0415

        self._table.fit(copied_rows.columns_of_files(staged))
        table = copied_rows.copied_table(staged, self._table.schema)
        for last in (False, True):
            with self._table.transaction() as connection:
                if self._table.has(connection, table):
                    return table
            try:
                copied_rows.copy_rows(staged, table, self._table.database.settings)
            except OutputUnavailableError:
                if last:
                    raise
        return table

    def _insertion(self, connection: Connection, batch_id: UUID, rows: FromClause) -> Insert:
        """Return the statement that adds copied rows to the table."""
        there = self._table.columns_in(connection)
        values = [cast(each, JSONB) if there[each.key].type == its.JSON else each for each in rows.c]
        return insert(self._table.with_columns(there)).from_select(
            [*rows.c.keys(), BATCH_COLUMN], select(*values, literal(batch_id, Uuid()))
        )

    def _refused(self, mark: Mark, copied: Table | None, error: DBAPIError) -> OutputConflictError:
        """Return the error that names the record whose row the table refuses, if copied rows alone show which."""
        position = None
        if copied is not None:
            with self._table.transaction() as connection:
                position = self._refused_position(connection, mark.batch_id, copied)
        record = "{}-{}@{}".format(*position) if position is not None else "a row"
        return OutputConflictError(
            f"{self._table}: expected to add all rows of batch {mark.batch_id}, found that the table refuses {record}: "
            f"{self._table.database.cause(error)}. Nothing was published and no offset was moved. Change the table's "
            f"constraint, or the row that is in the way, and run the commit again; or {how_to_abandon(mark.batch_id)}, "
            "as the feed then decodes them."
        )

    def _refused_position(self, connection: Connection, batch_id: UUID, copied: Table) -> tuple[str, int, int] | None:
        """Return the position of one row that is refused by itself, None where none is; each try is undone."""
        order = [copied.c[name] for name in POSITION]
        first, end = 0, connection.execute(select(func.count()).select_from(copied)).scalar_one()
        while first < end:
            middle = max((first + end) // 2, first + 1)
            part = select(copied).order_by(*order).offset(first).limit(middle - first)
            try:
                with connection.begin_nested() as undone:
                    connection.execute(self._insertion(connection, batch_id, part.subquery()))
                    undone.rollback()
                first = middle
            except DBAPIError as error:
                if not is_refusal(error):
                    raise
                if middle == first + 1:
                    found = connection.execute(select(*order).order_by(*order).offset(first).limit(1)).one()
                    return found[0], found[1], found[2]
                end = middle
        return None
