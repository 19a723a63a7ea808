"""An Iceberg table as the shared roles of tables need it: commits to its catalog decide (:mod:`.commits`).

Whether another program's clean-up could take staged files at this moment.

``remove_orphan_files`` deletes files that no snapshot names and that are older than three days, unless it is asked for
another age. It deletes what it has listed, even if a file changes afterwards. So files that are nearly that old are
renewed, and committed only once a clean-up that saw them as old must have ended.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.counting import are, counted
from kafka_ingest.foundation.storage import Opened, names_in, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.place import Place, below
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.replaced import ReplacedRange
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.iceberg.absent_table import is_absent
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings, FindCatalog
from kafka_ingest.sinks.iceberg.library import check_can_reach, check_installed
from kafka_ingest.sinks.iceberg.marks import OlderMarks
from kafka_ingest.sinks.iceberg.places import BATCHES, DATA, METADATA, NOT_IN_LOCATIONS, NOT_IN_NAMES
from kafka_ingest.sinks.tables.decoded_columns import in_the_words_of, last_names, wrong_names
from kafka_ingest.sinks.tables.marks import Mark
from kafka_ingest.sinks.tables.output import ReplacedFile, TableReplacement
from kafka_ingest.sinks.tables.staged_age import renew_older

OLDEST_S = 2 * 86_400.0


def check_safe_from_clean_up(files: Iterable[Opened]) -> None:
    """Raise OutputUnavailableError where files are so old that a clean-up could take them; they are renewed."""
    old = renew_older(files, OLDEST_S)
    if not old:
        return
    raise OutputUnavailableError(
        f"{old[0].parent}: {counted(len(old), 'staged file')} {are(len(old))} older than {OLDEST_S / 86_400:.0f} "
        f"days, so that "
        "remove_orphan_files may take them while they are committed. They were renewed. No offset was moved; run this "
        "again after every remove_orphan_files of this table that runs now has finished."
    )


if TYPE_CHECKING:
    from kafka_ingest.ports.outputs import Statistics
    from kafka_ingest.sinks.iceberg.commits import IcebergCommits
    from kafka_ingest.sinks.iceberg.table import IcebergTable
    from kafka_ingest.sinks.iceberg.table_rows import IcebergRows

WITH_LIBRARY = "kafka_ingest.sinks.iceberg.table"
CATALOG, TABLE = "catalog", "table"
"""The options of an output: the id of the catalog's connection, and the table's name with its namespace."""


class IcebergOutput:
    """The table in a directory, or in a store that ``access`` leads to.

    The catalog is asked when the table is first needed.
    """

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
        self.replacement: TableReplacement | None = self
        self.statistics: Statistics | None = None
        self.options = form
        self.own_columns = False
        self.says = f"the marks of Iceberg table {self._address.get(TABLE, '')} in {self.output} say"

    @cached_property
    def _in_catalog(self) -> tuple[CatalogSettings, str]:
        """How the table's catalog is reached, and its name there."""
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
        # Seconds, threads and connections, and a process that is forked afterwards cannot use them: see .library.
        from kafka_ingest.sinks.iceberg.table import IcebergTable  # noqa: PLC0415

        return IcebergTable(self.output, settings, name, self._access, self.options)

    def _is_absent(self) -> bool:
        """Whether there surely is no table yet, so that the library need not be imported; once it is, it says so."""
        return WITH_LIBRARY not in sys.modules and is_absent(self.output, *self._in_catalog, self._access)

    @cached_property
    def _commits(self) -> "IcebergCommits":
        table = self._table
        from kafka_ingest.sinks.iceberg.commits import IcebergCommits  # noqa: PLC0415 - pyarrow, for commits only

        return IcebergCommits(table, OlderMarks(opened(beside(self.output) / "marks", self._access)))

    def check_installed(self) -> None:
        """Raise InstallationError where the library is missing; imports nothing."""
        check_installed()

    def one_reading(self) -> AbstractContextManager[None]:
        """Ask the catalog once within this, and after each try to commit that failed."""
        return self._table.one_reading()

    def check_usable(self) -> None:
        """Raise OutputNotUsableError where batches cannot be added to what is there; creates nothing."""
        if wrong := [character for character in str(self.output) if character in NOT_IN_LOCATIONS]:
            raise OutputNotUsableError(
                f"expected a path without {' '.join(NOT_IN_LOCATIONS)}, which end the path in an Iceberg location, "
                f"found {wrong[0]!r} in {self.output}. Give the feed another sink.path."
            )
        if not self._is_absent():
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
        strange = next(
            (name for name in names if name.endswith(".parquet") or "=" in name or name == "_delta_log"), None
        )
        if strange is not None:
            raise OutputNotUsableError(
                f"expected an Iceberg table in {output}, or an empty directory to make one in, found {strange}: files "
                "of another output, which remove_orphan_files would delete. Give the feed another sink.path."
            )

    def check_can_remove(self) -> None:
        """Raise OutputNotUsableError on a table that cannot be written."""
        self._table.check_writable()

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark, None where it has none."""
        return self._commits.mark(batch_id)

    def rows(self) -> "IcebergRows":
        """Return what the newest snapshot holds."""
        return self._commits.rows()

    def published(self) -> set[str]:
        """Return the ids of the batches that the table knows as published; a first plan imports no pyarrow."""
        if self._is_absent():
            return set()
        with self.one_reading():
            return self.rows().published() if self._table.open() is not None else set()

    def columns_left_out(self) -> tuple[str, ...]:
        """Return the columns of the raw format that files leave out, since the table has no such columns."""
        return self._table.columns_left_out()

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        """Return the table's columns beside Kafka's own, as receipts list them; none where there is no table yet."""
        if self._is_absent() or (table := self._table.open()) is None:
            return {}
        from kafka_ingest.sinks.iceberg.decoded_columns import SAME, listed  # noqa: PLC0415 - the library, see above

        return in_the_words_of(listed(table.schema()), written, SAME)

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        """Yield which columns that are to be written the table cannot have, or has otherwise than by their type."""
        yield from wrong_names(last_names(written), NOT_IN_NAMES)
        if self._is_absent() or (table := self._table.open()) is None:
            return
        from kafka_ingest.sinks.iceberg.decoded_columns import misfits  # noqa: PLC0415 - the library, see above

        yield from misfits(table, written)

    def check_files(self, data: Opened, receipt: Receipt) -> None:
        """Raise StagedOutputUnusableError unless the files have the table's columns, and rows of this batch alone."""
        self._commits.check_files(data, receipt)

    def check_safe_from_clean_up(self, files: Sequence[Opened]) -> None:
        """Raise OutputUnavailableError where ``remove_orphan_files`` could take staged files."""
        check_safe_from_clean_up(files)

    def publish(self, mark: Mark, data: Place, receipt: Receipt) -> Mark:
        """Commit a batch's mark with its files; return the first writer's mark."""
        columns = self._commits.columns_of_files(opened(data, self._access), receipt)
        return self._commits.land(mark, self._added(data, receipt), columns=columns)

    def check_can_replace(self) -> None:
        """Raise OutputNotUsableError on a table that cannot be written."""
        self._table.check_writable()

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        """Yield the files with rows of some ranges; raises OutputNotUsableError where one holds other rows, too."""
        return self._commits.replaced_files(replaced)

    def publish_in_place_of(self, replaced: Sequence[ReplacedRange], mark: Mark, data: Place, receipt: Receipt) -> Mark:
        """Commit a batch's mark with its files, and without those of some ranges; return the first writer's mark."""
        columns = self._commits.columns_of_files(opened(data, self._access), receipt)
        return self._commits.land(mark, self._added(data, receipt), replaced, columns)

    def _added(self, data: Place, receipt: Receipt) -> dict[str, Opened]:
        """Return a batch's files by their names in the table's place."""
        return {below(data / each.name, self.output): opened(data, self._access) / each.name for each in receipt.files}

    def revoke(self, mark: Mark) -> Mark:
        """Commit the mark with an empty snapshot; return the first writer's mark."""
        return self._commits.land(mark)

    def delete_rows(self, batch_id: UUID) -> None:
        """Take a batch's own files out in one commit.

        Raises OutputNotUsableError where a compaction has put its rows into files of several batches: PyIceberg 0.12.0
        reads a null list of headers as an empty one, so it must not copy other batches' rows.
        """
        self._commits.delete_rows(batch_id)

    def make_durable(self) -> None:
        """Do nothing: all that a catalog names was flushed before (:mod:`.durable_io`), or put into the store."""
