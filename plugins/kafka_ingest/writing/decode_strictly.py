"""JSON decoded record by record in Spark's Python workers, by its one definition (:mod:`.json_values`)."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from kafka_ingest.model.decoding import KEPT_UNKNOWN, FieldDecoding, UnknownFields
from kafka_ingest.model.record_schema import Field, MapOf, Scalar, Struct, quoted, read_schema
from kafka_ingest.writing.decode_limits import convert_dates, textual
from kafka_ingest.writing.decoded_part import DecodedPart, body_name, converted_name, parsed_name, read_name, text
from kafka_ingest.writing.for_workers import for_workers
from kafka_ingest.writing.json_values import JsonReader

SENT_BY_VALUE = ("kafka_ingest.model.record_schema", "kafka_ingest.writing.json_values")
"""The modules that workers need, which may be on other machines and do not have this package."""


def strict_json(column: str, body: str, decoding: FieldDecoding) -> DecodedPart:
    """Return an object that fits a schema, or any JSON value as text; its bytes are in the column ``body``."""
    parsed, rows = quoted(parsed_name(column)), JsonReader(decoding.schema, decoding.unknown_fields.value)
    is_dead = f"{quoted(body)} is not null and {parsed}.class is not null"
    reason = f"named_struct('part', {text(column)}, 'class', {parsed}.class, 'text', {parsed}.text)"
    if decoding.schema is None:
        return DecodedPart(column, f"{parsed}.v", is_dead=is_dead, reason=reason, by_rows=("string", rows))
    schema = read_schema(decoding.schema)
    if decoding.unknown_fields is UnknownFields.KEEP:
        schema = Struct((*schema.fields, Field(KEPT_UNKNOWN, MapOf(Scalar("string")))))
    parsed_as = textual(schema)
    dated = parsed_as != schema
    return DecodedPart(
        column,
        converted_name(column) if dated else read_name(column),
        is_dead=is_dead,
        reason=reason,
        by_rows=(parsed_as.ddl, rows),
        read=f"{parsed}.v",
        converted=convert_dates(read_name(column), schema) if dated else None,
        fields=schema.names,
    )


def parsed_by_rows(records: DataFrame, parts: Sequence[DecodedPart]) -> DataFrame:
    """Return records with what their bodies hold: a struct of the value, and of the reason where there is none."""
    for part in parts:
        if part.by_rows is not None:
            kind, read = part.by_rows
            # Spark repeats a function that it takes for deterministic, once for each use of its column.
            # Without Arrow, whatever the session's settings say: machines may lack it.
            returns = DataType.fromDDL(f"v: {kind}, class: string, text: string")
            parse = f.udf(for_workers(read, *SENT_BY_VALUE), returns, useArrow=False).asNondeterministic()
            body = body_name(part.column) if part.body else part.column
            records = records.select("*", parse(f.col(body)).alias(parsed_name(part.column)))
    return records
