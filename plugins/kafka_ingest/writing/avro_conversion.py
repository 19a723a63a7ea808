"""From what Spark has found in Avro to the column: decimals of any size, JSON text, records without fields."""

from itertools import count

from kafka_ingest.model.avro_columns import PRESENT, Unscaled
from kafka_ingest.model.record_schema import DECIMAL, ArrayOf, Field, MapOf, RecordType, Scalar, Struct, quoted
from kafka_ingest.writing.decoded_part import text

MOST_NUMBER_BYTES = 512
"""Of a decimal that is stored as text: more than a thousand digits, and written within a millisecond."""

BIG_INTEGERS = "'org.apache.commons.lang3.math.NumberUtils', 'createBigInteger'"
"""Reads a sign and hexadecimal digits of any number; a library of Spark's own."""


def checked_type(found: RecordType, column: RecordType) -> RecordType:
    """Return the type by which values that Spark has found are checked: its own, with the decimals of the columns."""
    match found, column:
        case Struct(fields), Struct(columns):
            pairs = zip(fields, columns, strict=True)
            return Struct(tuple(Field(each.name, checked_type(each.type, of.type)) for each, of in pairs))
        case ArrayOf(inner), ArrayOf(of):
            return ArrayOf(checked_type(inner, of))
        case MapOf(inner), MapOf(of):
            return MapOf(checked_type(inner, of))
        case _:
            return column if DECIMAL.fullmatch(column.ddl) and not isinstance(found, Unscaled) else found


def converted_value(found: str, kind: RecordType, column: RecordType, names: "count[int] | None" = None) -> str:
    """Return the column's value of what Spark has found."""
    names = names or count()
    if kind == column:
        return found
    match kind, column:
        case Struct(fields), Struct(columns):
            pairs = [(each, of, f"{found}.{quoted(each.name)}") for each, of in zip(fields, columns, strict=True)]
            each = (f"{text(f.name)}, {converted_value(at, f.type, of.type, names)}" for f, of, at in pairs)
            return f"if({found} is null, null, named_struct({', '.join(each)}))"
        case ArrayOf(inner), ArrayOf(of):
            element = f"x{next(names)}"
            return f"transform({found}, {element} -> {converted_value(element, inner, of, names)})"
        case MapOf(inner), MapOf(of):
            value = f"x{next(names)}"
            return f"transform_values({found}, (k{value}, {value}) -> {converted_value(value, inner, of, names)})"
        case _:
            return converted_single(found, kind, column)


def converted_single(found: str, kind: RecordType, column: RecordType) -> str:
    match kind, column:
        case Unscaled(scale=scale), _:
            return decimal_of(found, scale, column.ddl)
        case Scalar(), _:
            return f"try_cast({found} as {column.ddl})"
        case Struct(), Scalar("boolean"):
            return f"{found}.{PRESENT}"
        case _:
            return f"to_json({found}, map('ignoreNullFields', 'false', 'timeZone', 'UTC'))"


def decimal_of(unscaled: str, scale: int, column: str) -> str:
    """Return the decimal in bytes of two's complement, of any number of digits, as a text or as a number.

    Spark has no such function. Java's BigInteger is reached through a library of Spark's own, which reads a sign and
    hexadecimal digits. A negative number is negated digit by digit: what is before its last digit but zeros is
    complemented to 15, that digit to 16.
    """
    digits, hexadecimal = "0123456789ABCDEF", f"hex({unscaled})"
    before, digit, zeros = (f"regexp_extract({hexadecimal}, '^(.*)([1-9A-F])(0*)$', {group})" for group in (1, 2, 3))
    negative = (
        f"concat('-0x', translate({before}, '{digits}', '{digits[::-1]}'), "
        f"translate({digit}, '{digits[1:]}', '{digits[:0:-1]}'), {zeros})"
    )
    number = f"if(left({hexadecimal}, 1) >= '8', {negative}, concat('0x', {hexadecimal}))"
    whole = f"reflect({BIG_INTEGERS}, {number})"
    if scale:
        padded = f"lpad(ltrim('-', d), greatest(length(ltrim('-', d)), {scale + 1}), '0')"
        pointed = f"regexp_replace({padded}, '^(.*)(.{{{scale}}})$', '$1.$2')"
        whole = f"get(transform(array({whole}), d -> concat(if(left(d, 1) = '-', '-', ''), {pointed})), 0)"
    shown = whole if column == "string" else f"try_cast({whole} as {column})"
    return f"if({is_number(unscaled)}, {shown}, null)"


def is_number(unscaled: str) -> str:
    """Return whether bytes are a number that is not too long to be written in digits."""
    return f"octet_length({unscaled}) between 1 and {MOST_NUMBER_BYTES}"
