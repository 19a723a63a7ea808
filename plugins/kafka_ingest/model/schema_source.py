"""Where the schemas of a feed's keys or values come from: a file, or a schema registry."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The other form of a schema's id, the same in all registries (Confluent Platform 8)."""

TOPIC: Final = "{topic}"
"""Stands for the topic's name in the name of a subject."""


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A file beside the feed's own, or anywhere by its absolute path."""

    path: str


@dataclass(frozen=True, slots=True)
class DescriptorSetFile:
    """A file of Protobuf's descriptors, likewise, and the full name of the message type that records are."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class RegistrySource:
    """A registry, by the Airflow connection to it. ``version`` of the subject to read as; None: the latest.

    ``message``: the full name of Protobuf's message type to read as; None: the schema's first one.
    """

    conn_id: str
    subject: str | None = None
    version: int | None = None
    message: str | None = None

    def subject_of(self, topic: str, part: str) -> str:
        """Return the subject of a topic's keys or values; ``part`` is ``key`` or ``value``.

        Where the feed names none, as Confluent's TopicNameStrategy does.
        """
        return (self.subject or f"{TOPIC}-{part}").replace(TOPIC, topic)


SchemaSource = SchemaFile | DescriptorSetFile | RegistrySource


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry has it. ``kind``: ``AVRO``, ``JSON`` or ``PROTOBUF``.

    ``references``: the texts of the schemas that it refers to, theirs included, by the names that it has for them.
    ``lacks``: why some of them cannot be had. ``schema_id``: a number, or a GUID where only that is known.
    """

    schema_id: int | str
    text: str
    kind: str = "AVRO"
    version: int | None = None
    references: tuple[tuple[str, str], ...] = ()
    lacks: str | None = None
    guid: str | None = None


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema that records of a batch may be written with, by the id that stands before them.

    ``text`` is None where such records cannot be read at all; for Protobuf it is how the bytes after the id begin, as
    hexadecimal digits in a list of JSON. ``misfit``: why some or all of them cannot. ``is_other``: it is the schema of
    another type than the one that is read. ``guid``: its other id, which stands in headers of records. ``others``: how
    Protobuf's bytes begin for the schema's other messages, as in ``text``.
    """

    schema_id: int | str
    text: str | None
    misfit: str | None = None
    is_other: bool = False
    guid: str | None = None
    others: tuple[str, ...] = ()

    def as_document(self) -> list[Any]:
        """Return the schema as JSON-able data, as every version has written it, with what there is besides."""
        whole = [self.schema_id, self.text, self.misfit, self.is_other, self.guid, list(self.others)]
        if self.others:
            return whole
        return whole[:5] if self.is_other or self.guid is not None else whole[:3]

    @classmethod
    def from_document(cls, document: Sequence[Any]) -> "WriterSchema":
        first = cls(*document[:5])
        return replace(first, others=tuple(document[5])) if document[5:] else first
