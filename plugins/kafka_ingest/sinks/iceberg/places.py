"""Where the data files of an Iceberg table are: ``P/data/batches/<batch>/<attempt>/``, staged and published alike.

Readers see what the table's manifests name. Locations are URIs: a path without a scheme means HDFS to a Spark that has
it as its default.
"""

from pathlib import Path
from urllib.parse import urlsplit

from kafka_ingest.foundation.storage import Opened, names_in
from kafka_ingest.foundation.stores.kinds import KINDS
from kafka_ingest.model.place import Place

DATA = "data"
BATCHES = "batches"
METADATA = "metadata"
NOT_IN_LOCATIONS = "?#;"
"""Characters that PyIceberg takes for the end of a location's path."""

NOT_IN_NAMES = frozenset(".")
"""In the name of a field, PyIceberg takes it for the end of another one's."""


def location_of(place: Place) -> str:
    """Return the location of a place: of one in a store without the connection that leads there."""
    return f"file://{place}" if isinstance(place, Path) else str(place.without_connection)


def path_of(location: str) -> Path | None:
    if location.startswith("/"):
        return Path(location)
    parts = urlsplit(location)
    return Path(parts.path) if parts.scheme == "file" and parts.netloc in {"", "localhost"} else None


def comparable(location: str) -> str | None:
    """Return a location as those of one place are written alike: a path, or a URI with the scheme of its store.

    Spark calls by its file system's name what other programs call by the protocol's. None for any that is neither on a
    disk nor in a store.
    """
    if (path := path_of(location)) is not None:
        return str(path)
    scheme, _, rest = location.partition("://")
    return next((f"{own}://{rest}" for own, kind in KINDS.items() if scheme in kind.in_catalogs), None)


METADATA_FILE = ".metadata.json"
NEVER_COMMITTED = "00000-"
"""What the first metadata file's name begins with: also without a table, after a crash while it was made."""


def was_committed_to(metadata: Opened) -> bool:
    """Whether a table's folder of metadata shows commits, whatever a catalog says."""
    names = names_in(metadata) if not isinstance(metadata, Path) or metadata.is_dir() else []
    return any(name.endswith(METADATA_FILE) and not name.startswith(NEVER_COMMITTED) for name in names)
