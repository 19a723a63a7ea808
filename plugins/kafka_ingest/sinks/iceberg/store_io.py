"""How PyIceberg reads and writes in a store: with the client, the credentials and the limits of all that lies there.

Named by its path in the catalog's properties (``py-io-impl``). Importing this imports pyiceberg.
"""

from pyiceberg.io import OutputStream
from pyiceberg.io.fsspec import FsspecFileIO, FsspecOutputFile
from pyiceberg.typedef import Properties

from kafka_ingest.foundation.storage import opened_elsewhere
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.kinds import KINDS, access_from_json
from kafka_ingest.model.place import RemotePlace

ACCESS = "kafka_ingest.store"
"""The property that says how to reach the store; it holds the secrets, and stays in this process."""


def in_store(access: StoreAccess) -> dict[str, str]:
    """Return the properties of a catalog whose tables' files are in a store."""
    return {"py-io-impl": f"{__name__}.{StoreFileIO.__name__}", ACCESS: access.as_json()}


class StoreFileIO(FsspecFileIO):
    """Reads and writes in the store that a connection leads to."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._own = KINDS[access_from_json(properties[ACCESS]).scheme].in_catalogs

    def _get_fs(self, scheme: str, hostname: str | None = None) -> object:
        """Return what reads and writes by a scheme; the library would have a client of its own for Azure's."""
        return file_system(self.properties) if scheme in self._own else super()._get_fs(scheme, hostname)

    def new_output(self, location: str) -> FsspecOutputFile:
        """Return a file to be written."""
        return NewObject(location, self.get_fs(location.partition("://")[0]))


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
