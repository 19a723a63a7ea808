"""Fields that no record of a batch has are found: by bits of what has values, and by a look at some records."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.fakes import span

from kafka_ingest.model.decoding import Columns, Decoding, FieldDecoding, Format
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.omissions import NeverFound
from kafka_ingest.model.schema_source import WriterSchema
from kafka_ingest.writing.found_fields import ELEMENTS, FoundFields
from kafka_ingest.writing.object_batches import found_in

ORDER = "id bigint, user struct<name: string, address: struct<city: string>>, tags array<struct<a: int>>"
PATHS = [
    ("id",),
    ("user",),
    ("user", "name"),
    ("user", "address"),
    ("user", "address", "city"),
    ("tags",),
    ("tags", ELEMENTS, "a"),
]


def decoding(schema: str = ORDER, key: str | None = None, columns: Columns = Columns.NESTED, **of: Any) -> Decoding:
    keys = FieldDecoding(Format.JSON, key) if key is not None else FieldDecoding()
    return Decoding(FieldDecoding(Format.JSON, schema, **of), keys, columns)


@dataclass
class Reading:
    """Answers what is asked of a DataFrame of records; ``asked`` are the ranges."""

    values: Sequence[object]
    asked: list[list[OffsetRange]] = field(default_factory=list)
    head: bytes = b""
    larger: str | None = None

    def __call__(self, ranges: Sequence[OffsetRange]) -> Any:
        self.asked.append(list(ranges))
        return self

    def selectExpr(self, *_columns: str) -> "Reading":  # noqa: N802 - Spark's name
        return self

    def where(self, condition: str) -> "Reading":
        return replace(self, larger=condition)

    def limit(self, _most: int) -> "Reading":
        return self

    def collect(self) -> list[dict[str, Any]]:
        bodies = [None if each is None else self.head + as_bytes(each) for each in self.values]
        if self.larger:
            return [{"body": each} for each in bodies if each is not None and len(each) > 16_384]
        return [
            {"body": each if each and len(each) <= 16_384 else None, "size": len(each) if each else None}
            for each in bodies
        ]


def as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def never(schema: str, values: Sequence[object], found: int = 0, **of: Any) -> list[tuple[str, int, tuple[str, ...]]]:
    """Return what none of these values has, where these bits have values: field, records, and other names."""
    fields = FoundFields(decoding(schema, **of))
    head = b"\0\0\0\0\1" if "writers" in of else b""
    looked = fields.never_found(found, Reading(values, head=head), [span(0, 0, 100)])
    return [(each.field, each.records, each.others) for each in looked]


def sql_of(*of: Any, **options: Any) -> list[str]:
    return [each.sql.replace("`", "") for each in FoundFields(decoding(*of, **options)).fields]


def test_fields_are_those_of_objects_and_of_all_within_them() -> None:
    assert [each.path for each in FoundFields(decoding()).fields] == PATHS
    assert sql_of("a struct<b: int>", "k int") == [
        *("value.a is not null", "value.a.b is not null", "key.k is not null")
    ]
    assert sql_of("a struct<b: int>", columns=Columns.FLATTEN) == ["a is not null", "a.b is not null"]
    assert sql_of("a array<struct<b: int, c: array<struct<d: int>>, e: map<string, struct<f: int>>>>") == [
        "value.a is not null",
        "array_max(value.a.b) is not null",
        "array_max(value.a.c) is not null",
    ]
    assert sql_of("m map<string, struct<a: struct<b: int>>>") == [
        "value.m is not null",
        "array_max(map_values(value.m).a) is not null",
        "array_max(map_values(value.m).a.b) is not null",
    ]


def test_names_within_arrays_and_maps_are_looked_for_in_each_element() -> None:
    lines = [{"items": [{"sku": "a", "price": 1}, {"sku": "b"}], "by": {"x": {"a": 1}}}, {"items": None, "by": {}}]
    schema = "items array<struct<sku: string, prise: int>>, by map<string, struct<aa: int>>"
    assert never(schema, lines * 20, 0b001011) == [
        ("items[].prise", 40, ("price",)),
        ("by{}.aa", 20, ("a",)),
    ]
    assert FoundFields(Decoding(FieldDecoding(Format.AVRO, "{}"), FieldDecoding(Format.STRING))).fields == []


def test_a_mistyped_field_is_named_with_the_names_that_are_there() -> None:
    assert never("id bigint, usr string", [{"id": None, "user": "a", "page": 1}, {"id": 1, "user": "b"}]) == [
        ("usr", 2, ("user", "page"))
    ]


def test_a_field_that_is_there_with_null_is_found() -> None:
    assert never("id bigint, gone string", [{"id": 1, "gone": None}, {"id": 2}]) == []


def test_a_field_that_has_a_value_in_some_row_is_found_whatever_the_records_looked_at_have() -> None:
    assert never("a int, b int", [{"c": 1}], found=0b10) == [("a", 1, ("c",))]


def test_of_an_object_that_is_never_there_only_itself_is_missed_and_of_one_that_is_null_nothing() -> None:
    assert never(ORDER, [{"id": 1, "tags": []}], found=0b100001) == [("user", 1, ())]
    assert never(ORDER, [{"id": 1, "user": None, "tags": []}], found=0b100001) == []
    assert never(ORDER, [{"user": {"Name": "x", "address": None}}] * 3, found=0b101011) == [("user.name", 3, ("Name",))]


def test_what_is_no_object_is_not_counted() -> None:
    values = [None, b"{", b"\xff", b"[" * 100_000, [1], "text", {"x": 1}, b'{"y": ' + b"9" * 5_000 + b"}"]
    assert never("a int", values) == [("a", 1, ("x",))]
    assert never("a int", [None, None]) == []


def test_an_object_may_stand_behind_an_id() -> None:
    assert never("a int", [{"b": 1}], writers=(WriterSchema(1, "{}"),)) == [("a", 1, ("b",))]


def test_where_nearly_all_records_are_large_some_of_these_are_looked_at() -> None:
    """Kafka Connect repeats the schema in each record: that of a wide table is larger than most records are."""
    schema = {"fields": ["x" * 100] * 200}
    enveloped = [{"schema": schema, "payload": {"id": number}} for number in range(30)]
    assert never("id bigint", enveloped) == [("id", 30, ("schema", "payload"))]
    assert never("id bigint", [*enveloped, None, {"id": None}]) == []

    reading = Reading(enveloped)
    FoundFields(decoding("id bigint")).never_found(0, reading, [span(0, 0, 1_000)])
    assert len(reading.asked) == 2


def test_where_enough_records_are_small_the_large_ones_are_not_read() -> None:
    reading = Reading([{"a": "x" * 20_000}] * 5 + [{"b": 1}] * 20)
    [found] = FoundFields(decoding("id bigint")).never_found(0, reading, [span(0, 0, 1_000)])
    assert (found.records, found.others) == (20, ("b",))
    assert len(reading.asked) == 1


def test_keys_are_looked_at_as_values_are() -> None:
    found = FoundFields(decoding("schema int", "id bigint")).never_found(
        0b1, Reading([{"schema": 1, "payload": {"id": 5}}]), [span(0, 0, 100)]
    )
    assert found == (NeverFound("key", "id", 1, ("schema", "payload"), is_part_found=False),)


def test_nothing_is_read_again_where_each_field_has_a_value() -> None:
    reading = Reading([{}])
    assert FoundFields(decoding()).never_found(0b1111111, reading, [span(0, 0, 100)]) == ()
    assert reading.asked == []


def test_the_records_looked_at_come_from_the_ends_of_several_ranges_or_from_anywhere_where_those_hold_few() -> None:
    ranges = [span(number, 0, 1_000) for number in range(100)]
    many, few = Reading([{}] * 20), Reading([{}] * 19)

    for reading in (many, few):
        FoundFields(decoding("a int")).never_found(0, reading, ranges)

    assert many.asked == [[span(number, 990, 1_000) for number in range(0, 100, 2)]]
    assert few.asked == [*many.asked, ranges]


@pytest.mark.parametrize("count", [1, 62, 63, 200])
def test_any_number_of_fields_is_counted_in_numbers_that_have_a_sign(count: int) -> None:
    fields = FoundFields(decoding(", ".join(f"f{number} int" for number in range(count))))
    names = list(fields.expressions())
    assert len(names) == -(-count // 62)

    found = fields.all_bits({name: 1 if name == names[-1] else None for name in names})

    assert [each.path for each in fields.fields if each not in fields.without_value(found)] == [
        (f"f{62 * (len(names) - 1)}",)
    ]


def test_workers_find_the_same_fields_in_the_same_order() -> None:
    address = {"name": None, "address": {"city": None}}
    rows: Any = pa.RecordBatch.from_pylist([{"id": None, "user": None}, {"id": 1, "user": address}])
    assert list(found_in(rows.columns)) == [True, True, False, True, False]


def test_names_of_records_are_shown_in_bounds() -> None:
    many = {f"n{number}": 1 for number in range(30)}
    [(_, _, others)] = never("a int", [many | {"\n" + "x" * 200: 1}] * 2)
    assert len(others) == 20
    [(_, _, (name,))] = never("a int", [{"\n" + "x" * 200: 1}])
    assert (name[0], len(name)) == ("?", 101)
