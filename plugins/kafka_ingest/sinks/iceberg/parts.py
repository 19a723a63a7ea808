"""The parts of an Iceberg table that its roles share."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.place import Place, local
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.data_in_table import DataInTable
from kafka_ingest.sinks.iceberg.catalog_settings import FindCatalog
from kafka_ingest.sinks.iceberg.library import check_installed
from kafka_ingest.sinks.iceberg.marks import OlderMarks
from kafka_ingest.sinks.iceberg.places import BATCHES, DATA
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.receipt_archive import ArchivedReceipts
from kafka_ingest.sinks.staged_files import StagedFiles

if TYPE_CHECKING:
    from kafka_ingest.sinks.iceberg.table import IcebergTable

CATALOG, TABLE = "catalog", "table"
"""The options of an output: the id of the catalog's connection, and the table's name with its namespace."""


@dataclass(frozen=True)
class IcebergParts:
    """The table, and the folder beside it. The catalog is asked when the table is first needed."""

    output: Path
    options: Mapping[str, str]
    find_catalog: FindCatalog

    @classmethod
    def of(cls, location: OutputLocation, find_catalog: FindCatalog) -> "IcebergParts":
        """Return the parts of an output."""
        return cls(location.path, dict(location.options), find_catalog)

    @cached_property
    def table(self) -> "IcebergTable":
        """The table in its catalog."""
        check_installed()
        if missing := [name for name in (CATALOG, TABLE) if name not in self.options]:
            raise OutputNotUsableError(
                f"expected to know which catalog has the Iceberg table in {self.output}, found no "
                f"{' and no '.join(missing)}: its path alone does not say it. Ask by the feed or the batch instead."
            )
        # Seconds, threads and connections, and a process that is forked afterwards cannot use them: see .library.
        from kafka_ingest.sinks.iceberg.table import IcebergTable  # noqa: PLC0415

        settings = self.find_catalog(self.options[CATALOG])
        return IcebergTable(self.output, settings, self.options[TABLE], self.older_marks)

    @cached_property
    def beside(self) -> Path:
        """The folder beside the table."""
        return beside(self.output)

    @cached_property
    def older_marks(self) -> OlderMarks:
        """The marks that the table does not carry any more."""
        return OlderMarks(self.beside / "marks")

    @cached_property
    def receipts(self) -> KeptReceipts:
        """The receipts of published batches."""
        return KeptReceipts(self.beside / "receipts")

    @cached_property
    def data(self) -> DataInTable:
        """Where data files are."""
        return DataInTable(self.output / DATA / BATCHES, self._is_needed)

    @cached_property
    def staging(self) -> StagedFiles:
        """Where attempts are."""
        return StagedFiles(self.beside / "staging", self.data)

    @cached_property
    def archive(self) -> ArchivedReceipts:
        """The receipts, with named storage errors."""
        return ArchivedReceipts(
            self.receipts, self.staging.check_mounted, lambda batch_id: self.table.rows().is_visible(batch_id)
        )

    def place_of(self, receipt: Receipt) -> Path:
        """Return where the data files of a receipt's attempt are."""
        return self.data_of(self.staging.attempt_directory(receipt.batch_id, receipt.attempt))

    def data_of(self, directory: Place) -> Path:
        """Return where the data files of the attempt in a directory are."""
        return local(self.data.place(directory))

    def _is_needed(self, directory: Place) -> bool:
        """Whether an attempt's data is published: by its receipt, or, where that was lost, by the table."""
        batch_id, attempt = UUID(directory.parent.name), int(directory.name)
        if self.receipts.is_of_attempt(batch_id, attempt):
            return True
        return self.table.rows().names_files_of(batch_id, attempt)
