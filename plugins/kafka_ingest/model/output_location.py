"""Where output goes: a format, and the place of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kafka_ingest.foundation.foreign_json import said
from kafka_ingest.model.place import Place, place_of


@dataclass(frozen=True, slots=True, order=True)
class OutputLocation:
    """An output, past or present: the sink's format and a URI, which for a local or mounted place is its absolute path.

    ``options`` say how the sink is reached there, sorted by name. They are no part of what the output is: the same
    place with other options is the same output. Raises ValueError where the place is relative: what a location means
    must not depend on who reads it.
    """

    format: str
    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.uri.startswith("/") and not urlsplit(self.uri).scheme:
            raise ValueError(f"expected an absolute path or a URI with a scheme, found {self.uri!r}")
        if (names := [name for name, _ in self.options]) != sorted(set(names)):
            raise ValueError(f"expected each option once, sorted by name, found {', '.join(names)}")

    @classmethod
    def local(
        cls,
        format: str,  # noqa: A002 - the field's name
        path: Path,
        options: Mapping[str, str] | None = None,
    ) -> "OutputLocation":
        return cls.at(format, str(path), options)

    @classmethod
    def at(
        cls,
        format: str,  # noqa: A002 - the field's name
        uri: str,
        options: Mapping[str, str] | None = None,
    ) -> "OutputLocation":
        return cls(format, uri, tuple(sorted((options or {}).items())))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "OutputLocation":
        options: Mapping[str, str] = document.get("options", {})
        return cls.at(said(document, "format"), said(document, "path"), {name: said(options, name) for name in options})

    def as_document(self) -> dict[str, Any]:
        """Return the output as JSON-able data; the options only where there are any."""
        return {"format": self.format, "path": self.uri} | ({"options": dict(self.options)} if self.options else {})

    @property
    def is_local(self) -> bool:
        return self.uri.startswith("/")

    @property
    def path(self) -> Path:
        """The directory of a local output; raises ValueError for any other."""
        if not self.is_local:
            raise ValueError(f"expected a local or mounted directory, found {self.uri}")
        return Path(self.uri)

    @property
    def place(self) -> Place:
        """The output's place; raises ValueError on a URI that names none."""
        return place_of(self.uri)

    @property
    def normalised(self) -> "OutputLocation":
        """The same place without ``..`` and doubled slashes, to be compared, never to be written to: symbolic links.

        Of a URI without the connection that leads there.
        """
        place = self.place
        uri = os.path.normpath(self.uri) if isinstance(place, Path) else str(place.without_connection)
        return replace(self, uri=uri)

    def __str__(self) -> str:
        return self.uri
