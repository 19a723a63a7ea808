"""What of a table may be read, written and deleted: what is in its own place, whatever its metadata names.

A table's metadata is data that others can write: its files, its log of metadata and its properties name places and
classes. Importing this imports nothing of pyiceberg.
"""

import re
from collections.abc import Mapping
from typing import Any

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import Place
from kafka_ingest.sinks.iceberg.places import METADATA, comparable, location_of, path_of

PLACE, ACCESS = "kafka_ingest.place", "kafka_ingest.store"
"""The properties of a catalog's files that say where the table is, and how to reach its store.

The second holds secrets, and stays in this process.
"""

CHOOSES = re.compile(r"(?:write\.)?py-|s3\.retry-strategy-impl$|write\.(?:.+\.path$|object-storage\.)")
"""Properties by which the library imports and calls a class, or writes elsewhere than a table's own folders.

A test looks for all that the library imports by a name.
"""

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
MADE = re.compile(rf"\d+-{UUID}(?:\.gz)?\.metadata\.json|{UUID}-m\d+\.avro|snap-\d+-\d+-{UUID}\.avro")
"""How the library, and the format's own, name metadata, manifests and lists of manifests."""


def check_chooses_nothing(properties: Mapping[str, str]) -> None:
    """Raise OutputNotUsableError where a table's properties choose classes of Python or other places for its files."""
    if chosen := sorted(filter(CHOOSES.match, properties)):
        raise OutputNotUsableError(
            f"expected an Iceberg table whose properties leave to this program how and where files are written, found "
            f"the property {chosen[0]}. Nothing of it was used, nothing was written and no offset was moved. If it is "
            f"not known who set it, find out; remove it by ALTER TABLE … UNSET TBLPROPERTIES ('{chosen[0]}')."
        )


def of(output: Place, access: StoreAccess | None = None) -> dict[str, str]:
    """Return the properties that say where a table is; ``access`` leads to its store, None on a disk."""
    return {PLACE: location_of(output), **({ACCESS: access.as_json()} if access is not None else {})}


def check_inside(location: str, properties: Mapping[str, Any]) -> None:
    """Raise OutputNotUsableError where a file is not below the table's place."""
    root = properties[PLACE]
    if is_below(location, root):
        return
    raise OutputNotUsableError(
        f"expected an Iceberg table whose files are all below {root}, found that its metadata names {location}. That "
        "was neither read nor written, and no offset was moved. Set sink.path to the table's location, or sink.table "
        "to another, or rewrite the table's files with an engine that puts them there."
    )


def is_below(location: str, root: str) -> bool:
    """Whether a location is in a place, or in a directory by another name of it, wherever symbolic links lead."""
    path, folder = path_of(location), path_of(root)
    if ".." in location.split("/"):
        return False
    if path is None or folder is None:
        return path is folder and (comparable(location) or "").startswith(f"{comparable(root)}/")
    return folder.resolve() in path.resolve().parents


def check_deletable(location: str, properties: Mapping[str, Any]) -> None:
    """Raise PermissionError where a file is not the table's own metadata, by a name that the library gives it.

    Those who delete leave a file that cannot be deleted to ``remove_orphan_files``.
    """
    root: str = properties[PLACE]
    folder = f"{root}/{METADATA}"
    if not (is_below(location, root) and is_below(location, folder) and MADE.fullmatch(location.rpartition("/")[2])):
        raise PermissionError(f"expected metadata of the table in {folder}, found {location}")
