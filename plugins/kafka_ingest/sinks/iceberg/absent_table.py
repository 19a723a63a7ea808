"""Whether a table is not there yet, found without the library: a feed's first plan need not wait for its import."""

from pathlib import Path

from sqlalchemy import NullPool, column, create_engine, inspect, select, table

from kafka_ingest.foundation.storage import Opened, names_in, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import Place
from kafka_ingest.sinks.iceberg.catalog_settings import SQL, CatalogSettings
from kafka_ingest.sinks.iceberg.library_errors import named_errors
from kafka_ingest.sinks.iceberg.places import METADATA

TABLES = table("iceberg_tables", column("catalog_name"), column("table_namespace"), column("table_name"))
"""The tables of a SQL catalog, as Iceberg's own JDBC catalog and the library have them."""

METADATA_FILE = ".metadata.json"
NEVER_COMMITTED = "00000-"
"""What the first metadata file's name begins with: also without a table, after a crash while it was made."""


def is_absent(output: Place, settings: CatalogSettings, name: str, access: StoreAccess | None) -> bool:
    """Whether there is certainly no table of that name in a place; False also where only the library can find out.

    Raises OutputUnavailableError where a catalog in a database does not answer.
    """
    if settings.kind != SQL or is_in_database(output, settings, name):
        return False
    return not was_committed_to(opened(output / METADATA, access))


def is_in_database(output: Place, settings: CatalogSettings, name: str) -> bool:
    """Whether a catalog in a database may know a table."""
    namespace, _, table_name = name.rpartition(".")
    row = (settings.name, namespace, table_name)
    query = select(TABLES).where(*(each == value for each, value in zip(TABLES.c, row, strict=True)))
    with named_errors(f"Iceberg table {name} in {output}", settings):
        engine = create_engine(str(settings.properties["uri"]), poolclass=NullPool)
        with engine.connect() as connection:
            if not inspect(connection).has_table(TABLES.name):
                # The library makes a catalog's tables when it opens it. Where that needs a right, a plan shows it.
                return connection.dialect.name != "sqlite"
            return connection.execute(query).first() is not None


def was_committed_to(metadata: Opened) -> bool:
    """Whether a table's folder of metadata shows commits, whatever a catalog says."""
    names = names_in(metadata) if not isinstance(metadata, Path) or metadata.is_dir() else []
    return any(name.endswith(METADATA_FILE) and not name.startswith(NEVER_COMMITTED) for name in names)
