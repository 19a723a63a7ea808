"""Avro's odd values."""

import json
import struct
from typing import Any

from tests.values.odd_value import OddValue

from kafka_ingest.model.decoding import DeadClass, FieldDecoding, Format

TITLE = "Avro"

BEYOND, NO_TEXT, NO_AVRO = DeadClass.OUT_OF_RANGE, DeadClass.INVALID_UTF8, DeadClass.NOT_AVRO


def number(value: int) -> bytes:
    """Return a whole number as Avro writes it."""
    rest, written = value << 1 if value >= 0 else (~value << 1) | 1, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def sized(content: bytes) -> bytes:
    """Return a text or bytes, after their length."""
    return number(len(content)) + content


def decimal(unscaled: int) -> bytes:
    """Return a decimal of bytes."""
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return sized(unscaled.to_bytes(size, "big", signed=True))


def double(value: float) -> bytes:
    """Return a fraction."""
    return struct.pack("<d", value)


def logical(base: str, name: str, **more: int) -> dict[str, Any]:
    """Return a type with a logical one."""
    return {"type": base, "logicalType": name, **more}


def chain(levels: int) -> bytes:
    """Return a list whose elements hold one another."""
    return number(levels) + (number(1) + chain(levels - 1) if levels else number(0))


DAY_S = 86_400
FIRST_S, END_S = -62_135_596_800, 253_402_300_800
LINK = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Link"]}],
}

DECIMAL, MILLIS = logical("bytes", "decimal", precision=6, scale=2), logical("long", "timestamp-millis")


def of_one(name: str, field: str, kind: Any) -> dict[str, Any]:
    """Return a record of one field."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind}]}


TYPES: dict[str, tuple[Any, dict[str, tuple[bytes, str | DeadClass]]]] = {
    "string": (
        "string",
        {
            "text": (sized(b"text"), "text"),
            "no bytes": (sized(b""), ""),
            "the bytes c3 a9": (sized(b"\xc3\xa9"), "é"),
            "the byte ff": (sized(b"\xff"), NO_TEXT),
            "a length beyond the record": (number(100) + b"x", NO_AVRO),
        },
    ),
    "int": ("int", {"2147483647": (number(2**31 - 1), "2147483647"), "-2147483648": (number(-(2**31)), "-2147483648")}),
    "long": ("long", {str(each): (number(each), str(each)) for each in (2**63 - 1, -(2**63))}),
    "double": (
        "double",
        {
            "NaN": (double(float("nan")), "NaN"),
            "Infinity": (double(float("inf")), "Infinity"),
            "-0.0": (double(-0.0), "-0.0"),
            "5e-324": (double(5e-324), "4.9E-324"),
        },
    ),
    "decimal(6,2)": (
        DECIMAL,
        {
            "9999.99": (decimal(999_999), "9999.99"),
            "-0.01": (decimal(-1), "-0.01"),
            "10000.00": (decimal(1_000_000), BEYOND),
            "184467440737095516.21, whose last 64 bits are 0.05": (decimal(2**64 + 5), BEYOND),
            "no bytes": (sized(b""), BEYOND),
        },
    ),
    "decimal(64,2)": (
        logical("bytes", "decimal", precision=64, scale=2),
        {
            "38 times the digit 9": (decimal(10**38 - 1), "9" * 36 + ".99"),
            "a 1 and 38 times 0": (decimal(10**38), BEYOND),
        },
    ),
    "date": (
        logical("int", "date"),
        {
            "0001-01-01": (number(FIRST_S // DAY_S), "0001-01-01"),
            "9999-12-31": (number(END_S // DAY_S - 1), "9999-12-31"),
            "10000-01-01": (number(END_S // DAY_S), BEYOND),
            "the day before 0001-01-01": (number(FIRST_S // DAY_S - 1), BEYOND),
        },
    ),
    "timestamp-millis": (
        MILLIS,
        {
            "0001-01-01T00:00:00Z": (number(FIRST_S * 1000), "0001-01-01 00:00:00"),
            "9999-12-31T23:59:59.999Z": (number(END_S * 1000 - 1), "9999-12-31 23:59:59.999"),
            "10000-01-01T00:00:00Z": (number(END_S * 1000), BEYOND),
            "9223372036854775807": (number(2**63 - 1), BEYOND),
        },
    ),
    "timestamp-micros": (
        logical("long", "timestamp-micros"),
        {
            "9999-12-31T23:59:59.999999Z": (number(END_S * 10**6 - 1), "9999-12-31 23:59:59.999999"),
            "-9223372036854775808": (number(-(2**63)), BEYOND),
        },
    ),
    "local-timestamp-millis": (
        logical("long", "local-timestamp-millis"),
        {
            "9999-12-31T23:59:59": (number(END_S * 1000 - 1000), "9999-12-31 23:59:59"),
            "10000-01-01T00:00:00": (number(END_S * 1000), BEYOND),
        },
    ),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), {"1": (number(1), "1")}),
    "int, long or null": (["null", "int", "long"], {"5": (number(5), "5")}),
    "int, string or null": (["null", "int", "string"], {"5": (number(5), "{5, null}")}),
    "a record without fields": ({"type": "record", "name": "Nothing", "fields": []}, {"one": (b"", "true")}),
    "link, a record in itself": (
        LINK,
        {
            "one level": (chain(1), '{1, {"n":0,"next":null}}'),
            "20 levels": (chain(20), BEYOND),
        },
    ),
    "before, a record with credit decimal(6,2)": (
        of_one("Before", "credit", DECIMAL),
        {"10000.00": (decimal(1_000_000), BEYOND), "42 times the digit 9": (decimal(10**42 - 1), BEYOND)},
    ),
    "items, an array of records with at timestamp-millis": (
        {"type": "array", "items": of_one("Item", "at", MILLIS)},
        {"two, the second 9223372036854775807": (number(2) + number(0) + number(2**63 - 1) + number(0), BEYOND)},
    ),
    "by_id, a map of records with since date": (
        {"type": "map", "values": of_one("Since", "since", logical("int", "date"))},
        {"10000-01-01": (number(1) + sized(b"x") + number(END_S // DAY_S) + number(0), BEYOND)},
    ),
    "sizes, a map of decimal(6,2)": (
        {"type": "map", "values": DECIMAL},
        {"a name of the byte ff": (number(1) + sized(b"\xff") + decimal(1) + number(0), NO_TEXT)},
    ),
}

PATHS = {
    "before": "before.credit",
    "items": "items[1].at",
    "by_id": "by_id.*.since",
    "sizes": "sizes",
    "link": "link.next",
}
"""By the name of a field: where in it the reason finds what is wrong."""


def nullable(kind: Any) -> list[Any]:
    """Return the type of a field that may be missing."""
    return kind if isinstance(kind, list) else ["null", kind]


FIELDS = {name: named if (named := name.split(",")[0]) in PATHS else f"f{place}" for place, name in enumerate(TYPES)}
SCHEMA = {
    "type": "record",
    "name": "Odd",
    "fields": [{"name": FIELDS[name], "type": nullable(kind)} for name, (kind, _) in TYPES.items()],
}
DECODING = FieldDecoding(Format.AVRO, json.dumps(SCHEMA))


def record(field: str, content: bytes) -> bytes:
    """Return a record in which all other fields are null."""
    return b"".join(number(1) + content if each == field else number(0) for each in FIELDS.values())


ROWS = [
    OddValue(
        name,
        written,
        record(FIELDS[name], content),
        FIELDS[name],
        becomes,
        PATHS.get(FIELDS[name], "") if isinstance(becomes, DeadClass) else "",
    )
    for name, (_, values) in TYPES.items()
    for written, (content, becomes) in values.items()
]
