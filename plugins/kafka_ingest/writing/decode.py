"""Bytes become columns: the records of the raw format, decoded, each with the reason where that is not possible.

All but Protobuf is done by expressions of Spark's, in steps, so that the expensive one is evaluated once for each
record: parse, convert, check. Who selects only some of the columns pays only for what these need.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType

from pyspark.sql import DataFrame

from kafka_ingest.model.decoding import Columns, DeadClass, Decoding, FieldDecoding, Format
from kafka_ingest.model.omissions import RefusedRows
from kafka_ingest.model.record_schema import quoted
from kafka_ingest.model.schema_source import names_of
from kafka_ingest.writing.decode_json import json_by_schema, json_text
from kafka_ingest.writing.decoded_part import (
    DecodedPart,
    body_name,
    converted_name,
    named,
    once,
    parsed_name,
    plain_name,
    read_name,
    reason,
    string_part,
    text,
)
from kafka_ingest.writing.schema_ids import after_id, id_header, id_header_name, split_at_id, split_name

SIZE = "kafka_size"

OF_HEADER = "octet_length(header.key) + coalesce(length(header.value), 0)"
OF_HEADERS = f"aggregate(kafka_headers, 0L, (bytes, header) -> bytes + {OF_HEADER})"
BYTES = f"coalesce(length(`key`), 0L) + coalesce(length(`value`), 0) + coalesce({OF_HEADERS}, 0)"
"""Of key, value and headers, as a bigint."""


def whole_name(column: str) -> str:
    """Return where a key or value is, of large records as well."""
    return f"kafka_whole_{column}"


def without_large(records: DataFrame, at_most: int) -> DataFrame:
    """Return records with keys and values of large ones as null, and these beside them (:func:`whole_name`)."""
    whole = {name: f"`{name}` as {whole_name(name)}" for name in ("key", "value")}
    sized = records.selectExpr("*", f"{once(BYTES)} as {SIZE}", *whole.values())
    given = (
        f"if({SIZE} > {at_most}, null, `{name}`) as `{name}`" if name in whole else quoted(name)
        for name in sized.columns
    )
    return sized.selectExpr(*given)


def is_too_large(at_most: int) -> tuple[str, str]:
    said = f"concat('expected at most {at_most} bytes of key, value and headers, found ', {SIZE})"
    return f"{SIZE} > {at_most}", reason("value", DeadClass.TOO_LARGE, said)


def is_refused(rows: RefusedRows) -> tuple[str, str]:
    """Return whether a record is one of those whose rows the output refuses, and the reason."""
    at, offsets = rows.topic_partition, ", ".join(f"{offset}L" for offset in rows.offsets)
    where = f"kafka_topic = {text(at.topic)} and kafka_partition = {at.partition} and kafka_offset in ({offsets})"
    said = f"expected a row that the output takes, found that it refuses it: {rows.cause}"
    return where, reason("row", DeadClass.REFUSED_BY_OUTPUT, text(said))


HEADERS = "kafka_headers"
SENT_HEADERS = f"coalesce({HEADERS}, array())"
"""For workers. While Spark measures a batch, each null list is filled in again for each record (ListVector)."""
GIVEN_HEADERS = f"if(size({HEADERS}) > 0, {HEADERS}, null)"
"""Of none Kafka's source makes null."""

DEAD = "kafka_dead"
FILTERED = "kafka_filtered"
"""Whether a record is left out: neither a row nor a dead letter."""
RAW_KEY = "kafka_raw_key"
RAW_VALUE = "kafka_raw_value"

NO_REASON = "named_struct('part', '', 'class', '', 'text', '')"
NO_BYTES = "cast(null as binary)"

FOR_AVRO = "kafka_ingest.writing.decode_avro"
"""Imported for feeds of Avro only: it takes some milliseconds."""

FOR_STRICT_JSON = "kafka_ingest.writing.decode_strictly"
"""Imported where records are not read with certainty: it takes what makes functions of Python's."""

FOR_PLAIN_OBJECTS = "kafka_ingest.writing.plain_objects"
"""Imported for large batches only: it takes 50 milliseconds."""

FOR_PROTOBUF = "kafka_ingest.writing.decode_protobuf"
"""Imported for feeds of Protobuf only: its libraries are not part of a plain installation."""


def decoded(
    records: DataFrame,
    decoding: Decoding,
    *,
    plainly: bool = False,
    constants: Mapping[str, str | None] = MappingProxyType({}),
    with_reasons: bool = True,
    with_bytes: bool = True,
) -> DataFrame:
    """Return records with keys and values decoded, and at the end how that went.

    ``records`` has the raw format's columns (:mod:`kafka_ingest.writing.read_ranges`). The result has the same columns
    in the same order; with flattened columns the value's fields are in the place of ``value``. Behind them are

    - :data:`DEAD`: ``struct<part, class, text>``, null exactly where the record is good. ``part`` is ``key`` or
      ``value``; the classes are those of :class:`~kafka_ingest.model.decoding.DeadClass`; the text has at most 300
      characters, says what was expected and what was found, and names fields, but holds no value of the record;
    - :data:`RAW_KEY` and :data:`RAW_VALUE`: the bytes;
    - where the feed skips other records, :data:`FILTERED`: whether it is one, and neither good nor dead.

    A null key or value is good, and stays null. Where a record is dead, its decoded columns mean nothing.

    Without ``with_reasons`` the fields of :data:`DEAD` are empty, and JSON is decoded by Spark's own expressions, which
    are fast: they call dead whatever they do not read with certainty, also what is good (:mod:`~.decode_json`).
    ``plainly``: workers read objects that fit still faster (:mod:`~.plain_objects`), which pays where there are many;
    they are not sent ``constants``, the columns with the same text in each record.
    Without ``with_bytes`` the bytes are null, which Spark would else keep beside each record until it is written.
    """
    if decoding.has_avro:
        import_module(FOR_AVRO).limit_avro(records.sparkSession)
    fields = {"key": decoding.key, "value": decoding.value}
    parts = {column: part_of(column, field, plainly=plainly, strictly=with_reasons) for column, field in fields.items()}
    with_ids = [column for column, field in fields.items() if field.has_ids]
    names, raw, checks = records.columns, {column: quoted(column) for column in fields}, []
    in_batches = HEADERS in names and any(part.in_batches or part.plain for part in parts.values())
    if in_batches:
        full = {HEADERS: named(SENT_HEADERS, HEADERS)}
        records = records.selectExpr(*(full.get(name, quoted(name)) for name in names))
    if (largest := decoding.max_record_bytes) is not None:
        records, raw = without_large(records, largest), {column: whole_name(column) for column in fields}
        checks.append(is_too_large(largest))
    bodies = {body_name(column): part.body for column, part in parts.items() if part.body}
    id_headers = {id_header_name(column): once(id_header(column)) for column in with_ids}
    splits = {split_name(column): split_at_id(quoted(id_header_name(column)), quoted(column)) for column in with_ids}
    steps = with_steps(records, id_headers, splits, bodies)
    if decoding.has_protobuf:
        # Made again of what comes back, where it is needed: workers would be sent each value's bytes once more.
        sent = steps.drop(*id_headers, *splits)
        steps = with_steps(import_module(FOR_PROTOBUF).parsed_in_batches(sent, [*parts.values()]), id_headers, splits)
    if any(part.by_rows for part in parts.values()):
        steps = import_module(FOR_STRICT_JSON).parsed_by_rows(steps, list(parts.values()))
    plain = {plain_name(column): part.plain for column, part in parts.items() if part.plain}
    if plain:
        steps = import_module(FOR_PLAIN_OBJECTS).with_plain_objects(steps, plain, constants, with_bytes=with_bytes)
    steps = with_steps(
        steps,
        {parsed_name(column): part.parsed for column, part in parts.items() if part.parsed},
        {read_name(column): part.read for column, part in parts.items() if part.read},
        {converted_name(column): part.converted for column, part in parts.items() if part.converted},
    )
    columns: list[str] = []
    for column in names:
        part = parts.get(column)
        if part is None:
            columns.append(named(GIVEN_HEADERS, column) if in_batches and column == HEADERS else quoted(column))
        elif column == "value" and decoding.columns is Columns.FLATTEN:
            columns += [named(f"{part.result}.{quoted(name)}", name) for name in part.fields]
        else:
            columns.append(named(part.result, column))
    others = " or ".join(f"coalesce({part.is_other}, false)" for part in parts.values() if part.is_other) or "false"
    checks += [(part.is_dead, part.reason) for part in parts.values() if part.is_dead]
    checks += [missing(part, fields[column].required) for column, part in parts.items() if fields[column].required]
    checks += map(is_refused, decoding.refused)
    raw_key, raw_value = (raw["key"], raw["value"]) if with_bytes else (NO_BYTES, NO_BYTES)
    return steps.selectExpr(
        *columns,
        named(dead(checks, others, with_reasons=with_reasons), DEAD),
        named(raw_key, RAW_KEY),
        named(raw_value, RAW_VALUE),
        *([named(others, FILTERED)] if decoding.skips_others else []),
    )


def with_steps(records: DataFrame, *steps: Mapping[str, str]) -> DataFrame:
    """Return records with more columns, those of each step computed of what is there before."""
    for step in filter(None, steps):
        # One call of Java: each expression and each alias by itself is several.
        records = records.selectExpr("*", *(named(sql, name) for name, sql in step.items()))
    return records


def dead(checks: Sequence[tuple[str, str]], others: str, *, with_reasons: bool) -> str:
    """Return the reason where a record is dead; null where it is good, or one of others."""
    cases = " ".join(f"when {is_dead} then {why if with_reasons else NO_REASON}" for is_dead, why in checks)
    nothing = "cast(null as struct<part: string, class: string, text: string>)"
    return f"case when {others} then null {cases} end" if cases else nothing


def missing(part: DecodedPart, required: Sequence[str]) -> tuple[str, str]:
    """Return whether a field is missing or null that is required, and the reason; of a value that is not dead."""
    fields = {path: f"({part.result}).{'.'.join(map(quoted, names_of(path)))}" for path in required}
    absent = ", ".join(f"if({sql} is null, {text(path)}, null)" for path, sql in fields.items())
    said = f"concat('expected fields that are required, found missing or null ', concat_ws(', ', {absent}))"
    is_absent = " or ".join(f"{sql} is null" for sql in fields.values())
    return f"{quoted(part.column)} is not null and ({is_absent})", reason(part.column, DeadClass.MISSING_FIELD, said)


def part_of(column: str, decoding: FieldDecoding, *, plainly: bool, strictly: bool) -> DecodedPart:
    match decoding.format:
        case Format.RAW:
            return DecodedPart(column, quoted(column))
        case Format.STRING:
            return string_part(column)
        case Format.AVRO:
            avro: DecodedPart = import_module(FOR_AVRO).avro_part(column, decoding)
            return avro
        case Format.PROTOBUF:
            protobuf: DecodedPart = import_module(FOR_PROTOBUF).protobuf_part(column, decoding)
            return protobuf
        case Format.JSON if decoding.writers is not None:
            part = json_part(column, body_name(column), decoding, plainly=plainly, strictly=strictly)
            return after_id(part, decoding)
        case Format.JSON:
            return json_part(column, column, decoding, plainly=plainly, strictly=strictly)


def json_part(column: str, body: str, decoding: FieldDecoding, *, plainly: bool, strictly: bool) -> DecodedPart:
    if strictly:
        part: DecodedPart = import_module(FOR_STRICT_JSON).strict_json(column, body, decoding)
        return part
    if decoding.schema is None:
        return json_text(column, body)
    return json_by_schema(column, body, decoding.schema, decoding.unknown_fields, plainly=plainly)
