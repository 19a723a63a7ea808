"""Files ``_SUCCESS`` of complete hours or days of a directory of Parquet files.

They are beside the output, as everything that is not a batch's: Polars reads no directory that holds other files, and
the folder of an hour is in those of many batches.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from kafka_ingest.foundation.durable_files import make_directory_durably, write_durably
from kafka_ingest.model.completion import Period, Unit
from kafka_ingest.model.partition_term import TIME, PartitionTerm, Transform
from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.storage_errors import storage_errors


def write_success_files(output: Path, by: Unit, terms: Iterable[PartitionTerm], periods: Sequence[Period]) -> None:
    """Write ``complete/dt=2026-01-31/_SUCCESS`` of each, named as the output's own folders are; safe to repeat.

    Raises OutputUnavailableError.
    """
    transform = Transform(by.value)
    own = [term for term in terms if term.name and (term.column, term.transform) == (TIME, transform)]
    term = own[0] if own else PartitionTerm(TIME, transform, by.value)
    with storage_errors(place := beside(output)):
        # A disk that is not mounted is not to get folders of its own.
        place.stat()
        for each in periods:
            folder = place / "complete" / f"{term.name}={term.text_of(each.began_at)}"
            make_directory_durably(folder)
            write_durably(folder / "_SUCCESS", b"")
