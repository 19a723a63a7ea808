"""Where the data files of an Iceberg table are: ``P/data/batches/<batch>/<attempt>/``, staged and published alike.

Readers see what the table's manifests name. Locations are URIs: a path without a scheme means HDFS to a Spark that has
it as its default.
"""

from pathlib import Path
from urllib.parse import urlsplit

DATA = "data"
BATCHES = "batches"
METADATA = "metadata"
NOT_IN_LOCATIONS = "?#;"
"""Characters that PyIceberg takes for the end of a location's path."""


def location_of(path: Path) -> str:
    """Return the location of an absolute path."""
    return f"file://{path}"


def path_of(location: str) -> Path | None:
    """Return the path of a location on a local or mounted disk, None for any other."""
    if location.startswith("/"):
        return Path(location)
    parts = urlsplit(location)
    return Path(parts.path) if parts.scheme == "file" and parts.netloc in {"", "localhost"} else None
