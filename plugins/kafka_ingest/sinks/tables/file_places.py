"""Which batch a data file of a table belongs to, by the places that a format gives to files."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.model.data_file import FilePlace
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.kept_receipts import KeptReceipts


def place_of(path: Path, table_format: str, folders: tuple[str, ...]) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the format stores none there.

    ``folders`` lie between a table and its batches.
    """
    *above, batch, attempt, _ = path.parts if len(path.parts) > len(folders) + 3 else ("", "", "")
    if tuple(above[-len(folders) :]) != folders or not attempt.isdecimal():
        return None
    output = Path(*above[: -len(folders)])
    try:
        batch_id = UUID(batch)
    except ValueError:
        return None
    folder = beside(output)
    if not (folder / "staging").is_dir():
        return None
    # Published and staged files are in one place: the kept receipt shows which attempt was published.
    is_published = KeptReceipts(folder / "receipts").is_of_attempt(batch_id, int(attempt))
    return FilePlace(OutputLocation.local(table_format, output), batch_id, None if is_published else int(attempt))
