"""What sinks look up when they are used: how to reach what a connection names."""

from collections.abc import Callable
from dataclasses import dataclass

from kafka_ingest.errors import MissingConnectionError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings, FindCatalog


def no_catalog(conn_id: str) -> CatalogSettings:
    """Raise MissingConnectionError: nothing here looks up connections."""
    raise MissingConnectionError(f"expected a way to look up the connection {conn_id!r}, found none")


def no_store(place: RemotePlace) -> StoreAccess:
    """Raise MissingConnectionError: nothing here looks up connections."""
    raise MissingConnectionError(f"expected a way to look up the connection that leads to {place}, found none")


@dataclass(frozen=True, slots=True)
class SinkConnections:
    """Connections by their ids. Each is looked up when it is first needed."""

    catalog: FindCatalog = no_catalog
    store: Callable[[RemotePlace], StoreAccess] = no_store
    """Finds how to reach a place in a store."""
