"""Errors of an output's storage, by name."""

import contextlib
from collections.abc import Iterator

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.place import Place


@contextlib.contextmanager
def storage_errors(place: Place | Opened) -> Iterator[None]:
    """Give an I/O error its name: it proves nothing about the data, so the step can be tried again."""
    try:
        yield
    except OSError as error:
        raise OutputUnavailableError(
            f"{place} could not be read or written: {error}. No offset was moved; run this again when the storage is "
            "available again."
        ) from error
