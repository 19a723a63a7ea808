"""Errors of an output's storage, by name."""

import contextlib
from collections.abc import Iterator

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.place import Place


@contextlib.contextmanager
def storage_errors(place: Place | Opened) -> Iterator[None]:
    """Give an I/O error its name: it proves nothing about the data, so the step can be tried again.

    Raises OutputNotUsableError where no directory can be, whenever it is tried.
    """
    try:
        yield
    except NotADirectoryError as error:
        raise OutputNotUsableError(
            f"expected {place} to be below directories, found: {error}. Correct sink.path. No offset was moved."
        ) from error
    except OSError as error:
        raise OutputUnavailableError(
            f"{place} could not be read or written: {error}. No offset was moved; run this again when the storage is "
            "available again."
        ) from error
