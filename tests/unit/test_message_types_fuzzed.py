"""Message types of any form: what cannot be read is refused by name, and what is not refused reads any bytes."""

import random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protobuf_types import EVERYTHING, descriptor_set, reader_of

from kafka_ingest.model.record_schema import WrongSchemaError
from kafka_ingest.schemas.descriptor_sets import MessageSchema
from kafka_ingest.schemas.registered_messages import RegisteredMessages, descriptor_of, why_misread

TYPES = RegisteredMessages()
PROTO2 = """syntax = "proto2"; package shop;
    message Order { optional int32 id = 1 [default = 5]; oneof o { string a = 3;
    int32 b = 4; } map<string, Order> m = 5; enum E { A = 0; B = 1; } optional E e = 6; extensions 100 to 200;
    message In { optional Order o = 1; required string s = 2; } repeated In ins = 7; }
    extend Order { optional int32 y = 100; }"""
NAMES = ("Order", ".shop.Order", ".shop.Item", ".google.protobuf.Timestamp", "", "kafka_x", "key", "a b", "1", ".", "é")
MORE_NAMES = ("QQQ", "value", ".shop.Node", ".shop.Order.CountsEntry", ".google.protobuf.Value", "x" * 300)
RECORDS = pa.array([b"", b"\x08\x01", bytes(range(60)), b"\x12\x00", b"\xff" * 9], pa.binary())


def change_field(field: FieldDescriptorProto, chance: random.Random) -> None:
    match chance.randrange(6):
        case 0:
            field.number = chance.choice([0, -1, 1, 2, 3, 19_000, 2**29 - 1, 2**29, 2**31 - 1])
        case 1:
            field.type = FieldDescriptorProto.Type.ValueType(chance.randrange(1, 19))
        case 2:
            field.label = FieldDescriptorProto.Label.ValueType(chance.randrange(1, 4))
        case 3:
            field.type_name = chance.choice(NAMES + MORE_NAMES)
        case 4:
            field.name = chance.choice(NAMES + MORE_NAMES)
        case _:
            field.oneof_index = chance.randrange(-1, 4)


def change_file(file: FileDescriptorProto, chance: random.Random) -> None:
    messages = list(file.message_type)
    for each in messages:
        messages += each.nested_type
    message = chance.choice(messages)
    match chance.randrange(14):
        case 0:
            message.name = chance.choice(NAMES + MORE_NAMES)
        case 1:
            file.syntax = chance.choice(["proto2", "proto3", "editions", "", "x"])
        case 2:
            file.package = chance.choice(["", "shop", "google.protobuf", "a b", "shop.Order"])
        case 3:
            message.options.map_entry = not message.options.map_entry
        case 4:
            message.options.message_set_wire_format = True
        case 5:
            file.dependency.append(chance.choice([file.name, "gone", "google/protobuf/any.proto", "../x", "", "QQQ"]))
        case 6:
            file.public_dependency.append(chance.randrange(-1, 9))
        case _ if message.field:
            change_field(chance.choice(message.field), chance)


def changed(content: bytes, chance: random.Random) -> bytes:
    """Return a descriptor set with some things in it changed; names may be no text then."""
    found = FileDescriptorSet.FromString(content)
    for _ in range(chance.randrange(1, 5)):
        change_file(found.file[-1] if chance.random() < 0.8 else chance.choice(found.file[:-1] or found.file), chance)
    return found.SerializeToString().replace(b"QQQ", chance.choice([b"QQQ", b"\xff\xfe\xfd", b"\xed\xa0\x80"]))


@settings(max_examples=100)
@given(st.sampled_from([EVERYTHING, PROTO2]), st.randoms(use_true_random=True))
def test_a_message_type_is_refused_by_name_or_reads_any_bytes(text: str, chance: random.Random) -> None:
    try:
        schema = TYPES.of_set(changed(descriptor_set(text), chance), "shop.Order", {})
    except WrongSchemaError:
        return
    assert TYPES.columns(schema, {}).names
    known = descriptor_of(TYPES.of_set(descriptor_set(EVERYTHING), "shop.Order", {}))
    for one, other in ((known, descriptor_of(schema)), (descriptor_of(schema), known)):
        assert why_misread(one, other) != ""
    assert len(reader_of(MessageSchema.of_text(schema)).read(RECORDS)) == len(RECORDS)


def chain(length: int) -> FileDescriptorSet:
    """Return files of which each imports the next, and messages of which each holds the next, the last the first."""
    found = FileDescriptorSet()
    for number in range(length):
        file = found.file.add(name=f"{number}.proto", package="shop", syntax="proto3")
        if number + 1 < length:
            file.dependency.append(f"{number + 1}.proto")
    last = found.file[0]
    for number in range(length):
        message = last.message_type.add(name="Order" if number == 0 else f"M{number}")
        after = "Order" if number + 1 == length else f"M{number + 1}"
        message.field.add(name="next", number=1, label=1, type=11, type_name=f".shop.{after}")
    return found


def test_imports_and_messages_may_follow_one_another_at_any_length() -> None:
    schema = TYPES.of_set(chain(990).SerializeToString(), "shop.Order", {})
    assert TYPES.columns(schema, {}).ddl == "struct<`next`:string>"
    assert why_misread(descriptor_of(schema), descriptor_of(schema)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"number": 19_500}, "expected numbers that Protobuf leaves to fields, found another for id"),
        (
            {"type_name": ".shop.Order.MEntry", "type": 11, "label": 3},
            "expected entries of a map with a key and a value",
        ),
    ],
)
def test_what_only_the_compiler_refuses_is_refused_too(change: dict[str, Any], said: str) -> None:
    file = FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    entry = message.nested_type.add(name="MEntry")
    entry.field.add(name="key", number=1, label=1, type=5)
    entry.field.add(name="value", number=3, label=1, type=5)
    entry.options.map_entry = "type" in change
    message.field.add(**{"name": "id", "number": 1, "label": 1, "type": 5, **change})
    with pytest.raises(WrongSchemaError, match=said):
        TYPES.of_set(FileDescriptorSet(file=[file]).SerializeToString(), "shop.Order", {})
