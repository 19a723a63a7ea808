"""Avro: exactly one value of a schema, with or without the id of the schema that it was written with.

Spark's ``from_avro`` reads a value at the beginning of some bytes, and does not look at what is after it; what it
cannot read becomes a struct of nulls. So it is given the bytes with a seal of ours after them, and schemas of a record
of two fields, the value and the seal. Only where the bytes were exactly one value is the seal found. It is made for
each job and known to no producer.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from pyspark.sql import SparkSession

from kafka_ingest.model.avro_columns import PRESENT, Millis, SparkValue, Unscaled
from kafka_ingest.model.avro_schema import read_avro
from kafka_ingest.model.decoding import DeadClass, FieldDecoding
from kafka_ingest.model.place import AVRO_LIMITS
from kafka_ingest.model.record_schema import DECIMAL, MAX_PRECISION, RecordType, Scalar, Struct, quoted
from kafka_ingest.model.written_columns import END_OF_SECONDS, FIRST_DAY, FIRST_SECOND, FIRST_TIME, LAST_DAY, LAST_TIME
from kafka_ingest.writing.decode_limits import MOST_PATHS, paths_that, walked
from kafka_ingest.writing.decoded_part import (
    DecodedPart,
    converted_name,
    converted_value,
    first_of,
    mapped_type,
    once,
    parsed_name,
    read_name,
    reason,
    text,
)
from kafka_ingest.writing.kafka_records import jvm_of
from kafka_ingest.writing.schema_ids import body_of, is_other, misfit_of, readable, says, wrong_beginnings

MOST_NUMBER_BYTES = 512
"""Of a decimal that is stored as text: more than a thousand digits, and written within a millisecond."""

BIG_INTEGERS = "'org.apache.commons.lang3.math.NumberUtils', 'createBigInteger'"
"""Reads a sign and hexadecimal digits of any number; a library of Spark's own."""


def checked_single(found: RecordType, column: RecordType) -> RecordType:
    """Return the type by which a value that Spark has found is checked: its own, or the decimal of its column."""
    return column if DECIMAL.fullmatch(column.ddl) and not isinstance(found, Unscaled) else found


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


SEAL_BYTES = 16
ONE_VALUE = "expected exactly one value of the schema, found bytes that are not one, or more bytes after it"
NOT_UTF8 = "expected text in UTF-8, found other bytes in "
TOO_DEEP = "expected no more levels of a type in itself than are read, found more in "
OUT_OF_RANGE = "expected values that their types can hold, found others in "


def limit_avro(spark: SparkSession) -> None:
    """Let this Java's Avro take no memory for what a few bytes claim to be; before it reads its first value."""
    system = jvm_of(spark).java.lang.System
    for name, value in AVRO_LIMITS.items():
        system.setProperty(name, value)


@dataclass(frozen=True, slots=True)
class Seal:
    """What stands after a value."""

    name: str
    content: str

    @classmethod
    def new(cls) -> Self:
        """Return one that no producer knows."""
        return cls(f"k{secrets.token_hex(12)}", secrets.token_hex(SEAL_BYTES))

    def schema(self, node: Any) -> str:  # noqa: ANN401 - what JSON has
        seal = {"type": "fixed", "name": f"{self.name}s", "size": SEAL_BYTES}
        fields = [{"name": "v", "type": node}, {"name": "s", "type": seal}]
        return json.dumps({"type": "record", "name": self.name, "fields": fields}, separators=(",", ":"))

    def parse(self, value: str, writer: str, reader: str) -> str:
        """Return what parses bytes of a schema to a struct of a value of another schema, and a seal."""
        options = f"'mode', 'PERMISSIVE', 'datetimeRebaseMode', 'CORRECTED', 'avroSchema', {text(reader)}"
        return f"from_avro(concat({value}, X'{self.content}'), {text(writer)}, map({options}))"

    def is_broken(self, parsed: str) -> str:
        """Return whether bytes were not exactly one value; never null."""
        return f"coalesce({parsed}.s != X'{self.content}', true)"


def avro_part(column: str, decoding: FieldDecoding) -> DecodedPart:
    schema = read_avro(decoding.schema or "")
    plain = json.loads(schema.text)
    wanted, loose = (schema.read_as(decoding.read_as, is_loose=is_loose) for is_loose in (False, True))
    kind = mapped_type(wanted.found, wanted.column, checked_single)
    seal, parsed, read = Seal.new(), parsed_name(column), read_name(column)
    broken = seal.is_broken(parsed)
    checks = [each for each in (no_text(column, read, kind), beyond(column, read, kind)) if each[0]]
    wrong = [condition for condition, _ in checks]
    is_converted = wanted.found != wanted.column
    converted = converted_value(read, wanted.found, wanted.column, converted_single)
    parse = partial(parsing, column, decoding, seal, seal.schema(plain))
    return DecodedPart(
        column,
        converted_name(column) if is_converted else read,
        parsed=once(parse(seal.schema(wanted.node))),
        read=f"{parsed}.v",
        converted=once(f"if({' or '.join(wrong)}, null, {converted})" if wrong else converted)
        if is_converted
        else None,
        is_dead=f"{quoted(column)} is not null and ({' or '.join([broken, *wrong])})",
        reason=first_of(
            [
                *(wrong_beginnings(column, decoding) if decoding.has_ids else ()),
                *misfits(column, decoding, broken),
                (broken, why_broken(column, loose, wanted.in_themselves, seal, parse)),
                *checks,
            ]
        ),
        fields=wanted.column.names if isinstance(wanted.column, Struct) else (),
        is_other=is_other(column, decoding),
    )


def parsing(column: str, decoding: FieldDecoding, seal: Seal, plain: str, reader: str) -> str:
    """Return what parses a column; ``plain`` is the schema of values without an id, ``reader`` the one to read as."""
    if decoding.writers is None:
        return seal.parse(quoted(column), plain, reader)
    branches = " ".join(
        f"when {says(column, writer)} then {seal.parse(body_of(column), seal.schema(json.loads(writer.text)), reader)}"
        for writer in decoding.writers
        if writer.text is not None
    )
    nothing = seal.parse("cast(null as binary)", plain, reader)
    return f"case {branches} else {nothing} end" if branches else nothing


def misfits(column: str, decoding: FieldDecoding, broken: str) -> list[tuple[str, str]]:
    """Return why bytes were not read whose schema fits in parts only: a union's value decides."""
    return [
        (
            f"{broken} and {says(column, writer)}",
            reason(column, DeadClass.INCOMPATIBLE_SCHEMA, text(misfit_of(writer))),
        )
        for writer in readable(decoding)
        if writer.misfit is not None
    ]


def why_broken(
    column: str, loose: SparkValue, in_themselves: Sequence[str], seal: Seal, parse: Callable[[str], str]
) -> str:
    """Return why Spark made no value of bytes: they are none of the schema, or hold what a column cannot.

    ``loose``: what any value of the schema is read as, which takes one more parse. ``in_themselves``: the paths of
    types in themselves, which it leaves out.
    """
    is_too_large, too_large = beyond(column, "p.v", mapped_type(loose.found, loose.column, checked_single))
    if in_themselves:
        too_deep = reason(column, DeadClass.OUT_OF_RANGE, text(TOO_DEEP + " or ".join(in_themselves)))
        too_large = f"if({is_too_large or 'false'}, {too_large}, {too_deep})"
    no_value = reason(column, DeadClass.NOT_AVRO, text(ONE_VALUE))
    parsed = parse(seal.schema(loose.node))
    return f"get(transform(array({parsed}), p -> if({seal.is_broken('p')}, {no_value}, {too_large})), 0)"


def beyond(column: str, found: str, kind: RecordType) -> tuple[str, str]:
    """Return whether a value, or one in it, is out of range for its type, and the reason; empty where none can be."""
    said = with_paths(OUT_OF_RANGE, paths_that(found, kind, leaf_is_beyond))
    return certain(walked(found, kind, None, leaf_is_beyond)), reason(column, DeadClass.OUT_OF_RANGE, said)


def no_text(column: str, found: str, kind: RecordType) -> tuple[str, str]:
    """Return whether a string of a value is no text, and the reason; empty where there is none in the type."""
    said = with_paths(NOT_UTF8, paths_that(found, kind, leaf_is_no_text, of_map=some_key_is_no_text))
    condition = walked(found, kind, None, leaf_is_no_text, of_map=some_key_is_no_text)
    return certain(condition), reason(column, DeadClass.INVALID_UTF8, said)


def certain(condition: str) -> str:
    """Return whether a condition holds, never null."""
    return f"coalesce({condition}, false)" if condition else ""


def with_paths(said: str, paths: str) -> str:
    """Return what is said, with the first of some paths."""
    return f"concat({text(said)}, array_join(slice({paths}, 1, {MOST_PATHS}), ', '))"


def some_key_is_no_text(found: str) -> str:
    return f"exists(map_keys({found}), k -> not is_valid_utf8(k))"


def leaf_is_no_text(found: str, kind: Scalar, _: str | None) -> str:
    """Return whether a single value is a string that is no text: Java's Avro takes its bytes as they are."""
    return f"not is_valid_utf8({found})" if kind.name == "string" else ""


def leaf_is_beyond(found: str, kind: Scalar, _: str | None) -> str:
    """Return whether a single value is a time that no reader has, or a decimal of more digits than its type."""
    if kind.name == "date":
        return f"not {found} between date'{FIRST_DAY}' and date'{LAST_DAY}'"
    if kind.name in {"timestamp", "timestamp_ntz"}:
        zone = "Z" if kind.name == "timestamp" else ""
        return f"not {found} between {kind.name}'{FIRST_TIME}{zone}' and {kind.name}'{LAST_TIME}{zone}'"
    if isinstance(kind, Millis):
        return f"not {found} between {FIRST_SECOND * 1000} and {END_OF_SECONDS * 1000 - 1}"
    if isinstance(kind, Unscaled):
        digits = DECIMAL.fullmatch(kind.column)
        # Where the point is does not matter, and these expressions are most of a wide schema's plan.
        none = decimal_of(found, 0, f"decimal({digits[1]},0)") if digits else ""
        return f"{found} is not null and {none} is null" if digits else f"not ({is_number(found)})"
    if found_digits := DECIMAL.fullmatch(kind.name):
        precision, scale = int(found_digits[1]), int(found_digits[2])
        return f"abs({found}) >= 1{'0' * (precision - scale)}BD" if precision < MAX_PRECISION else ""
    return ""
