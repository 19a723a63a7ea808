"""The parts of a table that its roles share, and which batch a data file of a table belongs to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kafka_ingest.foundation.storage import Opened, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import OutputLocation, Place, below
from kafka_ingest.model.published_output import FilePlace
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.staged_files import StagedFiles
from kafka_ingest.sinks.tables.table_format import Staged, TableFormat
from kafka_ingest.sinks.usable_places import beside


@dataclass(frozen=True, slots=True)
class TableParts:
    """The table, and the folder beside it. ``access`` leads to the store, None on a disk."""

    table: TableFormat
    output: Place
    beside: Place
    access: StoreAccess | None
    staging: StagedFiles
    receipts: KeptReceipts

    @classmethod
    def of(
        cls,
        table: TableFormat,
        access: StoreAccess | None = None,
        forget: Callable[[UUID, int], None] = lambda *_: None,
    ) -> "TableParts":
        """Return the parts of a table; it is not read before a question needs it."""
        folder: Place = beside(table.output)

        def is_published(batch_id: UUID, attempt: int) -> bool:
            """Whether an attempt's data is published: by its receipt, or, where that was lost, by the table."""
            return receipts.is_of_attempt(batch_id, attempt) or table.commits.rows().names_files_of(batch_id, attempt)

        staging = StagedFiles(folder / "staging", access, table.data_folder, is_published, forget)
        receipts = KeptReceipts(
            opened(folder / "receipts", access),
            staging.check_mounted,
            lambda batch_id: table.commits.rows().is_visible(batch_id),
        )
        return cls(table, table.output, folder, access, staging, receipts)

    def place_of(self, receipt: Receipt) -> Place:
        return self.staging.data_place(self.staging.attempt_directory(receipt.batch_id, receipt.attempt))

    def staged(self, directory: Place, receipt: Receipt) -> Staged:
        place = self.staging.data_place(directory)
        folder = below(place, self.output) if self.table.data_folder is not None else ""
        return Staged(folder, self.opened(place), receipt)

    def opened(self, place: Place) -> Opened:
        return opened(place, self.access)


def place_in_table(path: Path, table_format: str, folders: tuple[str, ...]) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the format stores none there.

    ``folders`` are between a table and its batches.
    """
    above = path.parts
    # Below an attempt there may be folders of partitions, which may be called anything.
    ends = reversed(range(len(folders), len(above) - 2))
    found = next(
        (end for end in ends if is_attempt(*above[end : end + 2]) and above[:end][-len(folders) :] == folders), None
    )
    if found is None:
        return None
    output, batch_id, attempt = Path(*above[: found - len(folders)]), UUID(above[found]), int(above[found + 1])
    folder = beside(output)
    if not (folder / "staging").is_dir():
        return None
    # Published and staged files are in one place: the kept receipt shows which attempt was published.
    is_published = KeptReceipts(folder / "receipts").is_of_attempt(batch_id, attempt)
    return FilePlace(OutputLocation.local(table_format, output), batch_id, None if is_published else attempt)


def is_attempt(batch: str, attempt: str) -> bool:
    try:
        UUID(batch)
    except ValueError:
        return False
    return attempt.isdecimal()
