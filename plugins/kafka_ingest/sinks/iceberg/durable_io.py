"""How PyIceberg reads and writes a table on a disk: each file of metadata is durable before a catalog names it.

Otherwise a power cut shortly after a commit could leave a catalog that names an empty file, and no reader could open
the table. Named by its path in the catalog's properties (``py-io-impl``). Importing this imports pyiceberg, without
pyarrow, for which a plan would wait: the library's own reads data files.
"""

import io
import os
from functools import cached_property
from importlib import import_module
from pathlib import Path

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.sinks.iceberg.metadata_size import bounded
from kafka_ingest.sinks.iceberg.places import path_of
from kafka_ingest.sinks.iceberg.table_place import check_deletable, check_inside

DATA_FILE = ".parquet"


class DurableFileIO(FileIO):
    """Reads and writes a table's metadata on a local or mounted disk, and the rest as PyIceberg does."""

    def new_input(self, location: str) -> InputFile:
        """Return a file to be read."""
        path = self._path_of(location)
        return self._of_the_library.new_input(location) if path.suffix == DATA_FILE else FileOnDisk(location, path)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to be written."""
        return FileOnDisk(location, self._path_of(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file of metadata; raises FileNotFoundError where there is none."""
        name = location if isinstance(location, str) else location.location
        check_deletable(name, self.properties)
        self._path_of(name).unlink()

    def _path_of(self, location: str) -> Path:
        check_inside(location, self.properties)
        return Path(path_of(location) or location)

    @cached_property
    def _of_the_library(self) -> FileIO:
        found: FileIO = import_module("pyiceberg.io.pyarrow").PyArrowFileIO()
        return found


class FileOnDisk(InputFile, OutputFile):
    """One file on a disk."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        """Return its size, in bytes."""
        return self._path.stat().st_size

    def exists(self) -> bool:
        """Whether it is there."""
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - the library's own signature
        """Open it for reading."""
        return bounded(self.location, self._path.open("rb"))

    def to_input_file(self) -> InputFile:
        """Return the same file."""
        return self

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - the library's own signature
        """Open it for writing; raises FileExistsError where it may not be overwritten."""
        make_directory_durably(self._path.parent)
        return DurableStream(self._path, overwrite=overwrite)


class DurableStream(io.BufferedWriter):
    """Writes a file whose content and name are on the disk once it is closed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        super().__init__(io.FileIO(path, "wb" if overwrite else "xb"))
        self._path = path

    def close(self) -> None:
        """Close it, durably."""
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        sync(self._path.parent)
