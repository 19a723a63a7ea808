"""Message types of descriptor sets and of a registry, and which of its schemas can be read as them."""

import json
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Final

from google.protobuf.descriptor import Descriptor

from kafka_ingest.message_types.compile_protos import files_of
from kafka_ingest.message_types.descriptor_sets import MessageSchema, schema_of_files, schema_of_set
from kafka_ingest.message_types.message_columns import message_columns
from kafka_ingest.message_types.message_indexes import beginnings, first_message, path_of, paths_in
from kafka_ingest.message_types.message_mistaken import why_misread
from kafka_ingest.model.read_as import ReadAs
from kafka_ingest.model.record_schema import Struct, WrongSchemaError
from kafka_ingest.model.schema_source import RegisteredSchema, WriterSchema

KIND: Final = "PROTOBUF"
MAIN_FILE: Final = "kafka_ingest_schema.proto"
"""What a registered schema is called, which has no name of its own."""

MOST_MESSAGES: Final = 1_000
"""Of a schema, which records are known by that are of other messages."""


class RegisteredMessages:
    """Reads message types with Protobuf's own libraries."""

    def of_set(self, content: bytes, message: str, read_as: Mapping[str, ReadAs]) -> str:
        """Return a message type of a descriptor set; raises WrongSchemaError."""
        return usable(schema_of_set(content, message), read_as)

    def registered(self, found: RegisteredSchema, message: str | None, read_as: Mapping[str, ReadAs]) -> str:
        """Return a message type of a registered schema, None for its first one; raises WrongSchemaError."""
        if found.lacks is not None:
            raise WrongSchemaError(found.lacks)
        files = files_of(found, MAIN_FILE)
        return usable(schema_of_files(files, message or first_message(files[MAIN_FILE])), read_as)

    def columns(self, schema: str, read_as: Mapping[str, ReadAs]) -> Struct:
        """Return the columns of a message type."""
        return message_columns(descriptor_of(schema), read_as).columns

    def writer(self, found: RegisteredSchema, reader: str) -> WriterSchema:
        """Return a schema that records may be written with, and why they cannot be read."""
        of_other_kind = f"expected a schema of type {KIND}, found {found.kind}" if found.kind != KIND else None
        if of_other_kind or found.lacks:
            return WriterSchema(found.schema_id, None, of_other_kind or found.lacks)
        wanted = descriptor_of(reader)
        try:
            files = files_of(found, MAIN_FILE)
        except WrongSchemaError as error:
            return WriterSchema(found.schema_id, None, str(error))
        try:
            path = path_of(files[MAIN_FILE], wanted.full_name)
        except WrongSchemaError as error:
            return WriterSchema(found.schema_id, None, str(error), is_other=True)
        try:
            written = schema_of_files(files, wanted.full_name).descriptor
        except WrongSchemaError as error:
            return WriterSchema(found.schema_id, None, str(error))
        if misread := why_misread(written, wanted):
            return WriterSchema(found.schema_id, None, misread)
        others = (each for each in paths_in(files[MAIN_FILE].message_type) if each != path)
        return WriterSchema(
            found.schema_id,
            json.dumps([each.hex() for each in beginnings(path)]),
            others=tuple(each.hex() for other in islice(others, MOST_MESSAGES) for each in beginnings(other)),
        )


def usable(schema: MessageSchema, read_as: Mapping[str, ReadAs]) -> str:
    """Return a message type's text, where columns can be made of it; raises WrongSchemaError."""
    message_columns(schema.descriptor, read_as)
    return schema.text


@cache
def descriptor_of(schema: str) -> Descriptor:
    """Return the message type of a text."""
    return MessageSchema.of_text(schema).descriptor
