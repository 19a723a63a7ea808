"""Message types for tests: what `protoc` makes of `.proto` text, and what records of them should become."""

import datetime as dt
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_tools import protoc

from kafka_ingest.schemas.descriptor_sets import MessageSchema, schema_of_set
from kafka_ingest.schemas.message_columns import WRAPPERS, MessageColumns, message_columns
from kafka_ingest.writing.protobuf_batches import MessageReader, SentType

EVERYTHING = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

enum State { NEW = 0; PAID = 1; LOST = -1; }
message Item { google.protobuf.Timestamp since = 3; string name = 1; int32 count = 2; }
message Node { int32 value = 1; repeated Node children = 2; }
message Order {
  message Inner { bool yes = 1; }
  string text = 14; bytes raw = 15; State state = 16;
  double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6; sint32 s32 = 7;
  sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 sx32 = 11; sfixed64 sx64 = 12; bool b = 13;
  optional int32 perhaps = 17; optional string name = 18; optional State last = 19;
  Item item = 20; Inner inner = 21; repeated Item items = 22;
  repeated int32 numbers = 23; repeated sint64 loose = 24 [packed = false]; repeated string words = 25;
  repeated State states = 26;
  map<string, int32> counts = 27; map<int64, Item> by_id = 28; map<bool, State> by_flag = 29;
  google.protobuf.Timestamp at = 30; repeated google.protobuf.Timestamp times = 31;
  google.protobuf.Duration took = 32; google.protobuf.Int64Value maybe = 33; google.protobuf.StringValue label = 34;
  google.protobuf.Any any = 35; google.protobuf.Empty nothing = 36; google.protobuf.Struct free = 37;
  Node tree = 38; repeated Node trees = 39; map<string, google.protobuf.Value> values = 40;
  oneof payment { string card = 41; int32 cash = 42; Item goods = 43; google.protobuf.Empty free_of_charge = 44; }
}
"""


@cache
def descriptor_set(text: str, **imports: str) -> bytes:
    """Return the descriptor set of a file `orders.proto` with this text."""
    files = {"orders.proto": text, **{f"{name}.proto": each for name, each in imports.items()}}
    with tempfile.TemporaryDirectory() as directory:
        for name, each in files.items():
            (Path(directory) / name).write_text(each)
        made = Path(directory) / "made"
        includes = [f"-I{directory}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
        assert protoc.main(["", *includes, "--include_imports", f"--descriptor_set_out={made}", "orders.proto"]) == 0
        return made.read_bytes()


@cache
def schema(text: str, message: str = "shop.Order") -> MessageSchema:
    return schema_of_set(descriptor_set(text), message)


def columns(text: str, message: str = "shop.Order") -> MessageColumns:
    return message_columns(schema(text, message).descriptor)


@cache
def message_class(text: str, message: str = "shop.Order") -> Any:
    return GetMessageClass(schema(text, message).descriptor)


@cache
def reader(text: str, message: str = "shop.Order") -> MessageReader:
    return reader_of(schema(text, message))


def reader_of(read: MessageSchema) -> MessageReader:
    found = message_columns(read.descriptor)
    return MessageReader(SentType(found.value, found.plain_file, found.plain_message, read.descriptors))


def values(read: MessageReader, content: Sequence[bytes | None]) -> list[Any]:
    """Return each record's value, or the class of why it is dead."""
    found = read.read(pa.array(content, pa.binary())).to_pylist()
    return [each["class"] or plain(each["v"]) for each in found]


def plain(found: Any) -> Any:
    """Return a value of Arrow's with times as microseconds and maps in order."""
    match found:
        case dt.datetime():
            return (found - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        case dict():
            return {name: plain(each) for name, each in found.items()}
        case [(_, _), *_]:
            return sorted((key, plain(value)) for key, value in found)
        case list():
            return [plain(each) for each in found]
    return found


def proto(fields: str, before: str = "") -> str:
    """Return the text of a file with the message shop.Order."""
    return f'syntax = "proto3"; package shop; {before} message Order {{ {fields} }}'


class DeadError(Exception):
    """A record that cannot be decoded."""


def expected(descriptor: Descriptor, content: bytes) -> dict[str, Any]:
    """Return what a record should become, field by field, from what Google's library reads with its own type.

    Raises DeadError.
    """
    try:
        message = GetMessageClass(descriptor).FromString(content)
    except DecodeError as error:
        raise DeadError from error
    return fields_of(message)


def value_or_dead(descriptor: Descriptor, content: bytes) -> Any:
    """Return what should become of a record: its value, or that it is dead."""
    try:
        return expected(descriptor, content)
    except DeadError:
        return "dead"


def same(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Compare what became of records; NaN is itself."""
    for number, (each, other) in enumerate(zip(found, wanted, strict=True)):
        assert repr("dead" if isinstance(each, str) else each) == repr(other), number


def fields_of(message: Any) -> dict[str, Any]:
    if any(each.field_number in message.DESCRIPTOR.fields_by_number for each in UnknownFieldSet(message)):
        raise DeadError
    return {each.name: field_of(message, each) for each in message.DESCRIPTOR.fields}


def field_of(message: Any, field: FieldDescriptor) -> Any:
    found = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return sorted((value_of(each, key), value_of(found[each], value)) for each in found)
    if field.is_repeated:
        return [value_of(each, field) for each in found]
    return value_of(found, field) if not field.has_presence or message.HasField(field.name) else None


def value_of(found: Any, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(found)
        return known.name if known is not None else str(found)
    if field.message_type is None:
        return Decimal(found) if field.type in {field.TYPE_UINT64, field.TYPE_FIXED64} else found
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            fields_of(found)
            if not (-62_135_596_800 <= found.seconds < 253_402_300_800 and 0 <= found.nanos < 10**9):
                raise DeadError
            return found.seconds * 10**6 + found.nanos // 1000
        case name if name in WRAPPERS:
            return fields_of(found)["value"]
        case "google.protobuf.Struct" | "google.protobuf.Value" | "shop.Node":
            return as_json(found)
    return fields_of(found) or True


def as_json(message: Any) -> str:
    try:
        return json_format.MessageToJson(
            message, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=DescriptorPool()
        )
    except (json_format.Error, ValueError, TypeError) as error:
        raise DeadError from error
