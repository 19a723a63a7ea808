"""How to reach a store: one description, and the settings of the three clients."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self


class StoreAccess(Protocol):
    """One connection to a store, without a secret in its repr.

    Python reads and writes documents with the store's fsspec library, the commit uses delta-rs, and Spark writes with a
    file system of Hadoop's.
    """

    scheme: ClassVar[str]
    """The kind of store, as URIs name it."""

    @property
    def conn_id(self) -> str:
        """The connection's id."""

    @property
    def has_credentials(self) -> bool:
        """Whether the connection holds any; otherwise each client uses the machine's or the container's own."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show."""

    def for_fsspec(self) -> dict[str, Any]:
        """Return the arguments of the fsspec file system."""

    def for_delta(self) -> dict[str, str]:
        """Return the ``storage_options`` of a Delta table."""

    def for_hadoop(self, bucket: str) -> dict[str, str]:
        """Return the settings of Hadoop's file system for one bucket."""

    @property
    def only_on_this_machine(self) -> str | None:
        """Why Spark's executors on other machines cannot have these credentials; None where they can."""

    def with_key_in(self, folder: Path) -> Self:
        """Return this with what Hadoop reads from a file in a folder that is this user's alone."""

    def with_offered(self, offered: Mapping[str, str]) -> Self:
        """Return this with the credentials that an Iceberg catalog offers, where it has none of its own."""

    def as_json(self) -> str:
        """Return this as a text for the driver's environment; it may hold secrets."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what :meth:`as_json` wrote."""
