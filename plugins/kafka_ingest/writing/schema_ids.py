"""The wire format of schema registries: a byte 0, the id of the value's schema in four bytes, and the value."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from kafka_ingest.model.attempt_directory import UNKNOWN_SCHEMA_IDS
from kafka_ingest.model.decoding import DeadClass, Decoding, FieldDecoding
from kafka_ingest.model.record_schema import quoted
from kafka_ingest.model.schema_source import WriterSchema
from kafka_ingest.writing.decoded_part import DecodedPart, first_of, reason, text

HEAD_BYTES = 5
MOST_IDS = 1_000
WIRE_FORMAT = "expected a byte 0, a schema id in four bytes and a value, found "


def head_of(column: str) -> str:
    """Return the bytes before a value."""
    return f"substring({quoted(column)}, 1, {HEAD_BYTES})"


def body_of(column: str) -> str:
    """Return the bytes of a value."""
    return f"substring({quoted(column)}, {HEAD_BYTES + 1})"


def id_of(column: str) -> str:
    """Return the schema id in those bytes."""
    return f"cast(conv(hex(substring({quoted(column)}, 2, 4)), 16, 10) as bigint)"


def id_found(column: str, decoding: FieldDecoding) -> str:
    """Return the schema id in a record's bytes; null where they have none, or none is expected."""
    first = f"substring({quoted(column)}, 1, 1)"
    has_one = f"length({quoted(column)}) >= {HEAD_BYTES} and {first} = X'00'" if decoding.has_ids else "false"
    return f"if({has_one}, {id_of(column)}, null)"


def head(writer: WriterSchema) -> str:
    """Return the bytes before the values of a schema, as a literal."""
    return f"X'{writer.schema_id:010X}'"


def has_one_of(column: str, writers: Sequence[WriterSchema]) -> str:
    """Return whether a value begins with one of these ids."""
    return f"{head_of(column)} in ({', '.join(map(head, writers))})" if writers else "false"


def readable(decoding: FieldDecoding) -> list[WriterSchema]:
    """Return the schemas by which values can be read."""
    return [writer for writer in decoding.writers or () if writer.text is not None]


def wrong_beginnings(column: str, decoding: FieldDecoding) -> list[tuple[str, str]]:
    """Return what may be wrong with a value's beginning, each with the reason."""
    writers = decoding.writers or ()
    first, size = f"lower(hex(substring({quoted(column)}, 1, 1)))", f"length({quoted(column)})"
    found = f"if({size} < {HEAD_BYTES}, concat({size}, ' bytes'), concat('the first byte ', {first}))"
    said = f"concat({text(WIRE_FORMAT)}, {found})"
    known = f"concat({text(wanted_id(decoding))}, {id_of(column)})"
    others = [writer for writer in writers if writer.text is None]
    return [
        (
            f"{size} < {HEAD_BYTES} or substring({quoted(column)}, 1, 1) != X'00'",
            reason(column, DeadClass.NOT_WIRE_FORMAT, said),
        ),
        (f"not {has_one_of(column, writers)}", reason(column, DeadClass.UNKNOWN_SCHEMA_ID, known)),
        *(
            (
                f"{head_of(column)} = {head(writer)}",
                reason(column, DeadClass.INCOMPATIBLE_SCHEMA, text(misfit_of(writer))),
            )
            for writer in others
        ),
    ]


def wanted_id(decoding: FieldDecoding) -> str:
    """Return what was expected of an id: with very many unknown ones, the registry was not asked for the others."""
    if len(decoding.unknown_ids) < MOST_IDS:
        return "expected a schema id that the registry knows, found "
    return f"expected a schema id that the registry knows, found more than {MOST_IDS:,} that it does not, among them "


class UnknownSchemaIdsError(Exception):
    """Records begin with schema ids that the registry was not asked for; only the submitter can ask."""

    def __init__(self, found: Mapping[str, Sequence[int]]) -> None:
        super().__init__(f"{UNKNOWN_SCHEMA_IDS}: {json.dumps(found)}")


def check_ids(dead_letters: DataFrame, decoding: Decoding) -> None:
    """Raise UnknownSchemaIdsError where dead letters have schema ids that nobody has asked the registry for.

    Of each batch so many are asked for; with more, records are what text files and other formats look like.
    """
    found: dict[str, list[int]] = {}
    for column, part in decoding.parts.items():
        room = MOST_IDS - len(part.unknown_ids)
        if not part.has_ids or room <= 0:
            continue
        unknown = dead_letters.where(
            f"error_part = {text(column)} and error_class = {text(DeadClass.UNKNOWN_SCHEMA_ID)}"
        ).selectExpr(f"{id_of(column)} as id")
        rows = unknown.distinct().orderBy("id").limit(room + len(part.unknown_ids)).collect()
        ids = [row["id"] for row in rows if row["id"] not in part.unknown_ids][:room]
        if ids:
            found[column] = ids
    if found:
        raise UnknownSchemaIdsError(found)


def misfit_of(writer: WriterSchema) -> str:
    """Return why values of a schema cannot be read."""
    return f"{writer.misfit} (schema id {writer.schema_id})"


def after_id(part: DecodedPart, decoding: FieldDecoding) -> DecodedPart:
    """Return the expressions that decode what is after the ids, where ``part`` reads it as its body."""
    column = part.column
    is_known = has_one_of(column, readable(decoding))
    return replace(
        part,
        body=f"if({is_known}, {body_of(column)}, null)",
        is_dead=f"({quoted(column)} is not null and {quoted(part.body_name)} is null) or ({part.is_dead})",
        reason=first_of([*wrong_beginnings(column, decoding), ("true", part.reason)]),
    )
