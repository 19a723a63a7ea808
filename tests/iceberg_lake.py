"""Iceberg tables for tests: a catalog in a SQLite file beside the output, and other programs' access to it."""

from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.sinks.connections import SinkConnections
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings

CATALOG = "lake"


def iceberg_at(path: Path, options: TableOptions = NO_TABLE_OPTIONS) -> OutputLocation:
    """Return the Iceberg output in a directory."""
    return OutputLocation.local("iceberg", path, {"catalog": CATALOG, "table": name_at(path)} | options.as_options())


def name_at(path: Path) -> str:
    """Return the name of the table in a directory."""
    return f"shop.{path.name}"


def connections_beside(path: Path) -> SinkConnections:
    """Return how a sink finds the catalog beside a directory."""
    uri = f"sqlite:///{path.parent}/catalog.db"
    return SinkConnections(catalog=lambda conn_id: CatalogSettings(conn_id, conn_id, {"type": "sql", "uri": uri}))


def catalog_beside(path: Path) -> Catalog:
    """Return the catalog as another program has it."""
    settings = connections_beside(path).catalog(CATALOG)
    return load_catalog(settings.name, **settings.properties)


def table_at(path: Path) -> Table:
    """Return the table in a directory as another program has it."""
    return catalog_beside(path).load_table(name_at(path))


def has_table(path: Path) -> bool:
    """Whether the catalog knows a table in a directory."""
    return catalog_beside(path).table_exists(name_at(path))
