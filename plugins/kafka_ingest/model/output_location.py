"""Where output goes: a format, and the place of it."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, order=True)
class OutputLocation:
    """An output, past or present: the sink's format and a URI, which for a local or mounted place is its absolute path.

    Raises ValueError where the place is relative: what a location means must not depend on who reads it.
    """

    format: str
    uri: str

    def __post_init__(self) -> None:
        if not self.uri.startswith("/") and not urlsplit(self.uri).scheme:
            raise ValueError(f"expected an absolute path or a URI with a scheme, found {self.uri!r}")

    @classmethod
    def local(cls, format: str, path: Path) -> "OutputLocation":  # noqa: A002 - the field's name
        """Return the output in a local or mounted directory."""
        return cls(format, str(path))

    @property
    def is_local(self) -> bool:
        """Whether it is a local or mounted directory."""
        return self.uri.startswith("/")

    @property
    def path(self) -> Path:
        """The directory of a local output; raises ValueError for any other."""
        if not self.is_local:
            raise ValueError(f"expected a local or mounted directory, found {self.uri}")
        return Path(self.uri)

    @property
    def normalised(self) -> "OutputLocation":
        """The same place without ``..`` and doubled slashes, to be compared, never to be written to: symbolic links."""
        return OutputLocation(self.format, os.path.normpath(self.uri)) if self.is_local else self

    def __str__(self) -> str:
        """Return the place, for a message."""
        return self.uri
