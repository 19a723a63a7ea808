"""Protobuf's message types: what can be read, what it becomes, and which writers would be misread."""

import json
from base64 import b64encode

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.protobuf_types import EVERYTHING, columns, descriptor_set, proto, schema

from kafka_ingest.model.record_schema import WrongSchemaError
from kafka_ingest.model.schema_source import RegisteredSchema, WriterSchema
from kafka_ingest.schemas.descriptor_sets import schema_of_set
from kafka_ingest.schemas.registered_messages import RegisteredMessages, beginnings, path_of, why_misread

TYPES = RegisteredMessages()
NESTED = """syntax = "proto3"; package shop;
    message Other { message Deep { int32 x = 1; } } message Order { message Line { int32 id = 1; } Line line = 1; }"""
ORDER = proto("int64 id = 1; string name = 2;")


def registered(text: str, schema_id: int = 1, **references: str) -> RegisteredSchema:
    refers = tuple((f"{name}.proto", each) for name, each in references.items())
    return RegisteredSchema(schema_id, text, "PROTOBUF", references=refers)


def files(text: str) -> dict[str, FileDescriptorProto]:
    return {each.name: each for each in FileDescriptorSet.FromString(descriptor_set(text)).file}


def test_each_type_becomes_the_smallest_of_sparks_that_holds_it() -> None:
    kinds = {field.name: field.type.ddl for field in columns(EVERYTHING).columns.fields}
    assert kinds == {
        "d": "double",
        "f": "float",
        "i32": "int",
        "i64": "bigint",
        "u32": "bigint",
        "u64": "decimal(20,0)",
        "s32": "int",
        "s64": "bigint",
        "x32": "bigint",
        "x64": "decimal(20,0)",
        "sx32": "int",
        "sx64": "bigint",
        "b": "boolean",
        "text": "string",
        "raw": "binary",
        "state": "string",
        "perhaps": "int",
        "name": "string",
        "last": "string",
        "item": "struct<`since`:timestamp,`name`:string,`count`:int>",
        "inner": "struct<`yes`:boolean>",
        "items": "array<struct<`since`:timestamp,`name`:string,`count`:int>>",
        "numbers": "array<int>",
        "loose": "array<bigint>",
        "words": "array<string>",
        "states": "array<string>",
        "counts": "map<string,int>",
        "by_id": "map<bigint,struct<`since`:timestamp,`name`:string,`count`:int>>",
        "by_flag": "map<boolean,string>",
        "at": "timestamp",
        "times": "array<timestamp>",
        "took": "struct<`seconds`:bigint,`nanos`:int>",
        "maybe": "bigint",
        "label": "string",
        "any": "struct<`type_url`:string,`value`:binary>",
        "nothing": "boolean",
        "free": "string",
        "tree": "string",
        "trees": "array<string>",
        "values": "map<string,string>",
        "card": "string",
        "cash": "int",
        "goods": "struct<`since`:timestamp,`name`:string,`count`:int>",
        "free_of_charge": "boolean",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (proto(""), "expected a message with fields, found shop.Order without any"),
        (proto("int32 total = 1; int32 TOTAL = 2;"), "found 'total' and 'TOTAL' in shop.Order"),
        (
            'syntax = "proto2"; package shop; message Order { optional group G = 1 { optional int32 x = 1; } }',
            "expected no groups, found shop.Order.g",
        ),
        (proto(" ".join(f"int32 f{n} = {n};" for n in range(1, 1002))), "expected at most 1,000 fields, found 1,001"),
        (
            proto("M0 m = 1;", " ".join(f"message M{n} {{ M{n + 1} m = 1; }}" for n in range(30)) + "message M30 {}"),
            "expected at most 20 levels",
        ),
        (
            proto(
                "M0 m = 1;",
                " ".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(15))
                + "message M15 { int32 x = 1; }",
            ),
            "expected at most 1,000 fields, found",
        ),
    ],
)
def test_a_type_that_cannot_be_columns_is_refused(text: str, found: str) -> None:
    with pytest.raises(WrongSchemaError, match="expected") as refused:
        TYPES.of_set(descriptor_set(text), "shop.Order", {})
    assert found in str(refused.value)


def test_a_set_without_the_message_or_its_imports_is_refused() -> None:
    content = descriptor_set(proto("Item item = 1;", 'import "item.proto";'), item=f"{ORDER.replace('Order', 'Item')}")
    assert schema_of_set(content, "shop.Item").descriptor.full_name == "shop.Item"
    alone = FileDescriptorSet(
        file=[each for each in FileDescriptorSet.FromString(content).file if "order" in each.name]
    )
    for broken, message, found in [
        (content, "shop.Nothing", "expected the message shop.Nothing, found shop.Item, shop.Order"),
        (alone.SerializeToString(), "shop.Order", "item.proto, which orders.proto imports"),
        (b"", "shop.Order", "expected a descriptor set, as `protoc --include_imports"),
        (b"\xff", "shop.Order", "expected a descriptor set, as `protoc --include_imports"),
        (b'syntax = "proto3";', "shop.Order", "expected a descriptor set, as `protoc --include_imports"),
        (content.replace(b"orders.proto", b"orders\xffproto"), "shop.Order", "expected a descriptor set, as `protoc"),
        (content.replace(b"item.proto", b"item\xffproto"), "shop.Order", "expected a descriptor set, as `protoc"),
    ]:
        with pytest.raises(WrongSchemaError) as refused:
            schema_of_set(broken, message)
        assert found in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("Timestamp", "string weird = 1;"), ("Int32Value", "repeated int32 value = 1;"), ("StringValue", "")],
)
def test_a_type_that_is_called_as_one_of_protobufs_own_has_to_be_that_one(kind: str, fields: str) -> None:
    pretended = f'syntax = "proto3"; package google.protobuf; message {kind} {{ {fields} }}'
    content = descriptor_set(proto(f"google.protobuf.{kind} x = 1;", 'import "own.proto";'), own=pretended)

    with pytest.raises(WrongSchemaError, match=f"expected google.protobuf.{kind} as Protobuf itself brings it"):
        TYPES.of_set(content, "shop.Order", {})


def test_a_registered_file_whose_name_is_no_text_is_none() -> None:
    file = FileDescriptorProto(name="QQQ.proto").SerializeToString().replace(b"QQQ", b"\xff\xfe\xfd")

    with pytest.raises(WrongSchemaError, match=r"expected \.proto files that can be compiled"):
        TYPES.registered(registered(b64encode(file).decode()), None, {})


def test_message_indexes_are_places_as_confluents_serializers_write_them() -> None:
    [file] = files(NESTED).values()
    assert beginnings(path_of(file, "shop.Other")) == [b"\0", b"\x02\x00"]
    assert beginnings(path_of(file, "shop.Order")) == [b"\x02\x02"]
    assert beginnings(path_of(file, "shop.Order.Line")) == [b"\x04\x02\x00"]
    assert beginnings([70]) == [b"\x02\x8c\x01"]
    for missing in ("shop.Line", "other.Order", "shop.Order.Deep"):
        with pytest.raises(WrongSchemaError, match="found one without it"):
            path_of(file, missing)


@pytest.mark.parametrize(
    ("written", "read", "reason"),
    [
        ("int32 x = 1;", "int64 x = 1;", None),
        ("int64 x = 1;", "int32 x = 1;", "expected field x (1) as int32, found int64"),
        ("uint32 x = 1;", "int64 x = 1;", None),
        ("uint32 x = 1;", "int32 x = 1;", "expected field x (1) as int32, found uint32"),
        ("int32 x = 1;", "uint64 x = 1;", "expected field x (1) as uint64, found int32"),
        ("int32 x = 1;", "sint32 x = 1;", "expected field x (1) as sint32, found int32"),
        ("sint32 x = 1;", "sint64 x = 1;", None),
        ("fixed32 x = 1;", "float x = 1;", "expected field x (1) as float, found fixed32"),
        ("bool x = 1;", "int32 x = 1;", None),
        ("int32 x = 1;", "bool x = 1;", "expected field x (1) as bool, found int32"),
        ("S x = 1;", "int32 x = 1;", None),
        ("int32 x = 1;", "S x = 1;", "expected field x (1) as enum, found int32"),
        ("string x = 1;", "bytes x = 1;", None),
        ("string x = 1;", "In x = 1;", "expected field x (1) as message, found string"),
        ("int32 x = 1;", "repeated int32 x = 1;", None),
        ("repeated int32 x = 1;", "int32 x = 1;", "expected field x (1) as one value, found many"),
        ("map<string, int32> x = 1;", "repeated In x = 1;", "expected field x (1) as message, found map"),
        ("map<string, int32> x = 1;", "map<string, int64> x = 1;", None),
        ("map<string, int64> x = 1;", "map<string, int32> x = 1;", "expected field value (2) as int32, found int64"),
        ("In x = 1;", "Out x = 1;", "expected field b (2) as string, found int32"),
        ("Node x = 1;", "Node x = 1;", None),
        ("int32 x = 1; string gone = 2;", "int32 renamed = 1; string new = 3;", None),
    ],
)
def test_a_writer_whose_fields_mean_something_else_is_refused(written: str, read: str, reason: str | None) -> None:
    before = """enum S { A = 0; } message In { int32 a = 1; int32 b = 2; } message Out { int32 a = 1; string b = 2; }
        message Node { Node next = 1; }"""
    of_writer, of_reader = (schema(proto(each, before)).descriptor for each in (written, read))
    assert why_misread(of_writer, of_reader) == reason


def test_registered_text_and_registered_descriptors_are_read_alike() -> None:
    text = proto("Item item = 1; google.type.Date day = 2;", 'import "item.proto"; import "google/type/date.proto";')
    item = 'syntax = "proto3"; package shop; message Item { int32 x = 1; }'
    found = TYPES.registered(registered(text, item=item), None, {})
    assert (
        TYPES.columns(found, {}).fields_ddl == "`item`:struct<`x`:int>,`day`:struct<`year`:int,`month`:int,`day`:int>"
    )

    compiled = {name: b64encode(each.SerializeToString()).decode() for name, each in files(ORDER).items()}
    of_text = TYPES.registered(registered(ORDER), "shop.Order", {})
    assert TYPES.columns(TYPES.registered(registered(compiled["orders.proto"]), None, {}), {}) == TYPES.columns(
        of_text, {}
    )
    imports = proto("shop.Order o = 1;", 'import "orders.proto";').replace("message Order", "message Bill")
    mixed = RegisteredSchema(1, imports, "PROTOBUF", references=(("orders.proto", compiled["orders.proto"]),))
    assert (
        TYPES.columns(TYPES.registered(mixed, "shop.Bill", {}), {}).fields_ddl
        == "`o`:struct<`id`:bigint,`name`:string>"
    )


USES_OPTIONS = """syntax = "proto3"; package shop; import "confluent/meta.proto"; import "validate/validate.proto";
    import "confluent/type/decimal.proto"; option (confluent.file_meta).doc = "a; b"; option java_package = "x";
    message Order { option (confluent.message_meta) = { doc: "it's", tags: ["PII"] }; // option (x) = 1;
      string id = 1 [(confluent.field_meta) = { tags: ["a", "b"] }, deprecated = true, (validate.rules).string.len = 5];
      confluent.type.Decimal price = 2 [(confluent.field_meta).params = [{ key: "scale", value: "2" }]];
      int32 option = 3 [json_name = "[(a)"]; enum State { NEW = 0 [(mine) = 1e-5]; } State state = 4; }"""


def test_a_schema_that_uses_options_or_types_of_confluents_or_options_that_nobody_knows_is_read() -> None:
    found = TYPES.registered(registered(USES_OPTIONS), None, {})
    decimal = "struct<`value`:binary,`precision`:bigint,`scale`:int>"
    assert TYPES.columns(found, {}).fields_ddl == f"`id`:string,`price`:{decimal},`option`:int,`state`:string"

    # As Confluent's serializers register it: compiled, and without the files that a registry knows.
    file = FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/type/date.proto", "confluent/types/decimal.proto", "confluent/meta.proto"])
    message = file.message_type.add(name="Order")
    for number, kind in ((1, ".google.type.Date"), (2, ".confluent.type.Decimal")):
        message.field.add(name=f"f{number}", number=number, label=1, type=11, type_name=kind)
    compiled = registered(b64encode(file.SerializeToString()).decode())
    date = "struct<`year`:int,`month`:int,`day`:int>"
    assert TYPES.columns(TYPES.registered(compiled, None, {}), {}).fields_ddl == f"`f1`:{date},`f2`:{decimal}"

    # A descriptor set lacks a file of options where it was made without --include_imports.
    file.dependency[:] = ["options.proto"]
    del message.field[:]
    message.field.add(name="id", number=1, label=1, type=5)
    alone = FileDescriptorSet(file=[file]).SerializeToString()
    assert TYPES.columns(TYPES.of_set(alone, "shop.Order", {}), {}).fields_ddl == "`id`:int"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (registered("message {"), "expected .proto files that can be compiled, found: kafka_ingest_schema.proto:1"),
        (registered('syntax = "proto3"; enum E { A = 0; }'), "expected a schema with a message, found one without any"),
        (registered(ORDER, **{"../x": ORDER}), "expected references with the names of files below a folder"),
        (registered(proto("Gone gone = 1;", 'import "gone.proto";')), "gone.proto"),
        (registered(proto("int32 id = 1 [(gone) = 5];") + "message {"), "expected .proto files that can be compiled"),
        (registered(ORDER + "/* \ud800 */"), "expected .proto text of whole characters"),
        (registered(ORDER, **{"x" * 300: ORDER}), "expected references with the names of files below a folder"),
        (registered(ORDER, a=ORDER, **{"a.proto/b": ORDER}), "the names of files below a folder, found 'a.proto'"),
        (registered(ORDER, **{"a//b": ORDER}), "the names of files below a folder, found 'a//b.proto'"),
        (registered(ORDER, **{"confluent/type": ORDER, "\ud800": ORDER}), "the names of files below a folder"),
        (RegisteredSchema(1, ORDER, "PROTOBUF", lacks="it lacks that"), "it lacks that"),
    ],
)
def test_a_registered_schema_that_cannot_be_compiled_is_refused(found: RegisteredSchema, reason: str) -> None:
    with pytest.raises(WrongSchemaError) as refused:
        TYPES.registered(found, None, {})
    assert reason in str(refused.value)


def test_of_each_writer_is_known_how_its_records_begin_or_why_they_are_not_read() -> None:
    reader = TYPES.registered(registered(ORDER), None, {})
    second = f'syntax = "proto3"; package shop; message First {{ int32 x = 1; }} {ORDER.partition("package shop;")[2]}'
    assert TYPES.writer(registered(ORDER, 4), reader) == WriterSchema(4, json.dumps(["00", "0200"]))
    assert TYPES.writer(registered(second, 5), reader) == WriterSchema(5, json.dumps(["0202"]), others=("00", "0200"))
    for found, reason in [
        (registered(NESTED.replace("Order", "Bill")), "a schema with the message shop.Order, found one without it"),
        (registered(proto("int64 id = 1; int64 name = 2;")), "expected field name (2) as string, found int64"),
        (RegisteredSchema(1, "{}", "JSON"), "expected a schema of type PROTOBUF, found JSON"),
        (registered("nonsense"), "expected .proto files that can be compiled"),
        (RegisteredSchema(1, ORDER, "PROTOBUF", lacks="it lacks that"), "it lacks that"),
    ]:
        writer = TYPES.writer(found, reader)
        assert writer.text is None
        assert reason in (writer.misfit or "")
