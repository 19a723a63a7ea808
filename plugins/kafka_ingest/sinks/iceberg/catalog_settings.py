"""How an Iceberg catalog is reached: PyIceberg's own properties, of an Airflow connection."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
    properties: Mapping[str, str] = field(repr=False)

    def without_secrets(self, message: str) -> str:
        """Return a message of the library without what the connection keeps secret."""
        secrets = [value for key, value in self.properties.items() if SECRET.search(key)]
        secrets += [part for value in secrets for part in value.split(":")]
        passwords = (re.search(r"//[^/@\s:]*:([^@]*)@", value) for value in self.properties.values())
        secrets += [found[1] for found in passwords if found is not None]
        for secret in sorted(set(secrets), key=len, reverse=True):
            if len(secret) >= SHORTEST:
                message = message.replace(secret, HIDDEN)
        return USER_AND_PASSWORD.sub(f"{HIDDEN}@", message)


FindCatalog = Callable[[str], CatalogSettings]
"""Finds a catalog's settings by the id of its connection; raises MissingConnection- or InvalidConnectionError."""
