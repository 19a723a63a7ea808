"""What one snapshot of a Delta table holds of batches: files as published, or rewritten by OPTIMIZE or similar.

A file below ``batches/`` holds one batch; rows of any other file name their batch in ``kafka_batch``.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import UUID

from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.place import Place, below
from kafka_ingest.model.published_output import FilesState, FoundFiles
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.delta.columns import BATCH_COLUMN
from kafka_ingest.sinks.delta.places import BATCHES
from kafka_ingest.sinks.delta.table_log import Mark, TableLog
from kafka_ingest.sinks.staged_parquet import difference, staged_sizes

if TYPE_CHECKING:
    import pyarrow as pa


class TableRows:
    """The newest snapshot at the time when this is made. I/O errors are left to the caller."""

    def __init__(self, log: TableLog) -> None:
        self.output = log.output
        self._log = log
        self._table = log.open()

    @cached_property
    def files(self) -> dict[str, int]:
        """The files that readers see, by their paths relative to the table, with their sizes."""
        if self._table is None:
            return {}
        with self._log.named_errors():
            actions = self._table.get_add_actions()
            paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
        return {unquote(path): size for path, size in zip(paths, sizes, strict=True)}

    @cached_property
    def rewritten(self) -> list[str]:
        """The files that are not as they were published."""
        return sorted(path for path in self.files if not path.startswith(f"{BATCHES}/"))

    def batches_of_files(self) -> set[str]:
        """Return the ids of the batches whose own files are part of the table."""
        return {path.split("/")[1] for path in self.files if path.startswith(f"{BATCHES}/")}

    def names_files_below(self, place: Place) -> bool:
        """Whether readers see a file of a directory."""
        folder = f"{below(place, self.output)}/"
        return any(path.startswith(folder) for path in self.files)

    def is_visible(self, batch_id: UUID) -> bool:
        """Whether readers see a row of a batch."""
        return str(batch_id) in self.batches_of_files() or bool(self.rows_elsewhere.get(str(batch_id)))

    @cached_property
    def rows_elsewhere(self) -> dict[str, int]:
        """How many rows of each batch are in rewritten files."""
        counts: dict[str, int] = {}
        for batch in self.read_rewritten([BATCH_COLUMN]):
            for row in batch.group_by(BATCH_COLUMN).aggregate([([], "count_all")]).to_pylist():
                counts[row[BATCH_COLUMN]] = counts.get(row[BATCH_COLUMN], 0) + row["count_all"]
        return counts

    def read_rewritten(self, columns: list[str], batch_id: UUID | None = None) -> Iterator["pa.Table"]:
        """Yield the rows of files that were rewritten, of one batch or of all, a piece at a time."""
        if self._table is None or not self.rewritten:
            return
        self._log.check_readable(self._table)
        # A third of a second, for questions about rows only.
        from kafka_ingest.sinks.delta.rewritten_files import rows_of_file  # noqa: PLC0415

        for path in self.rewritten:
            yield from rows_of_file(self._log.opened(self.output / path), columns, batch_id)

    def found(self, receipt: Receipt, place: str, data: Opened) -> FoundFiles:
        """Return what exists of a batch whose receipt is kept; its data was staged in ``data``, below the table."""
        mark = self._log.mark_in(self._table, receipt.batch_id) if self._table is not None else None
        if mark is Mark.REVOKED:
            return FoundFiles(FilesState.REVOKED, f"the log of {self.output} says so")
        if not receipt.files:
            return FoundFiles(FilesState.INTACT)
        expected = {file.name: file.size_bytes for file in receipt.files}
        on_disk = staged_sizes(data, receipt)
        if mark is None:
            if not on_disk:
                return FoundFiles(FilesState.GONE, f"its files are not in {data}, and the table's log does not name it")
            state = FilesState.STAGED if on_disk == expected else FilesState.BROKEN
            return FoundFiles(state, f"its files are in {data}, {difference(expected, on_disk) or 'all of them'}")
        return self._found_published(receipt, place, data, on_disk)

    def _found_published(self, receipt: Receipt, place: str, data: Opened, on_disk: dict[str, int]) -> FoundFiles:
        own = [file for file in receipt.files if f"{place}/{file.name}" in self.files]
        missing = {file.name: file.size_bytes for file in own if on_disk.get(file.name) != file.size_bytes}
        if missing:
            there = {name: size for name, size in on_disk.items() if name in missing}
            return FoundFiles(FilesState.CHANGED, f"{difference(missing, there)} in {data}, and the table names them")
        rows = sum(file.rows for file in own) + (
            self.rows_elsewhere.get(str(receipt.batch_id), 0) if len(own) < len(receipt.files) else 0
        )
        if rows == receipt.rows:
            return FoundFiles(FilesState.INTACT)
        state = FilesState.CHANGED if rows else FilesState.GONE
        return FoundFiles(state, f"the table {self.output} holds {rows:,} of its {receipt.rows:,} rows")
