"""The ids of schemas: before values, as a byte 0, an id in four bytes and the value; or in a header beside them.

The header counts where a record has both, as to Confluent's own readers: all of the value is what is read then. It
begins with a byte 0 and an id, too, or with a byte 1 and a GUID in 16 bytes. What some serializers write behind an id
stands behind it in the header as well.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kafka_ingest.model.decoding import DeadClass, Decoding, FieldDecoding
from kafka_ingest.model.place import FailureCode
from kafka_ingest.model.record_schema import quoted
from kafka_ingest.model.schema_source import WriterSchema
from kafka_ingest.writing.decoded_part import DecodedPart, body_name, first_of, reason, text

HEAD_BYTES = 5
GUID_BYTES = 17
MOST_IDS = 1_000
WIRE_FORMAT = "expected a byte 0, a schema id in four bytes and a value, or an id in header {}, found "

OTHER_REGISTRIES = (
    ("X'0300'", "X'0305'", 18, "a value of AWS Glue's serializers (the first byte 3)"),
    (
        "X'0000000000'",
        "X'0000000000'",
        5,
        "a schema id 0; ids of eight bytes, as Apicurio's serializers write, begin so",
    ),
)
"""How values of other registries begin: one of two beginnings, at least so many bytes, and what to say of them."""


AZURES = "one as Azure's serializers write it, as 32 hexadecimal digits"


def header_of(column: str) -> str:
    """Return the header in which the id of a key or value may stand."""
    return f"__{column}_schema_id"


def split_name(column: str) -> str:
    """Return where a key or value is, divided in what says its schema and all else."""
    return f"kafka_split_{column}"


def id_header_name(column: str) -> str:
    """Return where the header with the id of a key or value is."""
    return f"kafka_id_header_{column}"


def id_header(column: str) -> str:
    """Return the header with the id of a key or value; null where a record has none. Of several the last one counts."""
    # Spark compiles no function over an array's elements, and then nothing around it: the whole row is copied there.
    from_end = f"cast(array_position(reverse(kafka_headers.key), {text(header_of(column))}) as int)"
    return f"if(size(kafka_headers) > 0, get(kafka_headers.value, size(kafka_headers) - {from_end}), null)"


def split_at_id(header: str, value: str) -> str:
    """Return the bytes that say a value's schema, and the others: a struct of ``head`` and ``body``.

    ``header``: an expression of its id's header; ``value``: one of the bytes.
    """
    size = f"if(substring({header}, 1, 1) = X'01', {GUID_BYTES}, {HEAD_BYTES})"
    rest = f"concat(substring({header}, {size} + 1), {value})"
    of_header = f"named_struct('head', substring({header}, 1, {size}), 'body', {rest})"
    of_value = (
        f"named_struct('head', substring({value}, 1, {HEAD_BYTES}), 'body', substring({value}, {HEAD_BYTES + 1}))"
    )
    return f"if({header} is null, {of_value}, {of_header})"


def head_of(column: str) -> str:
    """Return the bytes that say a value's schema."""
    return f"{quoted(split_name(column))}.head"


def body_of(column: str) -> str:
    return f"{quoted(split_name(column))}.body"


def has_id(head: str) -> str:
    is_number = f"length({head}) = {HEAD_BYTES} and substring({head}, 1, 1) = X'00'"
    return f"({is_number} or length({head}) = {GUID_BYTES})"


def id_of(head: str) -> str:
    """Return the schema id in those bytes; null where it is a GUID."""
    number = f"cast(conv(hex(substring({head}, 2, 4)), 16, 10) as bigint)"
    return f"if({has_id(head)} and length({head}) = {HEAD_BYTES}, {number}, null)"


def shown_id(head: str) -> str:
    """Return the schema id in those bytes as a text, a number or a GUID."""
    guid = f"regexp_replace(lower(hex(substring({head}, 2))), '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.*)', '$1-$2-$3-$4-$5')"
    return f"if(length({head}) = {GUID_BYTES}, {guid}, cast({id_of(head)} as string))"


def id_found(column: str, content: str, decoding: FieldDecoding) -> str:
    """Return the schema id of a record's key or value; null where it has none, or none is expected."""
    return (
        id_of(f"{split_at_id(id_header(column), quoted(content))}.head") if decoding.has_ids else "cast(null as bigint)"
    )


def heads(writers: Iterable[WriterSchema]) -> str:
    """Return the bytes that say one of these schemas, as literals with commas between."""
    return ", ".join(each for writer in writers for each in heads_of(writer))


def heads_of(writer: WriterSchema) -> list[str]:
    """Return the bytes that say a schema, as literals."""
    number = [f"X'{writer.schema_id:010X}'"] if isinstance(writer.schema_id, int) else []
    guids = {each for each in (writer.guid, writer.schema_id) if isinstance(each, str)}
    return number + [f"X'01{guid.replace('-', '').upper()}'" for guid in sorted(guids)]


def says(column: str, *writers: WriterSchema) -> str:
    """Return whether a value is of one of these schemas."""
    return f"{head_of(column)} in ({heads(writers)})" if writers else "false"


def is_other(column: str, decoding: FieldDecoding) -> str | None:
    """Return whether a value is of another type, where such are filtered; None where they are not."""
    others = [writer for writer in decoding.writers or () if writer.is_other]
    return f"{quoted(column)} is not null and {says(column, *others)}" if decoding.skips_others and others else None


def readable(decoding: FieldDecoding) -> list[WriterSchema]:
    return [writer for writer in decoding.writers or () if writer.text is not None]


def wrong_beginnings(column: str, decoding: FieldDecoding) -> list[tuple[str, str]]:
    """Return what may be wrong with the id of a value, each with the reason."""
    writers, head = decoding.writers or (), head_of(column)
    first, size = f"lower(hex(substring({head}, 1, 1)))", f"length({quoted(column)})"
    others = " ".join(
        f"when {size} >= {least} and (startswith({quoted(column)}, {one}) or startswith({quoted(column)}, {other})) "
        f"then {text(shown)}"
        for one, other, least, shown in OTHER_REGISTRIES
    )
    found = (
        f"case when length({head}) < {HEAD_BYTES} then concat(length({head}), ' bytes') {others} "
        f"else concat('the first byte ', {first}) end"
    )
    no_format = reason(
        column, DeadClass.NOT_WIRE_FORMAT, f"concat({text(WIRE_FORMAT.format(header_of(column)))}, {found})"
    )
    azures = f"startswith({quoted(column)}, X'00000000') and cast(substring({quoted(column)}, 5, 32) as string)"
    shown = f"if({azures} rlike '^[0-9a-f]{{32}}$', {text(AZURES)}, {shown_id(head)})"
    known = f"concat({text(wanted_id(decoding))}, {shown})"
    return [
        (f"not {has_id(head)} or {head} = X'0000000000'", no_format),
        (f"not {says(column, *writers)}", reason(column, DeadClass.UNKNOWN_SCHEMA_ID, known)),
        *(
            (says(column, writer), reason(column, DeadClass.INCOMPATIBLE_SCHEMA, text(misfit_of(writer))))
            for writer in writers
            if writer.text is None
        ),
    ]


def wanted_id(decoding: FieldDecoding) -> str:
    """Return what was expected of an id: with very many unknown ones, the registry was not asked for the others."""
    if len(decoding.unknown_ids) < MOST_IDS:
        return "expected a schema id that the registry knows, found "
    return f"expected a schema id that the registry knows, found more than {MOST_IDS:,} that it does not, among them "


class UnknownSchemaIdsError(Exception):
    """Records begin with schema ids that the registry was not asked for; only the submitter can ask."""

    def __init__(self, found: Mapping[str, Sequence[int | str]]) -> None:
        super().__init__(FailureCode.UNKNOWN_SCHEMA_IDS.says(json.dumps(found)))


def check_ids(dead_letters: DataFrame, decoding: Decoding) -> None:
    """Raise UnknownSchemaIdsError where dead letters have schema ids that the registry was not asked for.

    Of each batch so many are asked for; with more, records are what text files and other formats look like.
    """
    found: dict[str, list[int | str]] = {}
    for column, part in decoding.parts.items():
        room = MOST_IDS - len(part.unknown_ids)
        if not part.has_ids or room <= 0:
            continue
        unknown = dead_letters.where(
            f"error_part = {text(column)} and error_class = {text(DeadClass.UNKNOWN_SCHEMA_ID)}"
        ).selectExpr(f"{split_at_id(id_header(column), quoted(column))}.head as head")
        with_ids = unknown.selectExpr(f"{shown_id('head')} as id", f"{id_of('head')} as number")
        rows = (
            with_ids.distinct()
            .orderBy(f.expr("number is null"), "number", "id")
            .limit(room + len(part.unknown_ids))
            .collect()
        )
        each = (row["id"] if row["number"] is None else int(row["number"]) for row in rows)
        ids = [schema_id for schema_id in each if schema_id not in part.unknown_ids][:room]
        if ids:
            found[column] = ids
    if found:
        raise UnknownSchemaIdsError(found)


def misfit_of(writer: WriterSchema) -> str:
    return f"{writer.misfit} (schema id {writer.schema_id})"


def after_id(part: DecodedPart, decoding: FieldDecoding) -> DecodedPart:
    """Return the expressions that decode what is after the ids, where ``part`` reads it as its body."""
    column = part.column
    is_known = says(column, *readable(decoding))
    return replace(
        part,
        body=f"if({is_known}, {body_of(column)}, null)",
        is_dead=f"({quoted(column)} is not null and {quoted(body_name(column))} is null) or ({part.is_dead})",
        reason=first_of([*wrong_beginnings(column, decoding), ("true", part.reason)]),
        is_other=is_other(column, decoding),
    )
