"""Which schemas an attempt decodes with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.protobuf_types import descriptor_set, proto

from kafka_ingest.batches import freeze_schemas
from kafka_ingest.batches.freeze_schemas import Schemas, found_ids
from kafka_ingest.errors import InstallationError, InvalidSchemaError, SubjectMissingError
from kafka_ingest.model.decoding import Columns, Decoding, FieldDecoding, Format, UnknownFields
from kafka_ingest.model.schema_source import (
    DescriptorSetFile,
    RegisteredSchema,
    RegistrySource,
    SchemaFile,
    WriterSchema,
)
from kafka_ingest.schemas import NEEDED, message_types


def record(*names: str, name: str = "Order") -> str:
    """Return a record with fields of type long."""
    return json.dumps({"type": "record", "name": name, "fields": [{"name": each, "type": "long"} for each in names]})


@dataclass
class Registry:
    """A registry in memory: the versions of its subjects, and what else it knows by ids."""

    subjects: Mapping[str, Sequence[RegisteredSchema]]
    others: Mapping[int | str, RegisteredSchema] = field(default_factory=dict)
    asked: list[object] = field(default_factory=list)

    def versions(self, subject: str) -> Sequence[int]:
        return range(1, len(self.subjects[subject]) + 1)

    def version(self, subject: str, version: int | None) -> RegisteredSchema:
        self.asked.append((subject, version))
        if subject not in self.subjects:
            raise SubjectMissingError(subject)
        return self.subjects[subject][(version or 0) - 1]

    def by_id(self, schema_id: int | str) -> RegisteredSchema | None:
        self.asked.append(schema_id)
        return self.others.get(schema_id)


PROTO = proto("int64 id = 1; string key = 2;")
FIRST, SECOND = (RegisteredSchema(4, record("id")), RegisteredSchema(9, record("id", "price"), version=2))
REGISTRY = Registry({"orders-value": (FIRST, SECOND)}, {7: RegisteredSchema(7, record("id", name="Refund"))})


def frozen(
    decoding: Decoding, registry: Registry = REGISTRY, topics: Sequence[str] = ("orders",), **found: Sequence[int | str]
) -> Decoding:
    files = {
        "orders.avsc": record("id").encode(),
        "orders.desc": descriptor_set(PROTO),
        "orders.json": b'{"properties": {"id": {"type": "integer"}, "city": {"type": "string"}}}',
    }

    def read(path: str) -> bytes:
        return files[path]

    return Schemas(lambda _: replace(registry, asked=[]), read, message_types).frozen(decoding, topics, found)


def of_registry(**values: Any) -> FieldDecoding:
    return FieldDecoding(Format.AVRO, source=RegistrySource("schemas", **values))


def test_an_attempt_has_the_schema_to_read_as_and_those_that_records_may_be_written_with() -> None:
    value = frozen(Decoding(of_registry()), value=[7, 8]).value

    assert (value.source, value.unknown_ids) == (None, (8,))
    assert json.loads(value.schema or "") == json.loads(record("id", "price"))
    assert value.writers is not None
    assert [(each.schema_id, each.text is None, each.misfit) for each in value.writers] == [
        (4, False, "expected field price, which has no default, found none of that name"),
        (7, True, "expected the value as Order, found Refund"),
        (9, False, None),
    ]
    assert Decoding.from_document(Decoding(value).as_document()) == Decoding(value)


def test_a_guid_is_asked_for_only_where_no_version_has_it_and_stays_with_the_schema() -> None:
    first, second = "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b811-9dad-11d1-80b4-00c04fd430c8"
    registry = Registry(
        {"orders-value": (replace(FIRST, guid=first),)}, {second: RegisteredSchema(second, record("id"))}
    )

    value = frozen(
        Decoding(of_registry()), registry, value=[first, second, "6ba7b812-9dad-11d1-80b4-00c04fd430c8"]
    ).value

    assert value.writers == (
        WriterSchema(4, record_text("id"), guid=first),
        WriterSchema(second, record_text("id")),
    )
    assert value.unknown_ids == ("6ba7b812-9dad-11d1-80b4-00c04fd430c8",)
    assert Decoding.from_document(Decoding(value).as_document()) == Decoding(value)


@pytest.mark.parametrize("skips", [True, False])
def test_a_schema_is_another_types_where_its_name_or_kind_is_another_and_the_feed_skips_such(*, skips: bool) -> None:
    old = json.dumps(json.loads(record("id")) | {"aliases": ["shop.Purchase"]})
    others = {
        5: RegisteredSchema(5, record("id", name="com.shop.Order")),
        6: RegisteredSchema(6, record("price", name="Purchase")),
        7: RegisteredSchema(7, record("id", name="Refund")),
        8: RegisteredSchema(8, "{}", "JSON"),
        9: RegisteredSchema(9, '["null", "Order"]'),
        10: RegisteredSchema(10, '"long"'),
        11: RegisteredSchema(11, '{"type": "record", "name": "Refund"}'),
        12: RegisteredSchema(12, "{"),
        13: RegisteredSchema(13, "", "JSON", lacks="found an answer without a schema"),
    }
    registry = Registry({"orders-value": (RegisteredSchema(4, old),)}, others)

    value = frozen(Decoding(replace(of_registry(), skips_others=skips)), registry, value=list(others)).value

    assert [each.schema_id for each in value.writers or () if each.is_other] == ([7, 8, 10, 11] if skips else [])
    assert Decoding.from_document(Decoding(value).as_document()) == Decoding(value)


def test_json_of_another_title_and_messages_that_a_schema_lacks_are_of_other_types() -> None:
    schemas = [json.dumps({"title": each, "properties": {"id": {"type": "integer"}}}) for each in ("Order", "Refund")]
    registry = Registry(
        {"orders-value": (RegisteredSchema(4, schemas[0], "JSON"),)}, {5: RegisteredSchema(5, schemas[1], "JSON")}
    )
    part = FieldDecoding(Format.JSON, source=RegistrySource("schemas"), skips_others=True)
    found = frozen(Decoding(part), registry, value=[5]).value
    assert [each.is_other for each in found.writers or ()] == [False, True]

    refund, misread = PROTO.replace("Order", "Refund"), PROTO.replace("int64 id", "string id")
    registry = Registry(
        {"orders-value": (RegisteredSchema(4, PROTO, "PROTOBUF"),)},
        {5: RegisteredSchema(5, refund, "PROTOBUF"), 6: RegisteredSchema(6, misread, "PROTOBUF")},
    )
    found = frozen(Decoding(replace(part, format=Format.PROTOBUF)), registry, value=[5, 6]).value
    assert [each.is_other for each in found.writers or ()] == [False, True, False]


def test_schemas_that_are_too_much_for_one_attempt_are_left_out_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = record("id", "price", *(f"field{number:02}" for number in range(20)))
    others = {number: RegisteredSchema(number, large) for number in (5, 6)}
    monkeypatch.setattr(freeze_schemas, "MOST_TEXT", 1_500)
    writers = frozen(Decoding(of_registry()), Registry(REGISTRY.subjects, others), value=[5, 6]).value.writers or ()

    assert [(each.schema_id, each.text is None) for each in writers] == [(4, False), (5, False), (6, True), (9, False)]
    assert "at most 1,500 characters" in str(writers[2].misfit)


def test_a_fixed_version_stays_the_one_to_read_as() -> None:
    value = frozen(Decoding(of_registry(version=1))).value

    assert json.loads(value.schema or "") == json.loads(record("id"))
    assert [each.misfit for each in value.writers or ()] == [None, None]


@pytest.mark.parametrize(
    ("source", "subject"),
    [
        ({}, "orders-key"),
        ({"subject": "com.shop.Order"}, "com.shop.Order"),
        ({"subject": "{topic}-com.shop.Order"}, "orders-com.shop.Order"),
    ],
)
def test_a_subject_is_named_by_topic_by_record_or_by_both(source: dict[str, str], subject: str) -> None:
    registry = Registry({subject: (FIRST,)})

    assert frozen(Decoding(key=of_registry(**source)), registry).key.writers == (WriterSchema(4, record_text("id")),)
    with pytest.raises(SubjectMissingError):
        frozen(Decoding(key=of_registry(**source)), Registry({"other": (FIRST,)}))


def record_text(*names: str) -> str:
    """Return a record as it is frozen."""
    return json.dumps(json.loads(record(*names)), separators=(",", ":"))


def test_topics_of_one_feed_have_one_schema_to_read_as() -> None:
    registry = Registry({"orders-value": (FIRST,), "refunds-value": (FIRST, SECOND)})

    with pytest.raises(InvalidSchemaError, match="expected one schema for all topics, found others for orders-value"):
        frozen(Decoding(of_registry()), registry, ["refunds", "orders"])
    value = frozen(Decoding(of_registry(version=1)), registry, ["refunds", "orders"]).value
    assert [each.schema_id for each in value.writers or ()] == [4, 9]


def test_of_a_subject_with_very_many_versions_the_newest_are_asked_for() -> None:
    many = tuple(RegisteredSchema(number, record("id")) for number in range(1, 151))

    value = frozen(Decoding(of_registry(version=3)), Registry({"orders-value": many})).value

    assert [each.schema_id for each in value.writers or ()] == [3, *range(146, 151)]


def test_json_is_read_by_the_schema_of_the_registry_or_by_the_feeds_own() -> None:
    schema = json.dumps({"properties": {"id": {"type": "integer"}}})
    registry = Registry({"orders-value": (RegisteredSchema(4, schema, "JSON"), RegisteredSchema(5, schema, "JSON"))})
    json_value = FieldDecoding(Format.JSON, source=RegistrySource("schemas"))

    assert frozen(Decoding(json_value), registry).value == FieldDecoding(
        Format.JSON, "`id`:bigint", writers=(WriterSchema(4, ""), WriterSchema(5, ""))
    )
    own = replace(json_value, schema="id int")
    assert frozen(Decoding(own), registry).value.schema == "id int"


@pytest.mark.parametrize(
    ("schema", "decoding", "message"),
    [
        (RegisteredSchema(4, "{}", "JSON"), Decoding(of_registry()), "to be of type AVRO, found JSON"),
        (RegisteredSchema(4, "{", version=3), Decoding(of_registry()), r"orders-value version 3 \(schema id 4\): exp"),
        (
            RegisteredSchema(4, "{}", lacks="expected x, found none"),
            Decoding(of_registry()),
            "expected x, found none. C",
        ),
        (RegisteredSchema(4, record("a", "A")), Decoding(of_registry()), "differ in more than the case"),
        (
            RegisteredSchema(4, record("key", "kafka_x")),
            Decoding(of_registry(), columns=Columns.FLATTEN),
            "beside key and kafka_….*found key, kafka_x: use columns: nested",
        ),
        (RegisteredSchema(4, '"long"'), Decoding(of_registry(), columns=Columns.FLATTEN), "a value without fields"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: RegisteredSchema, decoding: Decoding, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message) as error:
        frozen(decoding, Registry({"orders-value": (schema,)}))
    assert error.value.exit_code == 2


def test_a_writer_that_does_not_parse_concerns_its_own_records_only() -> None:
    broken, others = RegisteredSchema(3, '"strin"'), RegisteredSchema(2, "{}", "PROTOBUF")
    lacking = RegisteredSchema(1, record("id"), lacks="expected version 1 of subject 'address', found none")

    value = frozen(Decoding(of_registry()), Registry({"orders-value": (lacking, broken, others, FIRST)})).value

    assert [(each.schema_id, each.text, each.misfit) for each in value.writers or ()][:3] == [
        (1, None, "expected version 1 of subject 'address', found none"),
        (2, None, "expected a schema of type AVRO, found PROTOBUF"),
        (3, None, "expected a type of Avro, or one that is defined before, found 'strin'"),
    ]


def test_a_writer_of_which_some_records_would_be_read_as_something_else_is_refused_as_a_whole() -> None:
    nothing, order, refund = "null", json.loads(record("id")), json.loads(record("id", name="Refund"))
    writers = ([nothing, order], [order, refund])
    texts = [json.dumps(each, separators=(",", ":")) for each in writers]
    registered = [RegisteredSchema(number, text) for number, text in enumerate(texts, start=5)]

    value = frozen(Decoding(of_registry()), Registry({"orders-value": (*registered, FIRST)})).value

    assert value.writers == (
        WriterSchema(4, record_text("id")),
        WriterSchema(5, texts[0], "expected the value as Order, found null"),
        WriterSchema(6, None, "expected the value as Order, found Refund"),
    )


def test_a_version_that_is_deleted_while_versions_are_asked_for_is_left_out() -> None:
    class Deleting(Registry):
        def versions(self, subject: str) -> Sequence[int]:
            return [*super().versions(subject), 7]

        def version(self, subject: str, version: int | None) -> RegisteredSchema:
            if version == 7:
                raise SubjectMissingError(subject)
            return super().version(subject, version)

    value = frozen(Decoding(of_registry()), Deleting(REGISTRY.subjects)).value

    assert [each.schema_id for each in value.writers or ()] == [4, 9]


def test_a_file_is_read_without_any_registry_and_values_have_no_ids() -> None:
    json_value = frozen(Decoding(FieldDecoding(Format.JSON, source=SchemaFile("orders.json")))).value
    assert (json_value.schema, json_value.source) == ("`id`:bigint,`city`:string", None)
    keeping = replace(json_value, unknown_fields=UnknownFields.KEEP)
    columns = Schemas(lambda _: REGISTRY, {}.__getitem__, message_types).columns(
        Decoding(keeping, columns=Columns.FLATTEN)
    )
    assert columns is not None
    assert columns.names == ("key", "id", "city", "unknown_fields")
    value = frozen(Decoding(FieldDecoding(Format.AVRO, source=SchemaFile("orders.avsc")))).value

    assert value == FieldDecoding(Format.AVRO, record_text("id"))
    assert not value.has_ids


def test_an_attempt_has_the_message_type_to_read_as_and_how_records_of_its_writers_begin() -> None:
    other = PROTO.replace("int64 id", "string id")
    versions = tuple(RegisteredSchema(number, text, "PROTOBUF") for number, text in ((4, other), (9, PROTO)))
    registry = Registry({"orders-value": versions}, {7: RegisteredSchema(7, record("id"))})

    frozen_ = frozen(Decoding(FieldDecoding(Format.PROTOBUF, source=RegistrySource("schemas"))), registry, value=[7, 8])

    assert frozen_.value.writers == (
        WriterSchema(4, None, "expected field id (1) as int64, found string"),
        WriterSchema(7, None, "expected a schema of type PROTOBUF, found AVRO"),
        WriterSchema(9, '["00", "0200"]'),
    )
    assert frozen_.value.unknown_ids == (8,)
    assert message_types().columns(frozen_.value.schema or "", {}).names == ("id", "key")
    assert Decoding.from_document(frozen_.as_document()) == frozen_


def test_a_descriptor_set_has_the_message_and_columns_of_it_where_they_are_flat() -> None:
    of_file = FieldDecoding(Format.PROTOBUF, source=DescriptorSetFile("orders.desc", "shop.Order"))

    value = frozen(Decoding(of_file)).value

    assert (value.source, value.writers) == (None, None)
    assert message_types().columns(value.schema or "", {}).names == ("id", "key")
    with pytest.raises(InvalidSchemaError, match=r"fields that can be columns beside key and .*found key: use"):
        frozen(Decoding(of_file, columns=Columns.FLATTEN))
    with pytest.raises(
        InvalidSchemaError, match=r"descriptor set orders\.desc: expected the message shop\.No, found shop"
    ):
        frozen(Decoding(replace(of_file, source=DescriptorSetFile("orders.desc", "shop.No"))))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDED, "kafka_ingest_nothing.part", "nothing")
    monkeypatch.setitem(NEEDED, "ptarz", "ptarz")

    with pytest.raises(
        InstallationError, match=r"found no nothing, ptarz here\. Install them where .*-r requirements-"
    ):
        frozen(Decoding(FieldDecoding(Format.PROTOBUF, source=DescriptorSetFile("orders.desc", "shop.Order"))))


def test_the_ids_that_attempts_found_are_read_from_what_they_left() -> None:
    cut_off = 'UNKNOWN_SCHEMA_IDS: {"value": [5, '
    failures = ['UNKNOWN_SCHEMA_IDS: {"value": [7, 8]}', "java.lang.OutOfMemoryError: x", "", cut_off]

    assert found_ids([*failures, 'UNKNOWN_SCHEMA_IDS: {"key": [1], "value": [9]}']) == {"key": {1}, "value": {7, 8, 9}}
