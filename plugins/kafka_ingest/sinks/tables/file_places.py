"""Which batch a data file of a table belongs to, by the places that a format gives to files."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.model.data_file import FilePlace
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.kept_receipts import KeptReceipts


def place_in_table(path: Path, table_format: str, folders: tuple[str, ...]) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the format stores none there.

    ``folders`` lie between a table and its batches.
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
    """Whether these are the names of folders of a batch and an attempt."""
    try:
        UUID(batch)
    except ValueError:
        return False
    return attempt.isdecimal()
