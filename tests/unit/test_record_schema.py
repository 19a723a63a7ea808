"""Schemas of JSON objects: what a text means, and every refusal with what was expected and found."""

import pytest

from kafka_ingest.model.record_schema import (
    ArrayOf,
    Field,
    MapOf,
    Scalar,
    Struct,
    WrongSchemaError,
    collisions,
    quoted,
    read_schema,
)


def test_a_schema_names_fields_with_their_types() -> None:
    schema = read_schema("id BIGINT, tags array<string>, `a``b`: map<string, decimal(5, 2)>, s struct<x: date, y int>")

    assert schema == Struct(
        (
            Field("id", Scalar("bigint")),
            Field("tags", ArrayOf(Scalar("string"))),
            Field("a`b", MapOf(Scalar("decimal(5,2)"))),
            Field("s", Struct((Field("x", Scalar("date")), Field("y", Scalar("int"))))),
        )
    )
    assert schema.ddl == (
        "struct<`id`:bigint,`tags`:array<string>,`a``b`:map<string,decimal(5,2)>,`s`:struct<`x`:date,`y`:int>>"
    )


def test_lines_and_other_names_of_a_type_make_no_difference() -> None:
    schema = read_schema("\n  a long,\n  b Integer,\n\tc real, d dec, e numeric(3), f timestamp_ltz, g short\n")

    assert [field.type.ddl for field in schema.fields] == [
        *("bigint", "int", "float", "decimal(10,0)", "decimal(3,0)", "timestamp", "smallint"),
    ]


@pytest.mark.parametrize("name", ["a b", "ä", "1st", "kafka", "a.b", "a'\"\\b", "array", "struct"])
def test_any_name_can_be_quoted(name: str) -> None:
    assert read_schema(f"{quoted(name)} int").names == (name,)


@pytest.mark.parametrize("name", ["array", "map", "string", "_x", "x1"])
def test_a_name_may_be_that_of_a_type(name: str) -> None:
    assert read_schema(f"{name} string, b array<int>").names == (name, "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a field's name (letters, digits and '_', or anything between backticks), found the end"),
        ("id bigint,", "after 'id bigint,', found the end"),
        ("id", "struct<…> after 'id', found the end"),
        ("id bigint name string", "expected ',' or the end after 'id bigint', found 'name'"),
        ("id bigint not null", "expected ',' or the end after 'id bigint', found 'not'"),
        ("id bigint)", "expected ',' or the end after 'id bigint', found ')'"),
        ("a array<strng>", "expected a type: one of string, boolean"),
        ("a array<string", "expected '>' after 'a array<string', found the end"),
        ("a array(string)", "expected '<' after 'a array', found '('"),
        ("a array<>", "after 'a array<', found '>'"),
        ("a struct<>", "expected a field's name"),
        ("a struct<x int", "expected ',' or '>' after 'a struct<x int', found the end"),
        ("a map<int,string>", "expected string, as JSON has no other keys after 'a map<', found 'int'"),
        ("a tinyint", "(smallint for tinyint) after 'a', found 'tinyint'"),
        ("a binary", "expected a type: one of"),
        ("a decimal(39,2)", "expected a decimal of 1 to 38 digits"),
        ("a decimal(5,6)", "found decimal(5,6)"),
        ("a decimal(0)", "found decimal(0,0)"),
        ("a decimal(-1)", "expected a number of digits"),
        ("a decimal(5,2", "expected ')'"),
        ("1a int", "expected a field's name"),
        ("a-b int", "expected a type"),
        ("`a int", "expected a field's name"),
        ("`` int", "expected a field's name"),
        ("` ` int", "expected a field's name of at most 255 printable characters"),
        ("`a\nb` int", "expected a field's name of at most 255 printable characters"),
        (f"{'x' * 256} int", "expected a field's name of at most 255 printable characters"),
        ("a int, A int", "expected names that differ in more than the case of their letters, found 'A' and 'a'"),
        ("a int, a int", "expected names that differ in more than the case of their letters, found 'a' twice"),
        ("s struct<x int, X int>", "found 'X' and 'x'"),
        ("a int,\nb strng", "after 'a int,\\nb' in line 2, found 'strng'"),
        (", ".join(f"f{i} int" for i in range(1001)), "expected at most 1,000 fields, found 1,001"),
        ("a " + "array<" * 20 + "int" + ">" * 20, "expected at most 20 levels of types, found more"),
        ("a " + "struct<a:" * 20_000, "expected at most 20 levels of types, found more"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(WrongSchemaError) as raised:
        read_schema(text)

    assert message in str(raised.value)
    assert len(str(raised.value)) < 600


def test_the_largest_schemas_are_read() -> None:
    assert len(read_schema(", ".join(f"f{i} int" for i in range(1000))).fields) == 1000
    assert read_schema("a " + "array<" * 19 + "int" + ">" * 19)


def test_columns_collide_in_any_case_of_their_letters() -> None:
    assert collisions(("id", "KEY", "Kafka_x", "value"), ("key",)) == ["KEY", "Kafka_x"]
