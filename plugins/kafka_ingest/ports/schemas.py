"""Where schemas come from: the questions that are asked before Spark starts."""

from collections.abc import Callable, Sequence
from typing import Protocol

from kafka_ingest.model.schema_source import RegisteredSchema


class SchemaRegistry(Protocol):
    """A schema registry.

    Each question raises SchemaRegistryUnavailableError where nothing answers, SchemaRegistryRefusedError where
    credentials or certificates are refused.
    """

    def versions(self, subject: str) -> Sequence[int]:
        """Return a subject's versions, in ascending order; raises SubjectMissingError."""

    def version(self, subject: str, version: int | None) -> RegisteredSchema:
        """Return a version of a subject, None for the latest; raises SubjectMissingError."""

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id; None where the registry knows none."""


OpenRegistry = Callable[[str], SchemaRegistry]
"""Returns the registry that a connection leads to."""

ReadSchemaFile = Callable[[str], str]
"""Returns what is in a schema file; raises InvalidSchemaError where it cannot be read."""
