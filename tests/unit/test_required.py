"""Fields that a feed requires are named by paths of its schema."""

from pathlib import Path

import pytest

from kafka_ingest.model.decoding import FieldDecoding, Format
from kafka_ingest.model.record_schema import read_schema
from kafka_ingest.model.schema_source import names_of, not_in, required_path
from kafka_ingest.settings.feed_file import read_feed_file

SCHEMA = read_schema("id bigint, address struct<`a.b`: string, city: string>, tags array<struct<x: int>>")
FEED = "{{name: orders, kafka: {{topics: [orders]}}, sink: {{format: parquet, path: /data/orders}}, value: {value}}}"


def error_of(tmp_path: Path, value: str) -> str:
    path = tmp_path / "orders.yaml"
    path.write_text(FEED.format(value=value))
    return str(read_feed_file(path).error)


def test_a_path_leads_through_objects_and_a_name_may_hold_any_sign() -> None:
    assert names_of(required_path("address.`a.b`")) == ("address", "a.b")
    assert names_of(required_path("id")) == ("id",)


@pytest.mark.parametrize("path", ["tags[].x", "prices{}", "", ".id", "a..b"])
def test_what_is_in_an_array_or_a_map_cannot_be_required(path: str) -> None:
    with pytest.raises(ValueError, match="expected the path of a field"):
        required_path(path)


def test_paths_that_the_schema_does_not_have_are_told() -> None:
    assert not_in(SCHEMA, ["id", "address.city", "address.`a.b`", "ID", "address.a", "id.x", "tags.x"]) == [
        *("ID", "address.a", "id.x", "tags.x")
    ]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (
            '{format: json, schema: "id int", required: [idd]}',
            "to name fields of the schema, found idd",
        ),
        ("{format: json, required: [id]}", "expected required with a schema only"),
        ('{format: json, schema: "id int", required: ["id[]"]}', "that is in no array and no map"),
        ("{format: string, required: [id]}", "unknown key"),
    ],
)
def test_what_cannot_be_required_is_refused_with_the_file(tmp_path: Path, value: str, error: str) -> None:
    assert error in error_of(tmp_path, value)


def test_what_is_required_is_frozen_with_an_attempt() -> None:
    decoding = FieldDecoding(Format.JSON, "id int", required=("id",))
    assert FieldDecoding.from_document(decoding.as_document()) == decoding
