"""What a feed says of values in a message type, under `as`: text, bytes, or left out."""

from typing import Any

import pyarrow as pa
import pytest
from tests.protobuf_types import message_class, plain, proto, schema

from kafka_ingest.model.record_schema import WrongSchemaError
from kafka_ingest.model.schema_source import ReadAs
from kafka_ingest.schemas.message_columns import message_columns
from kafka_ingest.writing.protobuf_batches import MessageReader, SentType

TEXT = """syntax = "proto2"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
enum State { NEW = 0; PAID = 1; }
message Line { optional string sku = 1; optional int32 count = 2; }
message Order {
  optional int64 id = 1; optional bytes note = 2; optional State state = 3; repeated Line lines = 4;
  map<string, Line> by_sku = 5; optional google.protobuf.Timestamp at = 6; optional google.protobuf.Int64Value most = 7;
  optional Line first = 8; optional Line last = 9; repeated string tags = 10;
  optional group Old = 11 { optional int32 x = 1; } optional bool paid = 12; optional int32 ID = 13;
}"""
SKIPPED = {"old": "skip", "ID": "skip"}


def columns_of(read_as: dict[str, str], text: str = TEXT) -> str:
    return message_columns(schema(text).descriptor, {path: ReadAs(kind) for path, kind in read_as.items()}).columns.ddl


def read(read_as: dict[str, str], *content: bytes) -> list[Any]:
    found = message_columns(schema(TEXT).descriptor, {path: ReadAs(kind) for path, kind in read_as.items()})
    sent = SentType(found.value, found.plain_file, found.plain_message, schema(TEXT).descriptors)
    rows = MessageReader(sent).read(pa.array(content, pa.binary())).to_pylist()
    return [each["class"] or plain(each["v"]) for each in rows]


def an_order() -> Any:
    order = message_class(TEXT)(id=2**63 - 1, note=b"\xc3\xa9", state=1, tags=["a", ""], paid=True, ID=3)
    order.lines.add(sku="s", count=2)
    order.by_sku["k"].sku = "t"
    order.at.FromJsonString("2026-01-01T00:00:00.123456789Z")
    order.most.value = 5
    order.first.sku = order.last.sku = "f"
    order.old.x = 7
    return order


def test_values_are_read_as_text_or_bytes_or_left_out_at_any_depth() -> None:
    texts = dict.fromkeys(("id", "note", "state", "paid", "at", "most", "lines[]"), "string")
    said = SKIPPED | texts | dict.fromkeys(("by_sku{}", "first", "tags[]"), "binary") | {"last.count": "skip"}
    assert read(said, an_order().SerializeToString()) == [
        {
            "id": "9223372036854775807",
            "note": "é",
            "state": "PAID",
            "lines": ['{"sku": "s", "count": 2}'],
            "by_sku": [("k", b"\x0a\x01t")],
            "at": "2026-01-01T00:00:00.123456789Z",
            "most": "5",
            "first": b"\x0a\x01f",
            "last": {"sku": "f"},
            "tags": [b"a", b""],
            "paid": "true",
        }
    ]
    assert columns_of(said) == (
        "struct<`id`:string,`note`:string,`state`:string,`lines`:array<string>,`by_sku`:map<string,binary>,`at`:string,"
        "`most`:string,`first`:binary,`last`:struct<`sku`:string>,`tags`:array<binary>,`paid`:string>"
    )


def test_a_type_that_occurs_twice_is_read_as_each_path_says() -> None:
    [found] = read({**SKIPPED, "first.sku": "binary", "lines[].sku": "skip"}, an_order().SerializeToString())
    assert (found["first"], found["last"]) == ({"sku": b"f", "count": None}, {"sku": "f", "count": None})
    assert found["lines"] == [{"count": 2}]


def test_of_a_oneof_with_a_group_that_is_left_out_the_others_are_read() -> None:
    text = """syntax = "proto2"; package shop;
        message Order { oneof o { group G = 1 { optional int32 x = 1; } int32 a = 2; int32 b = 3; } }"""
    assert columns_of({"g": "skip"}, text) == "struct<`a`:int,`b`:int>"


def test_bytes_that_are_no_text_are_dead_where_a_text_is_asked_for() -> None:
    content = [message_class(TEXT)(note=each).SerializeToString() for each in (b"a", b"\xff")]
    assert [
        each if isinstance(each, str) else each["note"] for each in read({**SKIPPED, "note": "string"}, *content)
    ] == [
        "a",
        "INVALID_UTF8",
    ]


@pytest.mark.parametrize(
    ("read_as", "said", "line"),
    [
        ({"ID": "skip"}, "expected no groups, found shop.Order.old", "old: skip"),
        ({"old": "skip"}, "found 'id' and 'ID' in shop.Order", "ID: skip"),
        ({**SKIPPED, "lines": "string"}, "expected string for each of several values at lines", "lines[]: string"),
        ({**SKIPPED, "lines[]": "skip"}, "expected a field to be left out, found lines[]", "lines: skip"),
        ({**SKIPPED, "id": "binary"}, "to read as binary, found a number at id", None),
        ({**SKIPPED, "lines[].gone": "skip"}, "found lines[].gone, which it has not", None),
        ({**SKIPPED, "first.sku": "skip", "first.count": "skip"}, "found shop.Line without any", "first: skip"),
    ],
)
def test_what_cannot_be_read_so_is_refused_with_the_line_to_write(
    read_as: dict[str, str], said: str, line: str | None
) -> None:
    with pytest.raises(WrongSchemaError) as refused:
        columns_of(read_as)
    assert said in str(refused.value)
    if line is not None:
        path, kind = line.split(": ")
        assert str(refused.value).endswith(f'. In the feed file, beside format, write as: {{"{path}": {kind}}}')


def test_a_value_below_too_many_levels_or_with_too_many_fields_is_stored_as_text() -> None:
    deep = proto("M0 m = 1;", " ".join(f"message M{n} {{ M{n + 1} m = 1; }}" for n in range(30)) + "message M30 {}")
    path = ".".join(["m"] * 20)
    with pytest.raises(WrongSchemaError, match=f'expected at most 20 levels of messages.*"{path}": string'):
        columns_of({}, deep)
    assert columns_of({"m": "string"}, deep) == "struct<`m`:string>"
    wide = proto(
        "Wide w = 1; int32 x = 2;", f"message Wide {{ {' '.join(f'int32 f{n} = {n};' for n in range(1, 1002))} }}"
    )
    with pytest.raises(WrongSchemaError, match=r'1,000 fields, found 1,003.*write as: {"w": string}'):
        columns_of({}, wide)
    assert columns_of({"w": "string"}, wide) == "struct<`w`:string,`x`:int>"
