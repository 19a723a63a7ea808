"""How PyIceberg reads and writes a table's files: durably on a disk, and in a store as all that is there.

Each file of metadata is durable before a catalog names it: otherwise a power cut shortly after a commit could leave a
catalog that names an empty file, and no reader could open the table. In a store it is one put, with the client, the
credentials and the limits of the connection. Named by its path in the catalog's properties (``py-io-impl``). Importing
this imports pyiceberg, without pyarrow, for which a plan would wait: the library's own reads data files on a disk.
"""

import io
import os
from functools import cached_property
from importlib import import_module
from pathlib import Path

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.foundation.storage import Opened, opened, size_of
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.kinds import access_from_json
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.sinks.iceberg.metadata_size import bounded
from kafka_ingest.sinks.iceberg.places import comparable, path_of
from kafka_ingest.sinks.iceberg.table_place import ACCESS, check_deletable, check_inside

DATA_FILE = ".parquet"


class TableFileIO(FileIO):
    """Reads and writes the files of one table."""

    def new_input(self, location: str) -> InputFile:
        check_inside(location, self.properties)
        path = self.opened(location)
        is_data = isinstance(path, Path) and path.suffix == DATA_FILE
        return self._of_the_library.new_input(location) if is_data else TableFile(location, path)

    def new_output(self, location: str) -> OutputFile:
        check_inside(location, self.properties)
        return TableFile(location, self.opened(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        check_deletable(name, self.properties)
        path = self.opened(name)
        path.unlink() if isinstance(path, Path) else path.fs.rm(path.path)

    def opened(self, location: str) -> Opened:
        """Return what reads and writes at a location, which engines may call by another scheme of the store."""
        path = path_of(location)
        return path if path is not None else opened(RemotePlace(comparable(location) or location), self._access)

    @cached_property
    def _access(self) -> StoreAccess | None:
        return access_from_json(self.properties[ACCESS]) if ACCESS in self.properties else None

    @cached_property
    def _of_the_library(self) -> FileIO:
        found: FileIO = import_module("pyiceberg.io.pyarrow").PyArrowFileIO()
        return found


class TableFile(InputFile, OutputFile):
    """One file."""

    def __init__(self, location: str, path: Opened) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return size_of(self._path)

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - the library's own signature
        return bounded(self.location, self._path.open("rb"))

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - the library's own signature
        """Open it for writing; raises FileExistsError where it may not be overwritten.

        In a store, closing it puts it as a whole, and the store itself refuses to overwrite. The library would ask
        first, which is two requests more, and prevents nothing.
        """
        if isinstance(self._path, Path):
            make_directory_durably(self._path.parent)
            return DurableStream(self._path, overwrite=overwrite)
        stream: OutputStream = self._path.fs.open(self._path.path, "wb" if overwrite else "xb")
        return stream


class DurableStream(io.BufferedWriter):
    """Writes a file whose content and name are on the disk once it is closed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        super().__init__(io.FileIO(path, "wb" if overwrite else "xb"))
        self._path = path

    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        sync(self._path.parent)
