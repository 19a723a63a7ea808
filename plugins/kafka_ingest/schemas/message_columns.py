"""What a message type becomes: the types of its columns, and the message type by which its records are read.

That second one has the same wire format, and nothing in it that libraries read in different ways: no requirements, no
closed enums, no maps, no well-known types with a meaning of their own. What these mean is said by the tree of values
here, and done with whole columns (:mod:`kafka_ingest.writing.protobuf_batches`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from kafka_ingest.model.record_schema import (
    MAX_DEPTH,
    MAX_FIELDS,
    ArrayOf,
    Field,
    MapOf,
    RecordType,
    Scalar,
    Struct,
    WrongSchemaError,
)
from kafka_ingest.model.schema_source import ELEMENTS, MAP_VALUES, Paths, ReadAs, field_path

NOTHING_SAID: Final[Mapping[str, ReadAs]] = {}
TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
TREES: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})

PLAIN_PACKAGE: Final = "kafka_ingest_plain"
PLAIN_FILE: Final = "kafka_ingest_plain.proto"
KEY, VALUE = 1, 2
"""The numbers of the fields in any entry of a map."""

SECONDS, NANOS = 1, 2
"""Those of a google.protobuf.Timestamp, which have these numbers in any copy of it (check_well_known)."""

WRAPPED: Final = 1
"""That of what is in a wrapper."""

OF_MAPS: Final = "E"
"""How the names of plain types begin that are entries of maps; others begin otherwise."""

SPARK_TYPES: Final = {
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT64: "bigint",
    FieldDescriptor.TYPE_SINT64: "bigint",
    FieldDescriptor.TYPE_SFIXED64: "bigint",
    FieldDescriptor.TYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.TYPE_FIXED64: "decimal(20,0)",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_UINT32: "bigint",
    FieldDescriptor.TYPE_FIXED32: "bigint",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "binary",
}
"""Of each scalar type the smallest of Spark's that holds all of its values."""


@dataclass(frozen=True, slots=True)
class Single:
    """One number, text or run of bytes; ``spark``: as which it is stored."""

    spark: str


@dataclass(frozen=True, slots=True)
class Enumerated:
    """A number that has a name, stored as the name; as its digits where it has none here."""

    names: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Instant:
    """A google.protobuf.Timestamp."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """One of Protobuf's wrappers: a value that may be missing."""

    spark: str


@dataclass(frozen=True, slots=True)
class JsonText:
    """A message that is stored as JSON; read as bytes. ``is_text``: what is one text in JSON, without its quotes."""

    message: str
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """A message without fields, of which only its presence is known; read as bytes."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message. ``oneofs``: of each with more than one member, the numbers of its members."""

    fields: "tuple[MessageField, ...]"
    oneofs: tuple[tuple[int, ...], ...] = ()


Value = Single | Enumerated | Instant | Wrapped | JsonText | Marker | Message


class Repetition(StrEnum):
    """How often a field may occur."""

    ONE = "one"
    MANY = "many"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of a message. ``number``: by it the plain field is found. ``key``: Spark's type of a map's keys."""

    number: int
    name: str
    value: Value
    repetition: Repetition = Repetition.ONE
    is_required: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """A message type as it is read: its values, Spark's type, and the plain message type as a FileDescriptorProto."""

    value: Message
    columns: Struct
    plain_file: bytes
    plain_message: str


def message_columns(descriptor: Descriptor, read_as: Mapping[str, ReadAs] = NOTHING_SAID) -> MessageColumns:
    """Return how records of a message type are read; raises WrongSchemaError where they cannot be.

    ``read_as``: what the feed says of values at some paths.
    """
    plain = Plain(Paths(read_as))
    name, value = plain.message(descriptor)
    plain.paths.check()
    sizes: dict[int, tuple[int, int]] = {}
    fields, depth = size_of(value, sizes)
    largest = max(value.fields, key=lambda each: size_of(each.value, sizes))
    if fields > MAX_FIELDS:
        kind = ReadAs.STRING if isinstance(largest.value, Message) else ReadAs.SKIP
        raise WrongSchemaError(
            f"expected at most {MAX_FIELDS:,} fields, found {fields:,}{instead(path_in(largest), kind)}"
        )
    if depth > MAX_DEPTH:
        raise WrongSchemaError(
            f"expected at most {MAX_DEPTH} levels of types, found {depth}{instead(path_in(largest), ReadAs.STRING)}"
        )
    columns = column_type(value)
    if not isinstance(columns, Struct):
        raise TypeError(f"expected a struct of a message, found {columns}")
    return MessageColumns(value, columns, plain.file.SerializeToString(), f"{PLAIN_PACKAGE}.{name}")


def instead(path: str, read_as: ReadAs) -> str:
    """Return what to write in the feed file, where a schema's value cannot be a column, which no consumer can mend."""
    return f'. In the feed file, beside format, write as: {{"{path}": {read_as}}}'


def path_in(field: MessageField) -> str:
    """Return the path of the values of one of the record's own fields."""
    inside = {Repetition.ONE: "", Repetition.MANY: ELEMENTS, Repetition.MAP: MAP_VALUES}
    return field_path("", field.name) + inside[field.repetition]


@dataclass
class Plain:
    """Makes plain message types, one for each type that occurs, and for each path where a feed says what is in it."""

    paths: Paths
    file: FileDescriptorProto = field(
        default_factory=lambda: FileDescriptorProto(name=PLAIN_FILE, package=PLAIN_PACKAGE, syntax="proto3")
    )
    made: dict[tuple[str, str | None], tuple[str, Message]] = field(default_factory=dict)
    recursive: dict[str, bool] = field(default_factory=dict)

    def message(self, descriptor: Descriptor, path: str = "", depth: int = 1) -> tuple[str, Message]:
        """Return the name of the plain type of a type, and the tree of its values."""
        key = descriptor.full_name, path if self.paths.is_about(path) else None
        if key in self.made:
            return self.made[key]
        if depth > MAX_DEPTH:
            raise WrongSchemaError(
                f"expected at most {MAX_DEPTH} levels of messages, found more{instead(path, ReadAs.STRING)}"
            )
        plain = DescriptorProto()
        found = [self.field(each, plain, path, depth) for each in descriptor.fields]
        fields = tuple(each for each in found if each is not None)
        if not fields:
            raise WrongSchemaError(
                f"expected a message with fields, found {descriptor.full_name} without any"
                + (instead(path, ReadAs.SKIP) if path else "")
            )
        check_names(descriptor, fields, path)
        oneofs = self.oneofs(descriptor, plain)
        alone = [each for each in plain.field if not each.HasField("oneof_index") and each.type != each.TYPE_MESSAGE]
        make_optional(plain, [each for each in alone if descriptor.fields_by_number[each.number].has_presence])
        plain.name = f"M{len(self.made)}"
        self.file.message_type.append(plain)
        self.made[key] = plain.name, Message(fields, oneofs)
        return self.made[key]

    def field(self, source: FieldDescriptor, plain: DescriptorProto, path: str, depth: int) -> MessageField | None:
        """Add a plain field, and return what it is read as; None where it is left out."""
        path = field_path(path, source.name)
        is_skipped = self.paths.at(path) is ReadAs.SKIP
        if source.type == FieldDescriptor.TYPE_GROUP:
            if is_skipped:
                return None  # it stays unknown: the plain type has no groups
            raise WrongSchemaError(f"expected no groups, found {source.full_name}{instead(path, ReadAs.SKIP)}")
        label = FieldDescriptorProto.LABEL_REPEATED if source.is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
        added = plain.field.add(name=plain_name(source.number), number=source.number, label=label)
        if is_skipped:
            added.type = plain_type(source)
            return None
        if source.is_repeated:
            return self.many(source, added, path, depth)
        value = self.value(source, added, path, depth)
        return MessageField(source.number, source.name, value, is_required=source.is_required)

    def many(self, source: FieldDescriptor, added: FieldDescriptorProto, path: str, depth: int) -> MessageField:
        """Give a plain field the type of a list or a map, and return what it is read as."""
        kind = source.message_type
        entries = kind if kind is not None and kind.GetOptions().map_entry else None
        inside = f"{path}{ELEMENTS if entries is None else MAP_VALUES}"
        if said := self.paths.at(path):
            raise WrongSchemaError(f"expected {said} for each of several values at {path}{instead(inside, said)}")
        if entries is not None:
            return self.map(source, entries, added, inside, depth)
        value = self.value(source, added, inside, depth)
        return MessageField(source.number, source.name, value, Repetition.MANY)

    def map(
        self, source: FieldDescriptor, entries: Descriptor, added: FieldDescriptorProto, path: str, depth: int
    ) -> MessageField:
        """Give a plain field the type of a map's entries."""
        entry = DescriptorProto()
        key, value = (entries.fields_by_number[number] for number in (KEY, VALUE))
        kept_key, kept_value = (
            entry.field.add(name=plain_name(number), number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            for number in (KEY, VALUE)
        )
        kept_key.type = FieldDescriptorProto.Type.ValueType(key.type)
        found = self.value(value, kept_value, path, depth)
        # Serializers write keys and values also where these are the default ones.
        make_optional(entry, [each for each in entry.field if each.type != each.TYPE_MESSAGE])
        entry.name = f"{OF_MAPS}{len(self.file.message_type)}"
        self.file.message_type.append(entry)
        added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PLAIN_PACKAGE}.{entry.name}"
        return MessageField(source.number, source.name, found, Repetition.MAP, key=SPARK_TYPES[key.type])

    def value(self, source: FieldDescriptor, added: FieldDescriptorProto, path: str, depth: int) -> Value:
        """Give a plain field its type, and return what its values are."""
        added.type, said = plain_type(source), self.paths.at(path)
        if said is ReadAs.SKIP:
            raise WrongSchemaError(f"expected a field to be left out, found {path}{instead(path[:-2], said)}")
        if said is ReadAs.BINARY and added.type not in {added.TYPE_BYTES, added.TYPE_STRING}:
            raise WrongSchemaError(f"expected bytes, a text or a message to read as binary, found a number at {path}")
        if said is ReadAs.BINARY:
            added.type = added.TYPE_BYTES
            return Single("binary")
        if source.enum_type is not None:
            names: dict[int, str] = {}
            for each in source.enum_type.values:
                names.setdefault(each.number, each.name)
            return Enumerated(names)
        if source.message_type is None:
            return Single("string" if said else SPARK_TYPES[source.type])
        if said:
            return JsonText(source.message_type.full_name, is_text=True)
        return self.inner(source.message_type, added, path, depth)

    def inner(self, kind: Descriptor, added: FieldDescriptorProto, path: str, depth: int) -> Value:
        """Give a plain field the type of a message, and return what the message is."""
        if kind.full_name in TREES or self.is_recursive(kind):
            return JsonText(kind.full_name)
        if not kind.fields:
            return Marker()
        added.type = FieldDescriptorProto.TYPE_MESSAGE
        name, value = self.message(kind, path, depth + 1)
        added.type_name = f".{PLAIN_PACKAGE}.{name}"
        if kind.full_name == TIMESTAMP:
            return Instant()
        return Wrapped(SPARK_TYPES[kind.fields[0].type]) if kind.full_name in WRAPPERS else value

    def is_recursive(self, descriptor: Descriptor) -> bool:
        if descriptor.full_name not in self.recursive:
            self.recursive[descriptor.full_name] = is_recursive(descriptor)
        return self.recursive[descriptor.full_name]

    def oneofs(self, descriptor: Descriptor, plain: DescriptorProto) -> tuple[tuple[int, ...], ...]:
        """Add a type's oneofs of more than one member, and return the numbers of these."""
        by_number = {each.number: each for each in plain.field}
        found = []
        for oneof in descriptor.oneofs:
            members = tuple(each.number for each in oneof.fields if each.number in by_number)  # all but groups
            if len(members) > 1:
                for number in members:
                    by_number[number].oneof_index = len(plain.oneof_decl)
                plain.oneof_decl.add(name=f"o{len(plain.oneof_decl)}")
                found.append(members)
        return tuple(found)


def plain_name(number: int) -> str:
    """Return the name of a plain field.

    Libraries put fields in the order of their numbers or in that of the text, so nothing goes by places.
    """
    return f"f{number}"


def make_optional(plain: DescriptorProto, fields: Iterable[FieldDescriptorProto]) -> None:
    """Let it be seen whether fields are there: in proto3 each is the single member of a oneof, after all others."""
    for each in fields:
        each.proto3_optional = True
        each.oneof_index = len(plain.oneof_decl)
        plain.oneof_decl.add(name=f"_{each.number}")


def plain_type(source: FieldDescriptor) -> "FieldDescriptorProto.Type.ValueType":
    """Return the plain type of a field's values, where it does not matter what is in a message."""
    if source.enum_type is not None:
        return FieldDescriptorProto.TYPE_INT32
    if source.message_type is not None:
        return FieldDescriptorProto.TYPE_BYTES
    return FieldDescriptorProto.Type.ValueType(source.type)


def check_names(descriptor: Descriptor, fields: Iterable[MessageField], path: str) -> None:
    """Raise WrongSchemaError where the fields of a message cannot be those of one struct."""
    seen: dict[str, str] = {}
    for each in fields:
        other = seen.setdefault(each.name.lower(), each.name)
        if other != each.name:
            raise WrongSchemaError(
                "expected names that differ in more than the case of their letters, found "
                f"{other!r} and {each.name!r} in {descriptor.full_name}"
                f"{instead(field_path(path, each.name), ReadAs.SKIP)}"
            )


def is_recursive(descriptor: Descriptor) -> bool:
    seen: set[str] = set()
    waiting: list[Descriptor] = [descriptor]
    while waiting:
        for each in waiting.pop().fields:
            kind = each.message_type
            if kind is None or kind.full_name in seen:
                continue
            if kind.full_name == descriptor.full_name:
                return True
            seen.add(kind.full_name)
            waiting.append(kind)
    return False


def size_of(value: Value, sizes: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return how many fields and levels a value has; a type that occurs twice counts twice, and is walked once."""
    if not isinstance(value, Message):
        return 0, 0
    if id(value) not in sizes:
        inner = [(each, *size_of(each.value, sizes)) for each in value.fields]
        levels = [depth + (each.repetition is not Repetition.ONE) for each, _, depth in inner]
        sizes[id(value)] = sum(1 + fields for _, fields, _ in inner), 1 + max(levels, default=0)
    return sizes[id(value)]


def column_type(value: Value) -> RecordType:
    match value:
        case Single(spark) | Wrapped(spark):
            return Scalar(spark)
        case Enumerated() | JsonText():
            return Scalar("string")
        case Instant():
            return Scalar("timestamp")
        case Marker():
            return Scalar("boolean")
        case Message(fields):
            return Struct(tuple(Field(each.name, field_type(each)) for each in fields))


def field_type(of: MessageField) -> RecordType:
    inner = column_type(of.value)
    if of.repetition is Repetition.MANY:
        return ArrayOf(inner)
    return MapOf(inner, of.key or "string") if of.repetition is Repetition.MAP else inner


def json_messages(values: Sequence[Value]) -> set[str]:
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        match waiting.pop():
            case JsonText(message, _):
                found.add(message)
            case Message(fields) as one if id(one) not in seen:
                seen.add(id(one))
                waiting += [each.value for each in fields]
    return found
