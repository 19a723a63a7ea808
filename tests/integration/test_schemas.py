"""Feeds whose records have registered schemas, on real parts: what Confluent's serializers write becomes columns."""

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.integration.test_dead_letters import rows_of
from tests.kafka_faults import Record, produce
from tests.protobuf_types import descriptor_set, message_class
from tests.quick_project import QuickProject

from schema_registry import SchemaRegistryServer, running_schema_registry

USER, PASSWORD = "app", "hunter22"
FIRST = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SECOND = FIRST | {"fields": [*FIRST["fields"], {"name": "city", "type": "string", "default": "Bern"}]}
LATE = SECOND | {"fields": [*SECOND["fields"], {"name": "more", "type": "int", "default": 0}]}
REFUND = {"type": "record", "name": "Refund", "fields": [{"name": "id", "type": "long"}]}
ORDER_JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
AVRO = {"format": "avro", "registry": "schemas"}
PROTOBUF = {"format": "protobuf", "registry": "schemas", "message": "shop.Order"}
IMPORTS = 'syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";'
OLD_PROTO = IMPORTS + "message Order { int32 id = 1; google.protobuf.Timestamp at = 2; }"
NEW_PROTO = (
    IMPORTS
    + """
    message Refund { int64 id = 1; }
    message Order { optional string city = 3; google.protobuf.Timestamp at = 2; int64 id = 1; }"""
)
LATE_PROTO = NEW_PROTO.replace("city = 3;", "city = 3; int32 more = 4;")
MISREAD_PROTO = OLD_PROTO.replace("int32 id", "string id")


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with running_schema_registry() as server:
        server.needs(USER, PASSWORD)
        yield server


@pytest.fixture
def quick(quick: QuickProject, registry: SchemaRegistryServer) -> QuickProject:
    """A project with a connection to the registry."""
    connection = {"conn_type": "http", "host": registry.url, "login": USER, "password": PASSWORD}
    quick.environment["AIRFLOW_CONN_SCHEMAS"] = json.dumps(connection)
    return quick


def client(registry: SchemaRegistryServer) -> SchemaRegistryClient:
    """Return Confluent's own client."""
    return SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": f"{USER}:{PASSWORD}"})


def avro(registry: SchemaRegistryServer, topic: str, schema: Any, value: Any, field: str = MessageField.VALUE) -> bytes:
    """Return what a producer of Confluent's writes, which registers its schema first."""
    serialize = AvroSerializer(client(registry), json.dumps(schema))
    written = serialize(value, SerializationContext(topic, field))
    assert written is not None
    return written


def in_header(registry: SchemaRegistryServer, topic: str, schema: Any, value: Any, key: bytes) -> Record:
    """Return what a producer writes that puts the GUID of its schema into a header."""
    config: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer}
    headers: list[Any] = []
    serialize = AvroSerializer(client(registry), json.dumps(schema), conf=config)
    written = serialize(value, SerializationContext(topic, MessageField.VALUE, headers))
    assert written is not None
    assert [name for name, _ in headers] == ["__value_schema_id"]
    return Record(written, key, headers=tuple(headers))


def test_registered_avro_becomes_columns_and_only_ids_that_the_registry_does_not_know_are_dead(
    quick: QuickProject, servers: str, orders: str, registry: SchemaRegistryServer
) -> None:
    moment = 1_767_225_600_000
    key = avro(registry, orders, "long", 5, MessageField.KEY)
    first = avro(registry, orders, FIRST, {"id": 1, "at": moment})
    second = avro(registry, orders, SECOND, {"id": 2, "at": moment, "city": "Zürich"})
    other = avro(registry, "refunds", REFUND, {"id": 3})
    unknown = b"\0\0\0\0\x4d" + first[5:]
    late = b"\0\0\0\0\5" + second[5:] + b"\x0e"
    values = [first, second, other, unknown, second + b"!", first[:5], b"", None, late]
    records = [Record(value, key) for value in values]
    records[1] = in_header(registry, orders, SECOND, {"id": 2, "at": moment, "city": "Zürich"}, key)
    produce(servers, orders, 2, records)
    quick.write_feed(orders, value=AVRO, key=AVRO)

    # The schemas have been asked for when the registry gets the one that the last record was written with.
    with quick.submitting(spark_is_real=True, before_spark=lambda: registry.register(f"{orders}-value", LATE)):
        [batch] = quick.run()

    rows = rows_of(quick.output / "orders")
    found = [row["value"] and (row["value"]["id"], row["value"]["city"]) for row in rows]
    assert [row["kafka_offset"] for row in rows] == [0, 1, 7, 8]
    assert found == [(1, "Bern"), (2, "Zürich"), None, (2, "Zürich")]
    assert {row["key"] for row in rows} == {5}
    letters = {
        row["kafka_offset"]: (row["error_class"], row["schema_id"], row["attempt"])
        for row in rows_of(quick.output / "orders_dead_letters")
        if row["kafka_partition"] == 2
    }
    assert letters == {
        2: ("INCOMPATIBLE_SCHEMA", 4, 2),
        3: ("UNKNOWN_SCHEMA_ID", 77, 2),
        4: ("NOT_AVRO", 3, 2),
        5: ("NOT_AVRO", 2, 2),
        6: ("NOT_WIRE_FORMAT", None, 2),
    }
    assert registry.asked.count("GET /schemas/ids/77") == 1
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 9}
    assert batch["rows"] == 4

    check_doctor(quick, orders, registry)
    check_preview(quick, registry)
    produce(servers, orders, 2, [Record(json_after_id(registry, orders, {"id": 6}))])
    check_failures(quick, registry)
    check_json(quick, orders)


def json_after_id(registry: SchemaRegistryServer, topic: str, value: Any) -> bytes:
    """Return what a producer of Confluent's writes in JSON, under a subject of its own."""
    serialize = JSONSerializer(json.dumps(ORDER_JSON), client(registry), lambda each, _: each)
    written = serialize(value, SerializationContext(f"{topic}-json", MessageField.VALUE))
    assert written is not None
    return written


def check_doctor(quick: QuickProject, topic: str, registry: SchemaRegistryServer) -> None:
    """Schemas are asked for, and those are named whose records would be dead letters."""
    registry.register(f"{topic}-key", REFUND)
    quick.edit_feed(key=AVRO | {"version": 1})

    found = {check["check"]: check for check in quick.answer("doctor", "orders")["checks"]}

    assert found["feed orders: schemas"]["found"] == (
        "key: avro, written with 2 schemas; records of some become dead letters (id 4: expected the value as long, "
        "found Refund); value: avro, written with 3 schemas"
    )
    assert found["feed orders: columns"]["found"].endswith(" fields, as the output has them")


def check_preview(quick: QuickProject, registry: SchemaRegistryServer) -> None:
    """See what the feed makes of the newest records; ids that are found first are asked for, too."""
    with quick.submitting(spark_is_real=True):
        answer = quick.kafka_ingest("preview", "orders", "--records", "27", "--json")
    assert answer.exit_code == 1, answer.stderr
    classes = {each["error_class"] for each in answer.document["dead_letters"]}
    assert {"INCOMPATIBLE_SCHEMA", "UNKNOWN_SCHEMA_ID"} <= classes
    columns = answer.document["columns"]
    assert columns["written"] == columns["output"]
    assert (columns["new"], columns["refused"]) == ([], None)
    assert registry.asked.count("GET /schemas/ids/77") == 2


def check_failures(quick: QuickProject, registry: SchemaRegistryServer) -> None:
    """A registry that does not answer, refuses or lacks the subject stops the batch; nothing moves."""
    before = quick.stored_offsets()
    registry.failures = [503] * 3
    assert quick.refusal("run", "orders")[:2] == (1, "SCHEMA_REGISTRY_UNAVAILABLE")
    registry.header = "Bearer other"
    assert quick.refusal("run", "orders")[:2] == (2, "SCHEMA_REGISTRY_REFUSED")
    registry.needs(USER, PASSWORD)
    quick.edit_feed(value=AVRO | {"subject": "com.shop.Nothing"})
    assert quick.refusal("run", "orders")[:2] == (2, "SUBJECT_MISSING")
    quick.edit_feed(value={"format": "avro", "schema": "orders.avsc"})
    assert quick.refusal("run", "orders")[:2] == (2, "INVALID_SCHEMA")
    (quick.feeds / "orders.avsc").write_text(json.dumps(FIRST | {"fields": [{"name": "kafka_x", "type": "int"}]}))
    quick.edit_feed(columns="flatten")
    assert quick.refusal("run", "orders")[:2] == (2, "INVALID_SCHEMA")
    assert quick.stored_offsets() == before
    assert PASSWORD not in quick.kafka_ingest("run", "orders").stderr


def check_json(quick: QuickProject, topic: str) -> None:
    """JSON after an id is read by the columns of its JSON Schema, once the feed and its output are of such records."""
    source = {"format": "json", "registry": "schemas", "subject": f"{topic}-json-value"}
    quick.edit_feed(value=source, key="raw", columns="flatten")
    checks = {check["check"]: check for check in quick.kafka_ingest("doctor", "orders", "--json").document["checks"]}
    assert checks["feed orders: columns"]["error"]["code"] == "COLUMNS_CHANGED"
    code, error, said = quick.refusal("run", "orders")
    assert (code, error) == (3, "COLUMNS_CHANGED")
    assert re.search(r"key +bigint +binary\n +value +struct +\(none\)", said)
    quick.answer("abandon", quick.status()["open_batch"]["batch_id"], "--reason", "other columns")
    quick.edit_feed(sink={"format": "parquet", "path": str(quick.output / "orders_json")})

    with quick.submitting(spark_is_real=True):
        [batch] = quick.run()

    [row] = rows_of(quick.output / "orders_json" / f"kafka_batch={batch['batch_id']}")
    assert (row["kafka_offset"], row["id"]) == (9, 6)


def protobuf(
    registry: SchemaRegistryServer, topic: str, text: str, message: str = "shop.Order", **fields: Any
) -> bytes:
    """Return what a producer of Confluent's writes in Protobuf, which registers its schema first."""
    kind = message_class(text, message)
    serialize = ProtobufSerializer(kind, client(registry), {"use.deprecated.format": False})
    written = serialize(kind(**fields), SerializationContext(topic, MessageField.VALUE))
    assert written is not None
    return written


def test_registered_protobuf_becomes_columns_whichever_version_it_was_written_with(
    quick: QuickProject, servers: str, orders: str, registry: SchemaRegistryServer
) -> None:
    at = {"seconds": 1_767_225_600, "nanos": 123_456_789}
    old = protobuf(registry, orders, OLD_PROTO, id=1, at=at)
    new = protobuf(registry, orders, NEW_PROTO, id=2, at=at, city="Zürich")
    refund = protobuf(registry, orders, NEW_PROTO, "shop.Refund", id=3)
    misread = protobuf(registry, "other", MISREAD_PROTO, id="x")
    unknown = b"\0\0\0\0\x4d" + new[5:]
    late = b"\0\0\0\0\4" + protobuf(registry, orders, NEW_PROTO, id=4)[5:] + b"\x20\x07"
    values = [old, new, refund, misread, unknown, new + b"\x08", new[:5], b"", None, late, new[:7]]
    produce(servers, orders, 2, [Record(value) for value in values])
    quick.write_feed(orders, value=PROTOBUF, columns="flatten")

    register = partial(registry.register, f"{orders}-value", LATE_PROTO, "PROTOBUF")
    with quick.submitting(spark_is_real=True, before_spark=register):
        [batch] = quick.run()

    rows = rows_of(quick.output / "orders")
    assert [(row["kafka_offset"], row["id"], row["city"]) for row in rows] == [
        *((0, 1, None), (1, 2, "Zürich"), (8, None, None), (9, 4, None), (10, 0, None))
    ]
    assert rows[0]["at"].isoformat() == "2026-01-01T00:00:00.123456+00:00"
    letters = {
        row["kafka_offset"]: row["error_class"]
        for row in rows_of(quick.output / "orders_dead_letters")
        if row["kafka_partition"] == 2
    }
    assert letters == {
        2: "OTHER_MESSAGE",
        3: "INCOMPATIBLE_SCHEMA",
        4: "UNKNOWN_SCHEMA_ID",
        5: "NOT_PROTOBUF",
        6: "OTHER_MESSAGE",
        7: "NOT_WIRE_FORMAT",
    }
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 11}
    assert batch["rows"] == 5
    found = {check["check"]: check for check in quick.answer("doctor", "orders")["checks"]}
    assert found["feed orders: schemas"]["found"] == "value: protobuf, written with 3 schemas"

    check_descriptors(quick, orders, servers)


def check_descriptors(quick: QuickProject, topic: str, servers: str) -> None:
    """Without a registry a value is nothing but the message, and the file says which."""
    quick.edit_feed(value={"format": "protobuf", "descriptors": "orders.desc", "message": "shop.Order"})
    assert quick.refusal("run", "orders")[:2] == (2, "INVALID_SCHEMA")
    (quick.feeds / "orders.desc").write_bytes(descriptor_set(LATE_PROTO))
    quick.edit_feed(value={"format": "protobuf", "descriptors": "orders.desc", "message": "shop.Bill"})
    code, error, said = quick.refusal("run", "orders")
    assert (code, error) == (2, "INVALID_SCHEMA")
    assert "expected the message shop.Bill, found shop.Order, shop.Refund" in said
    quick.edit_feed(value={"format": "protobuf", "descriptors": "orders.desc", "message": "shop.Order"})
    written = message_class(NEW_PROTO)(id=6).SerializeToString()
    produce(servers, topic, 2, [Record(written, written), Record(b"\x08"), Record(None)])

    with quick.submitting(spark_is_real=True):
        [batch] = quick.run()

    rows = rows_of(quick.output / "orders" / f"kafka_batch={batch['batch_id']}")
    assert [(row["kafka_offset"], row["id"], row["key"]) for row in rows] == [(11, 6, written), (13, None, None)]
