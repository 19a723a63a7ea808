"""The parts of a Delta table that its roles share."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kafka_ingest.model.place import Place
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.delta.places import DataInTable
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.delta.table_rows import TableRows
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.receipt_archive import ArchivedReceipts
from kafka_ingest.sinks.staged_files import StagedFiles


@dataclass(frozen=True, slots=True)
class DeltaParts:
    """The table, and the folder beside it."""

    output: Path
    beside: Path
    staging: StagedFiles
    data: DataInTable
    receipts: KeptReceipts
    archive: ArchivedReceipts
    log: TableLog

    @classmethod
    def at(cls, output: Path) -> "DeltaParts":
        """Return the parts of the table in a directory."""
        folder = beside(output)
        receipts = KeptReceipts(folder / "receipts")
        log = TableLog(output)

        def is_needed(directory: Place) -> bool:
            """Whether an attempt's data is published: by its receipt, or, where that was lost, by the table."""
            batch_id = UUID(directory.parent.name)
            kept = receipts.receipt(batch_id) if receipts.is_kept(batch_id) else None
            if kept is not None and kept.attempt == int(directory.name):
                return True
            return TableRows(output, log).names_files_below(data.place(directory))

        data = DataInTable(output, is_needed)
        staging = StagedFiles(folder / "staging", data)
        archive = ArchivedReceipts(
            receipts, staging.check_mounted, lambda batch_id: TableRows(output, log).is_visible(batch_id)
        )
        return cls(output, folder, staging, data, receipts, archive, log)

    def rows(self) -> TableRows:
        """Return what the table holds now."""
        return TableRows(self.output, self.log)

    def place_of(self, receipt: Receipt) -> Path:
        """Return where the data files of a receipt's attempt are."""
        return self.data.place(self.staging.attempt_directory(receipt.batch_id, receipt.attempt))
