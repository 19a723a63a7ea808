"""Iceberg tables for tests: a catalog in a SQLite file beside the output, and other programs' access to it."""

from dataclasses import replace
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io import InputFile
from pyiceberg.table import Table

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.place import OutputLocation, Place
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.sinks.choose import SinkConnections
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings
from kafka_ingest.sinks.iceberg.table_io import ACCESS, TableFile, TableFileIO

CATALOG = "lake"


def iceberg_at(place: Place, options: TableOptions = NO_TABLE_OPTIONS) -> OutputLocation:
    """Return the Iceberg output in a directory or in a store."""
    named = {"catalog": CATALOG, "table": name_at(place)}
    return OutputLocation.at("iceberg", str(place), named | options.as_options())


def name_at(place: Place) -> str:
    """Return the name of the table in a place."""
    return f"shop.{place.name}"


def connections_beside(path: Path, access: StoreAccess | None = None) -> SinkConnections:
    """Return how a sink finds the catalog beside a directory, and the store that ``access`` leads to."""
    uri = f"sqlite:///{path.parent}/catalog.db"
    found = SinkConnections(catalog=lambda conn_id: CatalogSettings(conn_id, conn_id, {"type": "sql", "uri": uri}))
    return found if access is None else replace(found, store=lambda *_: access)


def catalog_beside(path: Path, access: StoreAccess | None = None) -> Catalog:
    """Return the catalog as another program has it, with PyIceberg's own client of a store."""
    settings = connections_beside(path).catalog(CATALOG)
    return load_catalog(settings.name, **settings.properties, **(files_in_store(access) if access is not None else {}))


class OfAnotherProgram(TableFileIO):
    """Reads what any table names, as other programs do."""

    def new_input(self, location: str) -> InputFile:
        """Return a file to be read."""
        return TableFile(location, self.opened(location))


def files_in_store(access: StoreAccess) -> dict[str, str]:
    """Return the properties of a catalog by which other programs reach a store.

    PyIceberg's own client of Google's store has no property for a key.
    """
    if not isinstance(access, S3Access):
        return {ACCESS: access.as_json(), "py-io-impl": f"{__name__}.{OfAnotherProgram.__name__}"}
    found = {
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "s3.endpoint": access.endpoint_url,
        "s3.region": access.region,
        "s3.access-key-id": access.access_key,
        "s3.secret-access-key": access.secret_key,
    }
    return {name: value for name, value in found.items() if value is not None}


def table_at(path: Path, access: StoreAccess | None = None) -> Table:
    """Return the table whose catalog is beside a directory as another program has it."""
    return catalog_beside(path, access).load_table(name_at(path))


def has_table(path: Path, access: StoreAccess | None = None) -> bool:
    """Whether the catalog beside a directory knows its table."""
    return catalog_beside(path, access).table_exists(name_at(path))
