"""How PyIceberg reads and writes in a store: with the client, the credentials and the limits of all that lies there.

Named by its path in the catalog's properties (``py-io-impl``). Importing this imports pyiceberg.
"""

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.fsspec import FsspecFileIO, FsspecInputFile, FsspecOutputFile
from pyiceberg.typedef import Properties

from kafka_ingest.foundation.storage import opened_elsewhere
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.kinds import access_from_json
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.sinks.iceberg.metadata_size import bounded
from kafka_ingest.sinks.iceberg.table_place import check_deletable, check_inside

ACCESS = "kafka_ingest.store"
"""The property that says how to reach the store; it holds the secrets, and stays in this process."""


def in_store(access: StoreAccess) -> dict[str, str]:
    """Return the properties of a catalog whose tables' files are in a store."""
    return {"py-io-impl": f"{__name__}.{StoreFileIO.__name__}", ACCESS: access.as_json()}


class StoreFileIO(FsspecFileIO):
    """Reads and writes in the store that a connection leads to."""

    def _get_fs(self, scheme: str, hostname: str | None = None) -> object:  # noqa: ARG002 - the library's own signature
        """Return what reads and writes in the store, of which alone there are files."""
        return file_system(self.properties)

    def new_input(self, location: str) -> FsspecInputFile:
        """Return a file to be read."""
        check_inside(location, self.properties)
        return BoundedObject(location, self.get_fs(location.partition("://")[0]))

    def new_output(self, location: str) -> FsspecOutputFile:
        """Return a file to be written."""
        check_inside(location, self.properties)
        return NewObject(location, self.get_fs(location.partition("://")[0]))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file of metadata; raises FileNotFoundError where there is none."""
        check_deletable(location if isinstance(location, str) else location.location, self.properties)
        super().delete(location)


class BoundedObject(FsspecInputFile):
    """One object that is to be read."""

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - the library's own signature
        """Open it for reading."""
        return bounded(self.location, super().open(seekable))


class NewObject(FsspecOutputFile):
    """One object that is to be written."""

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - the library's own signature
        """Open it for writing; closing it puts it as a whole.

        Where it may not be overwritten, the store refuses that. The library would ask first, which is two requests
        more, and prevents nothing.
        """
        stream: OutputStream = self._fs.open(self.location, "wb" if overwrite else "xb")
        return stream


def file_system(properties: Properties) -> object:
    """Return the client of the store."""
    access = access_from_json(properties[ACCESS])
    return opened_elsewhere(RemotePlace(f"{access.scheme}://any"), access).fs
