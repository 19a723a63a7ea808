"""Protobuf: exactly one message of a type, with or without the id and the indexes of its schema before it.

Spark's own module for Protobuf is not had everywhere (docs/decisions.md), so Python's workers do it, with whole batches
of records in Arrow's format. What stands before a message is checked by expressions, as in the other formats.
"""

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from kafka_ingest.model.decoding import DeadClass, FieldDecoding
from kafka_ingest.model.record_schema import quoted
from kafka_ingest.model.schema_source import WriterSchema
from kafka_ingest.schemas.descriptor_sets import MessageSchema
from kafka_ingest.schemas.message_columns import json_messages, message_columns
from kafka_ingest.writing.decoded_part import DecodedPart, body_name, first_of, parsed_name, reason, text
from kafka_ingest.writing.for_workers import for_workers
from kafka_ingest.writing.protobuf_batches import SentType, message_batches
from kafka_ingest.writing.schema_ids import body_of, is_other, readable, says, wrong_beginnings

SENT_BY_VALUE = ("kafka_ingest.schemas.message_columns", "kafka_ingest.writing.protobuf_batches")
"""The modules that workers need, which may be on other machines and do not have this package."""

BATCH_BYTES = 32 * 1024 * 1024
"""About how large a batch may be: without a limit, Spark makes it of records of whatever size."""

OTHER = "expected a message of the type that is read, found the indexes of another before it"


def protobuf_part(column: str, decoding: FieldDecoding) -> DecodedPart:
    schema = MessageSchema.of_text(decoding.schema or "")
    found = message_columns(schema.descriptor, decoding.read_as)
    stored = schema.descriptors if json_messages([found.value]) else b""
    body, parsed = quoted(body_name(column)), quoted(parsed_name(column))
    said = f"named_struct('part', {text(column)}, 'class', {parsed}.class, 'text', {parsed}.text)"
    beginnings = [
        *wrong_beginnings(column, decoding),
        (f"{body} is null", reason(column, DeadClass.OTHER_MESSAGE, text(OTHER))),
    ]
    return DecodedPart(
        column,
        f"{parsed}.v",
        is_dead=f"{quoted(column)} is not null and ({body} is null or {parsed}.class is not null)",
        reason=first_of([*(beginnings if decoding.has_ids else ()), ("true", said)]),
        fields=found.columns.names,
        body=messages_after(column, decoding) if decoding.has_ids else quoted(column),
        is_other=is_another(column, decoding),
        in_batches=(found.columns.ddl, SentType(found.value, found.plain_file, found.plain_message, stored)),
    )


def is_another(column: str, decoding: FieldDecoding) -> str | None:
    """Return whether a message is of another type, by its schema's id or by the indexes after it."""
    if not decoding.skips_others:
        return None
    of_schema = is_other(column, decoding) or "false"
    of_indexes = (
        f"({says(column, writer)} and startswith({body_of(column)}, X'{each}'))"
        for writer in readable(decoding)
        for each in writer.others
    )
    return " or ".join([of_schema, *of_indexes])


def messages_after(column: str, decoding: FieldDecoding) -> str:
    """Return the bytes after an id and indexes, null where these are none of a message that can be read."""
    branches = " ".join(
        f"when {says(column, writer)} then {after_indexes(column, writer)}" for writer in readable(decoding)
    )
    return f"case {branches} end" if branches else "cast(null as binary)"


def after_indexes(column: str, writer: WriterSchema) -> str:
    """Return the bytes after the indexes of the message that is read."""
    beginnings: list[str] = json.loads(writer.text or "[]")
    branches = " ".join(
        f"when substring({body_of(column)}, 1, {len(each) // 2}) = X'{each}' "
        f"then substring({body_of(column)}, {len(each) // 2 + 1})"
        for each in beginnings
    )
    return f"case {branches} end"


def parsed_in_batches(records: DataFrame, parts: Sequence[DecodedPart]) -> DataFrame:
    """Return records with what their bodies hold: a struct of the message, and of the reason where there is none."""
    records.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(BATCH_BYTES))
    types: list[tuple[str, str, SentType]] = []
    schema = StructType(list(records.schema.fields))
    for part in parts:
        match part.in_batches:
            case (ddl, SentType() as sent):
                types.append((body_name(part.column), parsed_name(part.column), sent))
                parsed = DataType.fromDDL(f"v: {ddl}, class: string, text: string")
                schema = StructType([*schema.fields, StructField(parsed_name(part.column), parsed)])
    return records.mapInArrow(for_workers(lambda batches: message_batches(batches, types), *SENT_BY_VALUE), schema)
