"""Where something of an output is: on a local or mounted disk, or in a file system that a URI names."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kafka_ingest.foundation.foreign_json import said
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


DOCUMENT = "plan.json"
DATA = "data"
RECEIPT = "receipt.json"
FAILURE = "failure.txt"
DEAD_LETTERS = "dead-letters"
"""A directory like the attempt's own, for the records that could not be decoded: they are published elsewhere."""


class FailureCode(StrEnum):
    """How a failure begins that the job itself names: then comes a colon, and what was found."""

    NO_EXECUTORS = "NO_EXECUTORS"
    """The cluster gave the application no executor in time."""
    TOO_MANY_TABLE_PARTITIONS = "TOO_MANY_TABLE_PARTITIONS"
    """A batch has records of too many days or hours for a table that is partitioned by them."""
    UNKNOWN_SCHEMA_IDS = "UNKNOWN_SCHEMA_IDS"
    """Records begin with schema ids that the registry was not asked for; they follow."""
    EXPRESSION_REFUSED = "EXPRESSION_REFUSED"
    """Spark refuses an expression of the feed file, or what its ``transform`` does."""
    ROWS_REFUSED = "ROWS_REFUSED"
    """The output refuses rows of what was written; they follow. The next attempt makes dead letters of them."""

    def says(self, found: str) -> str:
        return f"{self}: {found}"


def read_code(failure: str) -> tuple[FailureCode | None, str]:
    """Return the code of a failure, and what follows it; None where the job did not name it."""
    code, _, found = failure.partition(": ")
    return (FailureCode(code), found) if code in FailureCode.__members__ else (None, failure)


MAX_WAIT_FOR_EXECUTORS = "spark.kafkaIngest.maxWaitForExecutors"
"""How many seconds the job waits for an executor: in Spark's settings, the job reads nothing else about the feed."""

AVRO_LIMITS = {
    "org.apache.avro.limits.string.maxLength": "67108864",
    "org.apache.avro.limits.bytes.maxLength": "67108864",
    "org.apache.avro.limits.collectionItems.maxLength": "1000000",
}
"""Java's system properties for Avro: a few bytes may claim to be billions, for which it would take memory first.

Elements may take no bytes (null, or a record of nothing else): no size of a record shows how much memory they take.
"""


BEGUN = "begun"
"""Beside that file: the places of the attempts that the job has begun, where it has several."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Of each attempt the Kafka client's settings, in Java's words; and how to reach their outputs' store, if any.

    ``limits_s``: how long each may take, in seconds; none where a feed is run alone, which its caller ends.
    """

    kafka: Sequence[Mapping[str, str]] = field(repr=False)
    store: str | None = field(default=None, repr=False)
    limits_s: Sequence[float] = ()

    def write(self, file: Path) -> None:
        """Write a new file, for this user alone."""
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as new:
            kafka = [dict(each) for each in self.kafka]
            json.dump({"kafka": kafka, "store": self.store, "limits_s": list(self.limits_s)}, new)

    @classmethod
    def take(cls, file: Path) -> "JobSettings":
        """Read the file and remove it: it may hold a secret."""
        document = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
        return cls(document["kafka"], document["store"], tuple(document["limits_s"]))
