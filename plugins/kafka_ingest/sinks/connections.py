"""What sinks look up when they are used: how to reach what a connection names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from kafka_ingest.errors import MissingConnectionError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.sinks.iceberg.catalog_settings import FindCatalog
from kafka_ingest.sinks.kafka_topic.cluster import FindKafka
from kafka_ingest.sinks.postgresql.database import FindDatabase


def no_connection(wanted: object) -> NoReturn:
    """Raise MissingConnectionError: nothing here looks up connections."""
    raise MissingConnectionError(f"expected a way to look up the connection {wanted}, found none")


@dataclass(frozen=True, slots=True)
class SinkConnections:
    """Connections by their ids. Each is looked up when it is first needed."""

    catalog: FindCatalog = no_connection
    store: Callable[[RemotePlace], StoreAccess] = no_connection
    """Finds how to reach a place in a store."""
    database: FindDatabase = no_connection
    kafka: FindKafka = no_connection
