"""How an Iceberg catalog is reached: PyIceberg's own properties, of an Airflow connection; and the library's errors."""

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_ingest.errors import KafkaIngestError, OutputUnavailableError

REST, SQL, GLUE = "rest", "sql", "glue"
KINDS = (REST, SQL, GLUE)
"""The kinds of catalogs whose commits compare what they replace with what was read."""

HIDDEN = "***"
SECRET = re.compile(r"password|secret|token|credential|key|auth|sasl|header", re.IGNORECASE)
USER_AND_PASSWORD = re.compile(r"(?<=//)[^/@\s]*@")
SHORTEST = 4
"""A shorter value than this is not looked for in messages: it would hide half of them."""


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """A catalog's name and properties, which may hold secrets and are in no repr."""

    conn_id: str
    name: str
    properties: Mapping[str, Any] = field(repr=False)
    """Texts, and for ``ssl`` and ``auth`` mappings, as the library has them."""
    kind: str = SQL

    def without_secrets(self, message: str) -> str:
        """Return a message of the library without what the connection keeps secret."""
        texts = list(texts_in(self.properties))
        secrets = [value for key, value in texts if SECRET.search(key)]
        secrets += [part for value in secrets for part in value.split(":")]
        passwords = (re.search(r"//[^/@\s:]*:([^@]*)@", value) for _, value in texts)
        secrets += [found[1] for found in passwords if found is not None]
        for secret in sorted(set(secrets), key=len, reverse=True):
            if len(secret) >= SHORTEST:
                message = message.replace(secret, HIDDEN)
        return USER_AND_PASSWORD.sub(f"{HIDDEN}@", message)


def texts_in(properties: Mapping[str, Any], below: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts by their keys, those of inner mappings by the keys that lead to them."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from texts_in(value, f"{below}{key}.")
        else:
            yield f"{below}{key}", str(value)


FindCatalog = Callable[[str], CatalogSettings]
"""Finds a catalog's settings by the id of its connection; raises MissingConnection- or InvalidConnectionError."""


PACKAGES = frozenset(
    {"aiohttp", "botocore", "pyarrow", "pydantic_core", "pyiceberg", "requests", "sqlalchemy", "thrift", "urllib3"}
    | {"zlib", "zstandard"}
)
LONGEST = 300


def is_a_failure(error: Exception) -> bool:
    """Whether an exception is a failed call of the library, and not a mistake in this project.

    It proves nothing about a commit; the table shows what was done. What metadata of any form makes the library
    raise is of any kind; then it was raised within the library.
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
