"""The expressions that decode keys or values, as SQL: where pyspark makes a literal, it imports pandas."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from kafka_ingest.model.decoding import DeadClass
from kafka_ingest.model.record_schema import ArrayOf, Field, MapOf, RecordType, Struct, quoted
from kafka_ingest.writing.json_values import LONGEST_TEXT, UTF8, JsonReader

FITS, SURE, VALUE = "fits", "sure", "value"
"""The fields of what is read plainly."""


@dataclass(frozen=True, slots=True)
class PlainSchema:
    """What is read plainly: the objects of a schema, in a column of bytes, without unknown fields or with any."""

    body: str
    schema: Struct
    may_have_unknown: bool


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """How the bytes of a column become its decoded form, in up to five steps, each of which sees the one before.

    ``result`` is what the record holds then; ``is_dead`` is true exactly where it does not fit (None: never), and
    ``reason`` the reason where it is, evaluated for such records only. ``fields``: of a decoded object.
    """

    column: str
    result: str
    is_dead: str | None = None
    reason: str = "null"
    plain: PlainSchema | None = None
    """What most values are read by before, where they are JSON objects (:mod:`~.plain_objects`)."""
    parsed: str | None = None
    read: str | None = None
    converted: str | None = None
    fields: Sequence[str] = ()
    body: str | None = None
    """What the other steps read, where that is not all of the bytes."""
    is_other: str | None = None
    """Whether the record is of another type, and filtered for that; None: never."""
    in_batches: tuple[str, object] | None = None
    """What parses whole batches of bodies, where expressions cannot: the type of what it makes, and what makes it."""
    by_rows: tuple[str, JsonReader] | None = None
    """The same for what parses one body at a time."""


def body_name(column: str) -> str:
    """Return where the bytes after a schema id are."""
    return f"kafka_body_{column}"


def plain_name(column: str) -> str:
    """Return where an object is that was read plainly."""
    return f"kafka_plain_{column}"


def parsed_name(column: str) -> str:
    """Return where the first step's outcome is."""
    return f"kafka_parsed_{column}"


def read_name(column: str) -> str:
    """Return where the second step's outcome is."""
    return f"kafka_read_{column}"


def converted_name(column: str) -> str:
    """Return where the third step's outcome is."""
    return f"kafka_converted_{column}"


def string_part(column: str) -> DecodedPart:
    """Return bytes as text; no byte is replaced."""
    return DecodedPart(
        column,
        f"if({is_utf8(column)}, {text_of(column)}, null)",
        is_dead=f"not {is_utf8(column)}",
        reason=reason(column, DeadClass.INVALID_UTF8, text(UTF8)),
    )


def text_of(column: str) -> str:
    return f"cast({quoted(column)} as string)"


def is_utf8(column: str) -> str:
    """Return whether a column's bytes are text; null where there are none."""
    return f"is_valid_utf8({text_of(column)})"


def reason(column: str, dead_class: DeadClass, said: str) -> str:
    """Return the reason of a dead record; ``said`` is an expression, and may hold names that a record has."""
    shown = f"left(regexp_replace({said}, r'\\p{{C}}', '?'), {LONGEST_TEXT})"
    return f"named_struct('part', {text(column)}, 'class', {text(dead_class)}, 'text', {shown})"


def first_of(reasons: Iterable[tuple[str, str]]) -> str:
    """Return the first reason whose condition holds; later conditions are not evaluated then."""
    return "case " + " ".join(f"when {condition} then {found}" for condition, found in reasons) + " end"


def once(expression: str) -> str:
    """Return an expression that is evaluated once for each record, and not once for each use of its column.

    Spark moves filters below projections, and repeats what these compute, unless that is not deterministic.
    """
    return f"if(spark_partition_id() < 0, null, {expression})"


def text(literal: str) -> str:
    return "'" + literal.replace("\\", "\\\\").replace("'", "\\'") + "'"


def texts(literals: Iterable[str]) -> str:
    return f"cast(array({', '.join(text(each) for each in literals)}) as array<string>)"


def named(expression: str, name: str) -> str:
    return f"{expression} as {quoted(name)}"


def mapped_type(
    found: RecordType, column: RecordType, single: Callable[[RecordType, RecordType], RecordType]
) -> RecordType:
    """Return a type with another one in the place of each single value, of which the type in the column is known."""
    match found, column:
        case Struct(fields), Struct(columns):
            pairs = zip(fields, columns, strict=True)
            return Struct(tuple(Field(each.name, mapped_type(each.type, of.type, single)) for each, of in pairs))
        case ArrayOf(inner), ArrayOf(of):
            return ArrayOf(mapped_type(inner, of, single))
        case MapOf(inner), MapOf(of):
            return MapOf(mapped_type(inner, of, single), found.key)
        case _:
            return single(found, column)


def converted_value(
    found: str,
    kind: RecordType,
    column: RecordType,
    single: Callable[[str, RecordType, RecordType], str],
    names: "count[int] | None" = None,
) -> str:
    """Return the column's value of a value of another type; ``single`` does it for those without parts."""
    names = names or count()
    if kind == column:
        return found
    match kind, column:
        case Struct(fields), Struct(columns):
            pairs = [(each, of, f"{found}.{quoted(each.name)}") for each, of in zip(fields, columns, strict=True)]
            each = (f"{text(f.name)}, {converted_value(at, f.type, of.type, single, names)}" for f, of, at in pairs)
            return f"if({found} is null, null, named_struct({', '.join(each)}))"
        case ArrayOf(inner), ArrayOf(of):
            element = f"x{next(names)}"
            return f"transform({found}, {element} -> {converted_value(element, inner, of, single, names)})"
        case MapOf(inner), MapOf(of):
            value = f"x{next(names)}"
            inside = converted_value(value, inner, of, single, names)
            return f"transform_values({found}, (k{value}, {value}) -> {inside})"
        case _:
            return single(found, kind, column)
