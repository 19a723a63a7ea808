"""PyIceberg's catalogs, apart from two things: what reads and writes files, and how long an answer may take.

Importing this imports pyiceberg.
"""

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from sqlalchemy.exc import DBAPIError

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import Place
from kafka_ingest.sinks.iceberg.catalog_files import Files
from kafka_ingest.sinks.iceberg.catalog_settings import REST, CatalogSettings

CREATION_PAUSES_S = (0.01, 0.03, 0.1, 0.3)
MADE_BY_ANOTHER = ("already exists", "duplicate key")
"""What SQLite and PostgreSQL say of a table that another program has made, or is making."""


def catalog_of(settings: CatalogSettings, output: Place, access: StoreAccess | None) -> Catalog:
    """Return the catalog of the table in a place on a disk, or in the store that ``access`` leads to."""
    files = Files(settings.properties, access, output)
    own = files.properties()
    if settings.kind == REST:
        rest: Catalog = import_module("kafka_ingest.sinks.iceberg.rest_catalog").BoundedRestCatalog(
            settings.name, files, own
        )
        return rest
    catalog = loaded(settings.name, own)
    vars(catalog)["_load_file_io"] = files.io
    return catalog


def loaded(name: str, properties: Mapping[str, Any]) -> Catalog:
    """Return the library's catalog. Of two that make a database's tables at once, one is refused, and looks again."""
    for pause_s in CREATION_PAUSES_S:
        try:
            return load_catalog(name, **properties)
        except DBAPIError as error:
            if not any(said in str(error) for said in MADE_BY_ANOTHER):
                raise
            time.sleep(pause_s)
    return load_catalog(name, **properties)
