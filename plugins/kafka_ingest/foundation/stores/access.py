"""How to reach a store: one description, and the settings of the three clients."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 60.0
"""Between two pieces of an answer; of the commit's library, and of some stores' Spark, for a whole answer."""
TRIES = 5
"""Of a request that fails as a network or a busy store does."""


def given(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True, slots=True)
class StoreAccess(ABC):
    """One connection to a store, by its id, without a secret in its repr.

    Python reads and writes documents with the store's fsspec library, the commit uses delta-rs, and Spark writes with a
    file system of Hadoop's.
    """

    scheme: ClassVar[str]
    """The kind of store, as URIs name it."""

    conn_id: str
    tries: int = field(default=TRIES, kw_only=True)
    read_timeout_s: float = field(default=READ_TIMEOUT_S, kw_only=True)

    @property
    @abstractmethod
    def has_credentials(self) -> bool:
        """Whether the connection holds any; otherwise each client uses the machine's or the container's own."""

    @property
    @abstractmethod
    def secrets(self) -> tuple[str, ...]:
        """What no log may show."""

    @abstractmethod
    def for_fsspec(self) -> dict[str, Any]:
        """Return the arguments of the fsspec file system."""

    @abstractmethod
    def for_delta(self) -> dict[str, str]:
        """Return the ``storage_options`` of a Delta table; the log's entries are written by create-if-absent."""

    def limits_for_delta(self) -> dict[str, str]:
        """Return those of them that limit tries and times."""
        limit = f"{round(self.read_timeout_s * 1000)}ms"
        times = {"connect_timeout": f"{CONNECT_TIMEOUT_S}s", "timeout": limit, "retry_timeout": limit}
        return times | {"max_retries": str(self.tries - 1)}

    @abstractmethod
    def for_hadoop(self, bucket: str) -> dict[str, str]:
        """Return the settings of Hadoop's file system for one bucket."""

    @property
    def only_on_this_machine(self) -> str | None:
        """Why Spark's executors on other machines cannot have these credentials; None where Spark hands them over."""
        return None

    def with_key_in(self, _: Path) -> Self:
        """Return this with what Hadoop reads from a file in a folder that is this user's alone."""
        return self

    def with_offered(self, _: Mapping[str, str]) -> Self:
        """Return this with the credentials that an Iceberg catalog offers, where it has none of its own.

        Tokens that end after an hour, and that nothing renews, are not used.
        """
        return self

    def as_json(self) -> str:
        """Return this as a text for the driver's environment; it may hold secrets."""
        return json.dumps({"scheme": self.scheme} | {each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**{name: value for name, value in json.loads(text).items() if name != "scheme"})
