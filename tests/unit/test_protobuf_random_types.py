"""Message types of any form, their fields in any order: each stored value is what Google's library reads.

Producers declare fields in the order of their thoughts and number them in that of their inventions; libraries go by
one order or the other.
"""

import random
from typing import Any, Final

from google.protobuf import duration_pb2, empty_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protobuf_types import reader_of, same, value_or_dead, values

from kafka_ingest.schemas.descriptor_sets import MessageSchema, schema_of_files
from kafka_ingest.schemas.registered_messages import is_map

TIMES: Final = ((0, 0), (-1, 999_999_999), (1_700_000_000, 1_999), (1_700_000_000, -1))
FieldType = FieldDescriptorProto
KNOWN: Final = (duration_pb2, empty_pb2, timestamp_pb2, wrappers_pb2)
NUMBERS: Final[dict[int, tuple[Any, ...]]] = {
    FieldType.TYPE_DOUBLE: (0.0, -0.0, 0.1, float("inf"), -5e-324, 1.7976931348623157e308),
    FieldType.TYPE_FLOAT: (0.0, 0.5, float("-inf"), 3.4028234663852886e38),
    FieldType.TYPE_INT64: (0, -1, 2**63 - 1, -(2**63)),
    FieldType.TYPE_SINT64: (0, -1, 2**63 - 1, -(2**63)),
    FieldType.TYPE_SFIXED64: (0, -1, 2**63 - 1, -(2**63)),
    FieldType.TYPE_UINT64: (0, 1, 2**64 - 1),
    FieldType.TYPE_FIXED64: (0, 1, 2**64 - 1),
    FieldType.TYPE_INT32: (0, -1, 2**31 - 1, -(2**31)),
    FieldType.TYPE_SINT32: (0, -1, 2**31 - 1, -(2**31)),
    FieldType.TYPE_SFIXED32: (0, -1, 2**31 - 1, -(2**31)),
    FieldType.TYPE_UINT32: (0, 1, 2**32 - 1),
    FieldType.TYPE_FIXED32: (0, 1, 2**32 - 1),
    FieldType.TYPE_BOOL: (False, True),
    FieldType.TYPE_STRING: ("", "a", "é\0😀"),
    FieldType.TYPE_BYTES: (b"", b"\xff", b"a"),
    FieldType.TYPE_ENUM: (0, 1, -1),
}
SCALARS: Final = sorted(set(NUMBERS) - {FieldType.TYPE_ENUM})
KEYS: Final = sorted(set(SCALARS) - {FieldType.TYPE_DOUBLE, FieldType.TYPE_FLOAT, FieldType.TYPE_BYTES})
WELL_KNOWN: Final = [
    f".google.protobuf.{name}"
    for name in (
        *("Timestamp", "Duration", "Empty", "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value"),
        *("UInt32Value", "BoolValue", "StringValue", "BytesValue"),
    )
]
BEYOND_ALL: Final = 500
"""The numbers of fields that only a writer has."""


@st.composite
def some_file(draw: st.DrawFn) -> FileDescriptorProto:
    """Draw a file of a few messages, of which the first may hold the others."""
    file = FileDescriptorProto(name="orders.proto", package="shop", syntax=draw(st.sampled_from(["proto2", "proto3"])))
    file.dependency.extend(each.DESCRIPTOR.name for each in KNOWN)
    state = EnumDescriptorProto(name="State")
    for name, number in (("NEW", 0), ("PAID", 1), ("LOST", -1)):
        state.value.add(name=name, number=number)
    file.enum_type.append(state)
    most = draw(st.integers(1, 4))
    for place in range(most):
        message = file.message_type.add(name=f"M{place}")
        inner = [f".shop.M{each}" for each in range(place + 1, most)]
        numbers = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6, unique=True))
        for number in numbers:
            draw_field(draw, message, number, inner)
    return file


def draw_field(draw: st.DrawFn, message: DescriptorProto, number: int, inner: list[str]) -> None:
    field = message.field.add(name=f"n{draw(st.integers(0, 9))}_{number}", number=number)
    field.label = field.LABEL_OPTIONAL
    kind = draw(st.sampled_from(["one", "one", "oneof", "many", "map"]))
    if kind == "map":
        entry = message.nested_type.add(name=map_name(field.name))
        entry.options.map_entry = True
        entry.field.add(
            name="key", number=1, label=field.label, type=FieldType.Type.ValueType(draw(st.sampled_from(KEYS)))
        )
        give_type(draw, entry.field.add(name="value", number=2, label=field.label), inner)
        field.label, field.type = field.LABEL_REPEATED, field.TYPE_MESSAGE
        field.type_name = f".shop.{message.name}.{entry.name}"
        return
    give_type(draw, field, inner)
    if kind == "many":
        field.label = field.LABEL_REPEATED
    if kind == "oneof":
        before = message.field[-2] if len(message.field) > 1 else None
        if before is None or not before.HasField("oneof_index") or draw(st.booleans()):
            message.oneof_decl.add(name=f"o{number}")
        field.oneof_index = len(message.oneof_decl) - 1


def map_name(field: str) -> str:
    """Return how protoc names the entries of a map."""
    return "".join(each.capitalize() for each in field.split("_")) + "Entry"


def give_type(draw: st.DrawFn, field: FieldDescriptorProto, inner: list[str]) -> None:
    match draw(st.sampled_from(["scalar", "scalar", "enum", "known", "message"])):
        case "message" if inner:
            field.type, field.type_name = field.TYPE_MESSAGE, draw(st.sampled_from(inner))
        case "known":
            field.type, field.type_name = field.TYPE_MESSAGE, draw(st.sampled_from(WELL_KNOWN))
        case "enum":
            field.type, field.type_name = field.TYPE_ENUM, ".shop.State"
        case _:
            field.type = FieldType.Type.ValueType(draw(st.sampled_from(SCALARS)))


def other_version(file: FileDescriptorProto, chance: random.Random) -> FileDescriptorProto:
    """Return a file whose messages lack some fields, have others, and the rest in another order."""
    made = FileDescriptorProto.FromString(file.SerializeToString())
    for message in made.message_type:
        fields = [each for each in message.field if each.HasField("oneof_index") or chance.random() < 0.8]
        oneofs = [each for each in fields if each.HasField("oneof_index")]
        others = [each for each in fields if not each.HasField("oneof_index")]
        chance.shuffle(others)
        new = FieldDescriptorProto(name="new", number=BEYOND_ALL, label=1, type=chance.choice(SCALARS))
        del message.field[:]
        message.field.extend([*others, *oneofs, new] if chance.random() < 0.5 else [*oneofs, *others, new])
    return made


def schema_of(file: FileDescriptorProto) -> MessageSchema:
    return schema_of_files({file.name: file}, "shop.M0")


def fill(message: Any, chance: random.Random) -> None:
    """Give a message's fields some values."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        message.seconds, message.nanos = chance.choice(TIMES)
        return
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.3:
            continue
        found = getattr(message, field.name)
        if is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            for at in chance.choices(NUMBERS[key.type], k=chance.randrange(3)):
                give(found, at, value, chance)
        elif field.is_repeated and field.message_type is not None:
            for _ in range(chance.randrange(3)):
                fill(found.add(), chance)
        elif field.is_repeated:
            found.extend(chance.choices(NUMBERS[field.type], k=chance.randrange(3)))
        elif field.message_type is not None:
            found.SetInParent()
            fill(found, chance)
        else:
            setattr(message, field.name, chance.choice(NUMBERS[field.type]))


def give(entries: Any, key: Any, value: FieldDescriptor, chance: random.Random) -> None:
    """Give a map one entry."""
    if value.message_type is not None:
        fill(entries[key], chance)
    else:
        entries[key] = chance.choice(NUMBERS[value.type])


def record_of(schema: MessageSchema, chance: random.Random) -> bytes:
    """Return a record of a type."""
    message = GetMessageClass(schema.descriptor)()
    fill(message, chance)
    content: bytes = message.SerializeToString()
    return content


@settings(max_examples=25)
@given(some_file(), st.randoms(use_true_random=False))
def test_values_stand_under_their_own_names_whatever_the_order_of_numbers(
    file: FileDescriptorProto, chance: random.Random
) -> None:
    read = schema_of(file)
    writers = [read, *(schema_of(other_version(file, chance)) for _ in range(2))]
    content = [record_of(chance.choice(writers), chance) for _ in range(8)]
    content.append(content[0] + content[1])
    reader = reader_of(read)
    wanted = [value_or_dead(read.descriptor, each) for each in content]
    same(values(reader, content), wanted)
    # Also one by one: most batches hold something that has to be looked at twice.
    same([values(reader, [each])[0] for each in content], wanted)
