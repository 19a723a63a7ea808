"""How an Iceberg catalog is reached: PyIceberg's own properties, of an Airflow connection."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
