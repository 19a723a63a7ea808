"""The recipes of docs/feed-files.md, as they stand there, on change events as Kafka Connect's converters write them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.fakes import span
from tests.protobuf_types import message_class, schema
from tests.spark.avro_values import of_registry, wired, written
from tests.spark.test_decode import COLUMNS

from kafka_ingest.model.decoding import Decoding, FieldDecoding, Format
from kafka_ingest.model.omissions import described
from kafka_ingest.model.schema_source import WriterSchema
from kafka_ingest.settings.feed import Feed
from kafka_ingest.writing.decode import DEAD, decoded
from kafka_ingest.writing.found_fields import FoundFields
from kafka_ingest.writing.shape import FILTERED, shaped

Row = dict[str, Any]

AT = 1_767_225_600_123

EVENTS: list[tuple[Row | None, str, Row | None, Row | None]] = [
    ({"id": 1}, "r", None, {"id": 1, "city": "Bern"}),
    ({"id": 2}, "c", None, {"id": 2, "city": None}),
    ({"id": 1}, "u", {"id": 1, "city": "Bern"}, {"id": 1, "city": "Zürich"}),
    ({"id": 1}, "d", {"id": 1, "city": "Zürich"}, None),
    (None, "t", None, None),
]
"""Key, operation, and the row before and after it. Each deletion is followed by a tombstone."""

MESSAGE = {"op": "m", "ts_ms": AT, "source": {"connector": "postgresql"}, "message": {"prefix": "x", "content": "AA=="}}

ROWS = [
    (1, "Bern", False, AT),
    (2, None, False, AT),
    (1, "Zürich", False, AT),
    (1, "Zürich", True, AT),
    "filtered",
    "filtered",
]
"""What becomes of the events, the tombstone being the one before the last."""


def rows_with(no_city: str | None) -> list[Any]:
    """Return the same with what is stored of a city that is null."""
    return [(2, no_city, False, AT) if row == ROWS[1] else row for row in ROWS]


SOURCE = {"version": "3.3.1.Final", "connector": "postgresql", "name": "shop", "ts_ms": AT, "db": "shop", "lsn": 37}


def value_of(op: str, before: Row | None, after: Row | None) -> Row:
    """Return the value of an event; a truncation has no rows at all."""
    rows = {} if op == "t" else {"before": before, "after": after}
    return {**rows, "source": SOURCE, "transaction": None, "op": op, "ts_ms": AT, "ts_us": AT * 1000, "ts_ns": None}


def with_tombstones(
    events: list[tuple[Row | None, str, Row | None, Row | None]],
) -> list[tuple[Row | None, Row | None]]:
    """Return keys and values, with a tombstone after each deletion."""
    found: list[tuple[Row | None, Row | None]] = []
    for key, op, before, after in events:
        found.append((key, value_of(op, before, after)))
        found += [(key, None)] if op == "d" else []
    return found


def in_envelope(content: Row | None, fields: list[str], name: str) -> Row | None:
    """Return what the JSON converter writes with ``schemas.enable``; nothing where there is nothing."""
    if content is None:
        return None
    described = [{"type": "string", "optional": True, "field": field} for field in fields]
    return {"schema": {"type": "struct", "fields": described, "optional": False, "name": name}, "payload": content}


def json_records(*, envelope: bool) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values in JSON, and at their end a message that the connector passes on."""
    records = [*with_tombstones(EVENTS), ({"prefix": "x"}, MESSAGE)]
    if envelope:
        records = [
            (in_envelope(key, ["id"], "shop.Key"), in_envelope(value, ["op", "before"], "shop.Envelope"))
            for key, value in records
        ]
    return [(as_json(key), as_json(value)) for key, value in records]


def as_json(content: Row | None) -> bytes | None:
    return None if content is None else json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


CITY = {"name": "city", "type": ["null", "string"], "default": None}
AVRO_KEY: Row = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.public.customers",
    "fields": [{"name": "id", "type": "long"}],
    "connect.name": "shop.public.customers.Key",
}
AVRO_ROW: Row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, CITY]}
AVRO_VALUE: Row = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.customers",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "namespace": "io.debezium.connector.postgresql",
                "fields": [
                    {"name": "version", "type": "string"},
                    {"name": "snapshot", "type": ["null", {"type": "string", "connect.version": 1}], "default": None},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
    "connect.name": "shop.public.customers.Envelope",
}


def avro_decoding() -> tuple[FieldDecoding, FieldDecoding]:
    """Return how keys and values are read that Confluent's Avro converter writes."""
    return tuple(of_registry(each, WriterSchema(1, json.dumps(each))) for each in (AVRO_KEY, AVRO_VALUE))  # type: ignore[return-value]


def avro_records() -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values as that converter writes them."""
    return [(in_avro(AVRO_KEY, key), in_avro(AVRO_VALUE, value)) for key, value in with_tombstones(EVENTS)]


def in_avro(of: Row, content: Row | None) -> bytes | None:
    rows = {"before": None, "after": None}
    return None if content is None else wired(1, written(of, rows | content))


PROTOBUF = """
syntax = "proto3";
package shop.public.customers;
message Key { int64 id = 1; }
message Envelope {
  Value before = 1; Value after = 2; Source source = 3; string op = 5; int64 ts_ms = 6; int64 ts_us = 7;
  message Value { int64 id = 1; string city = 2; }
  message Source { string version = 1; string connector = 2; }
}
"""
NULLABLE = PROTOBUF.replace("string city", "optional string city")
"""The same with ``optional.for.nullables``, which is false unless it is set."""


def protobuf_decoding(types_text: str) -> tuple[FieldDecoding, FieldDecoding]:
    """Return how keys and values are read that Confluent's Protobuf converter writes."""
    types = [schema(types_text, f"shop.public.customers.{name}").text for name in ("Key", "Envelope")]
    writers = [WriterSchema(1, '["00", "0200"]'), WriterSchema(1, '["0202"]')]
    key, value = (
        FieldDecoding(Format.PROTOBUF, text, writers=(writer,)) for text, writer in zip(types, writers, strict=True)
    )
    return key, value


def protobuf_records(types_text: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values as that converter writes them."""
    records = with_tombstones(EVENTS)
    return [
        (in_protobuf(types_text, "Key", "00", key), in_protobuf(types_text, "Envelope", "0202", value))
        for key, value in records
    ]


def in_protobuf(types_text: str, name: str, indexes: str, content: Row | None) -> bytes | None:
    if content is None:
        return None
    made = message_class(types_text, f"shop.public.customers.{name}")()
    for field, value in content.items():
        if isinstance(value, dict):
            known = {key: each for key, each in value.items() if key in {"id", "city", "version"} and each is not None}
            getattr(made, field).SetInParent()
            for key, each in known.items():
                setattr(getattr(made, field), key, each)
        elif value is not None and field not in {"transaction", "ts_ns"}:
            setattr(made, field, value)
    return bytes.fromhex(f"0000000001{indexes}") + made.SerializeToString()


# ── The recipes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def documented() -> list[Decoding]:
    """Return how the page says that change events are read: without envelopes, and with them."""
    page = Path(__file__).parents[2] / "docs" / "feed-files.md"
    section = page.read_text().partition("## Change events")[2].partition("\n## ")[0]
    recipes = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", section, flags=re.DOTALL)]
    rest = {"name": "customers", "kafka": {"topics": ["customers"]}, "sink": {"format": "parquet", "path": "/lake"}}
    return [Feed.model_validate(rest | recipe).decoding() for recipe in recipes]


PLAIN, ENVELOPE = documented()


def of_converter(decoding: tuple[FieldDecoding, FieldDecoding]) -> Decoding:
    """Return the first recipe for another format."""
    key, value = decoding
    return replace(PLAIN, key=key, value=value)


def events(spark: SparkSession, records: list[tuple[bytes | None, bytes | None]]) -> DataFrame:
    """Return records as they are read."""
    rows = [
        (offset, *(each and bytearray(each) for each in record), None, "t") for offset, record in enumerate(records)
    ]
    return spark.createDataFrame(rows, COLUMNS).coalesce(1)


@pytest.mark.parametrize(
    ("decoding", "records", "no_city"),
    [
        (PLAIN, json_records(envelope=False), None),
        (ENVELOPE, json_records(envelope=True), None),
        (of_converter(avro_decoding()), avro_records(), None),
        (of_converter(protobuf_decoding(PROTOBUF)), protobuf_records(PROTOBUF), ""),
        (of_converter(protobuf_decoding(NULLABLE)), protobuf_records(NULLABLE), None),
    ],
    ids=["json", "json in an envelope", "avro", "protobuf", "protobuf with optional fields"],
)
def test_every_change_becomes_its_row_and_what_is_no_change_is_filtered(
    spark: SparkSession, decoding: Decoding, records: list[tuple[bytes | None, bytes | None]], no_city: str | None
) -> None:
    rows = shaped(decoded(events(spark, records), decoding), decoding.shape, with_reasons=True)

    shown = rows.withColumn("changed_at", f.unix_millis("changed_at"))
    found = sorted(shown.collect(), key=lambda row: int(row["kafka_offset"]))

    assert [row[DEAD] for row in found] == [None] * len(records)
    assert [
        "filtered" if row[FILTERED] else (row["id"], row["city"], row["deleted"], row["changed_at"]) for row in found
    ] == [*rows_with(no_city), *(["filtered"] if decoding.value.format is Format.JSON else [])]


@pytest.mark.parametrize(
    ("schema_of_key", "good", "bad"),
    [
        ("id bigint", ['{"id":1}'], [None, "{}", '{"id":null}']),
        ("payload struct<id: bigint>", ['{"payload":{"id":1}}'], ["{}", '{"payload":null}', '{"payload":{}}']),
        (None, ['{"id":null}'], [None]),
    ],
)
def test_keys_with_nulls_are_dead_letters_where_the_feed_says_so_unless_its_where_leaves_the_records_out(
    spark: SparkSession, schema_of_key: str | None, good: list[str | None], bad: list[str | None]
) -> None:
    sink = {"format": "postgresql", "path": "/lake", "conn_id": "warehouse", "table": "shop.customers"}
    decoding = Feed.model_validate(
        {
            "name": "customers",
            "kafka": {"topics": ["customers"]},
            "key": {"format": "json", "schema": schema_of_key} if schema_of_key else {"format": "string"},
            "value": {"format": "json", "schema": "op string"},
            "where": "value.op <> 'x'",
            "sink": sink | {"mode": "current", "null_keys": "dead_letter"},
        }
    ).decoding()
    keys = [key and key.encode() for key in (*good, *bad)]
    changes = [(key, as_json({"op": op})) for op in ("u", "x", "t") for key in keys]

    found = shaped(decoded(events(spark, changes), decoding), decoding.shape, with_reasons=True).collect()

    kinds = ["dead" if row[DEAD] else "filtered" if row[FILTERED] else "row" for row in found]
    of_changes = [*["row"] * len(good), *["dead"] * len(bad)]
    assert kinds == [*of_changes, *["filtered"] * len(keys), *["row"] * len(keys)]


WITHOUT_ENVELOPE = "source, op, ts_ms, transaction, ts_us, ts_ns, before, after, message"


@pytest.mark.parametrize(
    ("decoding", "records", "missed"),
    [
        (
            PLAIN,
            json_records(envelope=True),
            {
                "key.id: in 0 of 6 records; there are: schema, payload",
                "value.before, value.after, value.op, value.ts_ms: in 0 of 6 records; there are: schema, payload",
            },
        ),
        (
            ENVELOPE,
            json_records(envelope=False),
            {
                "key.payload: in 0 of 6 records; there are: id, prefix",
                f"value.payload: in 0 of 6 records; there are: {WITHOUT_ENVELOPE}",
            },
        ),
    ],
    ids=["an envelope that is not expected", "no envelope where one is"],
)
def test_the_recipe_for_the_other_converter_finds_no_field_and_says_so(
    spark: SparkSession, decoding: Decoding, records: list[tuple[bytes | None, bytes | None]], missed: set[str]
) -> None:
    rows, fields = events(spark, records), FoundFields(decoding)
    numbers = {name: f"bit_or({sql}) as {name}" for name, sql in fields.expressions().items()}
    [row] = decoded(rows, decoding).selectExpr(*numbers.values()).collect()

    never = fields.never_found(fields.all_bits(row.asDict()), lambda _ranges: rows, [span(0, 0, 7)])

    assert set(described(never)) == missed
