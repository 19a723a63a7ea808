"""The parts of a Delta table that its roles share."""

from dataclasses import dataclass
from uuid import UUID

from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.foundation.storage import Opened, opened
from kafka_ingest.model.place import Place
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.data_in_table import DataInTable
from kafka_ingest.sinks.delta.places import BATCHES
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.delta.table_rows import TableRows
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.receipt_archive import ArchivedReceipts
from kafka_ingest.sinks.staged_files import StagedFiles


@dataclass(frozen=True, slots=True)
class DeltaParts:
    """The table, and the folder beside it."""

    output: Place
    beside: Place
    access: S3Access | None
    staging: StagedFiles
    data: DataInTable
    receipts: KeptReceipts
    archive: ArchivedReceipts
    log: TableLog

    @classmethod
    def at(cls, output: Place, access: S3Access | None = None) -> "DeltaParts":
        """Return the parts of the table in a directory, or in a store that ``access`` leads to."""
        folder: Place = beside(output)
        receipts = KeptReceipts(opened(folder / "receipts", access))
        log = TableLog(output, access)

        def is_needed(directory: Place) -> bool:
            """Whether an attempt's data is published: by its receipt, or, where that was lost, by the table."""
            if receipts.is_of_attempt(UUID(directory.parent.name), int(directory.name)):
                return True
            return TableRows(log).names_files_below(data.place(directory))

        data = DataInTable(output / BATCHES, is_needed)
        staging = StagedFiles(folder / "staging", data, access)
        archive = ArchivedReceipts(
            receipts, staging.check_mounted, lambda batch_id: TableRows(log).is_visible(batch_id)
        )
        return cls(output, folder, access, staging, data, receipts, archive, log)

    def rows(self) -> TableRows:
        """Return what the table holds now."""
        return TableRows(self.log)

    def place_of(self, receipt: Receipt) -> Place:
        """Return where the data files of a receipt's attempt are."""
        return self.data.place(self.staging.attempt_directory(receipt.batch_id, receipt.attempt))

    def opened(self, place: Place) -> Opened:
        """Return what reads a place of this output."""
        return opened(place, self.access)
