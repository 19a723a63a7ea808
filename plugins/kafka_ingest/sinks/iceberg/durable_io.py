"""How PyIceberg writes manifests and metadata on a disk: each file is durable before a catalog names it.

Otherwise a power cut shortly after a commit could leave a catalog that names an empty file, and no reader could open
the table. Named by its path in the catalog's properties (``py-io-impl``). Importing this imports pyiceberg.
"""

import io
import os
from pathlib import Path

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.sinks.iceberg.places import path_of


class DurableFileIO(PyArrowFileIO):
    """Reads and writes as PyIceberg does, apart from writing to a local or mounted disk."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to be written."""
        path = path_of(location)
        return super().new_output(location) if path is None else DurableFile(location, path)


class DurableFile(PyArrowFile):
    """One file on a disk that is to be written."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location, str(path), LocalFileSystem())
        self._on_disk = path

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - the library's own signature
        """Open it for writing; raises FileExistsError where it may not be overwritten."""
        make_directory_durably(self._on_disk.parent)
        return DurableStream(self._on_disk, overwrite=overwrite)


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
