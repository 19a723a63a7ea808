"""The parts of a table that its roles share."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from kafka_ingest.foundation.storage import Opened, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.dead_letters import are_dead_letters
from kafka_ingest.model.place import Place
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.receipt_archive import ArchivedReceipts
from kafka_ingest.sinks.staged_files import StagedFiles
from kafka_ingest.sinks.tables.output import TableOutput


class DataInTable:
    """The data of a table's attempts. ``is_needed``: whether the data of an attempt is published."""

    def __init__(self, folder: Place, is_needed: Callable[[Place], bool]) -> None:
        self.folder = folder
        self._is_needed = is_needed

    def place(self, directory: Place) -> Place:
        """Return where the data of the attempt in a directory is written; dead letters are no rows of the table."""
        if are_dead_letters(directory):
            return directory / DATA
        return self.folder / directory.parent.name / directory.name

    def has_batch_column(self, directory: Place) -> bool:
        """Whether each row carries its batch's id, which no path tells readers of the table."""
        return not are_dead_letters(directory)

    def places(self, directory: Place) -> tuple[Place, ...]:
        """Return where the data is: revoking leaves it there."""
        return (self.place(directory),)

    def to_remove(self, directory: Place) -> Place | None:
        """Return the place of data that the table does not refer to; None where it is published, or inside."""
        if are_dead_letters(directory) or self._is_needed(directory):
            return None
        return self.place(directory)


@dataclass(frozen=True, slots=True)
class TableParts:
    """The table, and the folder beside it. ``access`` leads to the store, None on a disk."""

    table: TableOutput
    output: Place
    beside: Place
    access: StoreAccess | None
    staging: StagedFiles
    data: DataInTable
    receipts: KeptReceipts
    archive: ArchivedReceipts

    @classmethod
    def of(cls, table: TableOutput, access: StoreAccess | None = None) -> "TableParts":
        """Return the parts of a table; it is not read before a question needs it."""
        folder: Place = beside(table.output)
        receipts = KeptReceipts(opened(folder / "receipts", access))

        def is_needed(directory: Place) -> bool:
            """Whether an attempt's data is published: by its receipt, or, where that was lost, by the table."""
            batch_id, attempt = UUID(directory.parent.name), int(directory.name)
            return receipts.is_of_attempt(batch_id, attempt) or table.rows().names_files_of(batch_id, attempt)

        data = DataInTable(table.data_folder, is_needed)
        staging = StagedFiles(folder / "staging", data, access)
        archive = ArchivedReceipts(receipts, staging.check_mounted, lambda batch_id: table.rows().is_visible(batch_id))
        return cls(table, table.output, folder, access, staging, data, receipts, archive)

    def place_of(self, receipt: Receipt) -> Place:
        """Return where the data files of a receipt's attempt are."""
        return self.data.place(self.staging.attempt_directory(receipt.batch_id, receipt.attempt))

    def opened(self, place: Place) -> Opened:
        """Return what reads a place of this output."""
        return opened(place, self.access)
