"""Whether what was written with one message type would be read as something else by another, without an error.

Protobuf goes by the numbers of fields, and takes what fits on the wire: a long as an int without its upper half, the
last of some values where one is expected, a number of another encoding. Such schemas are refused as a whole, also where
some of their records could be read. Names do not count: fields, messages and values of enums may be renamed.
"""

from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

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
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def shown(field: FieldDescriptor) -> str:
    """Return a field's type in a word."""
    return "map" if is_map(field) else NAMES[field.type]
