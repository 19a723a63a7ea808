"""Which batch a data file of a Delta table belongs to, by the places that the sink gives to files."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.model.data_file import FilePlace
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.place import local
from kafka_ingest.sinks.delta.parts import DeltaParts
from kafka_ingest.sinks.delta.places import BATCHES

IN_WORDS = f"TABLE/{BATCHES}/<batch>/<attempt>/<file> of a Delta table"
"""Where data files are, for a message."""


def place_of(path: Path) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the sink stores none there."""
    match path.parts:
        case (*above, folder, batch, attempt, _) if folder == BATCHES and attempt.isdecimal():
            output = Path(*above)
        case _:
            return None
    parts = DeltaParts.at(output)
    try:
        batch_id = UUID(batch)
    except ValueError:
        return None
    if not local(parts.staging.folder).is_dir():
        return None
    # Published and staged files are in one place: the kept receipt shows which attempt was published.
    kept = parts.archive.receipt(batch_id) if parts.archive.is_kept(batch_id) else None
    is_published = kept is not None and kept.attempt == int(attempt)
    return FilePlace(OutputLocation.local("delta", output), batch_id, None if is_published else int(attempt))
