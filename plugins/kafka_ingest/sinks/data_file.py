"""Opening a data file that a sink wrote, to read what is in it."""

from typing import TYPE_CHECKING

from kafka_ingest.foundation.storage import Opened

if TYPE_CHECKING:
    from kafka_ingest.sinks.parquet_contents import DataFile


def data_file(path: Opened) -> "DataFile":
    """Return a data file, to read what is in it."""
    # A third of a second for pyarrow, which only a question about records should pay.
    from kafka_ingest.sinks.parquet_contents import DataFile  # noqa: PLC0415

    return DataFile(path)
