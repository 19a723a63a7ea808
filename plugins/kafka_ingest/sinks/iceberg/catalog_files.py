"""What reads and writes the files of a catalog's tables. Importing this imports pyiceberg."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from kafka_ingest.foundation.stores.access import StoreAccess

ON_DISK = {"py-io-impl": "kafka_ingest.sinks.iceberg.durable_io.DurableFileIO"}


@dataclass(frozen=True, slots=True)
class Files:
    """What reads and writes files.

    The library lets properties of a table, or of a server, name the class that does so. It would be imported, and
    nothing would be flushed, or put with the store's credentials. Here the own properties win.
    """

    own: Mapping[str, Any]
    access: StoreAccess | None

    def properties(self, offered: Mapping[str, str]) -> dict[str, Any]:
        """Return the own properties; credentials that a catalog offers are used where the store has none."""
        if self.access is None:
            return ON_DISK | dict(self.own)
        # A library of file systems and one of HTTP, a fifth of what a plan waits for, which a disk does without.
        in_store: dict[str, str] = import_module("kafka_ingest.sinks.iceberg.store_io").in_store(
            self.access.with_offered(offered)
        )
        return in_store | dict(self.own)

    def io(
        self,
        properties: Properties = EMPTY_DICT,
        location: str | None = None,
        *,
        offered: Mapping[str, str] = EMPTY_DICT,
    ) -> FileIO:
        """Return what reads and writes a table's files. The first two parameters are those of the library's method."""
        return load_file_io({**properties, **self.properties(offered)}, location)
