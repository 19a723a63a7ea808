"""Nouns as JSON or as rows, and back: field by field. What a form has besides, or calls otherwise, its class says.

Positions in Kafka's logs are spread out: topic, partition and offsets stand beside a noun's other fields.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum, EnumType
from types import NoneType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from kafka_ingest.foundation.foreign_json import moment, said, whole
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import Place, RemotePlace, place_of

SIMPLE = frozenset({NoneType, str, int, bool, float})
"""Types whose values JSON and databases take as they are."""

T = TypeVar("T")
Read = Callable[[Mapping[Any, Any], str], Any]
NAMES: dict[Any, tuple[str, ...]] = {}
READERS: dict[Any, list[tuple[str, Read, bool]]] = {}
"""How nouns are written and read, by their classes: put together once."""


class Documented:
    """A noun whose document has its fields, and nothing else."""

    __slots__ = ()

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON-able data: as ``--json``, the audit journal and stored documents have it."""
        return document_of(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read it back, whatever else is in the document; raises ValueError, KeyError or TypeError where it is not."""
        return read_document(cls, document)


def document_of(noun: object, *names: str) -> dict[str, Any]:
    """Return a noun's fields as JSON-able data; where names are given, these fields and properties alone."""
    return _spread(noun, names, _plain)


def row_of(noun: object, *names: str) -> dict[str, Any]:
    """Return a noun's fields as the values of a row; where names are given, these alone."""
    return _spread(noun, names, _stored)


def read_document(kind: type[T], document: Mapping[str, Any], **known: object) -> T:
    """Return a noun from a document, whatever else is in it; ``known`` are fields that it has in another form.

    Raises what :mod:`kafka_ingest.foundation.foreign_json` raises where a value is of another type.
    """
    found = {
        name: read(document, name)
        for name, read, may_lack in _readers(kind, _of_document)
        if name not in known and not (may_lack and name not in document)
    }
    return kind(**found, **known)


def read_row(kind: type[T], row: Mapping[Any, Any], **known: object) -> T:
    """Return a noun from a row with a column for each of its fields, without those that are ``known``."""
    for name, read, _ in _readers(kind, _of_row):
        if name not in known:
            known[name] = read(row, name)
    return kind(**known)


def _spread(noun: object, names: tuple[str, ...], form: Callable[[Any], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names or _names(type(noun)):
        value = getattr(noun, name)
        if type(value) in SIMPLE:  # nearly all are, and plans have 10,000 partitions
            found[name] = value
        elif isinstance(value, OffsetRange):
            found |= value.as_document()
        elif isinstance(value, TopicPartition):
            found |= {"topic": value.topic, "partition": value.partition}
        else:
            found[name] = form(value)
    return found


def _stored(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Place) else value


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a field holds
    if hasattr(value, "as_document"):
        return value.as_document()
    if is_dataclass(value) and not isinstance(value, RemotePlace):
        return document_of(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, UUID) else _stored(value)


def _names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a dataclass
    if kind not in NAMES:
        NAMES[kind] = tuple(each.name for each in fields(kind))
    return NAMES[kind]


def _readers(kind: Any, form: "Form") -> list[tuple[str, Read, bool]]:  # noqa: ANN401 - a dataclass
    if (kind, form) not in READERS:
        hints = get_type_hints(kind)
        READERS[kind, form] = [
            (each.name, _reader(hints[each.name], form), each.default is not MISSING) for each in fields(kind)
        ]
    return READERS[kind, form]


def _reader(hint: Any, form: "Form") -> Read:  # noqa: ANN401 - a type
    if hint == Place:
        return lambda found, name: place_of(found[name])
    if NoneType in get_args(hint):
        read = _reader(Union[*(each for each in get_args(hint) if each is not NoneType)], form)
        if read is operator.getitem:
            return read
        return lambda found, name: None if found[name] is None else read(found, name)
    if isinstance(hint, EnumType):
        return lambda found, name: hint(found[name])
    return form(hint)


Form = Callable[[Any], Read]
"""Gives how a value is read by its type."""


def _of_row(hint: Any) -> Read:  # noqa: ANN401 - a type
    if hint is TopicPartition:
        return lambda row, _: TopicPartition(row["topic"], row["partition"])
    if hint is OffsetRange:
        return lambda row, _: range_of_row(row)
    return operator.getitem


def range_of_row(row: Mapping[Any, Any]) -> OffsetRange:
    return OffsetRange(TopicPartition(row["topic"], row["partition"]), row["start_offset"], row["end_offset"])


CHECKED: Mapping[Any, Read] = {
    str: said,
    int: whole,
    bool: lambda document, name: bool(document[name]),
    datetime: moment,
    UUID: lambda document, name: UUID(said(document, name)),
    TopicPartition: lambda document, _: TopicPartition.from_document(document),
    OffsetRange: lambda document, _: OffsetRange.from_document(document),
}


def _of_document(hint: Any) -> Read:  # noqa: ANN401 - a type
    if hint in CHECKED:
        return CHECKED[hint]
    if hasattr(hint, "from_document"):
        return lambda document, name: hint.from_document(document[name])
    *_, kind = [each for each in get_args(hint) if each is not Ellipsis] or [None]
    if get_origin(hint) is tuple:
        read = getattr(kind, "from_document", kind if isinstance(kind, type) else lambda each: each)
        return lambda document, name: tuple(map(read, document[name]))
    if get_origin(hint) is Mapping and isinstance(kind, EnumType):
        return lambda document, name: {key: kind(each) for key, each in document[name].items()}
    return operator.getitem
