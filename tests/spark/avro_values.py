"""Values in Avro's binary encoding, and bytes that are nearly so."""

import io
import json
import struct
from typing import Any

import fastavro

from kafka_ingest.model.decoding import FieldDecoding, Format
from kafka_ingest.model.schema_source import WriterSchema
from repeatable_random import repeatable_random


def without_logic(node: dict[str, Any]) -> dict[str, Any]:
    """Return a type without its logical type."""
    return {key: each for key, each in node.items() if key not in {"logicalType", "precision", "scale"}}


ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {
            "name": "total",
            "type": {
                "type": "fixed",
                "name": "Total",
                "size": 16,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 3,
            },
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}},
        {"name": "choice", "type": ["null", "int", "string"]},
        {"name": "ratio", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {
            "name": "address",
            "type": ["null", {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}],
        },
        {"name": "before", "type": {"type": "array", "items": "Address"}},
    ],
}
PLAIN: dict[str, Any] = json.loads(json.dumps(ORDER), object_hook=without_logic)
"""The same bytes, with numbers and bytes instead of times and decimals: so that any can be written."""


def order(**changes: Any) -> bytes:
    """Return an order as it is written."""
    value: dict[str, Any] = {
        "id": 7,
        "name": "Zürich",
        "price": (1234).to_bytes(2, "big"),
        "total": (5678).to_bytes(16, "big"),
        "at": 1_767_225_600_000,
        "local": 1_767_225_600_000_001,
        "day": 20_454,
        "tags": ["a", "😀"],
        "counts": {"x": 1},
        "kind": "PAID",
        "choice": 5,
        "ratio": 0.5,
        "paid": True,
        "raw": b"\xff",
        "address": {"city": "Bern"},
        "before": [],
    }
    return written(PLAIN, value | changes)


def written(schema: Any, value: Any) -> bytes:
    """Return a value in Avro's encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def wired(schema_id: int, body: bytes) -> bytes:
    """Return a value as a registry's serializers write it."""
    return struct.pack(">bI", 0, schema_id) + body


def of_file(schema: Any) -> FieldDecoding:
    """Return how values of a schema file are read."""
    return FieldDecoding(Format.AVRO, json.dumps(schema))


def of_registry(reader: Any, *writers: WriterSchema) -> FieldDecoding:
    """Return how values of registered schemas are read."""
    return FieldDecoding(Format.AVRO, json.dumps(reader), writers=writers)


def hostile(random_state: int, count: int) -> list[bytes]:
    """Return bytes that are nearly an order, or nothing like it; the first ones claim to be endless."""
    chance = repeatable_random(random_state)
    endless = [
        *(order()[:start] + long for start in range(len(order())) for long in HUGE),
        *(bytes(length) for length in range(20)),
        *(b"\xff" * length for length in range(20)),
    ]
    made = []
    while len(made) < count - len(endless):
        body = bytearray(order(name=None, tags=["x"] * chance.randrange(9), choice=chance.choice([None, 5, "five"])))
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(body))
            match chance.randrange(4):
                case 0:
                    body[at] = chance.randrange(256)
                case 1:
                    del body[at : at + chance.randrange(1, 9)]
                case 2:
                    body[at:at] = chance.randbytes(chance.randrange(1, 9))
                case _:
                    body[at:at] = chance.choice(HUGE)
            body = body or bytearray(1)
        made.append(bytes(body))
    return endless + made


def number(value: int) -> bytes:
    """Return a long in Avro's encoding."""
    return written("long", value)


HUGE = [
    number(2**31 - 1),
    number(2**31),
    number(2**62),
    number(-(2**63)),
    number(-(2**31)) + number(2**40),
    b"\xff" * 11,
]
