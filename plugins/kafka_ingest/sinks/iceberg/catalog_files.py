"""What reads and writes the files of a catalog's tables. Importing this imports pyiceberg."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import Place
from kafka_ingest.sinks.iceberg import table_place

FILE_IO = "kafka_ingest.sinks.iceberg.table_io.TableFileIO"


@dataclass(frozen=True, slots=True)
class Files:
    """What reads and writes the files of the table in ``output``, and no others.

    The library lets properties of a table, or of a server, name the class that does so, and how it does it. It would be
    imported, and nothing would be flushed, or put with the store's credentials. Here the connection's properties count
    alone.
    """

    own: Mapping[str, Any]
    access: StoreAccess | None
    output: Place

    def properties(self, offered: Mapping[str, str] = EMPTY_DICT) -> dict[str, Any]:
        """Return the connection's properties; credentials that a catalog offers are used where the store has none."""
        access = self.access.with_offered(offered) if self.access is not None else None
        return {**self.own, "py-io-impl": FILE_IO, **table_place.of(self.output, access)}

    def io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        """Return what reads and writes a table's files, in the library's place: it asks for each table that it loads.

        Raises OutputNotUsableError where the table's properties choose something else.
        """
        del location  # all files are in the one place
        table_place.check_chooses_nothing(properties)
        return load_file_io(self.properties())
