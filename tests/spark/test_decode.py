"""Bytes become columns in a real Spark: what is good, what is dead and why."""

import datetime as dt
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from tests.protobuf_types import EVERYTHING, message_class, proto, reader, schema
from tests.spark import avro_values, nearly_json
from tests.spark.avro_values import of_file, of_registry, order, wired, written
from upath import UPath

from kafka_ingest.batches.freeze_schemas import avro_writer
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.avro_schema import read_avro
from kafka_ingest.model.batch import AttemptDocument, BatchKind, BatchPlan, DataNeeds
from kafka_ingest.model.decoding import Columns, Decoding, FieldDecoding, Format, UnknownFields
from kafka_ingest.model.offsets import Isolation, OffsetRange, OffsetsPolicy, TopicPartition
from kafka_ingest.model.omissions import NeverFound
from kafka_ingest.model.partition_term import LateRows, terms_of
from kafka_ingest.model.place import OutputLocation, Place, RemotePlace
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.record_schema import read_schema
from kafka_ingest.model.schema_source import RegisteredSchema, WriterSchema
from kafka_ingest.model.written_columns import SelectedColumn, Shape
from kafka_ingest.writing import object_batches, plain_objects, stage_files, stage_objects
from kafka_ingest.writing import stage_decoded as stage_decoded_module
from kafka_ingest.writing.decode import DEAD, decoded
from kafka_ingest.writing.decode_json import can_be_plain
from kafka_ingest.writing.decoded_part import PlainSchema
from kafka_ingest.writing.found_fields import FoundFields
from kafka_ingest.writing.json_values import JsonReader
from kafka_ingest.writing.plain_objects import with_plain_objects
from kafka_ingest.writing.read_ranges import dead_letter_records
from kafka_ingest.writing.rounds import remove_from_disk
from kafka_ingest.writing.schema_ids import UnknownSchemaIdsError, check_ids
from kafka_ingest.writing.stage_decoded import Places, RecordsChangedError, StagedRecords, Storage, stage_decoded
from kafka_ingest.writing.stage_files import staged_files

COLUMNS = (
    "kafka_offset bigint, key binary, value binary, kafka_headers array<struct<key: string, value: binary>>, "
    "kafka_topic_id string"
)
SCHEMA = """
    id bigint, name string, amount double, ratio float, price decimal(10,2), paid boolean, small smallint,
    tags array<string>, address struct<city: string, since: date>, counts map<string,bigint>,
    at timestamp, local timestamp_ntz, days array<date>, sizes array<double>
"""
PLAIN_SCHEMA = """
    id bigint, name string, amount double, paid boolean, n int, day date, at timestamp, local timestamp_ntz,
    small smallint, ratio float, price decimal(12,3), rows array<struct<id: int, at: timestamp>>,
    address struct<city: string, since: date, at: struct<x: double, t: timestamp>>
"""
UNUSUAL = (
    *('{"Name": "x"}', '{"ID": 1, "id": 2}', '{"id": 1, "id": 1}', '{"address": {"CITY": "x"}}', '{"x": 1, "x": 2}'),
    *('{"id": 1, "unknown": 2}', '{"name": 5}', '{"name": {"a": 1.50}}', '{"address": {}}', '{"address": []}'),
    *('{"name": "\ufffd"}', '{"name": "\\ud83d\\ude00"}', '{"name": "\\ud83d"}', '{"name": "\\\\ud83d"}'),
    *('{"n": 2147483648}', '{"id": 9223372036854775808}', '{"amount": 9223372036854775808}', '{"amount": 1e999}'),
)
"""What might be read otherwise than Spark reads it, or is left to Spark though it is good."""
FEW_FIELDS = "id bigint, name string, paid boolean, at timestamp, address struct<city: string>"
"""Each query of a schema is compiled, which takes as long as the schema is."""
EVERY_TYPE = FieldDecoding(Format.JSON, SCHEMA)
ORDER = FieldDecoding(Format.JSON, FEW_FIELDS)
ANY_JSON = FieldDecoding(Format.JSON)
STRICT = FieldDecoding(Format.JSON, FEW_FIELDS, UnknownFields.REFUSE)
TEXT = FieldDecoding(Format.STRING)


Headers = list[tuple[str, bytes | None]]


def records(
    spark: SparkSession,
    values: Sequence[str | bytes | None],
    key: bytes | None = b"k",
    headers: Sequence[Headers | None] | None = None,
) -> DataFrame:
    """Return records as they are read, with these values."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    rows = [
        (number, key and bytearray(key), None if value is None else bytearray(value), beside, "t")
        for number, (value, beside) in enumerate(zip(raw, headers or [None] * len(raw), strict=True))
    ]
    return spark.createDataFrame(rows, COLUMNS).coalesce(1)


def outcomes(spark: SparkSession, values: Sequence[str | bytes | None], value: FieldDecoding) -> list[Any]:
    """Return each value as it is decoded, or the class of a dead one."""
    every = decoded(records(spark, values), Decoding(value))
    # A dead record's time may be none that Python knows.
    shown = every.selectExpr("kafka_offset", f"{DEAD}.class as dead", f"if({DEAD} is null, value, null) as value")
    return [row["dead"] or row["value"] for row in by_offset(shown)]


def by_offset(rows: DataFrame) -> list[Row]:
    """Return rows in Kafka's order; for that of Spark, one more piece of code would be compiled."""
    return sorted(rows.collect(), key=lambda row: int(row["kafka_offset"]))


def filled(row: Row | None) -> dict[str, Any] | None:
    """Return the fields of a decoded object that are not null."""
    return None if row is None else {name: value for name, value in row.asDict().items() if value is not None}


GOOD = {
    "{}": {},
    ' {"id": 1}\n\t\r ': {"id": 1},
    '{"id": null}': {},
    '{"id": -9223372036854775808, "small": 32767}': {"id": -(2**63), "small": 32767},
    '{"name": "a\\u0000b \\ud83d\\ude00 \\\\ud800 é"}': {"name": "a\0b 😀 \\ud800 é"},
    '{"name": ""}': {"name": ""},
    '{"name": {"a": [1, 2]}}': {"name": '{"a": [1, 2]}'},
    '{"id": 1.0, "small": 1e2}': {"id": 1, "small": 100},
    '{"unknown": {"id": 5}, "id": 6}': {"id": 6},
    '{"amount": 1, "ratio": 0.5, "sizes": [1.5, null]}': {"amount": 1.0, "ratio": 0.5, "sizes": [1.5, None]},
    '{"price": 12.34}': {"price": Decimal("12.34")},
    '{"name": "123e4567", "tags": ["\\u00e9", "1e9999999999"]}': {"name": "123e4567", "tags": ["é", "1e9999999999"]},
    '{"price": "12.34", "name": "123e4567"}': {"price": Decimal("12.34"), "name": "123e4567"},
    '{"tags": [], "counts": {"a": 1, "A": 2}}': {"tags": [], "counts": {"a": 1, "A": 2}},
    '{"address": {"city": "Berlin", "since": "2024-02-29"}}': {"address": Row("Berlin", dt.date(2024, 2, 29))},
    '{"address": null}': {},
    '{"days": ["0001-01-01", "9999-12-31", null]}': {"days": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]},
    '{"local": "2026-03-29T02:30:00.123456789"}': {"local": dt.datetime(2026, 3, 29, 2, 30, 0, 123456)},  # noqa: DTZ001
}

DEAD_VALUES = {
    "": "NOT_JSON",
    " ": "NOT_JSON",
    "{": "NOT_JSON",
    '{"id": 1} x': "NOT_JSON",
    '{"id": 1}}': "NOT_JSON",
    '{"id": 1}} x': "NOT_JSON",
    '{"id": 1}{"id": 2}': "NOT_JSON",
    '{"id": 1}, "x": 2': "NOT_JSON",
    '{"id": 1}, "x": {}': "NOT_JSON",
    '{"id": 1}, "x": null': "NOT_JSON",
    '{"id": 1}}, "x": {"y": {}': "NOT_JSON",
    '{"id": 1,}': "NOT_JSON",
    '{"id": 01}': "NOT_JSON",
    '{"x": +1}': "NOT_JSON",
    '{"x": NaN}': "NOT_JSON",
    '{"x": "\t"}': "NOT_JSON",
    '{"x": "\\x"}': "NOT_JSON",
    '{"id": 1 /* one */}': "NOT_JSON",
    "{'id': 1}": "NOT_JSON",
    "{id: 1}": "NOT_JSON",
    "\ufeff{}": "NOT_JSON",
    "{}\0": "NOT_JSON",
    '{"x": ' + "[" * 10_000 + "]" * 10_000 + "}": "NOT_JSON",
    '{"price": "1\\u0065999999999", "x": tru}': "NOT_JSON",
    "null": "NOT_AN_OBJECT",
    "[]": "NOT_AN_OBJECT",
    '[{"id": 1}]': "NOT_AN_OBJECT",
    '"{}"': "NOT_AN_OBJECT",
    "1": "NOT_AN_OBJECT",
    '{"id": "1"}': "DOES_NOT_FIT",
    '{"id": 1.5}': "DOES_NOT_FIT",
    '{"id": 9223372036854775808}': "DOES_NOT_FIT",
    '{"small": 32768}': "DOES_NOT_FIT",
    '{"id": true}': "DOES_NOT_FIT",
    '{"paid": 1}': "DOES_NOT_FIT",
    '{"amount": "NaN"}': "DOES_NOT_FIT",
    '{"amount": ""}': "DOES_NOT_FIT",
    '{"price": 123456789.00}': "DOES_NOT_FIT",
    '{"tags": "x"}': "DOES_NOT_FIT",
    '{"address": [{"city": "Berlin"}]}': "DOES_NOT_FIT",
    '{"counts": {"a": "1"}}': "DOES_NOT_FIT",
    '{"name": "\\ud800"}': "DOES_NOT_FIT",
    '{"name": "\\uDe00\\ud83d"}': "DOES_NOT_FIT",
    '{"name": "\\\\\\ud800"}': "DOES_NOT_FIT",
    '{"at": 1767225600}': "DOES_NOT_FIT",
    '{"at": "12:30:00"}': "DOES_NOT_FIT",
    '{"at": "2026"}': "DOES_NOT_FIT",
    '{"at": "2026-01-01T00:00:00Z\\n"}': "DOES_NOT_FIT",
    '{"at": "2026-01-01T00:00:00 Europe/Berlin"}': "DOES_NOT_FIT",
    '{"local": "2026-01-01T00:00:00Z"}': "DOES_NOT_FIT",
    '{"days": ["2026-01-01T00:00:00"]}': "DOES_NOT_FIT",
    '{"days": ["20000"]}': "DOES_NOT_FIT",
    '{"at": "2026-02-30T00:00:00Z"}': "OUT_OF_RANGE",
    '{"at": "9999-12-31T23:59:59-00:01"}': "OUT_OF_RANGE",
    '{"at": "0001-01-01T00:00:00+00:01"}': "OUT_OF_RANGE",
    '{"address": {"since": "0000-01-01"}}': "OUT_OF_RANGE",
    '{"days": ["99999-01-01"]}': "OUT_OF_RANGE",
    '{"amount": 1e400}': "OUT_OF_RANGE",
    '{"ratio": -1e39}': "OUT_OF_RANGE",
    '{"sizes": [1, 1e400]}': "OUT_OF_RANGE",
    '{"price": 1e1000000000}': "DOES_NOT_FIT",
    '{"price": "1e1000000000"}': "DOES_NOT_FIT",
    '{"price": "1\\u00659,9,9,9,9"}': "DOES_NOT_FIT",
    '{"price": "1e٩٩٩٩٩٩٩٩٩"}': "DOES_NOT_FIT",
    '{"counts": {"a": 1, "a": 2}}': "DUPLICATE_FIELD",
    '{"ID": 1}': "OTHER_CASE",
    '{"id": 1, "NAME": null}': "OTHER_CASE",
}


def test_an_object_that_fits_its_schema_is_read_and_every_other_text_is_dead_with_its_reason(
    spark: SparkSession,
) -> None:
    *found, null = outcomes(spark, [*GOOD, *DEAD_VALUES, None], EVERY_TYPE)

    assert null is None
    good = [filled(each) if isinstance(each, Row) else each for each in found[: len(GOOD)]]
    assert dict(zip(GOOD, good, strict=True)) == GOOD
    assert dict(zip(DEAD_VALUES, found[len(GOOD) :], strict=True)) == DEAD_VALUES


def test_a_field_that_is_required_makes_a_dead_letter_where_it_is_missing_or_null(spark: SparkSession) -> None:
    values = ['{"id": 1, "address": {"city": "Bern"}}', '{"id": 1, "address": null}', '{"address": {}}', "{", None]
    needed = Decoding(replace(ORDER, required=("id", "address.city")))
    missing = "expected fields that are required, found missing or null "
    for plainly in (False, True):
        every = decoded(records(spark, values), needed, plainly=plainly)
        found = by_offset(every.selectExpr("kafka_offset", f"{DEAD}.class as dead", f"{DEAD}.text as text"))
        assert [(row["dead"], row["text"]) for row in found[:3]] == [
            (None, None),
            ("MISSING_FIELD", f"{missing}address.city"),
            ("MISSING_FIELD", f"{missing}id, address.city"),
        ]
        assert [row["dead"] for row in found[3:]] == ["NOT_JSON", None]


@pytest.mark.parametrize("form", [FieldDecoding(), ORDER])
def test_a_record_larger_than_its_feed_wants_is_dead_with_all_its_bytes(
    spark: SparkSession, form: FieldDecoding
) -> None:
    small, large = '{"id": 12}', '{"id": 123}'
    values = [small, large, small, small, None, None]
    headers: list[Headers | None] = [None, None, [("a", b"")], [("", None)], [("a", None), ("b", b"123456789")], None]
    limited = Decoding(form, max_record_bytes=11)

    for with_reasons in (False, True):
        every = decoded(records(spark, values, headers=headers), limited, with_reasons=with_reasons)
        found = by_offset(every)
        expected = ["", "TOO_LARGE", "TOO_LARGE", "", "TOO_LARGE", ""] if with_reasons else ["", *"  ", "", " ", ""]
        assert [each[DEAD]["class"] or " " if each[DEAD] else "" for each in found] == expected
        assert [each["kafka_raw_value"] and each["kafka_raw_value"].decode() for each in found] == values
        assert {bytes(each["kafka_raw_key"]) for each in found} == {b"k"}
        assert every.columns[:5] == ["kafka_offset", "key", "value", "kafka_headers", "kafka_topic_id"]
    said = "expected at most 11 bytes of key, value and headers, found "
    assert [each[DEAD]["text"] for each in found if each[DEAD]] == [f"{said}{size}" for size in (12, 12, 12)]


def test_times_are_read_with_their_zone_and_as_utc_without_one(spark: SparkSession) -> None:
    texts = ["2026-01-01T12:00:00Z", "2026-01-01 12:00", "2026-01-01T14:00+02:00", "2026-01-01T06:30:00.0-05:30"]
    rows = decoded(records(spark, [f'{{"at": "{text}"}}' for text in texts]), Decoding(ORDER))

    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).timestamp()
    assert [row[0] for row in rows.selectExpr("cast(value.at as double)").collect()] == [noon] * 4


def test_where_unknown_fields_are_refused_each_name_is_one_of_the_schema_and_there_once(spark: SparkSession) -> None:
    found = outcomes(spark, ['{"id": 1}', '{"id": 1, "x": 2}', '{"id": 1, "id": 1}', '{"ID": 1}', "{}"], STRICT)

    assert [each if isinstance(each, str) else "good" for each in found] == [
        "good",
        "UNKNOWN_FIELD",
        "DUPLICATE_FIELD",
        "OTHER_CASE",
        "good",
    ]


def test_unknown_fields_are_kept_by_name_beside_the_schemas_own(spark: SparkSession) -> None:
    keeping = FieldDecoding(Format.JSON, "id bigint, name string", UnknownFields.KEEP)
    unknown = '"x": "5", "y": 5.10, "z": {"a": [1, null]}, "n": null, "e": 1e9999999999, "\u00e9 `\'": true'
    values = [
        '{"id": 1}',
        f'{{"id": 1, {unknown}}}',
        "{}",
        None,
        '{"x": 1, "x": 2}',
        '{"ID": 1}',
        '{"id": "x", "y": 1}',
    ]

    bare, full, empty, tombstone, *dead = outcomes(spark, values, keeping)

    assert (bare["unknown_fields"], empty["unknown_fields"], tombstone) == (None, None, None)
    assert (full["id"], full["name"]) == (1, None)
    kept = full["unknown_fields"]
    assert kept == {
        "x": "5",
        "y": "5.10",
        "e": "1e9999999999",
        "z": '{"a": [1, null]}',
        "n": None,
        "é `'": "true",
    }
    assert dead == ["DUPLICATE_FIELD", "OTHER_CASE", "DOES_NOT_FIT"]
    flat = decoded(records(spark, values[:2]), Decoding(keeping, columns=Columns.FLATTEN))
    assert flat.columns[2:5] == ["id", "name", "unknown_fields"]


def test_any_json_value_is_kept_as_the_text_that_it_is(spark: SparkSession) -> None:
    good = ["null", " 1 ", '"x"', '[1, {"a": 1.10}]', "{}", '{"a": 1e400}', '"\\ud800"', "-0.0"]
    dead = ["", "x", "1 2", "1,2", "1], [2", '1}, "x": {"y": 2', "'x'", "[1,]", "NaN", "{}}", '1, "x": 2', "01"]

    assert outcomes(spark, [*good, *dead], ANY_JSON) == [*good, *["NOT_JSON"] * len(dead)]


def test_text_is_kept_as_it_is_and_other_bytes_are_dead_in_every_format(spark: SparkSession) -> None:
    broken = [b"\xff", b"a\xc3", b'{"name": "\xed\xa0\x80"}', b"\x00\x00\x00\x00\x01"]

    assert outcomes(spark, ["", "x\0é😀", *broken[:3]], TEXT) == ["", "x\0é😀", *["INVALID_UTF8"] * 3]
    assert outcomes(spark, broken, ORDER) == [*["INVALID_UTF8"] * 3, "NOT_JSON"]
    assert outcomes(spark, broken, ANY_JSON) == [*["INVALID_UTF8"] * 3, "NOT_JSON"]


@pytest.mark.parametrize("decoding", [ORDER, STRICT, ANY_JSON, TEXT])
def test_a_null_is_good_and_stays_null(spark: SparkSession, decoding: FieldDecoding) -> None:
    [row] = decoded(records(spark, [None], key=None), Decoding(decoding, decoding)).collect()

    assert (row["key"], row["value"], row[DEAD]) == (None, None, None)


def test_columns_keep_their_places_and_flattened_ones_take_the_place_of_the_value(spark: SparkSession) -> None:
    value = FieldDecoding(Format.JSON, "`a b` int, value string, `back``tick` struct<x: date>")
    read = records(spark, ['{"a b": 1, "value": "v", "back`tick": {"x": "2026-01-01"}}', None], b'"k"')
    nested = decoded(read, Decoding(value, ANY_JSON))
    flat = decoded(read, Decoding(value, ANY_JSON, Columns.FLATTEN))

    behind = ["kafka_dead", "kafka_raw_key", "kafka_raw_value"]
    others = ["kafka_headers", "kafka_topic_id"]
    assert nested.columns == ["kafka_offset", "key", "value", *others, *behind]
    assert flat.columns == ["kafka_offset", "key", "a b", "value", "back`tick", *others, *behind]
    first, second = flat.drop(*behind).collect()
    assert tuple(first) == (0, '"k"', 1, "v", Row(dt.date(2026, 1, 1)), None, "t")
    assert tuple(second) == (1, '"k"', None, None, None, None, "t")


def test_a_dead_record_keeps_its_bytes_and_says_whether_key_or_value_is_to_blame(spark: SparkSession) -> None:
    dead = decoded(records(spark, ["{}", "x"], b"\xff"), Decoding(ORDER, TEXT)).where(f"{DEAD} is not null")

    rows = dead.select("kafka_offset", f"{DEAD}.part", f"{DEAD}.class", "kafka_raw_key", "kafka_raw_value").collect()
    assert [tuple(row) for row in rows] == [
        (0, "key", "INVALID_UTF8", b"\xff", b"{}"),
        (1, "key", "INVALID_UTF8", b"\xff", b"x"),
    ]


REASONS = {
    '{"id": "secret", "paid": "secret"}': (
        "expected values that fit the schema, found a text for id (bigint), a text for paid (boolean)"
    ),
    '{"at": "secret"}': (
        "expected values that fit the schema, found another form for at (timestamp); days are written 2026-01-31, "
        "times 2026-01-31T12:00:00.123456+02:00, also without seconds or fraction, with Z, +0200, +02 or (UTC) nothing "
        "at their end"
    ),
    '{"address": {"city": ["secret"]}, "id": 1e99}': (
        "expected values that fit the schema, found a number too large for id (bigint)"
    ),
    '["secret"]': "expected an object, found an array",
    '{"ID": "secret"}': "expected names as in the schema, found in other upper and lower case ID",
}


def test_the_reason_names_fields_and_no_values(spark: SparkSession) -> None:
    rows = decoded(records(spark, list(REASONS)), Decoding(ORDER)).collect()

    assert {value: row[DEAD]["text"] for value, row in zip(REASONS, rows, strict=True)} == REASONS


def test_a_reason_is_short_and_printable_whatever_the_names_in_a_record_are(spark: SparkSession) -> None:
    names = '"x\\u0000\\n", ' + f'"{"y" * 1000}"'
    [row] = decoded(records(spark, ["{" + names.replace(",", ": 1,") + ": 1}"]), Decoding(STRICT)).collect()

    assert row[DEAD]["class"] == "UNKNOWN_FIELD"
    assert "found x??" in row[DEAD]["text"]
    assert len(row[DEAD]["text"]) == 300


def test_no_text_is_too_large_or_too_deep_for_spark(spark: SparkSession) -> None:
    large = '{"name": "' + "x" * 20_000_001 + '"}'
    many = '{"tags": [' + ",".join(['"1e99999999', *['"'] * 10]) * 1000 + '"]}'
    quotes, commas, escapes = '"' * 200_000, "," * 500_000, '{"name": "' + "\\u0065" * 100_000 + '", "price": 1}'
    digits = '{"price": ' + "1" * 100_000 + "}"
    deep = ["[" * 10_000, '{"address":' * 10_000, '{"name":' + "[" * 900 + "]" * 900 + "}"]
    found = outcomes(spark, [large, many, quotes, commas, escapes, digits, *deep], EVERY_TYPE)

    assert [each if isinstance(each, str) else len(each["name"]) for each in found] == [
        *(20_000_001, "NOT_JSON", "NOT_JSON", "NOT_JSON", 100_000, "DOES_NOT_FIT", "NOT_JSON", "NOT_JSON", 1800)
    ]


def test_a_schema_may_have_hundreds_of_fields_of_any_kind(spark: SparkSession) -> None:
    kinds = ("bigint", "double", "timestamp", "decimal(10,2)", "array<date>", "string")
    ddl = ", ".join(f"f{number} {kinds[number % len(kinds)]}" for number in range(300))
    values = ['{"f0": 7, "f296": "2026-01-01T00:00:00Z"}', '{"F0": 7}', '{"f1": 1e999}', '{"f4": ["x"]}']
    strict = FieldDecoding(Format.JSON, ddl, UnknownFields.REFUSE)
    every = decoded(records(spark, values), Decoding(strict, columns=Columns.FLATTEN))
    rows = every.selectExpr("f0", f"{DEAD}.class").collect()

    assert rows[0]["f0"] == 7
    assert [row["class"] for row in rows] == [None, "OTHER_CASE", "OUT_OF_RANGE", "DOES_NOT_FIT"]


def test_each_value_is_parsed_once_and_not_again_to_select_the_good_ones(spark: SparkSession) -> None:
    every = decoded(records(spark, ["{}"]), Decoding(EVERY_TYPE, TEXT), with_reasons=False)
    good = every.where(f"{DEAD} is null").drop(*every.columns[-3:])
    plan = good._jdf.queryExecution().executedPlan().toString().splitlines()

    parsing = [line for line in plan if "from_json(" in line]
    assert [line.count("from_json(") for line in parsing] == [1], parsing
    converting = [line for line in plan if "as timestamp" in line]
    assert [line.count("try_cast(") for line in converting] == [converting[0].count("try_cast(")]


@pytest.mark.parametrize(
    "ddl",
    [
        nearly_json.SCHEMA,
        SCHEMA,
        "id BIGINT, `a b` Int, `b``c` array < string >, c dec(5), d numeric, e decimal(38, 38), f short, h real",
        "array array<array<int>>, map map<STRING, map<string, double>>, struct struct<string string, date: date>",
        "timestamp timestamp, t timestamp_ltz, `ä.'\"` struct<`x``:`: int>",
    ],
)
def test_spark_reads_a_schema_as_this_project_does(spark: SparkSession, ddl: str) -> None:
    theirs = spark._jvm.org.apache.spark.sql.types.DataType.fromDDL(ddl)

    assert spark._jvm.org.apache.spark.sql.types.DataType.fromDDL(read_schema(ddl).ddl).json() == theirs.json()


@pytest.fixture
def _in_utc(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


ODD = (
    *('{"name": 1.10}', '{"name": -0}', '{"name": 0}', '{"name": "0"}', '{"name": "1.10"}', '{"name": 1.5e3}'),
    *(
        '{"name": 1e999}',
        '{"name": {"a" : 1}}',
        '{"name": "{\\"a\\" : 1}"}',
        '{"\\u006eame": 1.10}',
        '{"name" \n:\t1.0}',
    ),
    *(
        '{"name": true}',
        '{"tags": [1.10, "1.10"]}',
        '{"tags": ["1.10"]}',
        '{"tags": [[ 1 ]]}',
        '{"notes": {"x": 1.10}}',
    ),
    *(
        '{"notes": {"x": "1.10", "y": "[ 1 ]"}}',
        '{"address": {"city": 1.10}}',
        '{"address": {"city": "1.1"}, "ratio": 1.5}',
    ),
    *(
        '{"price": "5,5"}',
        '{"price": "1,000.5"}',
        '{"prices": {"a": "1,5"}}',
        '{"price": "1\\u002c5"}',
        '{"price": "\u0665"}',
    ),
    *('{"price": "12.5"}', '{"price": "1e2"}', '{"name": "1,5", "price": 1}', '{"price": 1e0002}', '{"price": "1E2"}'),
    *('{"at": "2024-01-31T12:00:00.000+0000"}', '{"at": "2024-01-31T12:00:00+02"}', '{"at": "2024-01-31t12:00:00z"}'),
    *('{"at": "9999-12-31T23:59:59.999999999Z"}', '{"at": "0001-01-01T00:00:00Z"}', '{"at": "0001-01-01T00:00:00+01"}'),
    *('{"id": 1.0}', '{"id": 100E-2}', '{"n": 2147483648.0}', '{"amount": -0}', '{"unknown": -0, "name": "0"}'),
    *(
        '{"unknown": 1.10}',
        '{"unknown": {"a" : [1.0, "x"]}}',
        '{"unknown": "1.10"}',
        '{"unknown": "{ }", "other": [ ]}',
    ),
    *(
        '{"unknown": [1, 2.50], "name": "1.5"}',
        '{"x": {"id": 1, "id": 2}}',
        '{"unknown": "\\ud800"}',
        '{"name": {"x": "\\ud800"}}',
    ),
)
"""What Spark reads as another value than that in the source, or as none, and what looks like it."""


@pytest.mark.parametrize("unknown_fields", [UnknownFields.IGNORE, UnknownFields.KEEP])
def test_what_spark_reads_with_certainty_has_exactly_the_value_that_the_strict_reader_gives_it(
    spark: SparkSession, unknown_fields: UnknownFields
) -> None:
    ddl = nearly_json.SCHEMA + ", notes map<string,string>"
    schema, writer = read_schema(ddl), nearly_json.Writer(1)
    texts = [*(each.encode() for each in (*ODD, *GOOD, *DEAD_VALUES)), *(writer.record(schema) for _ in range(1_500))]
    decoding = Decoding(FieldDecoding(Format.JSON, ddl, unknown_fields))

    certain, strict = (
        [
            (row["dead"], row["value"] and json.loads(row["value"], parse_float=str, parse_int=str))
            for row in by_offset(
                decoded(records(spark, texts), decoding, with_reasons=strictly).selectExpr(
                    "kafka_offset", f"{DEAD}.class dead", f"if({DEAD} is null, to_json(value), null) value"
                )
            )
        ]
        for strictly in (False, True)
    )

    read = [(text, *both) for text, *both in zip(texts, certain, strict, strict=True) if both[0][0] is None]
    assert [each for each in read if each[1] != each[2]] == []
    good = sum(dead is None for dead, _ in strict)
    verdicts = Counter(dead for dead, _ in strict)
    assert len(read) > good * 0.4, "much of what is good is read fast, though half of all texts look like numbers"
    assert min(verdicts[each] for each in ("NOT_JSON", "DOES_NOT_FIT", "OUT_OF_RANGE", "OTHER_CASE")) > 5, verdicts


@pytest.mark.usefixtures("_in_utc")
@pytest.mark.parametrize("unknown_fields", [UnknownFields.IGNORE, UnknownFields.KEEP])
def test_what_is_read_plainly_is_what_the_strict_reader_reads_and_all_else_is_left_to_others(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, unknown_fields: UnknownFields
) -> None:
    monkeypatch.setattr(plain_objects, "BATCH_RECORDS", "1")
    monkeypatch.setattr(object_batches, "TRIED", 1_000_000)
    monkeypatch.setattr(object_batches, "TOGETHER_BYTES", 0)
    schema = read_schema(PLAIN_SCHEMA)
    assert can_be_plain(schema)
    writer = nearly_json.Writer(3)
    texts = [
        *GOOD,
        *DEAD_VALUES,
        *UNUSUAL,
        *(writer.record(schema) for _ in range(500)),
        None,
        b"\xff",
        b"\xfe\xff\0{\0}",
    ]
    decoding = Decoding(FieldDecoding(Format.JSON, PLAIN_SCHEMA, unknown_fields))
    plainly, strictly = (
        [
            (row["dead"], row["value"] and json.loads(row["value"], parse_float=str, parse_int=str))
            for row in by_offset(
                decoded(records(spark, texts), decoding, plainly=not strictly, with_reasons=strictly).selectExpr(
                    "kafka_offset", f"{DEAD} is not null dead", f"if({DEAD} is null, to_json(value), null) value"
                )
            )
        ]
        for strictly in (False, True)
    )

    certain = [each for each in zip(texts, plainly, strictly, strict=True) if not each[1][0]]
    assert [each for each in certain if each[1] != each[2]] == []
    good = sum(not dead for dead, _ in strictly)
    may_have_unknown = unknown_fields is UnknownFields.IGNORE
    plain = PlainSchema("value", schema, may_have_unknown=may_have_unknown)
    read = with_plain_objects(records(spark, texts), {"plain": plain}, {}, with_bytes=True).where("plain.fits").count()
    assert good * 0.65 < read < good  # that is: most, but not those that are only unusual


def test_an_object_that_is_read_plainly_is_dead_where_it_is_to_spark(spark: SparkSession) -> None:
    deepest = 997
    deep = {f'{{"id": 1, "x": {"[" * levels}{"]" * levels}}}': levels > deepest for levels in range(995, 1_001)}
    cases = {'{"id": null, "ID": 5}': True, '{"id": null, "x": 5}': False, '{"id": 1, "ID": 5}': False} | deep
    decoding = Decoding(FieldDecoding(Format.JSON, "id int"))

    for plainly in (True, False):
        every = decoded(records(spark, list(cases)), decoding, plainly=plainly, with_reasons=False)
        found = [row["is_dead"] for row in by_offset(every.selectExpr("kafka_offset", f"{DEAD} is not null is_dead"))]
        assert dict(zip(cases, found, strict=True)) == cases


def test_an_object_with_a_map_is_read_by_spark() -> None:
    assert can_be_plain(read_schema(f"a array<struct<b: decimal(10,2)>>, {PLAIN_SCHEMA}"))
    for other in ("map<string,int>", "array<map<string,int>>", "struct<a: map<string,int>>"):
        assert not can_be_plain(read_schema(f"a int, b {other}"))


def test_any_json_that_is_certain_is_one_value_to_the_strict_reader(spark: SparkSession) -> None:
    schema, writer, reader = read_schema(nearly_json.SCHEMA), nearly_json.Writer(2), JsonReader(None, "ignore")
    texts = [writer.record(schema) for _ in range(2_000)]
    every = decoded(records(spark, texts), Decoding(ANY_JSON), with_reasons=False)

    good, dead = 0, 0
    for row in every.selectExpr("kafka_offset i", f"{DEAD} is null good", "value").collect():
        if row["good"]:
            assert row["value"] == reader.read(texts[row["i"]])
            good += 1
        else:
            dead += 1
    assert min(good, dead) > 100


# ── Staged, good and dead ─────────────────────────────────────────────────────────────────────────────────────────────

NO_NEEDS = DataNeeds()
TIMES = "kafka_timestamp timestamp, kafka_headers array<struct<key: string, value: binary>>, kafka_timestamp_ms bigint"
POSITION = "kafka_topic string, kafka_partition int, kafka_offset bigint"
FULL, BROKEN, WITH_A_HOLE = (
    OffsetRange(TopicPartition("orders", number), 0, end) for number, end in enumerate((2, 3, 4))
)
VALUES = {0: ["1", "2"], 1: ["1", "x", "y"], 2: ["1", "2", "3"]}
"""Of each partition: all is JSON, two values are not, and an offset without a record."""


class Topic:
    """What a topic holds, for a job that reads it; ``asked`` are the ranges of each read.

    ``apart`` is the time between two records of a partition.
    """

    def __init__(
        self, spark: SparkSession, *contents: Mapping[int, Sequence[str | bytes]], apart: dt.timedelta = dt.timedelta(0)
    ) -> None:
        self._spark, self._apart = spark, apart
        self._contents = list(contents)
        self.asked: list[list[OffsetRange]] = []

    def read(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        contents = self._contents[min(len(self.asked), len(self._contents) - 1)]
        self.asked.append(list(ranges))
        rows = [
            (
                "orders",
                each.partition,
                offset,
                dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + offset * self._apart,
                None,
                None,
                b"k",
                value if isinstance(value, bytes) else value.encode(),
                "id",
            )
            for each in ranges
            for offset, value in enumerate(contents[each.partition])
        ]
        columns = f"{POSITION}, {TIMES}, key binary, value binary, kafka_topic_id string"
        in_partitions = self._spark.createDataFrame(rows, columns).repartition("kafka_partition")
        return in_partitions.sortWithinPartitions("kafka_partition", "kafka_offset")


def stage(topic: Topic, directory: Path) -> int:
    """Stage all ranges of the topic, as the job does; return how many records were read."""
    return stage_as(topic, directory, Decoding(ANY_JSON)).rows_read


def document_of(directory: Path, decoding: Decoding, needs: DataNeeds = NO_NEEDS) -> AttemptDocument:
    """Return an attempt at all ranges of the topic."""
    return AttemptDocument(
        BatchPlan(
            batch_id=UUID(int=1),
            kind=BatchKind.LIVE,
            feed_id=UUID(int=2),
            feed_name="orders",
            cluster_id="cluster",
            topic_ids={"orders": None},
            ranges=(FULL, BROKEN, WITH_A_HOLE),
            isolation=Isolation.READ_COMMITTED,
            offsets_policy=OffsetsPolicy.AUTO,
            output=OutputLocation.local("parquet", directory / "orders"),
            planned_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        ),
        7,
        decoding,
        needs,
    )


def stage_as(
    topic: Topic, directory: Path, decoding: Decoding, needs: DataNeeds = NO_NEEDS, data: Place | None = None
) -> StagedRecords:
    """Stage all ranges of the topic, as the job does; ``data`` is the place of the rows."""
    document = document_of(directory, decoding, needs)
    others = (directory / name for name in ("dead-letters", "before", "after"))
    places = Places(data or directory / "data", *others)
    storage = Storage(at_place, lambda place: remove_from_disk(on_disk(place)))
    return stage_decoded(topic.read, document.plan.ranges, document, places, storage)


def on_disk(place: Place) -> Path:
    """Return where on the disk a place is, also one that stands for a store's."""
    return place if isinstance(place, Path) else Path(f"/{place.key}")


def at_place(place: Place) -> Opened:
    """Open a place; one that stands for a store's by the library for stores, which makes folders by itself."""
    return place if isinstance(place, Path) else UPath(on_disk(place).as_uri(), auto_mkdir=True)


def values_below(directory: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return columns of what was written, by position."""
    by_position = [("kafka_partition", "ascending"), ("kafka_offset", "ascending")]
    table = pyarrow.parquet.read_table(directory, partitioning=None).sort_by(by_position)
    return [tuple(row.values()) for row in table.select(["kafka_partition", "kafka_offset", *columns]).to_pylist()]


def test_dead_letters_are_written_by_a_second_read_of_the_partitions_that_have_offsets_without_a_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = Topic(spark, VALUES)

    assert stage(topic, tmp_path) == 8

    assert topic.asked == [[FULL, BROKEN, WITH_A_HOLE], [BROKEN, WITH_A_HOLE]]
    good = [(0, 0, "1"), (0, 1, "2"), (1, 0, "1"), (2, 0, "1"), (2, 1, "2"), (2, 2, "3")]
    assert values_below(tmp_path / "data", "value") == good
    assert values_below(tmp_path / "dead-letters", "value", "error_class", "attempt") == [
        (1, 1, b"x", "NOT_JSON", 7),
        (1, 2, b"y", "NOT_JSON", 7),
    ]
    assert values_below(tmp_path / "dead-letters", "schema_id") == [(1, 1, None), (1, 2, None)]
    schema = pyarrow.parquet.read_table(tmp_path / "data").schema
    assert not [name for name in schema.names if "dead" in name or "raw" in name]


def test_a_dead_letter_has_the_schema_id_of_the_bytes_that_are_to_blame(spark: SparkSession, tmp_path: Path) -> None:
    registry = replace(of_registry(NEW, WriterSchema(2, json.dumps(NEW))), unknown_ids=(77,))
    values = ["\0\0\0\0\x02!", "\0\0\0\0M", "\x01\0\0\0\2", "\0\0"]

    stage_as(Topic(spark, {0: [], 1: values, 2: []}), tmp_path, Decoding(registry))

    assert [row[-1] for row in values_below(tmp_path / "dead-letters", "schema_id")] == [2, 77, None, None]


def raising(*_: object) -> None:
    raise OSError("disk full")


def dying(*_: object) -> None:
    os._exit(9)


UNCERTAIN = {
    0: ['{"id": 1, "name": "x"}', '{"id": 2}'],
    1: ['{"id": 3.0}', '{"id": 4.5}', '{"id": 5, "name": 1.10}'],
    2: ['{"id": 0}', '{"id": 0.0}', '{"id": 8}', '{"id": 0e0, "name": "filtered"}'],
}
"""What Spark does not read with certainty is a row, is filtered, and does not fit."""


@pytest.mark.parametrize(
    ("terms", "few", "said"),
    [
        ((), 1_000_000, ""),
        ((), 0, ""),
        (("kafka_topic", "hour(kafka_timestamp)"), 0, "Python's workers could not read the objects of this batch"),
    ],
    ids=["whole", "by-workers", "divided-without-workers"],
)
def test_what_is_not_certain_is_decided_by_the_strict_reader_and_counted_once(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    terms: Sequence[str],
    few: int,
    said: str,
) -> None:
    monkeypatch.setattr(stage_decoded_module, "FEW_OBJECTS", few)
    if said:
        monkeypatch.setattr(object_batches, "read_beside", raising)
    shape = Shape(
        where="value.id > 0",
        select=(SelectedColumn("id", "bigint", "value.id"), SelectedColumn("name", "string", "value.name")),
    )
    topic = Topic(spark, UNCERTAIN)

    counted = stage_as(
        topic,
        tmp_path,
        Decoding(FieldDecoding(Format.JSON, "id bigint, name string"), shape=shape),
        DataNeeds(partition_by=terms_of(terms)),
    )

    assert said in capfd.readouterr().err
    assert topic.asked == [[FULL, BROKEN, WITH_A_HOLE], [BROKEN, WITH_A_HOLE]]
    assert counted == StagedRecords(9, {TopicPartition("orders", 2): 3}, 1, in_any_order=True, found=0b11)
    good = [(0, 0, 1, "x"), (0, 1, 2, None), (1, 0, 3, None), (1, 2, 5, "1.10"), (2, 2, 8, None)]
    assert values_below(tmp_path / "data", "id", "name") == good
    assert values_below(tmp_path / "dead-letters", "value", "error") == [
        (1, 1, b'{"id": 4.5}', "expected values that fit the schema, found a fraction for id (bigint)")
    ]
    places = {path.parent.relative_to(tmp_path / "data").as_posix() for path in tmp_path.glob("data/**/*.parquet")}
    assert len(places) == 1
    assert "added" not in places


def test_what_workers_are_certain_of_beside_others_alone_is_a_row_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Workers read all three ranges, and the second pass, of two ranges, is Spark's alone: of a text with a point beside
    # an escaped character it is not certain.
    monkeypatch.setattr(stage_decoded_module, "FEW_OBJECTS", 7)
    monkeypatch.setattr(stage_objects, "BATCH_RECORDS", 1)
    escaped = '{"name": "1.5", "city": "K\\u00f6ln"}'
    topic = Topic(spark, {0: ['{"name": "x"}'] * 2, 1: [escaped, "no JSON"], 2: [escaped] * 3})

    counted = stage_as(topic, tmp_path, Decoding(FieldDecoding(Format.JSON, "name string, city string")))

    assert (counted.rows_read, counted.dead) == (7, 1)
    assert "Spark reads all of them" in capfd.readouterr().err
    assert values_below(tmp_path / "data")[2:] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert values_below(tmp_path / "dead-letters", "value") == [(1, 1, b"no JSON")]


def test_records_that_can_all_be_decoded_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic(spark, VALUES | {1: ["1", "2", "3"]})

    assert stage(topic, tmp_path) == 8

    assert len(topic.asked) == 1
    assert not (tmp_path / "dead-letters").exists()


OBJECT = FieldDecoding(Format.JSON, "id bigint, name string, inner struct<x: double>, gone struct<x: double>")
OBJECTS = {
    0: ['{"id": 1, "name": "x"}', '{"id": 2, "inner": {"x": 0.5}}'],
    1: ["{}", '{"id": "x"}', f'{{"id": 3, "name": "{"é" * 10_000}"}}'],
    2: ['{"id": 4}', '{"id": 5, "unknown": 6}', '{"id": 7}'],
}
"""One that does not fit, one that is large, and one with a field that the schema does not have."""


def staged_objects(
    topic: Topic, directory: Path, *, columns: Columns, key: FieldDecoding, needs: DataNeeds
) -> tuple[Any, ...]:
    """Stage objects; return what was counted, rows and dead letters, and what each file's columns are.

    What has partitions is staged at a place that stands for a store's.
    """
    decoding = Decoding(OBJECT, key, columns)
    data = RemotePlace(f"store://bucket{directory}/data") if needs.partition_by else None
    counted, plan = stage_as(topic, directory, decoding, needs, data), document_of(directory, decoding).plan
    written = {name: tuple(staged_files(directory / name)) for name in ("data", "dead-letters")}
    receipt = Receipt(
        batch_id=UUID(int=1),
        attempt=7,
        plan_fingerprint=plan.fingerprint,
        document_sha256="",
        rows_read=counted.rows_read,
        files=written["data"],
        written_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        written_by="spark",
        dead_letters=written["dead-letters"],
        in_any_order=counted.in_any_order,
    )
    assert receipt.contradictions(plan) == []
    names = ["key", *(OBJECT_NAMES if columns is Columns.FLATTEN else ["value"])]
    rows = values_below(directory / "data", "kafka_timestamp", "kafka_headers", *names)
    letters = values_below(directory / "dead-letters", "value", "error_class", "kafka_timestamp", "kafka_headers")
    files = sorted((directory / "data").rglob("*.parquet"))
    layouts = {str(pyarrow.parquet.ParquetFile(file).schema).split("\n", 2)[2] for file in files}
    folders = {file.parent.name for file in files}
    return (counted.rows_read, counted.dead), rows, letters, layouts, counted.never_found, folders


OBJECT_NAMES = ["id", "name", "inner", "gone"]
HOURS = DataNeeds(partition_by=terms_of(["hour(kafka_timestamp)", "kafka_partition"]), own_columns=True)


@pytest.mark.parametrize(
    ("columns", "key", "needs", "failure"),
    [(Columns.FLATTEN, FieldDecoding(), NO_NEEDS, raising), (Columns.NESTED, TEXT, HOURS, dying)],
    ids=["flatten", "nested-in-partitions-of-a-store"],
)
def test_what_workers_write_of_many_objects_is_what_spark_alone_writes(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    columns: Columns,
    key: FieldDecoding,
    needs: DataNeeds,
    failure: Callable[[object], None],
) -> None:
    monkeypatch.setattr(stage_decoded_module, "LEAST_RECORDS", 1)
    monkeypatch.setattr(FoundFields, "never_found", lambda fields, found, *_: fields.without_value(found))
    for module in (stage_decoded_module, stage_files):
        monkeypatch.setattr(module, "spark_path", lambda place: f"file:{on_disk(place)}")
    topic = Topic(spark, OBJECTS)
    by_spark = staged_objects(topic, tmp_path / "spark", columns=columns, key=key, needs=needs)
    assert len(by_spark[1]) == 7
    assert [letter[3] for letter in by_spark[2]] == ["DOES_NOT_FIT"]
    assert len(by_spark[3]) == 1
    assert [each.path for each in by_spark[4]] == [("gone",), ("gone", "x")]

    monkeypatch.setattr(stage_decoded_module, "FEW_OBJECTS", 0)
    monkeypatch.setattr(stage_objects, "BATCH_RECORDS", 1)
    assert staged_objects(topic, tmp_path / "workers", columns=columns, key=key, needs=needs) == by_spark
    by_workers = list((tmp_path / "workers" / "data").rglob(f"*{stage_objects.SUFFIX}"))
    assert sum(pyarrow.parquet.read_metadata(file).num_rows for file in by_workers) == 5

    monkeypatch.setattr(object_batches.ObjectFile, "close", failure)
    assert staged_objects(topic, tmp_path / "again", columns=columns, key=key, needs=needs) == by_spark
    assert "Python's workers could not write the objects of this batch" in capfd.readouterr().err
    assert list((tmp_path / "again" / "data").rglob(f"*{stage_objects.SUFFIX}")) == []


LATE = LateRows(first=dt.datetime(2026, 1, 1, 1, tzinfo=dt.UTC), before=dt.datetime(2026, 1, 1, 2, tzinfo=dt.UTC))


@pytest.mark.parametrize("few", [1_000_000, 0], ids=["by-spark", "by-workers"])
@pytest.mark.parametrize("terms", [(), ("hr: hour(kafka_timestamp)", "p: kafka_partition")], ids=["whole", "divided"])
def test_rows_of_complete_hours_are_in_files_of_their_own_whoever_writes_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, terms: Sequence[str]
) -> None:
    monkeypatch.setattr(stage_decoded_module, "FEW_OBJECTS", few)
    monkeypatch.setattr(stage_objects, "BATCH_RECORDS", 1)
    objects = {0: ['{"id": 1}'] * 2, 1: ['{"id": 1}', '{"id": "x"}', '{"id": 2}'], 2: ['{"id": 1}'] * 4}
    topic = Topic(spark, objects, apart=dt.timedelta(minutes=30))
    needs = DataNeeds(partition_by=terms_of(terms), late=LATE)

    counted = stage_as(topic, tmp_path, Decoding(FieldDecoding(Format.JSON, "id bigint")), needs)

    assert (counted.rows_read, counted.dead) == (9, 1)
    files = staged_files(data := tmp_path / "data")
    found = {late: set[tuple[Any, ...]]() for late in (True, False)}
    for file in files:
        found[file.is_late].update(values_below(data / file.name))
        assert file.name.count("/") == len(terms) + file.is_late
    assert found == {True: {(1, 2), (2, 2), (2, 3)}, False: {(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)}}
    assert bool(list(data.rglob(f"*{stage_objects.SUFFIX}"))) == (few == 0)


def test_of_few_records_only_those_that_have_none_of_the_fields_are_told(spark: SparkSession, tmp_path: Path) -> None:
    decoding = Decoding(FieldDecoding(Format.JSON, "usr string, page string"))

    others: dict[int, list[str | bytes]] = {1: [], 2: []}
    none = stage_as(Topic(spark, {0: ['{"user": "a"}'], **others}), tmp_path / "none", decoding)
    one = stage_as(Topic(spark, {0: ['{"user": "a", "page": "b"}'], **others}), tmp_path / "one", decoding)

    assert none.never_found == tuple(
        NeverFound("value", name, 1, ("user",), is_part_found=False) for name in ("usr", "page")
    )
    assert one.never_found == ()


def test_values_within_arrays_and_maps_are_found_in_whatever_element_they_are(spark: SparkSession) -> None:
    schema = (
        "items array<struct<sku: string, no: int, lines: array<struct<n: int, m: int>>>>, "
        "by map<string, struct<a: struct<b: date, c: map<string,int>>>>, gone array<struct<x: int>>"
    )
    values = [
        '{"items": [{"sku": null}, {"sku": "x", "lines": [{"n": 1}]}, {"lines": null}], "by": {}}',
        '{"items": [], "by": {"k": {}, "l": {"a": {"b": "2026-01-31"}}}}',
        '{"items": null}',
    ]
    found = FoundFields(decoding := Decoding(FieldDecoding(Format.JSON, schema)))
    every = decoded(records(spark, values), decoding, with_reasons=False)
    rows = every.selectExpr(*(f"{sql} as {name}" for name, sql in found.expressions().items())).collect()
    bits = [found.all_bits(row.asDict()) for row in rows]

    assert ["/".join(each.path).replace("\0", "") for each in found.without_value(bits[0] | bits[1])] == [
        *("items/[]/no", "gone", "gone/[]/x")
    ]
    assert bits[2] == 0


def test_dead_letters_that_kafka_compacted_before_they_were_read_again_fail_the_attempt(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(RecordsChangedError, match="2 records could not be decoded; read again they were 1"):
        stage(Topic(spark, VALUES, VALUES | {1: ["1", "x"]}), tmp_path)


# ── Avro ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

AVRO = of_file(avro_values.ORDER)
OLD = json.dumps(
    {
        "type": "record",
        "name": "com.shop.OldOrder",
        "fields": [{"name": "number", "type": "int"}, {"name": "gone", "type": "string"}],
    }
)
NEW = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "aliases": ["OldOrder"],
    "fields": [
        {"name": "id", "type": "long", "aliases": ["number"]},
        {"name": "city", "type": "string", "default": "Bern"},
    ],
}
LOOSE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": ["int", "string"]}]}
REFUND = {"type": "record", "name": "Refund", "fields": [{"name": "id", "type": "int"}]}
MAYBE: list[Any] = ["null", NEW]
EITHER: list[Any] = [NEW, {"type": "record", "name": "Payment", "fields": [{"name": "gone", "type": "double"}]}]
PRICED: dict[str, Any] = json.loads(json.dumps(NEW))
PRICED["fields"][1] = {
    "name": "city",
    "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
}


def test_a_value_in_avro_is_read_with_its_logical_types_and_unions(spark: SparkSession) -> None:
    [found, empty, words] = outcomes(
        spark, [order(), order(name=None, address=None, choice=None), order(choice="five")], AVRO
    )

    assert found.asDict(recursive=True) == {
        "id": 7,
        "name": "Zürich",
        "price": Decimal("12.34"),
        "total": Decimal("5.678"),
        "at": found["at"],
        "local": dt.datetime(2026, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001
        "day": dt.date(2026, 1, 1),
        "tags": ["a", "😀"],
        "counts": {"x": 1},
        "kind": "PAID",
        "choice": {"member0": 5, "member1": None},
        "ratio": 0.5,
        "paid": True,
        "raw": b"\xff",
        "address": {"city": "Bern"},
        "before": [],
    }
    assert (empty["name"], empty["address"], empty["choice"]) == (None, None, None)
    assert words["choice"] == Row(None, "five")


DEAD_AVRO = {
    "nothing": (b"", "NOT_AVRO"),
    "one byte less": (order()[:-1], "NOT_AVRO"),
    "one byte more": (order() + b"\0", "NOT_AVRO"),
    "two values": (order() * 2, "NOT_AVRO"),
    "a huge length": (order()[:1] + avro_values.number(1) + avro_values.number(2**31 - 1), "NOT_AVRO"),
    "text": (b"{}", "NOT_AVRO"),
    "a string of other bytes": (order(name="?").replace(b"?", b"\xff"), "INVALID_UTF8"),
    "a key of other bytes": (order(counts={"?": 1}).replace(b"?", b"\xff"), "INVALID_UTF8"),
    "an element of other bytes": (order(tags=["x", "?"]).replace(b"?", b"\xff"), "INVALID_UTF8"),
    "a day before 1": (order(day=-800_000), "OUT_OF_RANGE"),
    "a day after 9999": (order(day=2**31 - 1), "OUT_OF_RANGE"),
    "a time after 9999": (order(at=2**48), "OUT_OF_RANGE"),
    "a time that no long holds in microseconds": (order(at=2**60), "OUT_OF_RANGE"),
    "a local time before 1": (order(local=-(2**60)), "OUT_OF_RANGE"),
    "a decimal of more digits": (order(price=(1_000_000).to_bytes(3, "big")), "OUT_OF_RANGE"),
    "a decimal whose last 64 bits fit": (order(price=(2**64 + 5).to_bytes(9, "big")), "OUT_OF_RANGE"),
    "a fixed decimal of more digits": (order(total=(2**70 + 5).to_bytes(16, "big")), "OUT_OF_RANGE"),
}


def test_what_is_not_exactly_one_value_in_avro_or_holds_what_no_reader_has_is_dead(spark: SparkSession) -> None:
    found = outcomes(spark, [value for value, _ in DEAD_AVRO.values()], AVRO)

    assert dict(zip(DEAD_AVRO, found, strict=True)) == {name: dead for name, (_, dead) in DEAD_AVRO.items()}


def test_values_are_read_by_the_schema_whose_id_they_begin_with(spark: SparkSession) -> None:
    registry = of_registry(
        NEW,
        WriterSchema(1, OLD),
        WriterSchema(2, json.dumps(NEW)),
        WriterSchema(3, json.dumps(LOOSE), "expected field id as long, found string"),
        WriterSchema(2**31 - 1, None, "expected the value as com.shop.Order, found Refund"),
        *(
            avro_writer(RegisteredSchema(schema_id, json.dumps(each)), read_avro(json.dumps(NEW)))
            for schema_id, each in ((5, MAYBE), (6, EITHER), (7, PRICED))
        ),
    )
    new, loose = written(NEW, {"id": 5, "city": "Genf"}), [written(LOOSE, {"id": each}) for each in (6, "six")]
    values: dict[bytes | None, Any] = {
        wired(1, written(json.loads(OLD), {"number": 4, "gone": "x"})): Row(4, "Bern"),
        wired(2, new): Row(5, "Genf"),
        wired(3, loose[0]): Row(6, "Bern"),
        wired(3, loose[1]): "INCOMPATIBLE_SCHEMA",
        wired(2**31 - 1, written(REFUND, {"id": 1})): "INCOMPATIBLE_SCHEMA",
        wired(5, written(MAYBE, {"id": 8, "city": "Chur"})): Row(8, "Chur"),
        wired(5, written(MAYBE, None)): "INCOMPATIBLE_SCHEMA",
        wired(6, written(EITHER, {"id": 8, "city": "Chur"})): "INCOMPATIBLE_SCHEMA",
        wired(6, written(EITHER, {"gone": 8.5})): "INCOMPATIBLE_SCHEMA",
        wired(7, written(PRICED, {"id": 8, "city": Decimal("1.25")})): "INCOMPATIBLE_SCHEMA",
        wired(2, b""): "NOT_AVRO",
        wired(2, new + b"\0"): "NOT_AVRO",
        wired(2, new[:1]): "NOT_AVRO",
        wired(4, new): "UNKNOWN_SCHEMA_ID",
        wired(2**32 - 1, new): "UNKNOWN_SCHEMA_ID",
        b"\1" + wired(2, new)[1:]: "NOT_WIRE_FORMAT",
        wired(2, b"")[:4]: "NOT_WIRE_FORMAT",
        b"": "NOT_WIRE_FORMAT",
        b'{"id": 5}': "NOT_WIRE_FORMAT",
        None: None,
    }

    assert dict(zip(values, outcomes(spark, list(values), registry), strict=True)) == values


GUID, OTHER_GUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "00000000-9dad-11d1-80b4-00c04fd430c8"


def in_header(schema_id: int | str | bytes, name: str = "__value_schema_id") -> Headers:
    """Return the header in which serializers write the id of a schema."""
    if isinstance(schema_id, bytes):
        return [(name, schema_id)]
    written_id = b"\1" + UUID(schema_id).bytes if isinstance(schema_id, str) else wired(schema_id, b"")
    return [("x", b"y"), (name, written_id), ("z", None)]


def test_an_id_in_a_header_counts_before_what_a_value_begins_with_and_all_of_the_value_is_read_then(
    spark: SparkSession,
) -> None:
    registry = of_registry(NEW, WriterSchema(1, json.dumps(NEW), guid=GUID), WriterSchema(2, OLD))
    new, old = written(NEW, {"id": 0, "city": "Genf"}), written(json.loads(OLD), {"number": 4, "gone": "x"})
    looks_wired = written(NEW, {"id": 0, "city": "\0\0\0"})
    cases: list[tuple[bytes | None, Headers | None, Any]] = [
        (new, in_header(GUID), Row(0, "Genf")),
        (new, in_header(1), Row(0, "Genf")),
        (old, in_header(2), Row(4, "Bern")),
        (looks_wired, in_header(GUID), Row(0, "\0\0\0")),
        (old, [*in_header(1), *in_header(2)], Row(4, "Bern")),
        (wired(1, new), in_header(OTHER_GUID), "UNKNOWN_SCHEMA_ID"),
        (wired(1, new), in_header(1), "NOT_AVRO"),
        (wired(1, new), in_header(GUID, "__key_schema_id"), Row(0, "Genf")),
        (wired(1, new), [("__value_schema_id", None)], Row(0, "Genf")),
        (wired(1, new), [*in_header(2), ("__value_schema_id", None)], Row(0, "Genf")),
        (new, in_header(b""), "NOT_WIRE_FORMAT"),
        (new, in_header(b"\1" + UUID(GUID).bytes[:15]), "NOT_WIRE_FORMAT"),
        (new, in_header(b"\2" + bytes(16)), "NOT_WIRE_FORMAT"),
        (b"\1" + UUID(GUID).bytes + new, None, "NOT_WIRE_FORMAT"),
        (None, in_header(GUID), None),
    ]
    read = decoded(
        records(spark, [value for value, _, _ in cases], None, [each for _, each, _ in cases]), Decoding(registry)
    )
    shown = read.selectExpr("kafka_offset", f"{DEAD}.class as dead", f"if({DEAD} is null, value, null) as value")

    assert [row["dead"] or row["value"] for row in by_offset(shown)] == [wanted for _, _, wanted in cases]


def test_records_of_other_types_are_filtered_where_the_feed_skips_them_and_broken_ones_are_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    new, refund = wired(1, written(NEW, {"id": 0, "city": "Genf"})), wired(2, written(REFUND, {"id": 1}))
    part = replace(
        of_registry(
            NEW,
            WriterSchema(1, json.dumps(NEW)),
            WriterSchema(2, None, "expected the value as com.shop.Order, found Refund", is_other=True),
            WriterSchema(3, None, "expected field a, found none"),
        ),
        skips_others=True,
        unknown_ids=(9,),
    )
    topic = Topic(spark, {0: [refund, new], 1: [refund, wired(3, b""), refund[:5]], 2: [wired(9, b""), refund]})

    staged = stage_as(topic, tmp_path, Decoding(part))

    assert (staged.rows_read, staged.dead) == (7, 2)
    assert {each.partition: count for each, count in staged.filtered.items()} == {0: 1, 1: 2, 2: 1}
    assert values_below(tmp_path / "data", "value") == [(0, 1, {"id": 0, "city": "Genf"})]
    assert values_below(tmp_path / "dead-letters", "error_class") == [
        (1, 1, "INCOMPATIBLE_SCHEMA"),
        (2, 0, "UNKNOWN_SCHEMA_ID"),
    ]
    where = Decoding(part, shape=Shape(where="value.id = 1"))
    staged = stage_as(Topic(spark, {0: [refund, new], 1: [refund] * 3, 2: [new]}), tmp_path / "where", where)
    assert sum(staged.filtered.values()) == 6
    writers = (WriterSchema(1, ""), WriterSchema(2, None, "expected a schema of type JSON", is_other=True))
    json_after = FieldDecoding(Format.JSON, "id bigint", writers=writers, skips_others=True)
    beginnings = [wired(1, b"{}"), wired(2, b"{}"), wired(1, b"x"), None]
    for with_reasons in (True, False):
        rows = by_offset(decoded(records(spark, beginnings), Decoding(json_after), with_reasons=with_reasons))
        assert [(row[DEAD] is not None, row["kafka_filtered"]) for row in rows] == [
            *((False, False), (False, True), (True, False), (False, False))
        ]
    dead = replace(part, skips_others=False)
    staged = stage_as(Topic(spark, {0: [refund, new], 1: [], 2: []}), tmp_path / "dead", Decoding(dead))
    assert (staged.dead, sum(staged.filtered.values())) == (1, 0)


def test_fields_that_a_writer_has_in_another_order_keep_their_values_at_every_level(spark: SparkSession) -> None:
    def schema(*, is_turned: bool) -> dict[str, Any]:
        price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
        inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": price}, {"name": "y", "type": price}]}
        fields: list[dict[str, Any]] = [
            {"name": "a", "type": "string"},
            {"name": "b", "type": "string"},
            {"name": "many", "type": {"type": "array", "items": "In"}},
            {"name": "by_name", "type": {"type": "map", "values": "In"}},
            {"name": "one", "type": ["null", "In"]},
        ]
        if is_turned:
            fields.reverse()
            inner["fields"].reverse()
            fields[0]["type"] = ["null", inner]
        else:
            fields[2]["type"] = {"type": "array", "items": inner}
        return {"type": "record", "name": "Order", "fields": fields}

    reader, writer = (schema(is_turned=each) for each in (False, True))
    there = {"x": Decimal("1.00"), "y": Decimal("2.00")}
    value = {"a": "A", "b": "B", "many": [there], "by_name": {"k": there}, "one": there}
    registry = of_registry(reader, WriterSchema(1, json.dumps(reader)), WriterSchema(2, json.dumps(writer)))
    found = outcomes(spark, [wired(1, written(reader, value)), wired(2, written(writer, value))], registry)

    assert [each.asDict(recursive=True) for each in found] == [value, value]


def test_a_reason_names_the_id_and_what_stands_in_its_place(spark: SparkSession) -> None:
    registry = of_registry(NEW, WriterSchema(2, json.dumps(NEW)), WriterSchema(3, None, "expected a, found b"))
    known, wire = (
        "expected a schema id that the registry knows, found ",
        "expected a byte 0, a schema id in four bytes ",
    )
    wire += "and a value, or an id in header __value_schema_id, found "
    reasons: dict[bytes, str] = {
        wired(4, b""): f"{known}4",
        wired(3, b""): "expected a, found b (schema id 3)",
        b"{}abcd": f"{wire}the first byte 7b",
        b"12": f"{wire}2 bytes",
        b"\3\5" + UUID(GUID).bytes + b"x": f"{wire}a value of AWS Glue's serializers (the first byte 3)",
        bytes(8) + b"\7x": f"{wire}a schema id 0; ids of eight bytes, as Apicurio's serializers write, begin so",
        bytes(4) + b"a1" * 16 + b"x": f"{known}one as Azure's serializers write it, as 32 hexadecimal digits",
        b"": f"{known}{GUID}",
    }
    beside = [*[None] * 7, in_header(GUID)]
    rows = by_offset(decoded(records(spark, list(reasons), b"k", beside), Decoding(registry)))

    assert [row[DEAD]["text"] for row in rows] == list(reasons.values())


def test_keys_may_be_single_values_and_json_may_stand_behind_an_id(spark: SparkSession) -> None:
    value = FieldDecoding(Format.JSON, "id bigint", writers=(WriterSchema(1, ""),))
    read = records(spark, [wired(1, b'{"id": 5}'), wired(1, b'{"id": "5"}'), b'{"id": 5}', wired(2, b"{}")], b"\x0a")
    rows = decoded(read, Decoding(value, of_file("long"))).collect()

    assert [(row["key"], row[DEAD] and (row[DEAD]["part"], row[DEAD]["class"])) for row in rows] == [
        (5, None),
        (5, ("value", "DOES_NOT_FIT")),
        (5, ("value", "NOT_WIRE_FORMAT")),
        (5, ("value", "UNKNOWN_SCHEMA_ID")),
    ]
    assert rows[0]["value"] == Row(5)


def test_no_bytes_make_a_task_fail_and_none_but_whole_values_are_good(spark: SparkSession) -> None:
    bodies = avro_values.hostile(3, 6_000)
    wires = [wired(1, body) for body in bodies[:1_000]] + [body[:9] for body in bodies[:1_000]]
    registry = of_registry(avro_values.ORDER, WriterSchema(1, json.dumps(avro_values.ORDER)))
    plain, after_ids = outcomes(spark, bodies, AVRO), outcomes(spark, wires, registry)

    # An id says nothing about what comes after it.
    as_classes = [[each if isinstance(each, str) else "good" for each in some] for some in (plain, after_ids)]
    assert as_classes[0][:1_000] == as_classes[1][:1_000]
    assert {*as_classes[1][1_000:]} <= {"NOT_WIRE_FORMAT", "UNKNOWN_SCHEMA_ID"}
    good = [body for body, each in zip(bodies, plain, strict=True) if not isinstance(each, str)]
    assert all(is_whole(body) for body in good)
    assert min(len(good), as_classes[0].count("NOT_AVRO")) > 100, Counter(as_classes[0])


def is_whole(body: bytes) -> bool:
    """Whether another reader finds one value, and nothing after it."""
    rest = io.BytesIO(body)
    try:
        fastavro.schemaless_reader(rest, fastavro.parse_schema(avro_values.PLAIN), None)
    except IndexError:
        # Of an int in five bytes Java's Avro leaves out what is beyond 32 bits.
        return any(huge in body for huge in avro_values.HUGE)
    return not rest.read()


def test_each_value_in_avro_is_parsed_once(spark: SparkSession) -> None:
    every = decoded(records(spark, [order()]), Decoding(AVRO), with_reasons=False)
    plan = every.where(f"{DEAD} is null").drop(*every.columns[-3:])._jdf.queryExecution().executedPlan().toString()

    assert plan.count("from_avro(") == 1, plan


def test_every_type_of_protobuf_is_a_column_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    order = message_class(EVERYTHING)(u64=2**64 - 1, state=-1, perhaps=0, raw=b"\xff", card="visa", counts={"a": 1})
    order.at.FromJsonString("9999-12-30T23:59:59.999999Z")
    order.by_id[-3].since.seconds = 1
    order.items.add(name="é")
    order.free.update({"a": [None]})
    content = order.SerializeToString()
    values = [content, None, b"", content + b"\x08\x01", b"\xff"]
    kind = FieldDecoding(Format.PROTOBUF, schema(EVERYTHING).text)

    every = decoded(records(spark, values, content), Decoding(kind, kind, Columns.FLATTEN))
    every.write.parquet(str(tmp_path / "out"))

    found = pyarrow.parquet.read_table(tmp_path / "out").to_pylist()
    assert [each[DEAD] and (each[DEAD]["part"], each[DEAD]["class"]) for each in found] == [
        *(None, None, None, ("value", "NOT_PROTOBUF"), ("value", "NOT_PROTOBUF"))
    ]
    columns = every.schema["key"].dataType.names
    oracle = reader(EVERYTHING).read(pyarrow.array([content, b""])).to_pylist()
    wanted = [oracle[0]["v"], dict.fromkeys(columns), oracle[1]["v"]]
    in_utc = [{name: each[name] for name in columns} for each in found]
    zone = re.compile(r", tzinfo=(<UTC>|zoneinfo\.ZoneInfo\(key='UTC'\))")  # pytz's, where it is installed
    assert zone.sub("", str(in_utc[:3])) == zone.sub("", str(wanted))
    assert str(found[0]["key"]) == str(in_utc[0])


def test_a_message_is_read_behind_the_indexes_of_its_own_type_only(spark: SparkSession) -> None:
    text = proto("int32 id = 1;")
    writers = (WriterSchema(1, '["00", "0200"]'), WriterSchema(2, '["0202"]'), WriterSchema(3, None, "no"))
    kind = FieldDecoding(Format.PROTOBUF, schema(text).text, writers=writers)
    beginnings = ["00", "0200", "", "02", "0202", "8000", "0c"]
    values = [bytes.fromhex(f"00{number:08x}{each}0805") for number in (1, 2) for each in beginnings]
    values += [bytes.fromhex(each) for each in ("00000000030008", "0000000009", "0000000001", "010000000100", "", "00")]

    found = [each if isinstance(each, str) else each["id"] for each in outcomes(spark, values, kind)]

    assert found == [
        *(5, 5, *["OTHER_MESSAGE"] * 5),
        *("OTHER_MESSAGE", "OTHER_MESSAGE", "OTHER_MESSAGE", "OTHER_MESSAGE", 5, "OTHER_MESSAGE", "OTHER_MESSAGE"),
        *("INCOMPATIBLE_SCHEMA", "UNKNOWN_SCHEMA_ID", "OTHER_MESSAGE", *["NOT_WIRE_FORMAT"] * 3),
    ]


def test_dead_letters_are_read_from_the_files_that_are_named_whatever_else_fits_as_a_pattern(
    spark: SparkSession, tmp_path: Path
) -> None:
    batch_id, files = UUID(int=1), []
    for place in (tmp_path / "let[a-t]ers*", tmp_path / "letters"):
        stage(Topic(spark, VALUES), place)
        (place / "dead-letters").rename(folder := place / f"kafka_batch={batch_id}")
        files.append(tuple(sorted(folder.glob("*.parquet"))))
    letters = ReplayedLetters(BROKEN, batch_id, (("NOT_JSON", 2),))
    plan = BatchPlan(
        batch_id=UUID(int=3),
        kind=BatchKind.REPLAY,
        feed_id=UUID(int=2),
        feed_name="orders",
        cluster_id="cluster",
        topic_ids={"orders": None},
        ranges=(BROKEN,),
        isolation=Isolation.READ_COMMITTED,
        offsets_policy=OffsetsPolicy.AUTO,
        output=OutputLocation.local("parquet", tmp_path / "orders"),
        planned_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        replays=(letters,),
    )

    found = dead_letter_records(spark, AttemptDocument(plan, 1, letters={batch_id: files[0]}))

    assert [row["value"] for row in by_offset(found)] == [b"x", b"y"]


def test_schema_ids_that_nobody_asked_for_end_the_attempt_and_are_named(spark: SparkSession) -> None:
    part = of_registry(NEW, WriterSchema(1, json.dumps(NEW)))
    value = replace(part, unknown_ids=(7,))
    values, beside = [wired(number, b"") for number in (7, 9, 8, 9, 1)], [*[None] * 4, in_header(GUID)]
    read = decoded(records(spark, values, wired(1, b""), beside), Decoding(value))
    columns = (f"{DEAD}.part error_part", f"{DEAD}.class error_class", "kafka_raw_value value", "kafka_headers")
    letters = read.selectExpr(*columns)

    with pytest.raises(UnknownSchemaIdsError, match=re.escape(f'UNKNOWN_SCHEMA_IDS: {{"value": [8, 9, "{GUID}"]}}')):
        check_ids(letters, Decoding(value))
    check_ids(letters, Decoding(replace(value, unknown_ids=(7, 8, 9, GUID))))


def test_where_too_many_schema_ids_are_unknown_a_dead_letter_does_not_say_that_the_registry_was_asked(
    spark: SparkSession,
) -> None:
    many = replace(of_registry(NEW, WriterSchema(1, json.dumps(NEW))), unknown_ids=tuple(range(2, 1002)))
    row = decoded(records(spark, [wired(5_000, b"")]), Decoding(many)).selectExpr(f"{DEAD}.text").first()

    assert row is not None
    assert row["text"] == (
        "expected a schema id that the registry knows, found more than 1,000 that it does not, among them 5000"
    )
