"""The bytes of orders of ten fields: Python's own `json`, and Confluent's serializers, which register their schemas."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from order_values import AVRO, AVRO_SCHEMA, FIELDS, JSON, MESSAGE


def serializer(form: str, topic: str, registry_url: str) -> Callable[[Mapping[str, Any]], bytes | None]:
    """Return what makes bytes of an order of a topic; schemas are registered at ``registry_url``."""
    if form == JSON:
        return lambda order: json.dumps(order).encode()
    client = SchemaRegistryClient({"url": registry_url})
    context = SerializationContext(topic, MessageField.VALUE)
    if form == AVRO:
        of_avro = AvroSerializer(client, AVRO_SCHEMA)
        return lambda order: of_avro(order, context)
    message = message_class()
    of_protobuf = ProtobufSerializer(message, client, {"use.deprecated.format": False})
    return lambda order: of_protobuf(message(**order), context)


def message_class() -> type[Message]:
    """Return the class of Protobuf's messages, as `protoc` would make it."""
    package, _, name = MESSAGE.rpartition(".")
    file = FileDescriptorProto(name="order.proto", package=package, syntax="proto3")
    message = file.message_type.add(name=name)
    for number, field in enumerate(FIELDS, start=1):
        message.field.add(
            name=field.name,
            number=number,
            type=FieldDescriptorProto.Type.Value(f"TYPE_{field.protobuf.upper()}"),
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(MESSAGE))
