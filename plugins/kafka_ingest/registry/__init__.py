"""A schema registry, seen through the questions that a feed has; and how to reach one."""

from dataclasses import dataclass, field
from importlib import import_module

from kafka_ingest.ports.schemas import SchemaRegistry


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """``urls`` are asked in turn. Basic auth (``user``) or a bearer token, or neither."""

    conn_id: str
    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate: tuple[str, str] | None = None
    """A client's certificate and its key, as files."""


def open_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Return a registry; the library for HTTP is imported for feeds that name one only."""
    registry: SchemaRegistry = import_module("kafka_ingest.registry.schema_registry").HttpSchemaRegistry(settings)
    return registry
