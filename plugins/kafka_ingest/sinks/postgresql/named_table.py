"""A table in a database by its name: its columns, the table of its marks, and how both are made.

Two processes may make them at once: each change runs while no other one on the table does.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from uuid import UUID

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    FromClause,
    Index,
    Insert,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    bindparam,
    cast,
    false,
    func,
    insert,
    literal,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP
from sqlalchemy.schema import CreateColumn, DropTable

from kafka_ingest.errors import ColumnsChangedError, OutputNotUsableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import LATE, TIME, PartitionTerm
from kafka_ingest.model.table_options import DEFAULT, HOW_TO_TAKE_IT, MARKS, CurrentState, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, POSITION
from kafka_ingest.sinks.postgresql import columns as its
from kafka_ingest.sinks.postgresql.current_rows import HAS_TRUNCATIONS
from kafka_ingest.sinks.postgresql.database import Database
from kafka_ingest.sinks.postgresql.refused_rows import IMMEDIATE
from kafka_ingest.sinks.tables.decoded_columns import is_own
from kafka_ingest.sinks.tables.table_format import Mark, Outcome

POSITIONS, BATCHES = "_positions", "_batches"
"""What the names of its indexes add, which they keep where the table is renamed."""
CHANGES: Final = "changes"
"""The column of what a batch did to the rows of keys."""
IN_ONE: Final = "one_transaction"
"""What a proof says besides: whether the mark's transaction moved the stored offsets, too."""

COLUMNS: Final = text(
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', "
    "a.attgenerated <> '' OR a.attidentity = 'a', NOT a.attnotnull AND a.attgenerated = '' FROM pg_attribute a "
    "WHERE a.attrelid = to_regclass(:name) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)
RELATION: Final = text("SELECT relkind FROM pg_class WHERE oid = to_regclass(:name)")
TABLES: Final = {"r", "p"}
NOT_OF_ITS_TRANSACTIONS: Final = text(
    "SELECT oid::regclass::text, relkind = 'f' FROM pg_class WHERE (relpersistence = 'u' OR relkind = 'f') AND "
    "(oid = to_regclass(:name) OR oid IN (SELECT relid FROM pg_partition_tree(to_regclass(:name)))) ORDER BY 1"
)
"""The table and its partitions, those that are UNLOGGED or foreign ones."""
RIGHTS: Final = text(
    "SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE'), "
    "current_setting('transaction_read_only') = 'on' FROM pg_namespace WHERE nspname = :schema"
)
RIGHTS_OF_TABLE: Final = text("SELECT has_table_privilege(to_regclass(:name), :right)")
RULES: Final = text(
    "SELECT rulename::text, is_instead AND is_on FROM pg_rewrite, LATERAL (SELECT ev_enabled IN ('O', 'A') is_on) e "
    "WHERE ev_class = to_regclass(:name) AND ev_type::text = ANY(string_to_array(:events, ',')) AND (is_instead AND "
    "is_on OR :on_conflict AND (ev_type = '2' OR ev_type = '3' AND is_on)) ORDER BY 1"
)
"""Rows that INSTEAD moves away, the server says were added. ON CONFLICT it takes with no rule of INSERT or UPDATE.

Nor with one of UPDATE that is disabled.
"""
DOES_MORE: Final = text(
    "SELECT EXISTS (SELECT FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') AND tgtype & 2 = 0 AND "
    "tgtype & :bits <> 0 AND (tgrelid = to_regclass(:name) OR tgrelid IN "
    "(SELECT relid FROM pg_partition_tree(to_regclass(:name))))) OR EXISTS (SELECT FROM pg_rewrite WHERE ev_class = "
    "to_regclass(:name) AND NOT is_instead AND ev_enabled IN ('O', 'A') AND ev_type::text = "
    "ANY(string_to_array(:events, ',')))"
)
"""Whether triggers after some changes, also those of partitions, or rules may change its rows."""
Changes = Mapping[str, str | int]
INSERTION: Final[Changes] = {"events": "3", "bits": 4}
"""What the catalog calls it: the event of a rule, the bits of a trigger's type."""
ANY_CHANGE: Final[Changes] = {"events": "2,3,4", "bits": 4 | 8 | 16}
"""UPDATE, INSERT and DELETE; INSERT, DELETE and UPDATE."""
HIDES: Final = text(
    "SELECT current_user, pg_get_userbyid(relowner), ARRAY(SELECT polname::text FROM pg_policy WHERE polrelid = c.oid "
    "ORDER BY 1) FROM pg_class c WHERE oid = to_regclass(:name) AND row_security_active(oid)"
)
IS_UNIQUE: Final = text(
    "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = to_regclass(:name) AND indisunique AND indisvalid AND "
    "indimmediate AND indpred IS NULL AND indexprs IS NULL AND indnatts = indnkeyatts AND :columns = (SELECT "
    "array_agg(attname::text ORDER BY attname::text) FROM pg_attribute WHERE attrelid = indrelid AND attnum = "
    "ANY(indkey)) AND NOT EXISTS (SELECT FROM pg_attribute JOIN pg_collation ON pg_collation.oid = ANY("
    "array_append(indcollation::oid[], attcollation)) WHERE attrelid = indrelid AND attnum = ANY(indkey) AND "
    "NOT collisdeterministic))"
).bindparams(bindparam("columns", type_=ARRAY(Text())))
COPIES: Final = text("SELECT tablename FROM pg_tables WHERE schemaname = :schema AND starts_with(tablename, :name)")


def name_of_copy(batch_id: UUID, attempt: int | str) -> str:
    """Return the name of the table with an attempt's rows, or how those of a batch begin."""
    return f"kafka_ingest_{batch_id.hex}_{attempt}"


@dataclass(frozen=True, slots=True)
class Beside:
    """A table beside another one: what it has, the column by which it is known, and what ends its copies' names."""

    what: str
    column: str
    copies: str


LETTERS: Final = Beside("dead letters", "error_class", "_letters")
LATE_ROWS: Final = Beside("late rows", LATE, "_late")


class OtherCountError(Exception):
    """A transaction inserted another number of rows than the receipt says; it was undone."""


class NamedTable:
    """A table that need not be there yet. ``name`` is its schema and its own name; ``beside``: it is one beside it."""

    def __init__(self, database: Database, name: str, options: TableOptions, beside: Beside | None = None) -> None:
        self.database = database
        self.beside = beside
        self.schema, _, self.name = name.partition(".")
        self._options = options

    @property
    def end_of_copies(self) -> str:
        """What the names of the tables end with into which its rows are copied."""
        return self.beside.copies if self.beside is not None else ""

    @property
    def state(self) -> CurrentState | None:
        """How the newest state of each key is kept; None where each record is a row."""
        return self._options.current

    @property
    def by_time(self) -> PartitionTerm | None:
        """The term by which a new table has range partitions; None for a plain one."""
        return next(iter(self._options.partition_by), None)

    def __str__(self) -> str:
        return f"table {self.schema}.{self.name} in PostgreSQL"

    def transaction(self) -> AbstractContextManager[Connection]:
        """Return a transaction whose errors name this table."""
        return self.database.named_transaction(str(self))

    @cached_property
    def marks(self) -> Table:
        """The table of its marks: a row for each batch that was published or revoked, with what its commit holds."""
        return Table(
            f"{self.name}{MARKS}",
            MetaData(schema=self.schema),
            Column("batch_id", Uuid(), primary_key=True),
            Column("outcome", Text(), CheckConstraint("outcome IN ('published', 'revoked')"), nullable=False),
            Column("plan_fingerprint", Text(), nullable=False),
            Column("proof", JSONB()),
            Column("marked_at", TIMESTAMP(timezone=True), nullable=False, server_default=func.now()),
            *(
                [
                    Column(CHANGES, JSONB()),
                    Index(f"{self.name}_truncations", "batch_id", postgresql_where=HAS_TRUNCATIONS),
                ]
                if self.state is not None
                else []
            ),
        )

    def with_columns(self, columns: Iterable[str]) -> Table:
        """Return the table with these columns, for statements."""
        return Table(self.name, MetaData(schema=self.schema), *(Column(name) for name in columns))

    def columns_in(self, connection: Connection) -> dict[str, its.Column]:
        """Return the table's columns; none where there is no table, or where it is not the one beside another."""
        there = self._columns_of(connection, self.name)
        return there if self.beside is None or self._is_own(connection, there) else {}

    def _is_own(self, connection: Connection, there: Mapping[str, its.Column]) -> bool:
        """Whether what is there is the table beside another, and no view of it."""
        assert self.beside is not None  # noqa: S101 - callers have looked
        is_known = self.beside.column in there
        return is_known and connection.execute(RELATION, self.named(self.name)).scalar_one_or_none() in TABLES

    def _columns_of(self, connection: Connection, name: str) -> dict[str, its.Column]:
        return {row[0]: its.Column(*row) for row in connection.execute(COLUMNS, self.named(name))}

    def problems_in(self, connection: Connection) -> list[str]:
        """Return why batches cannot be added, or the table not be made; raises OutputNotUsableError without schema."""
        rights = connection.execute(RIGHTS, {"schema": self.schema}).one_or_none()
        if rights is None:
            raise OutputNotUsableError(
                f"{self}: expected its schema, found none of that name through connection "
                f"{self.database.settings.conn_id!r}. Make it, or correct sink.table."
            )
        *has_rights, is_read_only = rights
        missing = [right for right, has in zip(("USAGE", "CREATE"), has_rights, strict=True) if not has]
        problems = [f"no right {right} of the schema" for right in missing]
        problems += ["transactions that only read: a standby, or default_transaction_read_only"] * is_read_only
        of_table = self.named(self.name)
        if "USAGE" in missing:
            return problems
        taken = self._taken_in(connection)  # first: where another process makes them now, the table is there then
        if not (kind := connection.execute(RELATION, of_table).scalar_one_or_none()):
            return [*problems, *(f"{each} there already: rename or drop it" for each in taken)]
        if kind not in TABLES:
            problems.append("a view, or something else that is no table")
        for name in (self.name, self.marks.name):
            problems += [
                f"{found} in another server, whose transactions end by themselves"
                if is_foreign
                else f"{found} UNLOGGED, which a crash of the server empties"
                for found, is_foreign in connection.execute(NOT_OF_ITS_TRANSACTIONS, self.named(name))
            ]
        of_states = ["UPDATE", "DELETE"] if self.state is not None else []
        for name, called, changes in (
            (self.name, "the table", of_states),
            (self.marks.name, self.marks.name, of_states[:1]),
        ):
            needed = ("SELECT", "INSERT", *changes)
            has = {each: connection.execute(RIGHTS_OF_TABLE, {**self.named(name), "right": each}) for each in needed}
            # None of a table that is not there yet.
            missing = [right for right, found in has.items() if found.scalar_one() is False]
            problems += [f"no right {right} of {called}" for right in missing]
        done = INSERTION if self.state is None else ANY_CHANGE
        problems += [
            f"rule {rule}, which does something else INSTEAD"
            if is_instead
            else f"rule {rule}, with which the server takes no INSERT … ON CONFLICT: drop it"
            for rule, is_instead in connection.execute(
                RULES, {**of_table, **done, "on_conflict": self.state is not None}
            )
        ]
        there = self._columns_of(connection, self.name)
        if self.beside is not None and self.beside.column not in there:
            problems.append(f"one without {self.beside.column}: another one than that of {self.beside.what}")
        if self.beside is None and LATE in there:
            problems.append(f"one with {LATE}: that of another table's {LATE_ROWS.what}")
        return [*problems, *its.differences_of_table(there, self._options)]

    def _taken_in(self, connection: Connection) -> list[str]:
        """Return which names exist that are made with the table."""
        of_records = self.state is None and self.beside is not LETTERS
        added = [*([DEFAULT] if self.by_time is not None else []), *([POSITIONS, BATCHES] if of_records else [])]
        names = [f"{self.name}{each}" for each in added]
        return [each for each in names if connection.execute(RELATION, self.named(each)).first() is not None]

    def check_usable(self) -> None:
        with self.transaction() as connection:
            self._check_usable_in(connection)

    def _check_usable_in(self, connection: Connection) -> None:
        if wrong := self.problems_in(connection):
            raise OutputNotUsableError(
                f"{self}: expected a table that batches can be added to, found {listing(wrong)}. Nothing was "
                "written. Correct the table or the role's rights, or give the feed another sink.table. "
                f"{HOW_TO_TAKE_IT}"
            )

    def check_sees_all(self, connection: Connection) -> None:
        """Raise OutputNotUsableError where a policy applies to the role: of rows that it hides none is deleted.

        After a deletion, whose lock keeps policies as they are, it is certain.
        """
        if (found := connection.execute(HIDES, self.named(self.name)).one_or_none()) is not None:
            role, owner, policies = found
            raise OutputNotUsableError(
                f"{self}: expected that role {role} sees all rows that it is to delete, found row level security of "
                f"{self.name} ({listing(policies) or 'no policy, which hides all'}): rows that it hides would stay, "
                "and PostgreSQL does not say whether there are such. Nothing was changed. Let a superuser run "
                f"ALTER ROLE {role} BYPASSRLS, or connect as the table's owner, {owner}, to whom it applies only where "
                "it is forced; then run this again."
            )

    def has(self, connection: Connection, table: Table) -> bool:
        return connection.execute(RELATION, self.named(table.name)).scalar_one_or_none() is not None

    def mark_in(self, connection: Connection, batch_id: UUID) -> Mark | None:
        columns = self.marks.c
        query = select(columns.outcome, columns.plan_fingerprint).where(columns.batch_id == batch_id)
        found = connection.execute(query).one_or_none()
        return None if found is None else Mark(batch_id, Outcome(found.outcome), found.plan_fingerprint)

    def make_marks(self) -> None:
        """Make the table of marks where there is none, or add what those of a table of records lack."""
        with self.database.one_at_a_time(str(self)) as connection:
            if not (there := self._columns_of(connection, self.marks.name)):
                self.marks.create(connection)
            elif self.state is not None and CHANGES not in there:
                self._add(connection, self.marks, CHANGES)
                for index in self.marks.indexes:
                    index.create(connection)

    def fit(self, columns: Mapping[str, str], key: Sequence[str] = ()) -> None:
        """Make the table for rows with these columns, or add those that it lacks; raises ColumnsChangedError.

        OutputNotUsableError where it may have several rows of a key.
        """
        with self.database.one_at_a_time(str(self)) as connection:
            if self.beside is not None:  # here, where no other process makes it
                self._check_usable_in(connection)
            if not (there := self.columns_in(connection)):
                made = self._new_table(columns, key)
                made.create(connection)
                if self.by_time is not None:
                    quoted = connection.dialect.identifier_preparer
                    rest = Table(f"{self.name}{DEFAULT}", MetaData(schema=self.schema))
                    names = quoted.format_table(rest), quoted.format_table(made)
                    connection.exec_driver_sql("CREATE TABLE {} PARTITION OF {} DEFAULT".format(*names))
                return
            if wrong := list(its.differences(there, columns, key)):
                raise ColumnsChangedError(f"{self}: expected the columns that the table has, found {listing(wrong)}")
            unique = {**self.named(self.name), "columns": sorted(key)}
            if key and not connection.execute(IS_UNIQUE, unique).scalar_one():
                raise OutputNotUsableError(
                    f"{self}: expected a primary key or a unique index of the columns of records' keys, "
                    f"{', '.join(key)}, and no others, whose collations tell all texts apart, found none. Make one, or "
                    "give the feed another sink.table."
                )
            for name, kind in columns.items():
                if name not in there:
                    if is_own(name) and name not in self._options.to_add(its.OWN, there):
                        raise OutputNotUsableError(f"{self}: expected a column {name}, found none. {HOW_TO_TAKE_IT}")
                    table = self.with_columns({})
                    table.append_column(Column(name, its.type_of(kind)))
                    self._add(connection, table, name)

    def _add(self, connection: Connection, table: Table, name: str) -> None:
        added = CreateColumn(table.c[name]).compile(connection)
        named = connection.dialect.identifier_preparer.format_table(table)
        connection.exec_driver_sql(f"ALTER TABLE {named} ADD COLUMN {added}")

    def _new_table(self, columns: Mapping[str, str], key: Sequence[str]) -> Table:
        """Return the table as it is made: each key once, or each record, by topic id, too: a new topic's restart."""
        never_null = {*POSITION, *key}
        table = Table(
            self.name,
            MetaData(schema=self.schema),
            *(
                Column(name, its.type_of(kind), nullable=name not in never_null, autoincrement=False)
                for name, kind in columns.items()
            ),
            Column(BATCH_COLUMN, Uuid(), nullable=False),
            *([Column(LATE, Boolean(), nullable=False, server_default=true())] if self.beside is LATE_ROWS else []),
            postgresql_partition_by=f"RANGE ({TIME})" if self.by_time is not None else None,
        )
        if key:
            for name in its.OF_STATES:
                table.append_column(Column(name, Boolean(), nullable=False, server_default=false()))
            table.append_constraint(PrimaryKeyConstraint(*(table.c[name] for name in key)))
            return table
        if self.beside is LETTERS:  # a replay publishes once more what it cannot decode either
            table.append_constraint(PrimaryKeyConstraint(*(table.c[name] for name in (BATCH_COLUMN, *POSITION))))
            return table
        if {*POSITION, "kafka_topic_id"} <= columns.keys():
            position = [*(table.c[name] for name in POSITION), func.coalesce(table.c.kafka_topic_id, "")]
            position += [table.c[TIME]] if self.by_time is not None else []  # PostgreSQL asks for it
            Index(f"{self.name}{POSITIONS}", *position, unique=True)
            Index(f"{self.name}{BATCHES}", table.c[BATCH_COLUMN], postgresql_using="brin")
        return table

    def insertion(self, connection: Connection, batch_id: UUID, rows: FromClause) -> Insert:
        """Return what adds copied rows of a batch."""
        there = self.columns_in(connection)
        values = [cast(each, JSONB) if there[each.key].type == its.JSON else each for each in rows.c]
        return insert(self.with_columns(there)).from_select(
            [*rows.c.keys(), BATCH_COLUMN], select(*values, literal(batch_id, Uuid()))
        )

    def add(
        self, connection: Connection, batch_id: UUID, rows: FromClause, number: int, changes: Changes = INSERTION
    ) -> None:
        """Add copied rows of a batch, last of some changes; raises OtherCountError where they are not as many then."""
        counting = connection.execution_options(preserve_rowcount=True)
        found = counting.execute(self.insertion(connection, batch_id, rows)).rowcount
        if found != number:
            what = f"{counted(number, 'dead letter')} to {self}" if self.beside is LETTERS else counted(number, "row")
            raise OtherCountError(f"expected to add {what}, found that {found:,} were added")
        self.check_stayed(connection, batch_id, number, changes)

    def check_stayed(self, connection: Connection, batch_id: UUID, number: int, changes: Changes) -> None:
        """Raise OtherCountError where triggers, deferred ones, too, or rules have left another number of its rows.

        Triggers before an insertion are in the server's own count. Without any nothing is counted: few tables have an
        index of batches by another's hand.
        """
        if connection.execute(DOES_MORE, {**self.named(self.name), **changes}).scalar_one():
            connection.execute(IMMEDIATE)
            rows = self.with_columns([BATCH_COLUMN])
            counted_now = select(func.count()).select_from(rows).where(rows.c[BATCH_COLUMN] == batch_id)
            if (found := connection.execute(counted_now).scalar_one()) != number:
                raise OtherCountError(
                    f"expected {counted(number, 'row')} of batch {batch_id} after the triggers and rules of "
                    f"{self.name}, found {found:,}"
                )

    def drop_copies(self, connection: Connection, batch_id: UUID, attempt: str = "") -> None:
        """Drop what was copied of a batch, or of one attempt at it: with rows also what is for the tables beside."""
        name = name_of_copy(batch_id, attempt)
        of_attempt = {name, *(f"{name}{each.copies}" for each in (LETTERS, LATE_ROWS))}
        for found in connection.execute(COPIES, {"schema": self.schema, "name": name}).scalars().all():
            if found.endswith(self.end_of_copies) and (not attempt or found in of_attempt):
                connection.execute(DropTable(Table(found, MetaData(schema=self.schema)), if_exists=True))

    def named(self, name: str) -> dict[str, str]:
        return {"name": f'"{self.schema}"."{name}"'}
