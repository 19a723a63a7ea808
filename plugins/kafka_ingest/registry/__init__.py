"""A schema registry, seen through the questions that a feed has."""

from importlib import import_module

from kafka_ingest.ports.schemas import SchemaRegistry
from kafka_ingest.registry.registry_settings import RegistrySettings


def open_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Return a registry; the library for HTTP is imported for feeds that name one only."""
    registry: SchemaRegistry = import_module("kafka_ingest.registry.schema_registry").HttpSchemaRegistry(settings)
    return registry
