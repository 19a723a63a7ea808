"""What becomes of Avro for which Spark has no column: decimals of any size, types in themselves, records of nothing."""

import json
from decimal import Decimal
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import DataType
from tests.mutated_json import mutated
from tests.spark.avro_values import ORDER, number, of_file, written
from tests.spark.test_decode import outcomes

from kafka_ingest.model.avro_resolution import Misfit, worst_misfit
from kafka_ingest.model.avro_schema import read_avro
from kafka_ingest.model.decoding import FieldDecoding, Format
from kafka_ingest.model.record_schema import WrongSchemaError
from kafka_ingest.model.schema_source import ReadAs
from kafka_ingest.writing.decoded_part import text


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def unscaled(value: int) -> bytes:
    """Return a decimal's bytes, as Java's BigInteger has them."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return number(size) + value.to_bytes(size, "big", signed=True)


def shifted(value: int) -> Decimal:
    """Return a number with two digits after the point, of any length."""
    return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -2))


def as_read(schema: Any, **read_as: str) -> FieldDecoding:
    found = of_file(schema)
    paths = {path.replace("__", "."): ReadAs(kind) for path, kind in read_as.items()}
    return FieldDecoding(Format.AVRO, found.schema, read_as=paths)


DIGITS = 10**63 + 123
NUMBERS = (
    0,
    1,
    -1,
    5,
    -5,
    127,
    -128,
    255,
    -256,
    12_345,
    -12_345,
    2**64,
    -(2**64),
    10**38 - 1,
    1 - 10**38,
    DIGITS,
    -DIGITS,
)


def test_a_decimal_of_any_precision_is_stored_where_its_value_fits_or_as_its_digits_or_bytes(
    spark: SparkSession,
) -> None:
    values = [unscaled(each) for each in NUMBERS]
    connects, small = decimal(64, 2), decimal(6, 2)

    assert outcomes(spark, [*values, b"\0"], as_read(connects)) == [
        *(shifted(each) if abs(each) < 10**38 else "OUT_OF_RANGE" for each in NUMBERS),
        "OUT_OF_RANGE",
    ]
    assert outcomes(spark, values[:14], as_read(small))[9:] == [
        Decimal("123.45"),
        Decimal("-123.45"),
        *["OUT_OF_RANGE"] * 3,
    ]
    both = record("R", text=["null", connects], whole={"type": "array", "items": decimal(64, 0)}, raw=connects)
    bodies = [b"\2" + each + b"\2" + each + b"\0" + each for each in values]
    found = outcomes(
        spark, [*bodies, b"\0\0\2\5"], as_read(both, **{"text": "string", "whole[]": "string", "raw": "binary"})
    )
    plain = [f"{shifted(each):f}" for each in NUMBERS]
    assert [each["text"] for each in found] == [*plain, None]
    assert [each["whole"] for each in found] == [*([str(each)] for each in NUMBERS), []]
    assert [bytes(each["raw"]) for each in found] == [*(each[1:] for each in values), b"\x05"]


NODE = record("Node", v="int", next=["null", "Node"], children={"type": "array", "items": "Node"})
HOLDER = record("Holder", id="long", tree=NODE, nothing=record("Empty"), maybe=["null", "Empty"], only="null")


def node(depth: int, **fields: Any) -> dict[str, Any]:
    return {"v": depth, "next": node(depth - 1) if depth else None, "children": []} | fields


def held(tree: dict[str, Any]) -> bytes:
    return written(HOLDER, {"id": 7, "tree": tree, "nothing": {}, "maybe": {}, "only": None})


def test_a_type_in_itself_is_text_to_some_depth_and_a_dead_letter_beyond_it_and_a_record_of_nothing_is_true(
    spark: SparkSession,
) -> None:
    values = [held(node(0)), held(node(1, children=[node(0), node(0)])), held(node(6)), held(node(7)), held(node(300))]

    found = outcomes(spark, values, of_file(HOLDER))

    assert found[0] == Row(id=7, tree=Row(v=0, next=None, children=[]), nothing=True, maybe=True)
    inner = '{"v":0,"next":null,"children":[]}'
    assert found[1]["tree"] == Row(v=1, next=inner, children=[inner, inner])
    assert found[2]["tree"]["next"].count('"v":') == 6
    assert found[3:] == ["OUT_OF_RANGE", "OUT_OF_RANGE"]
    skipped = outcomes(
        spark, [*values, held(node(300))[:-40]], as_read(HOLDER, tree__next="skip", tree__children="skip")
    )
    assert [each["tree"] for each in skipped[:5]] == [Row(v=each) for each in (0, 1, 6, 7, 300)]
    assert skipped[5] == "NOT_AVRO"


def test_what_holds_other_values_is_json_where_the_feed_says_so_and_all_else_is_as_it_was(spark: SparkSession) -> None:
    inner = record(
        "In",
        a=["null", "long"],
        b={"type": "map", "values": decimal(5, 1)},
        at={"type": "long", "logicalType": "timestamp-millis"},
    )
    schema = record("R", one=inner, two="In", many={"type": "array", "items": "In"}, raw="bytes", n="long")
    value = {"a": None, "b": {"x": Decimal("1.5")}, "at": 0}
    body = written(schema, {"one": value, "two": value, "many": [value], "raw": b"\xc3\xa9", "n": 2**62})

    [found] = outcomes(
        spark,
        [body],
        as_read(schema, **{"one": "string", "two__b": "skip", "many[]__a": "skip", "raw": "string", "n": "string"}),
    )

    assert found["one"] == '{"a":null,"b":{"x":1.5},"at":"1970-01-01T00:00:00.000Z"}'
    assert (found["two"].asDict().keys(), found["many"][0].asDict().keys()) == ({"a", "at"}, {"b", "at"})
    assert found["many"][0]["b"] == {"x": Decimal("1.5")}
    assert (found["raw"], found["n"]) == ("é", str(2**62))


JUNK: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        39,
        10**20,
        1.5,
        1e300,
        "",
        "a b",
        "null",
        "int",
        "long",
        "Node",
        "é",
        "x" * 300,
        "\0",
        "a.b.C",
    ),
    *(
        [],
        {},
        ["null", "int"],
        ["int", "null"],
        [["int"]],
        {"type": "int"},
        {"type": "bytes", "logicalType": "decimal"},
    ),
    *({"type": "array", "items": "string"}, {"type": "fixed", "name": "F", "size": 0}, {"type": "enum", "name": "Q"}),
    *({"type": "record", "name": "Node", "fields": []}, record("Own", a=["null", "Own"]), {"type": {"type": "bytes"}}),
]
KEYS = ("type", "name", "namespace", "aliases", "default", "order", "doc", "logicalType", "precision", "scale", "size")


def test_a_schema_that_is_taken_is_one_to_javas_avro_and_spark_makes_of_it_what_is_promised(
    spark: SparkSession,
) -> None:
    parser, taken = spark.sparkContext._jvm.org.apache.avro.Schema.Parser, 0
    nothing = spark.range(0)
    for before, node in mutated(5, 1_500, [ORDER, HOLDER, NODE], JUNK, KEYS):
        good = read_avro(json.dumps(before))
        for is_written_with in (True, False):
            try:
                schema = read_avro(json.dumps(node), is_written_with=is_written_with)
                made = [] if is_written_with else [schema.read_as({}, is_loose=each) for each in (False, True)]
            except WrongSchemaError:
                continue
            assert isinstance(worst_misfit(schema.type, good.type), Misfit | None)
            for each in [schema.text, *(json.dumps(value.node) for value in made)]:
                taken += 1
                try:
                    parser().parse(each)
                except Py4JJavaError as error:
                    raise AssertionError(f"{each}: {error.java_exception.toString()}") from None
            for value in made if taken % 5 == 0 else []:
                sql = f"from_avro(cast(null as binary), {text(json.dumps(value.node))}) as found"
                [field] = nothing.selectExpr(sql).schema.fields
                assert field.dataType.simpleString() == DataType.fromDDL(value.found.ddl).simpleString()
    assert taken > 500
