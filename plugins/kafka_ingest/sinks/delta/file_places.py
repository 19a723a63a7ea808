"""Which batch a data file of a Delta table belongs to."""

from pathlib import Path

from kafka_ingest.model.data_file import FilePlace
from kafka_ingest.sinks.delta.places import BATCHES
from kafka_ingest.sinks.tables import file_places

IN_WORDS = f"TABLE/{BATCHES}/<batch>/<attempt>/<file> of a Delta table"
"""Where data files are, for a message."""


def place_of(path: Path) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the sink stores none there."""
    return file_places.place_of(path, "delta", (BATCHES,))
