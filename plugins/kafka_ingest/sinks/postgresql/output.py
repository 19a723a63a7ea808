"""A table in PostgreSQL as a plan asks for it. Its transactions decide (:mod:`.commits`)."""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Final
from uuid import UUID

from sqlalchemy import insert, select
from sqlalchemy.dialects import postgresql

from kafka_ingest.errors import ColumnsChangedError, OutputNotUsableError
from kafka_ingest.foundation.storage import names_in, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.dead_letters import SUFFIX, output_of_dead_letters
from kafka_ingest.model.omissions import RefusedRows
from kafka_ingest.model.partition_term import output_of_late_rows
from kafka_ingest.model.place import DATA, OutputLocation, Place
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, EventLayout, TableOptions
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.ports.outputs import Within
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.postgresql import columns as its
from kafka_ingest.sinks.postgresql.commits import PostgresqlCommits
from kafka_ingest.sinks.postgresql.database import Database, FindDatabase
from kafka_ingest.sinks.postgresql.dead_letters import OPTIONS, LettersTable
from kafka_ingest.sinks.postgresql.named_table import IN_ONE, LATE_ROWS, LETTERS, NamedTable
from kafka_ingest.sinks.postgresql.time_partitions import what_doctor_says
from kafka_ingest.sinks.staged_files import check_listing
from kafka_ingest.sinks.tables.publisher import is_revoked
from kafka_ingest.sinks.tables.table_format import Mark, Outcome, Staged
from kafka_ingest.sinks.usable_places import beside, check_has_package, storage_errors

log = logging.getLogger(__name__)

VERSION: Final = "1.13.0"
"""Of the driver, as requirements-postgresql.txt pins it; a test compares the two."""
CONN_ID, TABLE = "conn_id", "table"
"""The options of an output: the id of the database's connection, and the table's name with its schema."""


class PostgresqlOutput:
    """A table by its connection and name, asked for when it is first needed; batches are staged beside ``output``.

    A :class:`.TableFormat`.
    """

    own_columns = False
    data_folder = None

    def __init__(
        self,
        output: OutputLocation,
        find_database: FindDatabase,
        access: StoreAccess | None = None,
        options: TableOptions = NO_TABLE_OPTIONS,
        complete: Within | None = None,
    ) -> None:
        self.output = output.place
        self._output = output
        self._complete = complete
        self._access = access
        self.options = options
        self._address: Mapping[str, str] = dict(output.options)
        self._find_database = find_database

    @cached_property
    def _table(self) -> NamedTable:
        if missing := [name for name in (CONN_ID, TABLE) if name not in self._address]:
            raise OutputNotUsableError(
                f"expected to know which table in PostgreSQL has the batches of {self.output}, found no "
                f"{' and no '.join(missing)}: its path alone does not say it. Ask by the feed or the batch instead."
            )
        settings = self._find_database(self._address[CONN_ID])
        return NamedTable(Database(settings), self._address[TABLE], self.options)

    @cached_property
    def letters(self) -> LettersTable:
        def find() -> NamedTable:
            return NamedTable(self._table.database, f"{self._address[TABLE]}{SUFFIX}", OPTIONS, LETTERS)

        letters = output_of_dead_letters(self._output).place
        notes = KeptReceipts(opened(beside(letters) / "receipts", self._access))
        return LettersTable(find, lambda batch_id: notes.removal(batch_id) is not None)

    @cached_property
    def _late(self) -> NamedTable:
        named = dict(output_of_late_rows(self._output).options)
        return NamedTable(self._table.database, named[TABLE], self.options, LATE_ROWS)

    def check_late(self) -> None:
        self._late.check_usable()

    @cached_property
    def commits(self) -> PostgresqlCommits:
        return PostgresqlCommits(self._table, self._late, self._complete, self.letters)

    def check_installed(self) -> None:
        check_has_package("postgresql", "adbc_driver_postgresql", VERSION)

    def one_reading(self) -> AbstractContextManager[None]:
        """Spare nothing: no look reads the whole table."""
        return nullcontext()

    def check_usable(self) -> None:
        place = opened(self.output, self._access)
        if found := names_in(place) if not isinstance(place, Path) or place.is_dir() else []:
            raise OutputNotUsableError(
                f"expected nothing in {self.output}, beside which batches for {self._table} are staged, found "
                f"{found[0]}: another output is there. Give the feed another sink.path."
            )
        self._table.check_usable()

    def published(self) -> set[str]:
        return self.commits.rows().published()

    def columns_left_out(self) -> tuple[str, ...]:
        there = self._columns()
        return self.options.left_out(there) if there else ()

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        """Return none: jsonb takes any parts, so receipts say what was written; :meth:`misfits` compares the table."""
        del written
        return {}

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        columns, there = its.columns_in(written), self._columns()
        key: Collection[str] = ()
        if self.options.current is not None:
            try:
                layout = EventLayout.of(written)
            except ColumnsChangedError as error:
                yield str(error)
                return
            columns, key = layout.columns(written), layout.key
        yield from its.differences(there, columns, key)
        if there:
            yield from its.unwritten(there, [*columns, *its.OWN])

    def forget(self, batch_id: UUID, attempt: int) -> None:
        """Drop what was copied of an attempt."""
        with self._table.transaction() as connection:
            self._table.drop_copies(connection, batch_id, str(attempt))

    def refused(self, directory: Place, receipt: Receipt) -> tuple[RefusedRows, ...]:
        with storage_errors(self.output):
            data = opened(directory / DATA, self._access)
            check_listing(data, receipt)
            return self.commits.refused(Staged("", data, receipt))

    def in_transaction(self, look: Within) -> bool:
        with self._table.transaction() as connection:
            return look(connection)

    def in_one(self, batch_id: UUID) -> bool | None:
        """Return what a batch's mark says of its transaction; None where it says nothing."""
        marks = self._table.marks
        with self._table.transaction() as connection:
            said = select(marks.c.proof[IN_ONE].as_boolean()).where(marks.c.batch_id == batch_id)
            return connection.execute(said).scalar_one_or_none() if self._table.has(connection, marks) else None

    def lost(self, batch_ids: Collection[str], actor: str | None) -> set[str]:
        """Return of which batches neither mark nor rows are there; with an actor, none of them can be published later.

        Their receipts stay: where this is a copy of a database, they are of the original's batches.
        """
        marks = {each: self.commits.mark(UUID(each)) for each in batch_ids}
        unmarked = {each for each, mark in marks.items() if mark is None}
        unmarked -= self.commits.rows().visible(unmarked)
        for each in sorted(unmarked) if actor is not None else ():
            marks[each] = self.commits.land(Mark(UUID(each), Outcome.REVOKED))
            log.warning(
                "%s has lost batch %s; %s revokes it: a live one's records are read again; ask again for a backfill",
                self._table,
                each,
                actor,
            )
        return {each for each, mark in marks.items() if is_revoked(mark) or (actor is None and each in unmarked)}

    def lacks(self, batch_id: UUID) -> str:
        """Return why this table cannot be the one that a batch was published in; an empty text if it has its mark."""
        mark, table = self.commits.mark(batch_id), self._table
        if mark is not None and mark.outcome is Outcome.PUBLISHED:
            return ""
        values = {"batch_id": batch_id, "outcome": Outcome.PUBLISHED.value, "plan_fingerprint": ""}
        marking = insert(table.marks).values(values)
        statement = marking.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
        again = "`backfill FEED batch=ID --when overlap=replace` reads its records again"
        if table.state is not None:
            again = "`reset FEED` back to the first of their offsets reads them again, which changes nothing newer"
        return (
            f"{table}, reached through connection {self._address[CONN_ID]!r}, has no mark of it. Do {CONN_ID} and "
            "sink.table lead where they led? Correct them; a table that is to be a new one needs another sink.path, "
            f"too. If the database has lost the batch (a backup, a failover), run there {statement}: then "
            f"`kafka-ingest coverage FEED --verify` names each batch that it lacks, and {again}"
        )

    def remark(self) -> str:
        """Return what doctor says of the table besides."""
        return what_doctor_says(self._table) if self._table.by_time is not None else ""

    def _columns(self) -> dict[str, its.Column]:
        with self._table.transaction() as connection:
            return self._table.columns_in(connection)
