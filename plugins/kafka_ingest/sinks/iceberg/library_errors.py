"""Errors of the library and of what is below it. They prove nothing about a commit; the table shows what was done."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_ingest.errors import KafkaIngestError, OutputUnavailableError
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings

PACKAGES = frozenset(
    {"aiohttp", "botocore", "pyarrow", "pydantic_core", "pyiceberg", "requests", "sqlalchemy", "thrift", "urllib3"}
    | {"zlib", "zstandard"}
)
LONGEST = 300


def is_a_failure(error: Exception) -> bool:
    """Whether an exception is a failed call of the library, and not a mistake in this project.

    What metadata of any form makes the library raise is of any kind; then it was raised within the library.
    """
    if isinstance(error, KafkaIngestError):
        return False
    package = type(error).__module__.partition(".")[0]
    if package in PACKAGES or isinstance(error, OSError | ValueError | TypeError | RuntimeError):
        return True
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return not str(innermost.f_globals.get("__name__")).startswith("kafka_ingest.")


def brief(error: Exception | None, settings: CatalogSettings) -> str:
    """Return the library's message, without the stack that may follow it and without secrets."""
    first = str(error).partition("\n")[0] or type(error).__name__
    return settings.without_secrets(first)[:LONGEST]


@contextmanager
def named_errors(what: str, settings: CatalogSettings) -> Iterator[None]:
    """Give an error of the library its name. It is not chained: its own message may hold a password."""
    try:
        yield
    except Exception as error:
        if not is_a_failure(error):
            raise
        raise OutputUnavailableError(
            f"{what} could not be read through connection {settings.conn_id!r}: {brief(error, settings)}. No offset "
            "was moved; run this again when catalog and storage are available again, or with the connection corrected."
        ) from None
