"""What exists of a batch whose receipt is kept: at its files' place, and in the table."""

from collections.abc import Mapping

from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.published_output import FilesState, FoundFiles
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.staged_parquet import difference, staged_sizes
from kafka_ingest.sinks.tables.table_format import Outcome, TableCommits, TableRows


def found_files(table: TableCommits, rows: TableRows, receipt: Receipt, data: Opened) -> FoundFiles:
    """Return what exists of one batch of many; its data was staged in ``data``. I/O errors are left to the caller."""
    mark = rows.mark(receipt.batch_id)
    if mark is not None and mark.outcome is Outcome.REVOKED:
        return FoundFiles(FilesState.REVOKED, f"{table.says} so")
    if not receipt.files:
        return FoundFiles(FilesState.INTACT)
    expected = {file.name: file.size_bytes for file in receipt.files}
    there = staged_sizes(data, receipt)
    if mark is None:
        if not there:
            return FoundFiles(FilesState.GONE, f"its files are not in {data}, and the table does not name it")
        state = FilesState.STAGED if there == expected else FilesState.BROKEN
        return FoundFiles(state, f"its files are in {data}, {difference(expected, there) or 'all of them'}")
    return published_files(rows, receipt, data, there)


def published_files(rows: TableRows, receipt: Receipt, data: Opened, there: Mapping[str, int]) -> FoundFiles:
    """Return what exists of a batch that its mark calls published; ``there``: the files in ``data``, with sizes."""
    names = rows.own_files_of_all.of(receipt.batch_id, receipt.attempt)
    own = [file for file in receipt.files if file.name in names]
    missing = {file.name: file.size_bytes for file in own if there.get(file.name) != file.size_bytes}
    if missing:
        left = {name: size for name, size in there.items() if name in missing}
        return FoundFiles(FilesState.CHANGED, f"{difference(missing, left)} in {data}, and the table names them")
    count = sum(file.rows for file in own)
    if len(own) < len(receipt.files):
        count += rows.count_elsewhere(receipt.batch_id)
    if count == receipt.rows:
        return FoundFiles(FilesState.INTACT, rows=count)
    state = FilesState.CHANGED if count else FilesState.GONE
    return FoundFiles(state, f"the table holds {count:,} of its {counted(receipt.rows, 'row')}", count)
