"""Where something of an output is: on a local or mounted disk, or in a file system that a URI names."""

import re
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.foundation.stores.kinds import KINDS, bucket_in

PATTERN = re.compile(r"[][{}*?\\]")
"""The characters by which Hadoop knows a pattern; one after a backslash is itself."""
REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://[^/]+(/[^/]+)*")


@dataclass(frozen=True, slots=True, order=True)
class RemotePlace:
    """A place that is on no disk of this machine, as ``SCHEME://BUCKET/NAME/…``.

    :mod:`kafka_ingest.foundation.storage` opens it.

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
        """The place that contains this one; a bucket contains itself, as the root of a disk does."""
        above = self.uri.rpartition("/")[0]
        return self if above.endswith("/") else RemotePlace(above)

    @property
    def scheme(self) -> str:
        return self.uri.partition("://")[0]

    @property
    def conn_id(self) -> str | None:
        """The Airflow connection that stands before the ``@``, as in Airflow's ObjectStoragePath; None without one."""
        conn_id = self._authority.removesuffix(self.bucket)
        return conn_id.removesuffix("@") if conn_id else None

    @property
    def bucket(self) -> str:
        """The bucket's name; of Azure's stores with the account that it is in."""
        return bucket_in(self.scheme, self._authority)

    @property
    def key(self) -> str:
        """The name in the bucket; empty for the bucket itself."""
        return self.uri.partition("://")[2].partition("/")[2]

    @property
    def without_connection(self) -> "RemotePlace":
        """The same place, by whichever connection."""
        return self if self.conn_id is None else RemotePlace(self.uri.replace(f"{self.conn_id}@", "", 1))

    @property
    def _authority(self) -> str:
        return self.uri.partition("://")[2].partition("/")[0]

    def __str__(self) -> str:
        return self.uri


Place = Path | RemotePlace
"""A local place is a path as it always was: nothing between the protocol and a disk."""


def place_of(text: str) -> Place:
    """Return the place that a stored text names; raises ValueError where it is neither an absolute path nor a URI."""
    return Path(text) if text.startswith("/") else RemotePlace(text)


def spark_path(place: Place) -> str:
    """Return how Spark calls a place: by the scheme of Hadoop's file system, which knows no connections.

    A path without one would be in the cluster's own file system (``fs.defaultFS``).
    """
    if isinstance(place, Path):
        return f"file:{place}"
    scheme = KINDS[place.scheme].in_hadoop if place.scheme in KINDS else place.scheme
    return f"{scheme}://{place.bucket}/{place.key}"


def spark_source(place: Place) -> str:
    """Return how Spark calls a place that it reads: it takes names there for patterns, which these are not."""
    return PATTERN.sub(r"\\\g<0>", spark_path(place))


def local(place: Place) -> Path:
    """Return the path of a local place; raises ValueError on another one, for what only a disk can do."""
    if isinstance(place, Path):
        return place
    raise ValueError(f"expected a local or mounted directory, found {place}")


def below(place: Place, root: Place) -> str:
    """Return the name of a place relative to one that contains it; raises ValueError where it does not."""
    name = str(place).removeprefix(f"{root}/")
    if name == str(place):
        raise ValueError(f"expected a place below {root}, found {place}")
    return name
