"""Errors of an output's storage, by name."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kafka_ingest.errors import OutputUnavailableError


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Give an I/O error its name: it proves nothing about the data, so the step can be tried again."""
    try:
        yield
    except OSError as error:
        raise OutputUnavailableError(
            f"{path} could not be read or written: {error}. No offset was moved; run this again once the storage is well."
        ) from error
