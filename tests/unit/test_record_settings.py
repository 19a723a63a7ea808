"""What a feed file says about keys and values."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.decoding import RAW, Columns, Decoding, FieldDecoding, Format, UnknownFields
from kafka_ingest.model.schema_source import DescriptorSetFile, ReadAs, RegistrySource, SchemaFile
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import SelectedColumn, Shape
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import read_feed_file

SCHEMA = "id bigint, name string"


def document(**changes: object) -> dict[str, object]:
    return {"name": "x", "kafka": {"topics": ["x"]}, "sink": {"format": "parquet", "path": "/data/x"}} | changes


@pytest.mark.parametrize(
    ("written", "decoding"),
    [
        ({}, RAW),
        ({"value": "raw", "key": {"format": "raw"}}, RAW),
        ({"value": "string"}, Decoding(FieldDecoding(Format.STRING))),
        ({"key": {"format": "string"}}, Decoding(key=FieldDecoding(Format.STRING))),
        ({"value": {"format": "json"}}, Decoding(FieldDecoding(Format.JSON))),
        (
            {"value": {"format": "json", "schema": SCHEMA, "unknown_fields": "refuse"}, "columns": "flatten"},
            Decoding(FieldDecoding(Format.JSON, SCHEMA, UnknownFields.REFUSE), columns=Columns.FLATTEN),
        ),
        (
            {"value": {"format": "json", "schema": "orders.schema.json", "unknown_fields": "refuse"}},
            Decoding(FieldDecoding(Format.JSON, None, UnknownFields.REFUSE, SchemaFile("orders.schema.json"))),
        ),
        (
            {"value": {"format": "avro", "schema": "orders.avsc"}, "columns": "flatten"},
            Decoding(FieldDecoding(Format.AVRO, source=SchemaFile("orders.avsc")), columns=Columns.FLATTEN),
        ),
        (
            {"key": {"format": "avro", "registry": "schemas"}},
            Decoding(key=FieldDecoding(Format.AVRO, source=RegistrySource("schemas"))),
        ),
        (
            {"value": {"format": "json", "registry": "schemas", "subject": "{topic}-com.shop.Order", "version": 7}},
            Decoding(FieldDecoding(Format.JSON, source=RegistrySource("schemas", "{topic}-com.shop.Order", 7))),
        ),
        (
            {"value": {"format": "protobuf", "descriptors": "o.desc", "message": "shop.Order"}, "columns": "flatten"},
            Decoding(
                FieldDecoding(Format.PROTOBUF, source=DescriptorSetFile("o.desc", "shop.Order")),
                columns=Columns.FLATTEN,
            ),
        ),
        (
            {"key": {"format": "protobuf", "registry": "schemas", "message": "shop.Order", "version": 7}},
            Decoding(key=FieldDecoding(Format.PROTOBUF, source=RegistrySource("schemas", None, 7, "shop.Order"))),
        ),
        (
            {
                "value": {
                    "format": "avro",
                    "registry": "schemas",
                    "as": {"before.amount": "string", "`items`[].`a.b`": "skip", "{}.raw": "binary"},
                    "other_records": "skip",
                }
            },
            Decoding(
                FieldDecoding(
                    Format.AVRO,
                    source=RegistrySource("schemas"),
                    read_as={"before.amount": ReadAs.STRING, "items[].`a.b`": ReadAs.SKIP, "{}.raw": ReadAs.BINARY},
                    skips_others=True,
                )
            ),
        ),
        (
            {"value": "raw", "key": {"format": "json", "schema": "kafka_x int, key int"}},
            Decoding(key=FieldDecoding(Format.JSON, "kafka_x int, key int")),
        ),
    ],
)
def test_a_feed_file_says_what_keys_and_values_are(written: dict[str, object], decoding: Decoding) -> None:
    found = Feed.model_validate(document(**written)).decoding()
    assert found == decoding
    frozen = replace(found, key=replace(found.key, source=None), value=replace(found.value, source=None))
    assert Decoding.from_document(frozen.as_document()) == frozen


@pytest.mark.parametrize(
    ("written", "shape"),
    [
        ({}, Shape()),
        ({"where": "kafka_partition = 0"}, Shape(where="kafka_partition = 0")),
        (
            {
                "select": [
                    {"name": "Id", "type": "LONG", "sql": "value.id"},
                    {"name": "key", "type": "binary", "sql": "key"},
                ]
            },
            Shape((SelectedColumn("Id", "bigint", "value.id"), SelectedColumn("key", "binary", "key"))),
        ),
        (
            {"select": [{"name": "key", "type": "int", "sql": "1"}], "keep_other_columns": True},
            Shape((SelectedColumn("key", "int", "1"),), keeps_others=True),
        ),
        ({"transform": "shop.orders:cleaned"}, Shape(transform="shop.orders:cleaned")),
    ],
)
def test_a_feed_file_says_which_rows_and_columns_records_become(written: dict[str, object], shape: Shape) -> None:
    decoding = Feed.model_validate(document(**written)).decoding()
    assert decoding.shape == shape
    assert decoding.is_raw == (not written)


def test_a_limit_of_bytes_makes_dead_letters_of_raw_records_too_and_is_frozen_with_an_attempt() -> None:
    feed = Feed.model_validate(document(limits={"max_record_bytes": 1_000}))
    assert feed.decoding() == Decoding(max_record_bytes=1_000)
    assert feed.decoding().is_raw
    assert not feed.decoding().takes_all
    assert Decoding.from_document(feed.decoding().as_document()) == feed.decoding()
    assert feed.plan_settings({}).max_records is None


COLUMN = {"name": "id", "type": "int", "sql": "value.id"}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"where": True}, "where: expected text, found true, as YAML reads it without quotes; write it in quotes"),
        ({"where": "sum(a) > 1"}, "where: expected an expression over the columns of one record, found sum, which is"),
        ({"select": []}, "select: expected at least 1 entry, found []"),
        ({"keep_other_columns": True}, "expected keep_other_columns together with select, found no select"),
        ({"select": "value.*"}, "select: expected a list, found 'value.*'"),
        ({"select": [COLUMN | {"type": "bigintt"}]}, "select.0.type: expected a type: one of string"),
        ({"select": [COLUMN | {"type": "int not null"}]}, "select.0.type: expected the end after 'int', found 'not'"),
        ({"select": [COLUMN | {"sql": "a; b"}]}, "select.0.sql: expected one expression, found ';' after it"),
        ({"select": [COLUMN | {"name": "Kafka_x"}]}, "select.0.name: expected a name that does not begin with kafka_"),
        ({"select": [COLUMN | {"name": " "}]}, "select.0.name: expected a column's name of 1 to 255 printable"),
        ({"select": [COLUMN, COLUMN]}, "select: expected names that differ in more than the case of their letters, "),
        ({"select": [COLUMN, COLUMN | {"name": "ID"}]}, "found 'id' and 'ID'"),
        ({"select": [{"nam": "id"}]}, "select.0.nam: unknown key; did you mean name?"),
        ({"select": [COLUMN | {"name": f"c{n}"} for n in range(1_001)]}, "select: expected at most 1,000 entries"),
        (
            {"transform": "shop.orders.cleaned"},
            "transform: expected package.module:function, found 'shop.orders.cleaned'",
        ),
        ({"transform": "shop/orders.py:cleaned"}, "transform: expected package.module:function"),
    ],
)
def test_a_shape_that_cannot_be_used_is_refused(tmp_path: Path, written: dict[str, object], message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(document(**written)))

    assert message in str(read_feed_file(path).error)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"value": "xml"}, "value.format: expected 'raw', 'string', 'json', 'avro' or 'protobuf', found 'xml'"),
        ({"value": {}}, "value.format: missing"),
        ({"value": 5}, "value: expected raw, string, json, avro, protobuf or a mapping with format, found 5"),
        ({"key": None}, "key: expected raw, string, json, avro, protobuf or a mapping with format, found null"),
        ({"value": {"format": "string", "schema": SCHEMA}}, "value.schema: unknown key"),
        ({"value": {"format": "json", "shema": SCHEMA}}, "value.shema: unknown key; did you mean schema?"),
        ({"value": {"format": "json", "ddl": SCHEMA}}, "value.ddl: unknown key"),
        ({"value": {"format": "json", "schema": "id bigin"}}, "value.schema: expected a type: one of string"),
        ({"value": {"format": "json", "schema": 5}}, "value.schema: expected text, found 5"),
        ({"key": {"format": "json", "unknown_fields": "refuse"}}, "key: expected unknown_fields with a schema only"),
        ({"key": "protobuf"}, "key: expected either descriptors, a file, or registry, a connection, found neither"),
        (
            {"value": {"format": "protobuf", "descriptors": "x.desc", "registry": "schemas"}},
            "value: expected either descriptors, a file, or registry, a connection, found both",
        ),
        (
            {"value": {"format": "protobuf", "descriptors": "x.desc"}},
            "value: expected message, the full name of a message of x.desc, found none",
        ),
        (
            {"value": {"format": "protobuf", "descriptors": "../x.desc", "message": "Order"}},
            "value.descriptors: expected the path of a schema file, absolute or beside the feed files, found",
        ),
        (
            {"value": {"format": "protobuf", "registry": "schemas", "message": "shop/Order"}},
            "value.message: expected the full name of a message, such as shop.Order, found 'shop/Order'",
        ),
        ({"value": "avro"}, "value: expected either schema, a file, or registry, a connection, found neither"),
        (
            {"value": {"format": "avro", "schema": "x.avsc", "registry": "schemas"}},
            "value: expected either schema, a file, or registry, a connection, found both",
        ),
        (
            {"value": {"format": "avro", "schema": "x.avsc", "version": 7}},
            "value: expected subject and version with a registry only, found version without one",
        ),
        (
            {"value": {"format": "json", "schema": "Unknown_Fields int", "unknown_fields": "keep"}},
            "expected with unknown_fields: keep a schema without a field unknown_fields",
        ),
        ({"value": {"format": "json", "schema": "../x.json"}}, "value.schema: expected the path of a schema file"),
        (
            {"value": {"format": "json", "schema": "x.json", "registry": "schemas"}},
            "expected with a registry its schema, or a list of fields as schema, found the path of a file",
        ),
        ({"value": {"format": "avro", "schema": "../x.avsc"}}, "value.schema: expected the path of a schema file"),
        (
            {"value": {"format": "json", "registry": "schemas", "subject": "{tpoic}-value"}},
            "value.subject: expected {topic} as the only name in braces, found '{tpoic}-value'",
        ),
        (
            {"value": {"format": "avro", "registry": "schemas", "version": "newest"}},
            "value.version: expected",
        ),
        *(
            ({"value": {"format": "avro", "schema": "x.avsc", "as": {path: "skip"}}}, "expected the path of a field, ")
            for path in ("", "a..b", ".a", "a.", "a b", "a[0]", "a`b`", "[]a", "`a", "x" * 1_001)
        ),
        (
            {"value": {"format": "avro", "schema": "x.avsc", "as": {"a": "text"}}},
            "value.as.a: expected 'string', 'binary' or 'skip', found 'text'",
        ),
        (
            {"value": {"format": "avro", "schema": "x.avsc", "other_records": "skip"}},
            "value: expected other_records with a registry only, as the type of a record is known by its schema id",
        ),
        (
            {"value": {"format": "json", "schema": SCHEMA, "as": {"id": "string"}}},
            "expected as with the schema of a file or of a registry, found it with a list of fields",
        ),
        (
            {"value": {"format": "json", "registry": "schemas", "as": {"id": "binary"}}},
            "expected string or skip under as, as JSON holds no bytes, found binary",
        ),
        (
            {"value": {"format": "json", "registry": "s", "as": {"id": "skip"}, "unknown_fields": "keep"}},
            "expected unknown_fields: ignore where fields are left out, found keep",
        ),
        ({"columns": "flat"}, "columns: expected 'nested' or 'flatten', found 'flat'"),
        (
            {"columns": "flatten"},
            "expected columns: flatten with a value of json with a schema, of avro or of protobuf only, found raw",
        ),
        (
            {"value": "json", "columns": "flatten"},
            "with a value of json with a schema, of avro or of protobuf only, found json without",
        ),
        (
            {"value": {"format": "json", "schema": "Key int, KAFKA_x int, id int"}, "columns": "flatten"},
            "expected fields that can be columns beside key and kafka_… (in any case of letters), found Key, KAFKA_x",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, written: dict[str, object], message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(document(**written)))

    assert message in str(read_feed_file(path).error)


def test_new_fields_are_a_matter_of_decoded_records_whose_columns_are_known() -> None:
    json_records = {"format": "json", "schema": "id int"}
    assert Feed.model_validate(document(value=json_records)).on_new_fields == "add"
    assert Feed.model_validate(document(value=json_records, on_new_fields="stop")).on_new_fields == "stop"
    for wrong in ({}, {"value": json_records, "transform": "shop:cleaned"}):
        with pytest.raises(ValueError, match="expected on_new_fields with decoded records only"):
            Feed.model_validate(document(**wrong, on_new_fields="ignore"))


@pytest.mark.parametrize("path", ["/data/x", "s3://lake/x"])
@pytest.mark.parametrize(
    ("written", "is_decoded"), [({}, False), ({"value": "string"}, True), ({"where": "true"}, True)]
)
def test_the_options_of_a_table_say_whether_its_records_are_decoded_and_those_of_a_directory_do_not(
    path: str, written: dict[str, object], *, is_decoded: bool
) -> None:
    table = Feed.model_validate(document(sink={"format": "delta", "path": path}, **written)).output({})
    assert TableOptions.of(dict(table.options)).decoded is is_decoded
    assert output_of_dead_letters(table).format == "delta_dead_letters"
    assert Feed.model_validate(document(**written)).output({}).options == ()
