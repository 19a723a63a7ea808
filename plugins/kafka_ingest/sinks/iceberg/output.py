"""An Iceberg table as a plan asks for it: without the library where that is not needed, and without pyarrow.

Commits to its catalog decide (:mod:`.commits`). The library starts threads and opens connections that a process forked
since cannot use; Airflow forks its tasks. So :mod:`.table` is imported when the table is first needed.
"""

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_ingest.errors import InstallationError, OutputNotUsableError
from kafka_ingest.foundation.storage import names_in, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.iceberg.catalog_settings import GLUE, CatalogSettings, FindCatalog
from kafka_ingest.sinks.iceberg.marks import OlderMarks
from kafka_ingest.sinks.iceberg.places import BATCHES, DATA, METADATA, NOT_IN_LOCATIONS, NOT_IN_NAMES
from kafka_ingest.sinks.tables.decoded_columns import in_the_words_of, last_names, wrong_names
from kafka_ingest.sinks.tables.table_format import Staged, refuse_strangers
from kafka_ingest.sinks.usable_places import beside, check_has_package

if TYPE_CHECKING:
    from kafka_ingest.sinks.iceberg.commits import IcebergCommits
    from kafka_ingest.sinks.iceberg.table import IcebergTable

VERSION = "0.12.0"
"""As requirements-iceberg.txt pins it; a test compares the two."""


def check_installed() -> None:
    """Raise InstallationError where the library is missing; imports nothing."""
    check_has_package("iceberg", "pyiceberg", VERSION)


def check_can_reach(settings: CatalogSettings) -> None:
    """Raise InstallationError where the library reaches a kind of catalog by a package that is missing."""
    if settings.kind == GLUE and importlib.util.find_spec("boto3") is None:
        raise InstallationError(
            f"connection {settings.conn_id!r}: an Iceberg catalog of type {GLUE} needs the Python package boto3, found "
            "none here. Install it where the tasks and the command line run: pip install "
            f'"pyiceberg[glue]=={VERSION}", or use another catalog.'
        )


CATALOG, TABLE = "catalog", "table"
"""The options of an output: the id of the catalog's connection, and the table's name with its namespace."""


class IcebergOutput:
    """The table in a directory, or in a store that ``access`` leads to.

    A :class:`.TableFormat`. The catalog is asked when the table is first needed.
    """

    check_installed = staticmethod(check_installed)

    def __init__(
        self,
        location: OutputLocation,
        find_catalog: FindCatalog,
        access: StoreAccess | None = None,
        form: TableOptions = NO_TABLE_OPTIONS,
    ) -> None:
        self.output = location.place
        self.data_folder = self.output / DATA / BATCHES
        self._access = access
        self._address: Mapping[str, str] = dict(location.options)
        self._find_catalog = find_catalog
        self.options = form
        self.own_columns = False

    @cached_property
    def _in_catalog(self) -> tuple[CatalogSettings, str]:
        check_installed()
        if missing := [name for name in (CATALOG, TABLE) if name not in self._address]:
            raise OutputNotUsableError(
                f"expected to know which catalog has the Iceberg table in {self.output}, found no "
                f"{' and no '.join(missing)}: its path alone does not say it. Ask by the feed or the batch instead."
            )
        settings = self._find_catalog(self._address[CATALOG])
        check_can_reach(settings)
        return settings, self._address[TABLE]

    @cached_property
    def _table(self) -> "IcebergTable":
        settings, name = self._in_catalog
        # Seconds, threads and connections, and a process that is forked afterwards cannot use them.
        from kafka_ingest.sinks.iceberg.table import IcebergTable  # noqa: PLC0415

        return IcebergTable(self.output, settings, name, self._access, self.options)

    @cached_property
    def commits(self) -> "IcebergCommits":
        table = self._table
        from kafka_ingest.sinks.iceberg.commits import IcebergCommits  # noqa: PLC0415 - pyarrow, for commits only

        return IcebergCommits(table, OlderMarks(opened(beside(self.output) / "marks", self._access)))

    def open_or_create(self, staged: Staged) -> None:
        self.commits.open_or_create(staged)

    def one_reading(self) -> AbstractContextManager[None]:
        """Ask the catalog once within this, and after each try to commit that failed."""
        return self._table.one_reading()

    def check_usable(self) -> None:
        if wrong := [character for character in str(self.output) if character in NOT_IN_LOCATIONS]:
            raise OutputNotUsableError(
                f"expected a path without {' '.join(NOT_IN_LOCATIONS)}, which end the path in an Iceberg location, "
                f"found {wrong[0]!r} in {self.output}. Give the feed another sink.path."
            )
        self._table.check_writable()
        self._check_no_other_files()

    def _check_no_other_files(self) -> None:
        """Raise OutputNotUsableError where a directory that is no table holds another output's files."""
        output = opened(self.output, self._access)
        found = names_in(output) if not isinstance(output, Path) or output.is_dir() else []
        if METADATA in found:
            return
        names = [name for name in found if name != DATA]
        if DATA in found:
            names += [f"{DATA}/{name}" for name in names_in(output / DATA) if name != BATCHES]
        refuse_strangers(names, output, "an Iceberg", "remove_orphan_files")

    def published(self) -> set[str]:
        """Return the ids of the batches that the table knows as published; a first plan imports no pyarrow."""
        with self.one_reading():
            return self.commits.rows().published() if self._table.open() is not None else set()

    def columns_left_out(self) -> tuple[str, ...]:
        return self._table.columns_left_out()

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        if (table := self._table.open()) is None:
            return {}
        from kafka_ingest.sinks.iceberg.columns import SAME, listed  # noqa: PLC0415 - the library, see above

        return in_the_words_of(listed(table.schema()), written, SAME)

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        yield from wrong_names(last_names(written), NOT_IN_NAMES)
        if (table := self._table.open()) is None:
            return
        from kafka_ingest.sinks.iceberg.columns import misfits  # noqa: PLC0415 - the library, see above

        yield from misfits(table, written)
