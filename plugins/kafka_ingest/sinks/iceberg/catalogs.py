"""PyIceberg's catalogs, apart from two things: what reads and writes files, and how long an answer may take.

Importing this imports pyiceberg.
"""

from importlib import import_module

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.typedef import EMPTY_DICT

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.sinks.iceberg.catalog_files import Files
from kafka_ingest.sinks.iceberg.catalog_settings import REST, CatalogSettings


def catalog_of(settings: CatalogSettings, access: StoreAccess | None) -> Catalog:
    """Return the catalog of tables on a disk, or in the store that ``access`` leads to."""
    files = Files(settings.properties, access)
    own = files.properties(EMPTY_DICT)
    if settings.kind == REST:
        rest: Catalog = import_module("kafka_ingest.sinks.iceberg.rest_catalog").PatientRestCatalog(
            settings.name, files, own
        )
        return rest
    catalog = load_catalog(settings.name, **own)
    vars(catalog)["_load_file_io"] = files.io
    return catalog
