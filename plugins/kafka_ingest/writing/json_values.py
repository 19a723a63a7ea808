"""JSON read strictly: which value of a schema's type a text is, or why it is none.

This is the one definition. Spark's expressions (:mod:`.decode_json`) read only what is certain to have this value; the
other records come here, in Spark's Python workers. The module is sent to them by value, with the schema's types: they
may be on machines without this package, and need nothing but Python itself.
"""

import json
import math
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import accumulate
from typing import Any, NoReturn

from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct, read_schema

INVALID_UTF8, TOO_LARGE, NOT_JSON, NOT_AN_OBJECT = "INVALID_UTF8", "TOO_LARGE", "NOT_JSON", "NOT_AN_OBJECT"
DOES_NOT_FIT, OUT_OF_RANGE = "DOES_NOT_FIT", "OUT_OF_RANGE"
DUPLICATE_FIELD, OTHER_CASE, UNKNOWN_FIELD = "DUPLICATE_FIELD", "OTHER_CASE", "UNKNOWN_FIELD"

IN_TURN = (DOES_NOT_FIT, OUT_OF_RANGE, DUPLICATE_FIELD)
"""Which class a record has where several of its values are wrong."""

EXPECTED = {
    DOES_NOT_FIT: "values that fit the schema",
    OUT_OF_RANGE: "values that their types can hold",
    DUPLICATE_FIELD: "each name once",
}
UTF8 = "expected text in UTF-8, found bytes that are not UTF-8"
ONE_VALUE = "expected exactly one JSON value, found text that is none, or more than one value"
ONE_OBJECT = "expected exactly one JSON object, found text that is not JSON, or more than one value"
FORMS = (
    "days are written 2026-01-31, times 2026-01-31T12:00:00.123456+02:00, also without seconds or fraction, with Z, "
    "+0200, +02 or (UTC) nothing at their end"
)

MOST_ELEMENTS = 1_000_000
"""As Avro's limit (``AVRO_LIMITS``): 3 bytes of text for each become a hundred in memory."""

MANY_BYTES = 2 * MOST_ELEMENTS
"""No shorter value has so many: the shortest elements are a digit and a comma."""

FEW_ELEMENTS = f"expected at most {MOST_ELEMENTS:,} elements and fields in a value, found more"

LONGEST_TEXT = 300
MOST_NAMED = 3
"""How many wrong values a reason names."""

MOST_LEVELS = 998
"""Of objects and arrays in one another. Jackson reads 1,000, and for ``from_json`` two are around each object."""

SAFE_LEVELS = 200
"""As many Python reads with its usual limit of recursion, from wherever it is called."""

WHOLE = {"smallint": 15, "int": 31, "bigint": 63}
BEYOND_ALL = "9" * 17
"""An exponent that Python counts, and that no number of digits in a text makes up for."""

MOST_DIGITS_OF_WHOLE = 20
HALF_A_FLOAT = 2**28
"""What the last bit of a float is worth, halved, in a double's bits."""

HALF_CHARACTER = re.compile("[\ud800-\udfff]")
DECIMAL = re.compile(r"(?a)[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
"""As JSON and Java write one; commas, blanks and digits of other scripts, which Spark takes, are no part of it."""

DAY = r"([+-]?\d{4,9})-(\d\d)-(\d\d)"
"""With any year: so a day that does not exist is told from other text."""
DATE_FORM = re.compile(f"(?a){DAY}")
TIME_FORM = re.compile(rf"(?a){DAY}[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{{1,9}}))?)?([Zz]|([+-]\d\d)(?::?(\d\d))?)?")
"""RFC 3339, and of ISO 8601 what is like it: less precise times and offsets, and the comma before a fraction."""

LARGEST_OFFSET = timedelta(hours=18)
SPACE = re.compile(r"[ \t\n\r]*")
QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
NO_STEPS = bytes(set(range(256)) - set(STEPS))
ROUNDED = Context(prec=80, rounding=ROUND_HALF_UP)

Path = tuple[Any, Any]
"""The path of what is around a value, and its name or number there; the name of a map's entry in a tuple."""


class RefusedError(Exception):
    """A text cannot be decoded. ``dead_class``: one of DeadClass; ``said``: why, with names but without values."""

    def __init__(self, dead_class: str, said: str) -> None:
        super().__init__(dead_class, said)
        self.dead_class = dead_class
        self.said = "".join(each if each.isprintable() else "?" for each in said)[:LONGEST_TEXT]


class WrongValueError(Exception):
    """A single value is none of its type: the class, and what was found."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """The names and values of an object, as they are written, also twice."""


Read = Callable[["Text", Any, Path], Any]


class JsonReader:
    """Reads texts by a schema, or any JSON value where there is none.

    Dates and times are texts, as SQL casts them; a time with a zone is in UTC. ``unknown_fields``: of UnknownFields.
    Workers are sent what it is made from, and call it for each record.
    """

    def __init__(self, ddl: str | None, unknown_fields: str) -> None:
        self._made_from = ddl, unknown_fields
        self._schema = None if ddl is None else read_schema(ddl)
        self._fields = [] if self._schema is None else fields_of(self._schema)
        self._names = {name for name, _ in self._fields}
        self._unknown_fields = unknown_fields
        self._decoder = json.JSONDecoder(
            parse_float=Number, parse_int=Number, parse_constant=refuse_constant, object_pairs_hook=Members
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes another one: the decoder cannot be sent."""
        return JsonReader, self._made_from

    def __call__(self, raw: bytes | None) -> tuple[Any, str | None, str | None]:
        """Return the value, or the class and the text of the reason; three nulls for no bytes."""
        try:
            return None if raw is None else self.read(raw), None, None
        except RefusedError as error:
            return None, error.dead_class, error.said

    def read(self, raw: bytes) -> Any:  # noqa: ANN401 - whatever the schema says
        """Return the value of bytes: a text, or an object's fields as a tuple; raises RefusedError."""
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RefusedError(INVALID_UTF8, UTF8) from error
        if len(raw) >= MANY_BYTES and QUOTED.sub("", text).count(",") >= MOST_ELEMENTS:
            raise RefusedError(TOO_LARGE, FEW_ELEMENTS)
        levels = levels_of(text)
        with deep_enough(levels):
            try:
                found = self._decoder.decode(text) if levels <= MOST_LEVELS else refuse_constant("levels")
            except ValueError as error:
                raise RefusedError(NOT_JSON, ONE_VALUE if self._schema is None else ONE_OBJECT) from error
            return text if self._schema is None else self._object(Text(text, self._decoder.raw_decode), found)

    def _object(self, text: "Text", found: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any JSON
        if not isinstance(found, Members):
            raise RefusedError(NOT_AN_OBJECT, f"expected an object, found {what_is(found)}")
        last = dict(found)
        values = tuple(read_field(text, last.get(name), (None, name), read) for name, read in self._fields)
        unknown = [name for name in last if name not in self._names]
        kept = text.kept(last, unknown) if self._unknown_fields == "keep" else None
        text.refuse_wrong()
        missing = {name.lower() for (name, _), value in zip(self._fields, values, strict=True) if value is None}
        if others := [name for name in unknown if name.lower() in missing]:
            said = "expected names as in the schema, found in other upper and lower case"
            raise RefusedError(OTHER_CASE, f"{said} {', '.join(others)}")
        if unknown and self._unknown_fields == "refuse":
            raise RefusedError(UNKNOWN_FIELD, f"expected fields of the schema only, found {', '.join(unknown)}")
        if self._unknown_fields == "ignore":
            return values
        if len(last) < len(found):
            raise RefusedError(DUPLICATE_FIELD, f"expected each name once, found more than once {twice_in(found)}")
        return values if self._unknown_fields == "refuse" else (*values, kept)


class Text:
    """A text that is being read: where its values stand, and what is wrong with them."""

    def __init__(self, text: str, scan: Callable[[str, int], tuple[Any, int]]) -> None:
        self._text = text
        self._scan = scan
        self._inner: dict[int, dict[Any, tuple[int, int]]] = {}
        self._wrong: dict[str, list[str]] = {}
        self._forms = False

    def wrong(self, dead_class: str, found: str, *, forms: bool = False) -> None:
        others = self._wrong.setdefault(dead_class, [])
        others.append(found if len(others) < MOST_NAMED else "")
        self._forms |= forms

    def refuse_wrong(self) -> None:
        for dead_class in IN_TURN:
            if found := self._wrong.get(dead_class):
                more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
                forms = f"; {FORMS}" if self._forms and dead_class == DOES_NOT_FIT else ""
                said = f"expected {EXPECTED[dead_class]}, found {', '.join(found[:MOST_NAMED])}{more}"
                # The forms are worth more than the end of long names.
                raise RefusedError(dead_class, f"{said[: LONGEST_TEXT - len(forms)]}{forms}")

    def kept(self, values: dict[str, Any], names: Iterable[str]) -> dict[str, str | None] | None:
        """Return values as texts; None where there is none."""
        return {
            whole_characters(self, name, (None, (name,))): read_field(self, values[name], (None, name), as_text)
            for name in names
        } or None

    def source(self, path: Path) -> str:
        start, end = self._span(path)
        return self._text[start:end]

    def _span(self, path: Path | None) -> tuple[int, int]:
        if path is None:
            return self._after_space(0), len(self._text)
        around, step = path
        start, _ = self._span(around)
        if start not in self._inner:
            self._inner[start] = dict(self._spans(start))
        return self._inner[start][step[0] if isinstance(step, tuple) else step]

    def _spans(self, start: int) -> Iterator[tuple[Any, tuple[int, int]]]:
        """Yield where the values of an object or array stand, which is known to be one; of a name twice, all."""
        is_object, number = self._text[start] == "{", 0
        at = self._after_space(start + 1)
        while self._text[at] not in "]}":
            step: Any = number
            if is_object:
                step, at = self._scan(self._text, at)
                at = self._after_space(self._after_space(at) + 1)
            _, end = self._scan(self._text, at)
            yield step, (at, end)
            number, at = number + 1, self._after_space(end)
            if self._text[at] == ",":
                at = self._after_space(at + 1)

    def _after_space(self, at: int) -> int:
        found = SPACE.match(self._text, at)
        return found.end() if found else at


def levels_of(text: str) -> int:
    """Return how many levels a text has, or at most, where these are few."""
    most = text.count("[") + text.count("{")
    if most <= SAFE_LEVELS:
        return most
    signs = QUOTED.sub("", text).encode().translate(None, NO_STEPS)
    return max(accumulate(map(STEPS.__getitem__, signs)), default=0)


@contextmanager
def deep_enough(levels: int) -> Iterator[None]:
    """Let Python read that many levels, up to those that are read."""
    if levels <= SAFE_LEVELS:
        yield
        return
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2 * MOST_LEVELS)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def refuse_constant(name: str) -> NoReturn:
    """Refuse ``NaN`` and ``Infinity``, which Python reads."""
    raise ValueError(name)


def fields_of(kind: Struct) -> list[tuple[str, Read]]:
    return [(field.name, read_as(field.type)) for field in kind.fields]


def read_field(text: Text, found: Any, path: Path, read: Read) -> Any:  # noqa: ANN401 - any JSON, any value
    """Return a value that may be null."""
    return None if found is None else read(text, found, path)


def read_as(kind: RecordType) -> Read:
    """Return what reads values of a type that are not null; it notes in the text what is wrong."""
    match kind:
        case Struct():
            return struct_of(fields_of(kind))
        case ArrayOf(inner):
            return array_of(read_as(inner))
        case MapOf(inner):
            return map_of(read_as(inner))
        case Scalar("string"):
            return as_text
        case Scalar(name):
            return single(name)


def struct_of(fields: Sequence[tuple[str, Read]]) -> Read:

    def read(text: Text, found: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON, any value
        if not isinstance(found, Members):
            return misfit(text, found, path, "struct")
        last = dict(found)
        return tuple(read_field(text, last.get(name), (path, name), read) for name, read in fields)

    return read


def array_of(read_element: Read) -> Read:

    def read(text: Text, found: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON, any value
        if type(found) is not list:
            return misfit(text, found, path, "array")
        return [read_field(text, each, (path, number), read_element) for number, each in enumerate(found)]

    return read


def map_of(read_value: Read) -> Read:

    def read(text: Text, found: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON, any value
        if not isinstance(found, Members):
            return misfit(text, found, path, "map")
        entries = {
            whole_characters(text, name, path): read_field(text, each, (path, (name,)), read_value)
            for name, each in found
        }
        if len(entries) < len(found):
            text.wrong(DUPLICATE_FIELD, f"one more than once in {shown(path)}")
        return entries

    return read


def misfit(text: Text, found: Any, path: Path, name: str) -> None:  # noqa: ANN401 - any JSON
    text.wrong(DOES_NOT_FIT, f"{what_is(found)} for {shown(path)} ({name})")


def as_text(text: Text, found: Any, path: Path) -> str:  # noqa: ANN401 - any JSON
    """Return a text, or what is none as it is written."""
    match found:
        case Number():
            return str(found)
        case str():
            return whole_characters(text, found, path)
        case bool():
            return "true" if found else "false"
    return text.source(path)


def whole_characters(text: Text, found: str, path: Path) -> str:
    """Return a text that is stored; JSON can write half of a character, which no text can hold."""
    if not found.isascii() and HALF_CHARACTER.search(found):
        text.wrong(DOES_NOT_FIT, f"half of a character (a lone surrogate) in {shown(path)}")
    return found


def single(name: str) -> Read:
    if name.startswith("decimal"):
        precision, scale = map(int, re.findall("[0-9]+", name))
        convert: Callable[[Any], Any] = lambda found: as_decimal(found, precision, scale)  # noqa: E731
    elif name in WHOLE:
        convert = lambda found: as_whole(found, WHOLE[name])  # noqa: E731
    else:
        convert = SINGLE[name]

    def read(text: Text, found: Any, path: Path) -> Any:  # noqa: ANN401 - any JSON, any value
        try:
            return convert(found)
        except WrongValueError as error:
            dead_class, what = error.args
            forms = what == OTHER_FORM
            text.wrong(dead_class, f"{what or what_is(found)} for {shown(path)} ({name})", forms=forms)

    return read


OTHER_FORM = "another form"
ANOTHER_KIND = WrongValueError(DOES_NOT_FIT, "")
BEYOND = "one beyond it"


def as_boolean(found: Any) -> bool:  # noqa: ANN401 - any JSON
    if not isinstance(found, bool):
        raise ANOTHER_KIND
    return found


def as_whole(found: Any, bits: int) -> int:  # noqa: ANN401 - any JSON
    """Return a whole number, however it is written: ``1.0`` and ``1e2`` are whole."""
    if type(found) is Number and len(found) < MOST_DIGITS_OF_WHOLE and found.lstrip("-").isdigit():
        whole = int(found)
        if -(1 << bits) <= whole < 1 << bits:
            return whole
    if not isinstance(found, Number):
        raise ANOTHER_KIND
    exact = exactly(found)
    if not exact:
        return 0
    if exact.adjusted() >= MOST_DIGITS_OF_WHOLE:
        raise WrongValueError(DOES_NOT_FIT, "a number too large")
    if exact.adjusted() < 0 or exact != exact.to_integral_value(context=ROUNDED):
        raise WrongValueError(DOES_NOT_FIT, "a fraction")
    whole = int(exact)
    if not -(1 << bits) <= whole < 1 << bits:
        raise WrongValueError(DOES_NOT_FIT, "a number too large")
    return whole


def exactly(number: str) -> Decimal:
    """Return a number with all of its digits; of an exponent beyond what Python counts, one as far from any type's."""
    try:
        return Decimal(number)
    except ArithmeticError:
        digits, exponent = re.split("[eE]", number)
        return Decimal(f"{digits}e{'-' if exponent.startswith('-') else ''}{BEYOND_ALL}")


def as_double(found: Any) -> float:  # noqa: ANN401 - any JSON
    """Return the double next to a number."""
    if not isinstance(found, Number):
        raise ANOTHER_KIND
    value = float(found)
    if math.isinf(value):
        raise WrongValueError(OUT_OF_RANGE, "a number too large")
    # As Spark reads it, -0 is a whole number, which has no sign, and -0.0 is none.
    return value if value or not found.lstrip("-").isdigit() else 0.0


def as_float(found: Any) -> float:  # noqa: ANN401 - any JSON
    """Return the float next to a number, as a double. Rounded to a double first, a few would become another one."""
    value = as_double(found)
    bits = int.from_bytes(struct.pack("<d", value), "little")
    if bits % (2 * HALF_A_FLOAT) == HALF_A_FLOAT:  # exactly between two floats, which the number may not be
        exact = Decimal(found)
        if exact != Decimal(value):
            value = math.nextafter(value, math.inf if exact > Decimal(value) else -math.inf)
    try:
        [rounded] = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError as error:
        raise WrongValueError(OUT_OF_RANGE, "a number too large") from error
    return float(rounded)


def as_decimal(found: Any, precision: int, scale: int) -> Decimal:  # noqa: ANN401 - any JSON
    """Return a decimal from a number, or from the text of one; digits beyond its scale are rounded, half up."""
    if not (isinstance(found, str) and DECIMAL.fullmatch(found)):
        raise WrongValueError(DOES_NOT_FIT, "a text that is no number" if type(found) is str else "")
    exact, most = exactly(found), precision - scale
    if not exact or exact.adjusted() < most:
        rounded = exact.quantize(Decimal(1).scaleb(-scale), context=ROUNDED)
        if not rounded or rounded.adjusted() < most:
            return rounded
    raise WrongValueError(DOES_NOT_FIT, "a number too large")


def as_date(found: Any) -> str:  # noqa: ANN401 - any JSON
    form = in_form(found, DATE_FORM)
    return checked(lambda: date(*day_of(form)).isoformat())


def as_time(found: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a time in UTC; one without an offset is in UTC."""
    form = in_form(found, TIME_FORM)
    return checked(lambda: f"{written(time_of(form) - offset_of(form))}Z")


def as_local_time(found: Any) -> str:  # noqa: ANN401 - any JSON
    form = in_form(found, TIME_FORM)
    if form[8]:
        raise WrongValueError(DOES_NOT_FIT, "a time with an offset")
    return checked(lambda: written(time_of(form)))


def in_form(found: Any, form: re.Pattern[str]) -> re.Match[str]:  # noqa: ANN401 - any JSON
    if type(found) is not str:
        raise ANOTHER_KIND
    parts = form.fullmatch(found)
    if parts is None:
        raise WrongValueError(DOES_NOT_FIT, OTHER_FORM)
    return parts


def checked(convert: Callable[[], str]) -> str:
    """Return a day or time; refuses one that does not exist."""
    try:
        return convert()
    except (ValueError, OverflowError) as error:
        raise WrongValueError(OUT_OF_RANGE, "none that exists in the years 1 to 9999") from error


def day_of(form: re.Match[str]) -> tuple[int, int, int]:
    return int(form[1]) if form[1].isdigit() and len(form[1]) == len("9999") else 0, int(form[2]), int(form[3])


def time_of(form: re.Match[str]) -> datetime:
    """Return the time that is written; digits beyond microseconds are cut off."""
    hour, minute, second = int(form[4]), int(form[5]), int(form[6] or 0)
    if (hour, minute, second) != (hour % 24, minute % 60, second % 60):
        raise WrongValueError(OUT_OF_RANGE, "a time of day beyond 23:59:59")
    microseconds = f"{form[7] or ''}000000"[:6]
    return datetime(*day_of(form), hour, minute, second, int(microseconds))  # noqa: DTZ001


def offset_of(form: re.Match[str]) -> timedelta:
    """Return how much later a time is than it would be in UTC."""
    if not form[9]:
        return timedelta(0)
    hours, minutes = int(form[9]), int(form[10] or 0)
    offset = timedelta(hours=abs(hours), minutes=minutes)
    if minutes > 59 or offset > LARGEST_OFFSET:  # noqa: PLR2004 - minutes of an hour
        raise WrongValueError(OUT_OF_RANGE, "an offset beyond 18 hours, or of more than 59 minutes")
    return -offset if form[9].startswith("-") else offset


def written(when: datetime) -> str:
    """Return a time as SQL reads it."""
    return when.isoformat(timespec="microseconds")


SINGLE: dict[str, Callable[[Any], Any]] = {
    "boolean": as_boolean,
    "double": as_double,
    "float": as_float,
    "date": as_date,
    "timestamp": as_time,
    "timestamp_ntz": as_local_time,
}


def twice_in(found: Members) -> str:
    return ", ".join(name for name, times in Counter(name for name, _ in found).items() if times > 1)


def shown(path: Path | None) -> str:
    """Return a path as ``items[3].price``; a map's entry is ``*``, since its name may be a value."""
    if path is None:
        return ""
    around, step = path
    if isinstance(step, int):
        return f"{shown(around)}[{step}]"
    name = "*" if isinstance(step, tuple) else step
    return f"{shown(around)}.{name}" if around else name


def what_is(found: Any) -> str:  # noqa: ANN401 - any JSON
    match found:
        case None:
            return "null"
        case bool():
            return "true" if found else "false"
        case Number():
            return "a number"
        case str():
            return "a text"
        case Members():
            return "an object"
    return "an array"
