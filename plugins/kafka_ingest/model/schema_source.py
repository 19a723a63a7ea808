"""Where the schemas of a feed's keys or values come from: a file, or a schema registry."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_ingest.model.documents import Documented
from kafka_ingest.model.record_schema import RecordType, Struct, WrongSchemaError, quoted

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
class WriterSchema(Documented):
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


ELEMENTS: Final = "[]"
MAP_VALUES: Final = "{}"
NAME: Final = re.compile(r"[\w-]+")
STEP: Final = re.compile(r"(?P<inside>\[\]|\{\})|(?P<dot>\.)?(?:(?P<name>[\w-]+)|(?P<quoted>`(?:[^`]|``)+`))")
MOST_PATHS: Final = 1_000
LONGEST_PATH: Final = 1_000


class ReadAs(StrEnum):
    """What a value becomes."""

    STRING = "string"
    """Text: the digits of a number, the text of bytes in UTF-8, JSON of all that holds other values."""

    BINARY = "binary"
    """The bytes of a text, or of a number of any size."""

    SKIP = "skip"
    """Nothing: the field is left out."""


def field_path(above: str, name: str) -> str:
    """Return the path of a field of the value at ``above``; an empty one is the record's own."""
    step = name if NAME.fullmatch(name) else quoted(name)
    return f"{above}.{step}" if above else step


def checked_path(path: str) -> str:
    """Return a path as :func:`field_path` writes it; raises ValueError."""
    at, found = 0, ""
    while at < len(path):
        step = STEP.match(path, at)
        if step is None or (step["inside"] is None and (step["dot"] is None) != (found == "")):
            break
        if step["inside"]:
            found += step["inside"]
        else:
            found = field_path(found, step["name"] or step["quoted"][1:-1].replace("``", "`"))
        at = step.end()
    if not path or at < len(path) or len(path) > LONGEST_PATH:
        raise ValueError(
            "expected the path of a field, such as before.amount, items[].price, prices{}.amount or `a.b`.c, "
            f"found {path[:100]!r}"
        )
    return found


class Paths:
    """What is said of the values of one schema. Each that is found there is noted, so that a mistyped one shows."""

    def __init__(self, read_as: Mapping[str, ReadAs]) -> None:
        self._read_as = read_as
        self._found: set[str] = set()

    def at(self, path: str) -> ReadAs | None:
        said = self._read_as.get(path)
        if said is not None:
            self._found.add(path)
        return said

    def is_about(self, path: str) -> bool:
        """Whether something is said of the value at a path, or of one inside of it."""
        return any(
            each.startswith(path) and (not path or each[len(path) :][:1] in {"", ".", "[", "{"})
            for each in self._read_as
        )

    def __bool__(self) -> bool:
        return bool(self._read_as)

    def check(self) -> None:
        """Raise WrongSchemaError where a path has led to nothing."""
        if missing := [path for path in self._read_as if path not in self._found]:
            raise WrongSchemaError(
                f"expected under as paths of the schema, found {', '.join(missing[:10])}, which it has not, or not "
                "outside of what is read as text or left out: correct the path, or take it out"
            )


def required_path(path: str) -> str:
    """Return a path of fields of objects as :func:`~kafka_ingest.model.schema_source.field_path` writes it.

    Raises ValueError where it is none, or leads into arrays or maps.
    """
    if "[]" in (found := checked_path(path)) or "{}" in found:
        raise ValueError(f"expected the path of a field that is in no array and no map, found {path[:100]!r}")
    return found


def names_of(path: str) -> tuple[str, ...]:
    return tuple(step["name"] or step["quoted"][1:-1].replace("``", "`") for step in STEP.finditer(path))


def not_in(schema: RecordType, paths: Iterable[str]) -> list[str]:

    def has(kind: RecordType, names: tuple[str, ...]) -> bool:
        if not names:
            return True
        fields = kind.fields if isinstance(kind, Struct) else ()
        return any(field.name == names[0] and has(field.type, names[1:]) for field in fields)

    return [path for path in paths if not has(schema, names_of(path))]
