"""Which batch a data file of an Iceberg table belongs to, by the places that the sink gives to files."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.model.data_file import FilePlace
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.iceberg.places import BATCHES, DATA
from kafka_ingest.sinks.kept_receipts import KeptReceipts

IN_WORDS = f"TABLE/{DATA}/{BATCHES}/<batch>/<attempt>/<file> of an Iceberg table"
"""Where data files are, for a message."""


def place_of(path: Path) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the sink stores none there."""
    match path.parts:
        case (*above, data, batches, batch, attempt, _) if (data, batches) == (DATA, BATCHES) and attempt.isdecimal():
            output = Path(*above)
        case _:
            return None
    try:
        batch_id = UUID(batch)
    except ValueError:
        return None
    folder = beside(output)
    if not (folder / "staging").is_dir():
        return None
    # Published and staged files are in one place: the kept receipt shows which attempt was published.
    receipts = KeptReceipts(folder / "receipts")
    is_published = receipts.is_of_attempt(batch_id, int(attempt))
    return FilePlace(OutputLocation.local("iceberg", output), batch_id, None if is_published else int(attempt))
