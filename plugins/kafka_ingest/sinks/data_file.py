"""A data file that a sink wrote: whose it is, and what is in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.model.output_location import OutputLocation

if TYPE_CHECKING:
    from kafka_ingest.sinks.parquet_contents import DataFile


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Whose file lies at a place: of a published batch, or, where ``attempt`` is not None, staged by one of its attempts."""

    output: OutputLocation
    batch_id: UUID
    attempt: int | None


def data_file(path: Path) -> "DataFile":
    """Return a data file, to be asked what is in it."""
    # A third of a second for pyarrow, which only a question about records should pay.
    from kafka_ingest.sinks.parquet_contents import DataFile  # noqa: PLC0415

    return DataFile(path)
