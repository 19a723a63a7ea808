"""Avro schemas without Java: what they are, what cannot be used, and which of them resolve to one another."""

import json
from typing import Any

import pytest
from tests.mutated_json import mutated

from kafka_ingest.model.avro_resolution import worst_misfit
from kafka_ingest.model.avro_schema import read_avro
from kafka_ingest.model.json_schema import ddl_of_json_schema
from kafka_ingest.model.record_schema import WrongSchemaError, read_schema
from kafka_ingest.model.schema_source import ReadAs


def record(*types: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Return a record with fields a, b, c, … of these types."""
    fields = [{"name": chr(97 + number), "type": each} for number, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


LONG, TEXT = "long", "string"
FIXED = {"type": "fixed", "name": "F", "size": 4}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("long", "bigint"),
        ({"type": {"type": "string"}}, "string"),
        (record("int", ["null", "double"]), "struct<`a`:int,`b`:double>"),
        (record(record("int", name="x.S"), "x.S"), "struct<`a`:struct<`a`:int>,`b`:struct<`a`:int>>"),
        (record(record("int", name="S"), "S", namespace="n"), "struct<`a`:struct<`a`:int>,`b`:struct<`a`:int>>"),
        ({"type": "array", "items": {"type": "map", "values": "bytes"}}, "array<map<string,binary>>"),
        (["null", "int", "long"], "bigint"),
        (["float", "double"], "double"),
        (["int", "null", "string", ENUM], "struct<`member0`:int,`member1`:string,`member2`:string>"),
        (FIXED, "binary"),
        (logical("int", "date"), "date"),
        (logical("int", "time-millis"), "int"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "timestamp-nanos"), "bigint"),
        (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
        (logical("string", "uuid"), "string"),
        (logical("bytes", "decimal", precision=38, scale=2), "decimal(38,2)"),
        (logical("bytes", "decimal", precision=64, scale=2), "decimal(38,2)"),
        ({"type": "fixed", "name": "F", "size": 64, "logicalType": "decimal", "precision": 64}, "decimal(38,0)"),
        (record(["null", "R"], {"type": "array", "items": "R"}), "struct<`a`:string,`b`:array<string>>"),
        (record("int", record(name="Empty"), "null", ["null"]), "struct<`a`:int,`b`:boolean>"),
        (record(), "boolean"),
        (logical("bytes", "decimal", precision=2, scale=3), "binary"),
        ({**FIXED, "logicalType": "decimal", "precision": 9}, "decimal(9,0)"),
        ({**FIXED, "logicalType": "decimal", "precision": 10}, "binary"),
    ],
)
def test_a_schema_has_the_column_that_spark_makes_of_it(schema: object, column: str) -> None:
    assert read_avro(json.dumps(schema)).read_as({}).column.ddl == column


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("strin", "one that is defined before, found 'strin'"),
        (5, "expected a type .* found 5"),
        ({}, "found null"),
        (record(FIXED, FIXED), "expected each name to be defined once, found F twice"),
        ({"type": "record", "name": "R"}, "expected 'fields'"),
        ({"type": "record", "name": "R", "fields": [{"type": "int"}]}, "expected 'name'"),
        ({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}, "letters, digits"),
        ({"type": "record", "name": "a..b", "fields": []}, "letters, digits"),
        (["int", "int"], "each type once in a union, found int"),
        ([], "expected a union"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "different names as the symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "C"}, "a symbol of E as its default"),
        ({"type": "fixed", "name": "F", "size": -1}, "a number of bytes as the size"),
        ({"type": "array", "items": "null"}, "arrays of values that take bytes"),
        ({"type": "array", "items": record()}, "arrays of values that take bytes"),
        ({"type": "long", "spark.sql.catalyst.type": "interval day"}, "which only Spark knows"),
        (json.loads("[" * 21 + "]" * 21), "expected"),
        (json.loads('{"type":' * 30 + '"int"' + "}" * 30), "at most 20 levels"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: object, message: str) -> None:
    with pytest.raises(WrongSchemaError, match=message):
        read_avro(json.dumps(schema))


def test_the_text_of_a_schema_has_no_documentation_which_is_often_most_of_it() -> None:
    documented = record({**ENUM, "doc": "x"}, {**FIXED, "doc": "x"}, record(LONG, name="S", doc="x"), doc="x")
    documented["fields"][0]["doc"] = "x"
    documented["fields"][1]["name"] = "doc"

    assert read_avro(json.dumps(documented)).text.count('"doc"') == 1


def test_types_that_are_named_again_count_with_all_that_is_in_them() -> None:
    chain = [record("int", name="R0"), *(record(f"R{level}", name=f"R{level + 1}") for level in range(450))]
    wide: object = "int"
    for level in range(17):
        wide = record(wide, *[f"W{level - 1}" if level else "int"] * 3, name=f"W{level}")

    with pytest.raises(WrongSchemaError, match="at most 20 levels"):
        read_avro(json.dumps(chain))
    with pytest.raises(WrongSchemaError, match="at most 1,000 fields"):
        read_avro(json.dumps(wide))
    read_avro(json.dumps(chain[:15]))


@pytest.mark.parametrize(
    ("kind", "good", "wrong"),
    [
        (TEXT, "x", None),
        ("null", None, 0),
        ("boolean", False, 0),
        ("int", 2**31 - 1, 2**31),
        (LONG, -(2**63), True),
        (LONG, 1, 1.0),
        ("double", 1, "1"),
        ("float", 1.5, "inf"),
        ("bytes", "\u00ff", []),
        (["null", TEXT], "x", 1),
        ({"type": "array", "items": LONG}, [1], ["x"]),
        ({"type": "map", "values": LONG}, {"a": 1}, {"a": None}),
        (ENUM, "B", "C"),
        (FIXED, "abcd", "abc"),
        (record(LONG), {"a": 1}, {}),
    ],
)
def test_a_default_that_is_no_value_of_its_field_is_refused_for_reading_and_left_out_for_writing(
    kind: object, good: object, wrong: object
) -> None:
    right, broken = (
        json.dumps({"type": "record", "name": "Whole", "fields": [{"name": "b", "type": kind, "default": default}]})
        for default in (good, wrong)
    )

    assert "default" in read_avro(right).text
    with pytest.raises(WrongSchemaError, match=r"as the default of Whole\.b, found"):
        read_avro(broken)
    assert "default" not in read_avro(broken, is_written_with=True).text


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "x" * 1_000_001])
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(WrongSchemaError, match="expected an Avro schema"):
        read_avro(text)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("null", "expected the schema to hold values, found only null"),
        (
            record({"type": "map", "values": "null"}),
            'to hold values, found only null. To have all else, write beside format: as: {"a": skip}',
        ),
        (
            record(logical("bytes", "decimal", precision=64, scale=39)),
            'at most 38 digits after the point, found 39 in a. To have all else, .*: as: {"a": string}',
        ),
        (record(record(LONG, *[["null", "S"]] * 20, name="S")), 'for two levels, found S .*: as: {"a.b": skip}'),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]},
            "differ in more than the case of their letters, found 'a' and 'A'",
        ),
    ],
)
def test_a_schema_of_which_no_column_can_be_made_is_refused_for_reading_only(schema: object, message: str) -> None:
    found = read_avro(json.dumps(schema))
    with pytest.raises(WrongSchemaError, match=message):
        found.read_as({})


def test_what_a_schema_refers_to_is_put_into_it_once_and_keeps_its_name() -> None:
    references = {
        "Address": json.dumps(record("x.City", name="Address")),
        "x.City": json.dumps(record("int", name="x.City")),
    }

    found = read_avro(json.dumps({"type": "record", "name": "n.R", "fields": ADDRESSES}), references)

    assert read_avro(found.text) == found
    assert [field["type"] for field in json.loads(found.text)["fields"]] == [
        record(record("int", name="x.City"), name="Address", namespace=""),
        "Address",
        "x.City",
    ]
    with pytest.raises(WrongSchemaError, match=r"defined before, found 'n\.Address'"):
        read_avro(json.dumps(record("Address", name="n.R")), {})


ADDRESSES = [{"name": "a", "type": "Address"}, {"name": "b", "type": "Address"}, {"name": "c", "type": "x.City"}]
RENAMED = {"name": "id", "type": "long", "default": 0, "aliases": ["a"]}
RESOLUTIONS: list[tuple[object, object, str | None]] = [
    ("int", LONG, None),
    (LONG, "int", "expected the value as int, found long"),
    ("bytes", TEXT, None),
    (["null", TEXT], TEXT, "expected the value as string, found null"),
    (TEXT, ["null", TEXT], None),
    (LONG, ["null", TEXT], "expected the value as one of null, string, found long"),
    ({"type": "array", "items": LONG}, {"type": "array", "items": TEXT}, "expected the items of the value as string"),
    ({"type": "map", "values": LONG}, {"type": "map", "values": TEXT}, "expected the values of the value as string"),
    (record(LONG), record(LONG, TEXT), "expected field b, which has no default, found none of that name"),
    (record(LONG, TEXT), record(LONG), None),
    (record(LONG, name="x.R"), record("double", name="y.R"), None),
    (record(LONG, name="Old"), record(LONG, aliases=["Old"]), None),
    (record(LONG), record(TEXT), "expected field a as string, found long"),
    (FIXED, {**FIXED, "size": 5}, "expected the value as F, found F"),
    (ENUM, {**ENUM, "symbols": ["A"]}, "expected the value to have the symbols of E only, found B"),
    (ENUM, {**ENUM, "symbols": ["A"], "default": "A"}, None),
]


@pytest.mark.parametrize(("writer", "reader", "reason"), RESOLUTIONS)
def test_a_schema_resolves_to_another_by_avros_rules(writer: object, reader: object, reason: str | None) -> None:
    found = worst_misfit(read_avro(json.dumps(writer)).type, read_avro(json.dumps(reader)).type)

    assert (found is None) == (reason is None)
    assert found is None or (found.text.startswith(str(reason)) and not found.is_mistaken)


def nested(*types: object) -> list[object]:
    """Return types in the places where the types of two schemas correspond."""
    return [
        wrapped
        for kind in types
        for wrapped in (
            kind,
            {"type": "array", "items": kind},
            {"type": "map", "values": kind},
            record(kind),
            ["null", kind],
            ["null", record("int", {"type": "array", "items": ["null", kind]})],
        )
    ]


PRICE, MICROS = logical("bytes", "decimal", precision=6, scale=2), logical("long", "timestamp-micros")
TOTAL = {**FIXED, "logicalType": "decimal", "precision": 6, "scale": 2}
OTHER_MEANINGS: list[tuple[object, object]] = [
    (PRICE, {**PRICE, "scale": 4}),
    (PRICE, {**PRICE, "precision": 5}),
    (PRICE, "bytes"),
    (PRICE, TEXT),
    ("bytes", PRICE),
    (TEXT, PRICE),
    (TOTAL, {**TOTAL, "scale": 3}),
    (TOTAL, FIXED),
    (logical("long", "timestamp-millis"), MICROS),
    (logical("long", "local-timestamp-micros"), MICROS),
    (logical("long", "timestamp-nanos"), MICROS),
    (logical("int", "date"), MICROS),
    (logical("int", "time-millis"), logical("long", "time-micros")),
]


@pytest.mark.parametrize(("writer", "reader"), OTHER_MEANINGS)
def test_a_number_that_would_be_another_decimal_or_time_is_refused_wherever_it_is(
    writer: object, reader: object
) -> None:
    for written, read in zip(nested(writer), nested(reader), strict=True):
        found = mistaken(written, read)
        assert found is not None, (written, read)
        assert ", found " in found
    assert mistaken(writer, ["null", reader]) is not None
    assert mistaken(["null", writer], reader) is not None


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (PRICE, {**PRICE, "precision": 9}),
        (TOTAL, TOTAL),
        (LONG, MICROS),
        (MICROS, LONG),
        (MICROS, MICROS),
        (logical("int", "date"), logical("int", "date")),
        (MICROS, ["null", TEXT]),
        (["null", MICROS, TEXT], ["double", TEXT, MICROS]),
        (logical("long", "timestamp-millis"), ["double", LONG]),
    ],
)
def test_a_number_of_the_same_meaning_or_of_none_is_read(writer: object, reader: object) -> None:
    for written, read in zip(nested(writer), nested(reader), strict=True):
        if isinstance(writer, str | dict) and isinstance(reader, str | dict):
            assert mistaken(written, read) is None, (written, read)
    assert mistaken(writer, reader) is None


def mistaken(writer: object, reader: object) -> str | None:
    found = worst_misfit(read_avro(json.dumps(writer)).type, read_avro(json.dumps(reader)).type)
    return found.text if found and found.is_mistaken else None


SHOP_ORDER, PAYMENT = record(LONG, name="shop.Order"), record(LONG, name="Payment")


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (PAYMENT, SHOP_ORDER),
        (PAYMENT, ["null", SHOP_ORDER]),
        ([SHOP_ORDER, PAYMENT], SHOP_ORDER),
        ([SHOP_ORDER, PAYMENT], ["null", SHOP_ORDER]),
        (record(PAYMENT), record(record(LONG, name="Customer"))),
        (record({"type": "map", "values": ["null", PAYMENT]}), record({"type": "map", "values": ["null", SHOP_ORDER]})),
        (PAYMENT, TEXT),
        (["null", ENUM], ["null", {**ENUM, "name": "Kind"}]),
        (FIXED, {**FIXED, "name": "Raw"}),
        (record(name="Order"), [record(name="a.Order"), record(name="b.Order")]),
        (record(name="Order"), [record(name="a.Order"), PAYMENT]),
        (record(LONG, name="A"), [record(LONG, name="A"), record(LONG, name="B", aliases=["A"])]),
        (record(LONG, name="x.R"), {"type": "record", "name": "y.R", "fields": [RENAMED]}),
    ],
)
def test_a_record_that_could_be_read_as_one_of_another_name_is_refused_wherever_it_is(
    writer: object, reader: object
) -> None:
    assert mistaken(writer, reader) is not None


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (["null", SHOP_ORDER], SHOP_ORDER),
        (record(LONG, name="Order"), ["null", SHOP_ORDER]),
        ([PAYMENT, SHOP_ORDER], ["null", SHOP_ORDER, PAYMENT]),
        (PAYMENT, record(LONG, aliases=["Payment"])),
        (record(PAYMENT, LONG), {"type": "record", "name": "R", "fields": [{"name": "b", "type": "long"}]}),
        (record(LONG, name="y.R"), {"type": "record", "name": "y.R", "fields": [RENAMED]}),
        ("int", SHOP_ORDER),
    ],
)
def test_a_record_of_the_readers_name_is_read_and_a_unions_value_decides(writer: object, reader: object) -> None:
    assert mistaken(writer, reader) is None


# ── JSON Schema ───────────────────────────────────────────────────────────────────────────────────────────────────────


SCHEMA = {
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "a b": {"type": ["null", "number"]},
        "paid": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"$ref": "#/$defs/place"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {"type": ["integer", "string"]},
        "free": {},
    },
}


def test_a_json_schema_has_the_columns_of_its_properties() -> None:
    assert ddl_of_json_schema(json.dumps(SCHEMA)) == (
        "`id`:bigint,`a b`:double,`paid`:boolean,`day`:date,`at`:timestamp,`tags`:array<string>,"
        "`to`:struct<`city`:string>,`counts`:map<string,bigint>,`any`:string,`free`:string"
    )


A, B, C = ({name: {"type": "integer"}} for name in "abc")
TEXTS = {"type": "string"}
REQUIRED = [{"required": ["a"]}, {"required": ["b"]}]


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ({"properties": A, "allOf": [{"properties": B}]}, "`a`:bigint,`b`:bigint"),
        (
            {"allOf": [{"$ref": "#/$defs/b"}, {"properties": C}], "$defs": {"b": {"properties": B}}},
            "`b`:bigint,`c`:bigint",
        ),
        ({"properties": A | B, "anyOf": REQUIRED}, "`a`:bigint,`b`:bigint"),
        ({"type": ["object", "null"], "properties": A, "oneOf": [{"properties": {"a": {"const": 1}}}]}, "`a`:bigint"),
        ({"properties": A, "allOf": [{"properties": {"a": {"minimum": 1}}}]}, "`a`:bigint"),
        ({"properties": A, "allOf": [{"properties": {"a": {"type": "string"}}}]}, "`a`:string"),
        ({"properties": {"x": {"properties": A, "allOf": REQUIRED}}}, "`x`:struct<`a`:bigint>"),
        ({"properties": {"x": {"properties": A, "anyOf": [{"properties": B}]}}}, "`x`:string"),
        ({"properties": {"x": {"type": ["object", "string"], "properties": A}}}, "`x`:string"),
        ({"properties": {"x": {"type": [{}], "properties": A}}}, "`x`:string"),
        ({"properties": {"x": {"type": "integer", "anyOf": [{"minimum": 1}, {"maximum": 0}]}}}, "`x`:bigint"),
        ({"properties": {"x": {"anyOf": [{"const": "x"}, {"type": "integer"}]}}}, "`x`:string"),
        ({"properties": {"x": {"allOf": [{"type": "integer"}, {"minimum": 1}]}}}, "`x`:bigint"),
        (
            {"oneOf": [{"properties": A | B}, {"type": "null"}, {"properties": A | C}]},
            "`a`:bigint,`b`:bigint,`c`:bigint",
        ),
        (
            {"properties": A, "oneOf": [{"properties": {"a": TEXTS} | B}, {"anyOf": [{"properties": C}]}]},
            "`a`:string,`b`:bigint,`c`:bigint",
        ),
        (
            {"properties": {"up": {"$ref": "#"}, "x": {"$ref": "other.json"}, "y": {"$ref": "#/no"}}},
            "`up`:string,`x`:string,`y`:string",
        ),
        (
            {
                "properties": {"n": {"$ref": "#/$defs/n"}},
                "$defs": {"n": {"properties": A | {"n": {"$ref": "#/$defs/n"}}}},
            },
            "`n`:struct<`a`:bigint,`n`:struct<`a`:bigint,`n`:string>>",
        ),
        (
            {
                "allOf": [{"$ref": "#/$defs/p"}, {"properties": {"p": {"$ref": "#/$defs/p"}}}],
                "$defs": {"p": {"properties": A}},
            },
            "`a`:bigint,`p`:struct<`a`:bigint>",
        ),
    ],
)
def test_properties_count_beside_others_that_hold_at_once_and_no_field_is_lost(schema: object, ddl: str) -> None:
    assert ddl_of_json_schema(json.dumps(schema)) == ddl


def test_values_of_a_json_schema_are_text_or_left_out_where_the_feed_says_so() -> None:
    inner = {"properties": A | B}
    schema = {"properties": {"x": {"type": "array", "items": inner}, "y": inner, "A": TEXTS, "a": TEXTS}}
    read_as = {"x[].a": "skip", "x[].b": "string", "y": "string", "A": "skip"}

    found = ddl_of_json_schema(json.dumps(schema), {path: ReadAs(kind) for path, kind in read_as.items()})

    assert found == "`x`:array<struct<`b`:string>>,`y`:string,`a`:string"
    with pytest.raises(WrongSchemaError, match=r"expected under as paths of the schema, found y\.c, which"):
        ddl_of_json_schema(json.dumps(schema), {"A": ReadAs.SKIP, "y.c": ReadAs.SKIP})
    with pytest.raises(WrongSchemaError, match="at least one field beside those left out, found none in y"):
        ddl_of_json_schema(json.dumps(schema), {"A": ReadAs.SKIP, "y.a": ReadAs.SKIP, "y.b": ReadAs.SKIP})


def test_references_that_stand_for_billions_of_fields_are_refused() -> None:
    levels = {f"l{n}": {"properties": {x: {"$ref": f"#/$defs/l{n + 1}"} for x in "abcd"}} for n in range(9)}
    schema = {"$ref": "#/$defs/l0", "$defs": {**levels, "l9": {"type": "integer"}}}

    with pytest.raises(WrongSchemaError, match="at most 10,000 types"):
        ddl_of_json_schema(json.dumps(schema))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "found text that is not JSON"),
        ('{"items":' * 10_000 + "1" + "}" * 10_000, "expected at most 100 levels of JSON, found more"),
        ("true", "found one without properties"),
        ('{"type": "string"}', "found one of other values"),
        ('{"oneOf": [{"type": "string"}, {}]}', "found one of other values"),
        ('{"oneOf": [{"$ref": "#"}]}', "found one of other values"),
        ('{"properties": {"a": {}, "A": {}}}', "differ in more than the case"),
    ],
)
def test_a_json_schema_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(WrongSchemaError, match=message):
        ddl_of_json_schema(text)


def test_a_json_schema_of_any_form_is_read_or_refused_by_name() -> None:
    good = [SCHEMA, {"oneOf": [SCHEMA, {"$ref": "#"}]}, {"allOf": [SCHEMA, {"properties": {"more": {"$ref": "#"}}}]}]
    junk: list[Any] = [
        None,
        True,
        -1,
        1.5,
        "",
        "a b",
        "object",
        "#",
        "#/properties",
        "#/$defs/place",
        [],
        {},
        [{}],
        SCHEMA,
    ]
    keys = ("type", "properties", "items", "oneOf", "anyOf", "allOf", "$ref", "format", "additionalProperties")
    taken = 0
    for _, node in mutated(7, 1_500, good, junk, keys):
        try:
            assert read_schema(ddl_of_json_schema(json.dumps(node))).names
        except WrongSchemaError:
            continue
        taken += 1
    assert taken > 500
