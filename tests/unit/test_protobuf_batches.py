"""Batches of Protobuf records become columns: what is good, what is dead and why."""

import random
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.protobuf_types import (
    EVERYTHING,
    columns,
    descriptor_set,
    message_class,
    proto,
    reader,
    reader_of,
    same,
    schema,
    value_or_dead,
    values,
)

from kafka_ingest.schemas.descriptor_sets import schema_of_set
from kafka_ingest.writing.decode_protobuf import SENT_BY_VALUE
from kafka_ingest.writing.for_workers import for_workers
from kafka_ingest.writing.protobuf_batches import SentType, message_batches
from repeatable_random import repeatable_random

Order = message_class(EVERYTHING)
UNKNOWN = b"\xf8\x3f\x01"
"""A field with the number 1023."""


def read(content: Sequence[bytes | None], text: str = EVERYTHING, message: str = "shop.Order") -> list[Any]:
    """Return each record's value, or the class of why it is dead."""
    return values(reader(text, message), content)


def read_one(content: bytes, text: str = EVERYTHING) -> Any:
    return read([content], text)[0]


def some_order(chance: random.Random) -> Any:
    """Return a message with some fields, of values at the edges of their types."""
    order = Order()
    for name, edges in {
        "d": (0.5, -0.0, float("inf")),
        "i32": (-1, 2**31 - 1, -(2**31)),
        "i64": (-1, 2**63 - 1),
        "u32": (2**32 - 1,),
        "u64": (2**64 - 1,),
        "s32": (-(2**31),),
        "s64": (-(2**63),),
        "x64": (2**64 - 1,),
        "b": (True,),
        "text": ("é\0😀", "a"),
        "raw": (b"\xff",),
        "state": (0, 1, -1, 7),
        "perhaps": (0, 5),
        "name": ("", "n"),
        "last": (0, -1),
        "card": ("", "visa"),
        "cash": (0, 3),
    }.items():
        if chance.random() < 0.4:
            setattr(order, name, chance.choice(edges))
    for name, edges in {"numbers": (0, -1, 300), "loose": (0, -5), "words": ("", "w"), "states": (0, 1, 9)}.items():
        getattr(order, name).extend(chance.choices(edges, k=chance.randrange(4)))
    for _ in range(chance.randrange(3)):
        order.items.add(name=chance.choice(["", "x"]), count=chance.randrange(3))
        order.by_id[chance.randrange(3)].count = chance.randrange(3)
        order.counts[chance.choice("abc")] = chance.randrange(3)
        order.times.add(seconds=chance.choice([0, -1, 1_700_000_000]), nanos=chance.choice([0, 1_999]))
    if chance.random() < 0.5:
        order.at.seconds = chance.choice([0, -62_135_596_800, 253_402_300_799, -1, 2**62, -(2**63)])
        order.at.nanos = chance.choice([0, 999_999_999, 5])
        order.maybe.value = chance.choice([0, -1])
        order.any.type_url = "type.googleapis.com/shop.Item"
        order.tree.children.add(value=1)
        order.trees.add()
        order.free.update({"a": [1, None, {"b": "é"}]})
        order.nothing.SetInParent()
        order.item.since.seconds = 1
    return order


def outcome(content: bytes) -> Any:
    """Return what should become of a record."""
    return value_or_dead(Order.DESCRIPTOR, content)


def test_every_type_becomes_what_googles_library_reads() -> None:
    chance = repeatable_random(7)
    content = [some_order(chance).SerializeToString() for _ in range(200)]
    same(read(content), [outcome(each) for each in content])
    # Also one by one: most batches hold something that has to be looked at twice.
    same([read_one(each) for each in content[:50]], [outcome(each) for each in content[:50]])


def test_fields_that_are_declared_in_another_order_than_their_numbers_keep_their_values() -> None:
    address = "message Address { string zip = 2; string city = 1; }"
    text = proto(
        "string zip = 7; Address one = 6; string city = 5; repeated Address many = 4; map<string, Address> by_name = 3;"
        " oneof o { string b = 2; string a = 1; }",
        address,
    )
    there = {"zip": "ZIP", "city": "CITY"}
    order = message_class(text)(a="A", one=there, many=[there], by_name={"k": there}, **there)
    wanted = {
        "zip": "ZIP",
        "one": there,
        "city": "CITY",
        "many": [there],
        "by_name": [("k", there)],
        "b": None,
        "a": "A",
    }
    assert read([order.SerializeToString()], text) == [wanted]


def test_a_producers_own_copy_of_protobufs_times_may_have_another_order() -> None:
    own = 'syntax = "proto3"; package google.protobuf; message Timestamp { int32 nanos = 2; int64 seconds = 1; }'
    text = proto("google.protobuf.Timestamp at = 1;", 'import "own.proto";')
    copied = schema_of_set(descriptor_set(text, own=own), "shop.Order")
    assert values(reader_of(copied), [b"\x0a\x05\x08\x07\x10\xe8\x07"]) == [{"at": 7_000_001}]


@pytest.mark.parametrize(
    ("seconds", "nanos", "microseconds"),
    [
        (-62_135_596_800, 0, -62_135_596_800_000_000),  # 0001-01-01T00:00:00Z
        (253_402_300_799, 999_999_999, 253_402_300_799_999_999),  # 9999-12-31T23:59:59.999999999Z
        (-1, 999_999_999, -1),
        (1_700_000_000, 1_999, 1_700_000_000_000_001),
        (-62_135_596_801, 999_999_999, "OUT_OF_RANGE"),
        (253_402_300_800, 0, "OUT_OF_RANGE"),
        (0, -1, "OUT_OF_RANGE"),
        (0, 1_000_000_000, "OUT_OF_RANGE"),
        (2**63 - 1, 0, "OUT_OF_RANGE"),
    ],
)
def test_times_of_the_years_1_to_9999_are_stored(seconds: int, nanos: int, microseconds: int | str) -> None:
    order = Order()
    order.at.seconds, order.at.nanos = seconds, nanos
    found = read_one(order.SerializeToString())
    assert (found if isinstance(found, str) else found["at"]) == microseconds


def test_no_bytes_make_it_fail() -> None:
    chance = repeatable_random(11)
    content = []
    for _ in range(600):
        broken = bytearray(some_order(chance).SerializeToString() + chance.choice([b"", b"\x12", UNKNOWN]))
        for _ in range(chance.randrange(1, 4)):
            if broken:
                place = chance.randrange(len(broken))
                match chance.randrange(3):
                    case 0:
                        broken[place] = chance.randrange(256)
                    case 1:
                        del broken[place : place + chance.randrange(1, 5)]
                    case _:
                        broken[place:place] = bytes(chance.choices(range(256), k=3))
        content.append(bytes(broken))
    content += [bytes(chance.choices(range(256), k=chance.randrange(1, 30))) for _ in range(200)]
    found = read(content)
    same(found, [outcome(each) for each in content])
    assert {each for each in found if isinstance(each, str)} >= {"NOT_PROTOBUF", "INVALID_UTF8", "OUT_OF_RANGE"}


@pytest.mark.parametrize(
    ("content", "dead_class"),
    [
        (b"\x08", "NOT_PROTOBUF"),  # cut off
        (b"\x09" + bytes(8) + b"\x09", "NOT_PROTOBUF"),  # more after it
        (b"\x08\x01", "NOT_PROTOBUF"),  # a double as a varint
        (b"\xa2\x01\x02\x12\x00", "NOT_PROTOBUF"),  # within item, a count as bytes
        (b"\x72\x01\xff", "INVALID_UTF8"),
        (b"\x00\x01", "NOT_PROTOBUF"),  # the number 0
        (b"\x0b" * 100_000, "NOT_PROTOBUF"),
        (b"\x72\xff\xff\xff\xff\x0f", "NOT_PROTOBUF"),  # four gigabytes, as it says
        (b"\xb2\x02\x00" + b"\xb2\x02\x02\x08" * 3, "NOT_PROTOBUF"),
        (b"\xaa\x02\x01\xff", "NOT_PROTOBUF"),
    ],
)
def test_what_is_not_exactly_one_message_is_dead(content: bytes, dead_class: str) -> None:
    assert read([b"", content, b"", None]) == [read_one(b""), dead_class, read_one(b""), None]


def test_a_bomb_of_nested_messages_is_dead_and_nothing_else() -> None:
    bomb = b""
    for _ in range(10_000):
        length, varint = len(bomb), b""
        while length > 127:
            varint += bytes([length & 127 | 128])
            length >>= 7
        bomb = b"\x12" + varint + bytes([length]) + bomb
    text = proto("Node tree = 1; int32 id = 2;", "message Node { int32 value = 1; repeated Node children = 2; }")
    kept = message_class(text)(id=4).SerializeToString()
    length = len(bomb)
    inside = b"\x0a" + bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14]) + bomb
    assert read([inside, kept], text) == ["NOT_PROTOBUF", {"tree": None, "id": 4}]


def test_of_what_was_written_twice_the_last_counts() -> None:
    text = proto(
        "oneof o { int32 a = 1; string b = 2; } map<string, int32> m = 3; Item i = 4; int32 n = 5;",
        "message Item { int32 x = 1; int32 y = 2; }",
    )
    parts = [{"a": 1}, {"b": "x"}, {"m": {"k": 1, "l": 5}}, {"m": {"k": 2}}, {"i": {"x": 1}}, {"i": {"y": 2}}, {"n": 3}]
    content = b"".join(message_class(text)(**each).SerializeToString() for each in parts)
    value = {"a": None, "b": "x", "m": [("k", 2), ("l", 5)], "i": {"x": 1, "y": 2}, "n": 3}
    assert read([content, content + b"\x28\x04"], text) == [value, {**value, "n": 4}]


def test_of_a_oneof_the_last_member_counts_where_no_length_shows_that_there_are_two() -> None:
    text = proto(
        "oneof o { int32 a = 1; string b = 2; } Item i = 3;", "message Item { oneof p { bool x = 1; bool y = 2; } }"
    )
    two = [message_class(text)(**each).SerializeToString() for each in ({"b": "x"}, {"a": 1})]
    inside = b"\x1a\x04\x10\x01\x08\x00"
    assert read([b"".join(two), inside], text) == [
        {"a": 1, "b": None, "i": None},
        {"a": None, "b": None, "i": {"x": False, "y": None}},
    ]


def test_what_a_serializer_makes_of_its_own_type_is_not_looked_at_record_by_record() -> None:
    chance = repeatable_random(3)
    orders = [some_order(chance) for _ in range(50)]
    for order in orders:
        order.ClearField("d")  # ptars leaves out -0.0
        order.ClearField("loose")  # and packs what is not packed
    assert reader(EVERYTHING).columns(pa.array([each.SerializeToString() for each in orders])).num_rows == 50


def test_an_entry_of_a_map_without_key_or_value_has_the_default_one() -> None:
    text = proto("map<int32, Item> m = 1; map<string, int32> n = 2;", "message Item { int32 x = 1; }")
    assert read([b"\x0a\x02\x08\x05\x0a\x00\x12\x00"], text) == [{"m": [(0, {"x": 0}), (5, {"x": 0})], "n": [("", 0)]}]


def test_unknown_fields_are_left_out_and_unknown_enums_are_digits() -> None:
    text = proto("State s = 1; repeated State t = 2; int32 id = 3;", "enum State { NEW = 0; PAID = 1; }")
    content = message_class(text)(s=5, t=[1, 6], id=2).SerializeToString()
    value = {"s": "5", "t": ["PAID", "6"], "id": 2}
    assert read([content, content + UNKNOWN], text) == [value, value]


def test_what_is_not_there_is_null_only_where_that_can_be_told() -> None:
    text = """syntax = "proto2"; package shop; enum State { OPEN = 1; DONE = 2; }
        message Order { required int32 id = 1; optional int32 count = 2 [default = 42]; optional State state = 3;
        repeated int32 numbers = 4; optional string text = 5; extensions 100 to 200; }"""
    nothing = {"id": 0, "count": None, "state": None, "numbers": [], "text": None}
    unpacked = b"\x08\x00\x20\x01\x20\x02"
    assert read(
        [b"\x08\x00", b"", b"\x08\x00\x18\x09", unpacked, b"\x08\x00\xa0\x06\x01", b"\x08\x00\x2a\x01\xff"], text
    ) == [
        nothing,
        "DOES_NOT_FIT",
        {**nothing, "state": "9"},
        {**nothing, "numbers": [1, 2]},
        nothing,
        "INVALID_UTF8",
    ]


def test_an_edition_says_field_by_field_what_can_be_told() -> None:
    text = """edition = "2023"; package shop; enum State { option features.enum_type = CLOSED; OPEN = 1; DONE = 2; }
        message Order { int32 id = 1; int32 count = 2 [features.field_presence = IMPLICIT];
        int32 needed = 3 [features.field_presence = LEGACY_REQUIRED]; State state = 4; }"""
    nothing = {"id": None, "count": 0, "needed": 0, "state": None}
    assert read([b"\x18\x00", b"", b"\x18\x00\x20\x07"], text) == [nothing, "DOES_NOT_FIT", {**nothing, "state": "7"}]


def test_the_reason_names_fields_and_holds_no_value() -> None:
    order = Order()
    order.by_id[5].since.nanos = -1
    found = reader(EVERYTHING).read(pa.array([b"", order.SerializeToString(), b"\x08\x01"], pa.binary())).to_pylist()
    assert [each["text"] for each in found] == [
        None,
        "expected values that their types can hold, found others in by_id.since",
        "expected fields in the wire types of the schema, found another in field 1",
    ]


def test_of_a_batch_where_all_is_missing_all_is_null() -> None:
    assert read([None, None]) == [None, None]
    assert read([]) == []


def test_the_largest_numbers_are_whole() -> None:
    found = read_one(Order(u64=2**64 - 1, u32=2**32 - 1, x64=2**63).SerializeToString())
    assert (found["u64"], found["u32"], found["x64"]) == (Decimal(2**64 - 1), 2**32 - 1, Decimal(2**63))


WORKER = """
import pickle, sys
sys.path[:] = [each for each in sys.path if not each.endswith("plugins")]
sys.modules["kafka_ingest"] = None
import pyarrow as pa
made = pickle.load(sys.stdin.buffer)
print(next(made([pa.RecordBatch.from_pydict({"body": [b"\\x18\\x05"]})]))["parsed"][0]["v"]["i32"])
"""


def test_workers_need_no_package_of_this_project() -> None:
    found = columns(EVERYTHING)
    sent = SentType(found.value, found.plain_file, found.plain_message, schema(EVERYTHING).descriptors)
    read = for_workers(lambda batches: message_batches(batches, [("body", "parsed", sent)]), *SENT_BY_VALUE)
    content = cloudpickle.dumps(read)
    done = subprocess.run([sys.executable, "-c", WORKER], input=content, capture_output=True, check=False)
    assert done.stdout == b"5\n", done.stderr.decode()
