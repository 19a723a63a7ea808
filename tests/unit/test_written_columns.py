"""Which columns files have, and how later ones differ."""

import pytest

from kafka_ingest.model.record_schema import ArrayOf, Field, MapOf, Scalar, Struct, read_schema
from kafka_ingest.model.written_columns import (
    ColumnChanges,
    SelectedColumn,
    changes,
    columns_without_new,
    names_in,
    path_of,
    side_by_side,
    written_columns,
)


def listed(ddl: str) -> dict[str, str]:
    return written_columns(read_schema(ddl))


def test_columns_are_listed_with_all_fields_in_them() -> None:
    assert listed("id bigint, `a.b` string, v struct<tags: array<struct<x: int>>, m: map<string, decimal(5,2)>>") == {
        "id": "bigint",
        "`a.b`": "string",
        "v": "struct",
        "v.tags": "array",
        "v.tags[]": "struct",
        "v.tags[].x": "int",
        "v.m": "map of string",
        "v.m[]": "decimal(5,2)",
    }


@pytest.mark.parametrize("names", [["v", "a.b", "x"], ["`", "a`.`b", "ü [] y", "``"], ["a`", "b"], ["value", "`a"]])
def test_a_path_says_the_names_that_it_leads_through(names: list[str]) -> None:
    path = ""
    for name in names:
        path = f"{path_of(path, name)}[]"
    assert names_in(path) == names


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("int", "bigint"),
        ("float", "double"),
        ("string", "bigint"),
        ("bigint", "timestamp"),
        ("decimal(10,2)", "decimal(10,3)"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("timestamp", "timestamp_ntz"),
        ("struct<x: int>", "string"),
        ("array<int>", "array<bigint>"),
        ("map<string, int>", "map<string, string>"),
        ("date", "timestamp"),
    ],
)
def test_every_other_type_is_a_change(before: str, now: str) -> None:
    found = changes(listed(f"a {before}"), listed(f"a {now}"))

    assert found.retyped
    assert not found.added


@pytest.mark.parametrize(
    ("before", "now", "added", "removed"),
    [
        ("a int", "a int, b int", ("b",), ()),
        ("a int, b int", "b int, a int", (), ()),
        ("a int, b int", "a int", (), ("b",)),
        ("a int", "A int", ("A",), ("a",)),
        ("v struct<a: int>", "v struct<a: int, b: struct<c: int>>", ("v.b", "v.b.c"), ()),
        ("v array<struct<a: int, b: int>>", "v array<struct<a: int>>", (), ("v[].b",)),
    ],
)
def test_fields_are_added_or_removed_wherever_they_are(
    before: str, now: str, added: tuple[str, ...], removed: tuple[str, ...]
) -> None:
    assert changes(listed(before), listed(now)) == ColumnChanges(added, removed, ())


def test_both_types_stand_side_by_side_and_long_lists_end() -> None:
    assert side_by_side({"a": "int", "b": "date"}, {"a": "bigint"}, ["a", "b"]) == (
        "  field  in the output         now\n"
        "  a      int                   bigint\n"
        "  b      date                  (none)"
    )
    many = {f"f{number}": "int" for number in range(25)}
    assert side_by_side(many, {}, many).endswith("and 5 more")


def test_columns_without_new_fields_are_decoded_ones_or_parts_of_them() -> None:
    before = listed("id bigint, v struct<a: int, list: array<struct<x: int>>>")
    now = read_schema("new int, id bigint, v struct<a: int, b: int, list: array<struct<x: int, y: int>>>")

    assert columns_without_new(now, before) == (
        SelectedColumn("id", "bigint", "`id`"),
        SelectedColumn(
            "v",
            "struct<`a`:int,`list`:array<struct<`x`:int>>>",
            "if(`v` is null, null, named_struct('a', `v`.`a`, 'list', transform(`v`.`list`, kafka_e0 -> "
            "if(kafka_e0 is null, null, named_struct('x', kafka_e0.`x`)))))",
        ),
    )


def test_selected_columns_keep_their_expressions_and_are_evaluated_once() -> None:
    columns = Struct((Field("n", Scalar("int")), Field("v", read_schema("a int, b int")), Field("new", Scalar("int"))))
    selected = [
        SelectedColumn("n", "int", "value.n + 1"),
        SelectedColumn("v", "struct<a:int,b:int>", "costly(value)"),
        SelectedColumn("new", "int", "1"),
    ]

    assert columns_without_new(columns, {"n": "int", "v": "struct", "v.a": "int"}, selected) == (
        SelectedColumn("n", "int", "value.n + 1"),
        SelectedColumn(
            "v",
            "struct<`a`:int>",
            "transform(array(costly(value)), kafka_e -> if(kafka_e is null, null, named_struct('a', kafka_e.`a`)))[0]",
        ),
    )


def test_maps_keep_their_keys() -> None:
    columns = Struct((Field("m", MapOf(ArrayOf(read_schema("a int, b int")), "int")),))
    (column,) = columns_without_new(columns, {"m": "map of int", "m[]": "array", "m[][]": "struct", "m[][].a": "int"})

    assert column.type == "map<int,array<struct<`a`:int>>>"
    assert column.sql.startswith("transform_values(`m`, (kafka_k0, kafka_e0) -> transform(kafka_e0, kafka_e1 -> ")
