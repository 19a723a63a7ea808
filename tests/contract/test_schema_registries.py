"""A schema registry keeps the same promises whether it is Apicurio's or the stand-in that most tests ask.

Schemas are registered by Confluent's own client, and records written by Confluent's own serializers.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.protobuf_types import message_class

from kafka_ingest.batches.freeze_schemas import Schemas
from kafka_ingest.errors import SchemaRegistryUnavailableError, SubjectMissingError
from kafka_ingest.model.decoding import Decoding, FieldDecoding, Format
from kafka_ingest.model.schema_source import RegistrySource
from kafka_ingest.schemas import RegistrySettings, message_types
from kafka_ingest.schemas.schema_registry import HttpSchemaRegistry
from schema_registry import running_schema_registry

STAND_IN = "a stand-in"
NOBODY_HAS = 2**31 - 1

INT, LONG, STRING = '"int"', '"long"', '"string"'
ADDRESS = json.dumps({"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]})
HOME = json.dumps({"type": "record", "name": "Home", "fields": [{"name": "at", "type": "Address"}]})
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Home"}]})
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND = FIRST | {"fields": [*FIRST["fields"], {"name": "city", "type": "string", "default": "Bern"}]}
ORDER_JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
PROTO = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
    message Refund { int64 id = 1; } message Order { int64 id = 1; google.protobuf.Timestamp at = 2; }"""


@pytest.fixture(scope="module", params=[STAND_IN, "apicurio"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a registry is."""
    if request.param == STAND_IN:
        with running_schema_registry() as server:
            yield server.url
    else:
        yield request.getfixturevalue(request.param)


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    """Return Confluent's own client."""
    return SchemaRegistryClient({"url": url})


@pytest.fixture
def asked(url: str) -> HttpSchemaRegistry:
    """Return what feeds ask with."""
    return asking(url)


def asking(url: str) -> HttpSchemaRegistry:
    return HttpSchemaRegistry(RegistrySettings("schemas", (url,)), wait=lambda _: None)


@pytest.fixture
def name() -> str:
    """Return the beginning of a subject's name, of which the registry has none yet."""
    return f"orders-{uuid4().hex[:8]}"


def test_a_subject_has_versions_and_a_schema_is_found_by_its_id(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    subject = f"{name}/eu-value"
    ids = [client.register_schema(subject, Schema(text, "AVRO")) for text in (INT, LONG)]

    assert asked.versions(subject) == [1, 2]
    newest, first = asked.version(subject, None), asked.version(subject, 1)
    assert [(each.schema_id, each.version, each.text, each.kind) for each in (newest, first)] == [
        (ids[1], 2, LONG, "AVRO"),
        (ids[0], 1, INT, "AVRO"),
    ]
    found = asked.by_id(ids[0])
    assert found is not None
    assert (found.schema_id, found.text, found.kind) == (ids[0], INT, "AVRO")


def test_what_a_registry_does_not_have_is_said_to_be_missing_and_is_no_failure(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    client.register_schema(name, Schema(LONG, "AVRO"))
    for question in (
        lambda: asked.versions(f"{name}-none"),
        lambda: asked.version(f"{name}-none", None),
        lambda: asked.version(f"{name}-none", 1),
        lambda: asked.version(name, 2),
    ):
        with pytest.raises(SubjectMissingError, match=f"{name}.* in the schema registry, found none"):
            question()
    assert [asked.by_id(each) for each in (NOBODY_HAS, 0, NOBODY_HAS + 1)] == [None] * 3


def test_a_wrong_path_is_no_registry(url: str) -> None:
    mistyped = asking(f"{url}/nothing")
    with pytest.raises(SchemaRegistryUnavailableError, match="HTTP 404, which is no schema registry's answer"):
        mistyped.by_id(1)
    with pytest.raises(SubjectMissingError, match="HTTP 404, which is no schema registry's answer"):
        mistyped.version("orders", None)


def test_what_a_schema_refers_to_comes_with_it_or_is_missed_by_name(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    address, home, order = (f"{name}-{each}" for each in ("address", "home", "order"))
    client.register_schema(address, Schema(ADDRESS, "AVRO"))
    client.register_schema(home, Schema(HOME, "AVRO", [SchemaReference("Address", address, 1)]))
    schema_id = client.register_schema(order, Schema(ORDER, "AVRO", [SchemaReference("Home", home, 1)]))

    found = asked.version(order, None)

    assert (found.schema_id, found.lacks) == (schema_id, None)
    assert {each: json.loads(text) for each, text in found.references} == {
        "Home": json.loads(HOME),
        "Address": json.loads(ADDRESS),
    }
    for subject in (order, home, address):
        client.delete_version(subject, 1)
    with pytest.raises(SubjectMissingError):
        asking_again(asked).version(order, None)
    # Records that were written with it are still there. Confluent's registry keeps what was deleted, Apicurio's not.
    kept = asking_again(asked).by_id(schema_id)
    assert kept is not None
    assert replace(kept, guid=found.guid) in (
        replace(found, version=None),
        replace(found, version=None, references=(), lacks=missing(home)),
    )


def missing(subject: str) -> str:
    """Return what a schema lacks that refers to a subject's first version."""
    return f"expected version 1 of subject {subject!r}, to which it refers, in the schema registry, found none"


def asking_again(asked: HttpSchemaRegistry) -> HttpSchemaRegistry:
    """Return what remembers no answer."""
    return HttpSchemaRegistry(asked._settings, wait=lambda _: None)


def test_a_version_that_was_deleted_is_none_of_its_subject_any_more(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    first = client.register_schema(name, Schema(json.dumps(FIRST), "AVRO"))
    client.register_schema(name, Schema(json.dumps(SECOND), "AVRO"))

    client.delete_version(name, 1)

    assert asked.versions(name) == [2]
    with pytest.raises(SubjectMissingError, match=f"version 1 of subject '{name}'"):
        asked.version(name, 1)
    assert asked.by_id(first) is not None


# ── What serializers write ────────────────────────────────────────────────────────────────────────────────────────────

Serialize = Callable[[Any, SerializationContext], bytes | None]


def frozen(asked: HttpSchemaRegistry, part: FieldDecoding, topic: str, *found: int) -> FieldDecoding:
    """Return what an attempt decodes values with."""
    schemas = Schemas(lambda _: asked, lambda path: path.encode(), message_types)
    return schemas.frozen(Decoding(part), [topic], {"value": found}).value


def id_of(written: bytes | None) -> int:
    """Return the schema's id before a value."""
    assert written is not None
    assert written[0] == 0
    return int.from_bytes(written[1:5])


def test_avro_of_confluents_serializer_is_read_by_every_schema_that_it_registered(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    values = SerializationContext(name, MessageField.VALUE)
    ids = [
        id_of(AvroSerializer(client, json.dumps(schema))({"id": 1, "city": "Basel"}, values))
        for schema in (FIRST, SECOND)
    ]
    other = id_of(AvroSerializer(client, STRING)("x", SerializationContext(f"{name}-other", MessageField.VALUE)))

    part = frozen(asked, FieldDecoding(Format.AVRO, source=RegistrySource("schemas")), name, other, NOBODY_HAS)

    assert json.loads(part.schema or "")["fields"] == SECOND["fields"]
    assert [(each.schema_id, each.misfit) for each in part.writers or ()] == sorted(
        [(ids[0], None), (ids[1], None), (other, "expected the value as Order, found string")]
    )
    assert part.unknown_ids == (NOBODY_HAS,)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (topic_subject_name_strategy, None),
        (record_subject_name_strategy, "{record}"),
        (topic_record_subject_name_strategy, "{topic}-{record}"),
    ],
)
def test_a_feed_names_the_subject_of_each_of_the_serializers_strategies(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str, strategy: object, subject: str | None
) -> None:
    schema = FIRST | {"namespace": name.replace("-", "_")}
    serialize = AvroSerializer(client, json.dumps(schema), conf={"subject.name.strategy": strategy})
    written = serialize({"id": 1}, SerializationContext(name, MessageField.VALUE))

    named = subject and subject.replace("{record}", f"{schema['namespace']}.Order")
    part = frozen(asked, FieldDecoding(Format.AVRO, source=RegistrySource("schemas", named)), name)

    assert [(each.schema_id, each.misfit) for each in part.writers or ()] == [(id_of(written), None)]


def test_json_of_confluents_serializer_is_read_by_its_json_schema(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    serialize = JSONSerializer(json.dumps(ORDER_JSON), client, lambda each, _: each)
    written = serialize({"id": 6}, SerializationContext(name, MessageField.VALUE))

    part = frozen(asked, FieldDecoding(Format.JSON, source=RegistrySource("schemas")), name)

    assert part.schema == "`id`:bigint"
    assert [(each.schema_id, each.text, each.misfit) for each in part.writers or ()] == [(id_of(written), "", None)]


def test_protobuf_of_confluents_serializer_is_read_by_its_message_type(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    kind = message_class(PROTO)
    serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    written = serialize(kind(id=1), SerializationContext(name, MessageField.VALUE))
    source = RegistrySource("schemas", message="shop.Order")

    part = frozen(asked, FieldDecoding(Format.PROTOBUF, source=source), name)

    assert message_types().columns(part.schema or "", {}).ddl == "struct<`id`:bigint,`at`:timestamp>"
    [writer] = part.writers or ()
    assert (writer.schema_id, writer.misfit) == (id_of(written), None)
    assert any((written or b"")[5:].startswith(bytes.fromhex(each)) for each in json.loads(writer.text or ""))


def test_protobuf_that_was_registered_as_text_comes_with_what_it_imports(
    client: SchemaRegistryClient, asked: HttpSchemaRegistry, name: str
) -> None:
    item = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
    order = 'syntax = "proto3"; package shop; import "item.proto"; message Order { int64 id = 1; Item item = 2; }'
    client.register_schema(f"{name}-item", Schema(item, "PROTOBUF"))
    references = [SchemaReference("item.proto", f"{name}-item", 1)]
    client.register_schema(f"{name}-value", Schema(order, "PROTOBUF", references))

    part = frozen(asked, FieldDecoding(Format.PROTOBUF, source=RegistrySource("schemas")), name)

    assert message_types().columns(part.schema or "", {}).ddl == "struct<`id`:bigint,`item`:struct<`name`:string>>"
