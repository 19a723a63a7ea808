"""Where schemas come from: a schema registry, and Protobuf's message types."""

from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from kafka_ingest.errors import InstallationError
from kafka_ingest.ports.schemas import MessageTypes, SchemaRegistry

NEEDED: Final = {"google.protobuf": "protobuf", "ptars": "ptars", "grpc_tools": "grpcio-tools"}
"""The modules that records in Protobuf need, each with the package that brings it."""


def message_types() -> MessageTypes:
    """Return what reads message types; Protobuf's libraries are imported for feeds that need them only.

    Raises InstallationError where one of them is missing.
    """
    if missing := [package for module, package in NEEDED.items() if not is_installed(module)]:
        raise InstallationError(
            f"format: protobuf needs the Python packages {', '.join(NEEDED.values())}, found no {', '.join(missing)} "
            "here. Install them where the tasks and the command line run, and on the machines of Spark: pip install "
            "-r requirements-protobuf.txt."
        )
    types: MessageTypes = import_module("kafka_ingest.schemas.registered_messages").RegisteredMessages()
    return types


def is_installed(module: str) -> bool:
    """Whether a module can be imported; imports nothing but what it is in."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


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
    registry: SchemaRegistry = import_module("kafka_ingest.schemas.schema_registry").HttpSchemaRegistry(settings)
    return registry
