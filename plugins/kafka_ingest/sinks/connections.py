"""What sinks look up when they are used: how to reach what a connection names."""

from collections.abc import Callable
from dataclasses import dataclass

from kafka_ingest.errors import MissingConnectionError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings, FindCatalog


def no_catalog(conn_id: str) -> CatalogSettings:
    """Raise MissingConnectionError: nothing here looks up connections."""
    raise not_looked_up(conn_id)


def no_store(_: str, conn_id: str) -> StoreAccess:
    """Raise MissingConnectionError: nothing here looks up connections."""
    raise not_looked_up(conn_id)


def not_looked_up(conn_id: str) -> MissingConnectionError:
    """Return the error of a caller that needs no connections."""
    return MissingConnectionError(f"expected a way to look up the connection {conn_id!r}, found none")


@dataclass(frozen=True, slots=True)
class SinkConnections:
    """Connections by their ids. Each is looked up when it is first needed."""

    catalog: FindCatalog = no_catalog
    store: Callable[[str, str], StoreAccess] = no_store
    """Finds how to reach a store, by its scheme and the connection's id."""
