"""What a strict reader makes of a text by a schema: Python's json, and the rules that are ours.

It says no more than what every record must hold to: a value that it refuses may not be good, and what is good has the
value that it finds.
"""

import datetime as dt
import json
import math
import re
import struct
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct

WHOLE = {"smallint": 15, "int": 31, "bigint": 63}
TIME = re.compile(
    r"(?a)(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?([.]\d{1,9})?"
    r"(Z|[+-](?:0\d|1[0-7]):[0-5]\d|[+-]18:00)?"
)


class RefusedError(Exception):
    """The text is not as the schema says."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object, with names that come twice."""


def refuse_constant(name: str) -> None:
    raise RefusedError(name)


def parsed(raw: bytes) -> Any:
    """Return the one JSON value that bytes hold."""
    try:
        return json.loads(
            raw.decode("utf-8"),
            parse_float=Number,
            parse_int=Number,
            parse_constant=refuse_constant,
            object_pairs_hook=Pairs,
        )
    except (ValueError, RecursionError) as error:
        raise RefusedError(str(error)) from error


def expected(raw: bytes, schema: Struct) -> dict[str, Any]:
    """Return the object that bytes hold, by its schema; raises RefusedError."""
    value = parsed(raw)
    if not isinstance(value, Pairs):
        raise RefusedError("no object")
    check_characters(value)
    found = fitted(value, schema)
    missing = {name.lower() for name in schema.names if found[name] is None}
    if any(name.lower() in missing and name not in schema.names for name, _ in value):
        raise RefusedError("another case")
    return found


def fitted(value: Any, kind: RecordType) -> Any:
    """Return a value as one of a type."""
    if value is None:
        return None
    match kind, value:
        case Struct(), Pairs():
            last = dict(value)
            return {field.name: fitted(last.get(field.name), field.type) for field in kind.fields}
        case MapOf(), Pairs():
            if len({name for name, _ in value}) < len(value):
                raise RefusedError("a key twice")
            return {name: fitted(inner, kind.value) for name, inner in value}
        case ArrayOf(), list() if not isinstance(value, Pairs):
            return [fitted(inner, kind.element) for inner in value]
        case Scalar(), _:
            return single(value, kind.name)
    raise RefusedError(f"{value!r} for {kind}")


def single(value: Any, name: str) -> Any:
    """Return a value as one of a type without parts."""
    found = number(value, name) if isinstance(value, Number) else word(value, name)
    if found is None:
        raise RefusedError(f"{value!r} for {name}")
    return found


def number(value: Number, name: str) -> Any:
    """Return a number as one of a type, None where it is none of it."""
    if name == "string":
        return ANY_TEXT
    if name in WHOLE:
        is_whole = re.fullmatch("-?[0-9]+", value) and -(2 ** WHOLE[name]) <= int(value) < 2 ** WHOLE[name]
        return int(value) if is_whole else None
    if name == "double":
        return float(value) if math.isfinite(float(value)) else None
    if name == "float":
        return as_float(float(value))
    return as_decimal(value, name) if name.startswith("decimal") else None


def word(value: Any, name: str) -> Any:
    """Return what is no number as one of a type, None where it is none of it."""
    if name == "string":
        # What is no text becomes JSON text, whose form is Spark's own.
        return value if isinstance(value, str) else ANY_TEXT
    if name == "boolean":
        return value if isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    if name == "date":
        return checked(dt.date.fromisoformat, value) if re.fullmatch(r"(?a)\d{4}-\d\d-\d\d", value) else None
    if name.startswith("timestamp"):
        return as_time(value, name)
    return as_decimal(value, name) if name.startswith("decimal") else None


ANY_TEXT = object()
"""Some text, by which a value that is none is kept."""


def has_twice(value: Any) -> bool:
    """Whether an object has a name twice, anywhere in a value."""
    match value:
        case Pairs():
            return len({name for name, _ in value}) < len(value) or any(has_twice(inner) for _, inner in value)
        case list():
            return any(map(has_twice, value))
    return False


def check_characters(value: Any) -> None:
    """Refuse half a character, wherever it is."""
    match value:
        case str() if any("\ud800" <= character <= "\udfff" for character in value):
            raise RefusedError("half a character")
        case list() | tuple():
            for each in value:
                check_characters(each)


def as_float(value: float) -> float:
    if not math.isfinite(value):
        raise RefusedError("too large")
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError as error:
        raise RefusedError("too large") from error


def as_decimal(value: str, name: str) -> Decimal:
    precision, scale = map(int, re.findall("[0-9]+", name))
    digits = value if isinstance(value, Number) else value.replace(",", "")
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", digits):
        raise RefusedError("no decimal")
    exact = Decimal(digits)
    if exact.adjusted() >= precision:
        raise RefusedError("too large")
    rounded = (exact.scaleb(scale)).to_integral_value(ROUND_HALF_UP)
    if abs(rounded) >= 10**precision:
        raise RefusedError("too large")
    return rounded.scaleb(-scale)


def as_time(value: str, name: str) -> dt.datetime:
    form = TIME.fullmatch(value)
    if form is None or (form[4] and not form[3]) or (form[5] and name == "timestamp_ntz"):
        raise RefusedError("no time")
    day, minutes, seconds, fraction, zone = form.groups()
    microseconds = f"{fraction or '.'}000000"[:7]
    offset = "+00:00" if zone in (None, "Z") else zone
    found = checked(dt.datetime.fromisoformat, f"{day}T{minutes}{seconds or ':00'}{microseconds}{offset}")
    try:
        return found.astimezone(dt.UTC)
    except OverflowError as error:
        raise RefusedError("out of range") from error


def checked(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise RefusedError(str(error)) from error
