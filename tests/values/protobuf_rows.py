"""Protobuf's odd values, as bytes; ``tests/unit/test_protobuf_values.py`` decodes each."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from tests.values.odd_value import OddValue

from kafka_ingest.model.decoding import DeadClass

TITLE = "Protobuf"

TYPES: Final = """syntax = "proto2"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/empty.proto";
enum State { NEW = 0; PAID = 1; ALSO_NEW = 2; }
message Line { optional string sku = 1; required int32 count = 2; }
message Order {
  optional double d = 1; optional float f = 2; optional int32 i32 = 3; optional int64 i64 = 4; optional uint32 u32 = 5;
  optional uint64 u64 = 6; optional sint64 s64 = 7; optional fixed64 x64 = 8; optional bool b = 9;
  optional string text = 10; optional bytes raw = 11; optional State state = 12;
  optional google.protobuf.Timestamp at = 13; optional google.protobuf.Int64Value maybe = 14;
  optional google.protobuf.Value free = 15; optional google.protobuf.Duration took = 16;
  optional google.protobuf.Empty nothing = 17; map<int32, string> names = 18; repeated int32 many = 19;
  optional Line line = 20; oneof pay { string card = 21; int32 cash = 22; } optional int32 last = 23 [default = 42];
}"""

DIFFER: Final = {"seconds": 1, "nanos": -1}

ODD: Final[list[tuple[str, bytes, str, Any]]] = [
    ("double: the largest", b"\x09\xff\xff\xff\xff\xff\xff\xef\x7f", "d", 1.7976931348623157e308),
    ("double: minus zero", b"\x09\x00\x00\x00\x00\x00\x00\x00\x80", "d", -0.0),
    ("double: infinity", b"\x09\x00\x00\x00\x00\x00\x00\xf0\x7f", "d", float("inf")),
    ("double: NaN", b"\x09\x00\x00\x00\x00\x00\x00\xf8\x7f", "d", float("nan")),
    ("float: the smallest", b"\x15\x01\x00\x00\x00", "f", 1.401298464324817e-45),
    ("int32: the smallest", b"\x18\x80\x80\x80\x80\xf8\xff\xff\xff\xff\x01", "i32", -(2**31)),
    ("int32: of more than 32 bits", b"\x18\x81\x80\x80\x80\x10", "i32", 1),
    ("int64: the smallest", b"\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "i64", -(2**63)),
    ("uint32: the largest", b"\x28\xff\xff\xff\xff\x0f", "u32", 2**32 - 1),
    ("uint64: the largest", b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "u64", Decimal(2**64 - 1)),
    ("sint64: the smallest", b"\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "s64", -(2**63)),
    ("fixed64: the largest", b"\x41" + b"\xff" * 8, "x64", Decimal(2**64 - 1)),
    ("bool: another number", b"\x48\x05", "b", True),
    ("string: empty, but there", b"\x52\x00", "text", ""),
    ("string: a NUL", b"\x52\x01\x00", "text", "\0"),
    ("string: no UTF-8", b"\x52\x01\xff", "text", "INVALID_UTF8"),
    ("string: half a character", b"\x52\x03\xed\xa0\x80", "text", "INVALID_UTF8"),
    ("bytes: any", b"\x5a\x02\xff\x00", "raw", b"\xff\x00"),
    ("enum: a name", b"\x60\x01", "state", "PAID"),
    ("enum: a number without a name", b"\x60\x09", "state", "9"),
    ("enum: a negative number", b"\x60\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "state", "-1"),
    ("Timestamp: empty", b"\x6a\x00", "at", 0),
    ("Timestamp: nanoseconds", b"\x6a\x03\x10\xcf\x0f", "at", 1),
    ("Int64Value: empty", b"\x72\x00", "maybe", 0),
    ("Int64Value: the largest", b"\x72\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "maybe", 2**63 - 1),
    ("Value: none of its kinds", b"\x7a\x00", "free", "null"),
    ("Value: null", b"\x7a\x02\x08\x00", "free", "null"),
    ("Value: NaN", b"\x7a\x09\x11\x00\x00\x00\x00\x00\x00\xf8\x7f", "free", "DOES_NOT_FIT"),
    ("Duration: signs that differ", b"\x82\x01\x0d\x08\x01\x10" + b"\xff" * 9 + b"\x01", "took", DIFFER),
    ("Empty: there", b"\x8a\x01\x00", "nothing", True),
    ("map: an entry of nothing", b"\x92\x01\x00", "names", [(0, "")]),
    ("map: a key twice", b"\x92\x01\x05\x08\x01\x12\x01a\x92\x01\x05\x08\x01\x12\x01b", "names", [(1, "b")]),
    ("repeated: packed", b"\x9a\x01\x02\x01\x02", "many", [1, 2]),
    ("repeated: not packed", b"\x98\x01\x01\x98\x01\x02", "many", [1, 2]),
    ("message: its required field is missing", b"\xa2\x01\x03\x0a\x01s", "line", "DOES_NOT_FIT"),
    ("message: twice, which is one", b"\xa2\x01\x03\x0a\x01s\xa2\x01\x02\x10\x05", "line", {"sku": "s", "count": 5}),
    ("oneof: two members, the first", b"\xaa\x01\x01v\xb0\x01\x07", "card", None),
    ("oneof: two members, the last", b"\xaa\x01\x01v\xb0\x01\x07", "cash", 7),
    ("a default that is declared", b"", "last", None),
    ("a field that the type does not have", b"\xf8\x3f\x01\x18\x05", "i32", 5),
    ("another wire type", b"\x1a\x01\x05", "i32", "NOT_PROTOBUF"),
    ("cut off", b"\x18", "i32", "NOT_PROTOBUF"),
    ("no bytes at all", b"", "text", None),
]
"""Type and what is odd, the record, the field, and what is stored as Arrow has it, or the class of a dead letter."""


def as_text(stored: Any, field: str) -> str | DeadClass:
    """Return what becomes of a value as the page shows it."""
    shown = str(stored)
    match stored:
        case "null":
            shown = "the text null"
        case str():
            return DeadClass(stored) if stored in set(DeadClass) else stored.replace("\0", "\\0")
        case int() if field == "at":
            shown = str(datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=stored))
        case bytes():
            shown = f"the bytes {stored.hex(' ')}"
        case dict():
            shown = f"{{{', '.join(f'{name}: {as_text(each, name)}' for name, each in stored.items())}}}"
        case [(_, _), *_]:
            shown = f"{{{', '.join(f'{key} -> {value}' for key, value in stored)}}}"
        case float():
            shown = {"inf": "Infinity", "nan": "NaN"}.get(shown, shown)
        case None | bool():
            shown = {None: "null", True: "true", False: "false"}[stored]
    return shown


def row(name: str, raw: bytes, field: str, stored: Any) -> OddValue:
    """Return the page's row of an odd value."""
    kind, colon, written = name.partition(": ")
    return OddValue(kind if colon else "the whole message", written or name, raw, field, as_text(stored, field))


ROWS = [row(*each) for each in ODD]
