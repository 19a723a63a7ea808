"""Orders of ten fields: their schema in each format and their values."""

import json
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

Order: TypeAlias = tuple[str, float, int, str, bool, str, str, int, str]
"""All fields of an order but its number, which is the first."""


class Field(NamedTuple):
    """One field: its name, and its type in Spark's SQL, Flink's SQL, Avro and Protobuf."""

    name: str
    spark: str
    flink: str
    avro: str
    protobuf: str


FIELDS = (
    Field("order_id", "bigint", "BIGINT", "long", "int64"),
    Field("customer", "string", "STRING", "string", "string"),
    Field("amount", "double", "DOUBLE", "double", "double"),
    Field("quantity", "int", "INT", "int", "int32"),
    Field("currency", "string", "STRING", "string", "string"),
    Field("paid", "boolean", "BOOLEAN", "boolean", "bool"),
    Field("country", "string", "STRING", "string", "string"),
    Field("channel", "string", "STRING", "string", "string"),
    Field("placed_ms", "bigint", "BIGINT", "long", "int64"),
    Field("note", "string", "STRING", "string", "string"),
)
NAMES = tuple(field.name for field in FIELDS)
SPARK_SCHEMA = ", ".join(f"{field.name} {field.spark}" for field in FIELDS)
FLINK_COLUMNS = ", ".join(f"`{field.name}` {field.flink}" for field in FIELDS)
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "bench",
        "fields": [{"name": field.name, "type": field.avro} for field in FIELDS],
    }
)
MESSAGE = "bench.Order"

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
FORMATS = (JSON, AVRO, PROTOBUF)
REGISTERED = (AVRO, PROTOBUF)
"""Those that Confluent's serializers write, behind the id of a registered schema."""

AROUND_THE_NOTE = 198
SHORTEST_NOTE = 20
FIRST_MOMENT_MS = 1_760_000_000_000
YEAR_MS = 31_536_000_000


def length_of_note(record_bytes: int) -> int:
    """Return how long notes are for values of about this many bytes in JSON: names and other fields take about 198."""
    return max(SHORTEST_NOTE, record_bytes - AROUND_THE_NOTE)


def order_of(customer: str, cents: int, note: str, chance: random.Random) -> Order:
    """Return an order without its number. No field is missing: Protobuf could not tell that from an empty one."""
    return (
        customer,
        cents / 100,
        chance.randrange(1, 100),
        chance.choice(("CHF", "EUR", "GBP", "USD")),
        chance.choice((False, True)),
        chance.choice(("AT", "CH", "DE", "FR", "IT")),
        chance.choice(("shop", "phone", "partner")),
        FIRST_MOMENT_MS + chance.randrange(YEAR_MS),
        note,
    )


def whole(number: int, order: Sequence[Any]) -> dict[str, Any]:
    """Return an order with its number, by the names of fields."""
    return dict(zip(NAMES, (number, *order), strict=True))
