"""Message types of descriptor sets and of a registry, and which of its schemas can be read as them.

Message indexes: in the wire format of registries, which of a schema's messages a value is.

Behind the schema's id stand the number of indexes and the indexes, as zigzag varints: the place of a message among
those of its file, then of the message inside of it. For the first message of a file, a single 0 stands for both.

Whether what was written with one message type would be read as something else by another, without an error.

Protobuf goes by the numbers of fields, and takes what fits on the wire: a long as an int without its upper half, the
last of some values where one is expected, a number of another encoding. Such schemas are refused as a whole, also where
some of their records could be read. Names do not count: fields, messages and values of enums may be renamed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from kafka_ingest.model.record_schema import Struct, WrongSchemaError
from kafka_ingest.model.schema_source import ReadAs, RegisteredSchema, WriterSchema
from kafka_ingest.schemas.compile_protos import files_of
from kafka_ingest.schemas.descriptor_sets import MessageSchema, schema_of_files, schema_of_set
from kafka_ingest.schemas.message_columns import message_columns

NAMES: Final = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}
INT32, INT64 = FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64
UINT32, UINT64 = FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64
BOOL, ENUM = FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM

WIDER: Final[Mapping[int, frozenset[int]]] = {
    BOOL: frozenset({INT32, INT64, UINT32, UINT64}),
    ENUM: frozenset({INT32, INT64}),
    INT32: frozenset({INT64}),
    UINT32: frozenset({INT64, UINT64}),
    FieldDescriptor.TYPE_SINT32: frozenset({FieldDescriptor.TYPE_SINT64}),
    FieldDescriptor.TYPE_STRING: frozenset({FieldDescriptor.TYPE_BYTES}),
    # Of these each value that is no text is a dead letter.
    FieldDescriptor.TYPE_BYTES: frozenset({FieldDescriptor.TYPE_STRING}),
}
"""As which other types all values of a type are read as what they are."""


def why_misread(writer: Descriptor, reader: Descriptor) -> str | None:
    """Return why messages could be read as something else; None where each is read as what it is."""
    compared, waiting = set[tuple[str, str]](), [(writer, reader)]
    while waiting:
        written, read = waiting.pop()
        if (pair := (written.full_name, read.full_name)) in compared:
            continue
        compared.add(pair)
        for field in written.fields:
            if (other := read.fields_by_number.get(field.number)) is None:
                continue
            if reason := why_field_misread(field, other):
                return reason
            if field.message_type is not None and other.message_type is not None:
                waiting.append((field.message_type, other.message_type))
    return None


def why_field_misread(writer: FieldDescriptor, reader: FieldDescriptor) -> str | None:
    """Return why the values of a field could be read as something else, but for what is in a message."""
    if writer.is_repeated and not reader.is_repeated:
        return f"expected field {reader.name} ({reader.number}) as one value, found many"
    if is_map(writer) != is_map(reader):
        return f"expected field {reader.name} ({reader.number}) as {shown(reader)}, found {shown(writer)}"
    if writer.type != reader.type and reader.type not in WIDER.get(writer.type, frozenset()):
        return f"expected field {reader.name} ({reader.number}) as {shown(reader)}, found {shown(writer)}"
    return None


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def shown(field: FieldDescriptor) -> str:
    return "map" if is_map(field) else NAMES[field.type]


SEVEN_BITS: Final = 0x7F
MORE: Final = 0x80


def first_message(file: FileDescriptorProto) -> str:
    """Return the full name of a file's first message; raises WrongSchemaError."""
    if not file.message_type:
        raise WrongSchemaError("expected a schema with a message, found one without any")
    return full_name(file, [file.message_type[0].name])


def path_of(file: FileDescriptorProto, message: str) -> list[int]:
    """Return the indexes of a file's message; raises WrongSchemaError where the file does not have it."""
    package = f"{file.package}." if file.package else ""
    found: list[int] = []
    candidates: Sequence[DescriptorProto] = file.message_type
    for name in message.removeprefix(package).split(".") if message.startswith(package) else [""]:
        place = next((place for place, each in enumerate(candidates) if each.name == name), None)
        if place is None:
            raise WrongSchemaError(f"expected a schema with the message {message}, found one without it")
        found.append(place)
        candidates = candidates[place].nested_type
    return found


def paths_in(messages: Sequence[DescriptorProto]) -> Iterator[list[int]]:
    for place, each in enumerate(messages):
        yield [place]
        yield from ([place, *inner] for inner in paths_in(each.nested_type))


def beginnings(path: Sequence[int]) -> list[bytes]:
    """Return how the bytes after a schema's id may begin, for a message with these indexes."""
    in_full = b"".join(zigzag(number) for number in (len(path), *path))
    return [b"\0", in_full] if list(path) == [0] else [in_full]


def zigzag(number: int) -> bytes:
    """Return a number, not negative, as a zigzag varint."""
    left, written = number << 1, bytearray()
    while left > SEVEN_BITS:
        written.append(left & SEVEN_BITS | MORE)
        left >>= 7
    written.append(left)
    return bytes(written)


def full_name(file: FileDescriptorProto, names: Sequence[str]) -> str:
    return ".".join([*([file.package] if file.package else []), *names])


KIND: Final = "PROTOBUF"
MAIN_FILE: Final = "kafka_ingest_schema.proto"
"""What a registered schema is called, which has no name of its own."""

MOST_MESSAGES: Final = 1_000
"""Of a schema, which records are known by that are of other messages."""


class RegisteredMessages:
    """Reads message types with Protobuf's own libraries."""

    def of_set(self, content: bytes, message: str, read_as: Mapping[str, ReadAs]) -> str:
        return usable(schema_of_set(content, message), read_as)

    def registered(self, found: RegisteredSchema, message: str | None, read_as: Mapping[str, ReadAs]) -> str:
        if found.lacks is not None:
            raise WrongSchemaError(found.lacks)
        files = files_of(found, MAIN_FILE)
        return usable(schema_of_files(files, message or first_message(files[MAIN_FILE])), read_as)

    def columns(self, schema: str, read_as: Mapping[str, ReadAs]) -> Struct:
        return message_columns(descriptor_of(schema), read_as).columns

    def writer(self, found: RegisteredSchema, reader: str) -> WriterSchema:
        of_other_kind = f"expected a schema of type {KIND}, found {found.kind}" if found.kind != KIND else None
        if of_other_kind or found.lacks:
            return WriterSchema(found.schema_id, None, of_other_kind or found.lacks)
        wanted = descriptor_of(reader)
        try:
            files = files_of(found, MAIN_FILE)
        except WrongSchemaError as error:
            return WriterSchema(found.schema_id, None, str(error))
        try:
            path = path_of(files[MAIN_FILE], wanted.full_name)
        except WrongSchemaError as error:
            return WriterSchema(found.schema_id, None, str(error), is_other=True)
        try:
            written = schema_of_files(files, wanted.full_name).descriptor
        except WrongSchemaError as error:
            return WriterSchema(found.schema_id, None, str(error))
        if misread := why_misread(written, wanted):
            return WriterSchema(found.schema_id, None, misread)
        others = (each for each in paths_in(files[MAIN_FILE].message_type) if each != path)
        return WriterSchema(
            found.schema_id,
            json.dumps([each.hex() for each in beginnings(path)]),
            others=tuple(each.hex() for other in islice(others, MOST_MESSAGES) for each in beginnings(other)),
        )


def usable(schema: MessageSchema, read_as: Mapping[str, ReadAs]) -> str:
    """Return a message type's text, where columns can be made of it; raises WrongSchemaError."""
    message_columns(schema.descriptor, read_as)
    return schema.text


@cache
def descriptor_of(schema: str) -> Descriptor:
    return MessageSchema.of_text(schema).descriptor
