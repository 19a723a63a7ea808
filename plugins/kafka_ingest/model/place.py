"""Where something of an output lies: on a local or mounted disk, or in a file system that a URI names."""

import re
from dataclasses import dataclass
from pathlib import Path

REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://[^/]+(/[^/]+)*")


@dataclass(frozen=True, slots=True, order=True)
class RemotePlace:
    """A place that is on no disk of this machine, as ``SCHEME://BUCKET/NAME/…``; :mod:`.foundation.storage` opens it.

    Raises ValueError on anything else, also on ``file:``, which is a local path by another name.
    """

    uri: str

    def __post_init__(self) -> None:
        if REMOTE.fullmatch(self.uri) is None:
            raise ValueError(f"expected an absolute path or a URI such as s3://BUCKET/NAME, found {self.uri!r}")

    def __truediv__(self, name: str) -> "RemotePlace":
        return RemotePlace(f"{self.uri}/{name}")

    @property
    def name(self) -> str:
        """The last name; empty for a bucket."""
        return "" if self.parent == self else self.uri.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePlace":
        """The place that this one lies in; a bucket lies in itself, as the root of a disk does."""
        above = self.uri.rpartition("/")[0]
        return self if above.endswith("/") else RemotePlace(above)

    def __str__(self) -> str:
        """Return the URI."""
        return self.uri


Place = Path | RemotePlace
"""A local place is a path as it always was: nothing between the protocol and a disk."""


def place_of(text: str) -> Place:
    """Return the place that a stored text names; raises ValueError where it is neither an absolute path nor a URI."""
    return Path(text) if text.startswith("/") else RemotePlace(text)


def local(place: Place) -> Path:
    """Return the path of a local place; raises ValueError on another one, for what only a disk can do."""
    if isinstance(place, Path):
        return place
    raise ValueError(f"expected a local or mounted directory, found {place}")
