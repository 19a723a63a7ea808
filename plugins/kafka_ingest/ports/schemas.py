"""Where schemas come from: the questions that are asked before Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafka_ingest.model.record_schema import Struct
    from kafka_ingest.model.schema_source import ReadAs, RegisteredSchema, WriterSchema


class SchemaRegistry(Protocol):
    """A schema registry.

    Each question raises SchemaRegistryUnavailableError where nothing answers, SchemaRegistryRefusedError where
    credentials or certificates are refused.
    """

    def versions(self, subject: str) -> Sequence[int]:
        """Return a subject's versions, in ascending order; raises SubjectMissingError."""

    def version(self, subject: str, version: int | None) -> RegisteredSchema:
        """Return a version of a subject, None for the latest; raises SubjectMissingError."""

    def by_id(self, schema_id: int | str) -> RegisteredSchema | None:
        """Return the schema of an id or a GUID; None where the registry knows none."""


class MessageTypes(Protocol):
    """Protobuf's message types, each as a text that holds all files that describe it.

    Each question raises WrongSchemaError where a type cannot be read. ``read_as``: what a feed says of values in it.
    """

    def of_set(self, content: bytes, message: str, read_as: Mapping[str, ReadAs]) -> str:
        """Return a message type of a descriptor set."""

    def registered(self, found: RegisteredSchema, message: str | None, read_as: Mapping[str, ReadAs]) -> str:
        """Return a message type of a registered schema; None for its first one."""

    def columns(self, schema: str, read_as: Mapping[str, ReadAs]) -> Struct:
        """Return the columns of a message type."""

    def writer(self, found: RegisteredSchema, reader: str) -> WriterSchema:
        """Return a schema that records may be written with, and why they cannot be read as the reader's message type.

        Its text is how the bytes after the schema's id may begin, for messages of that type.
        """


OpenRegistry = Callable[[str], SchemaRegistry]
"""Returns the registry that a connection leads to."""

ReadSchemaFile = Callable[[str], bytes]
"""Returns what is in a schema file; raises InvalidSchemaError where it cannot be read."""

OpenMessageTypes = Callable[[], MessageTypes]
"""Returns what reads Protobuf's message types; raises InstallationError where its libraries are not installed."""
