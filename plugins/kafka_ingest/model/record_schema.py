"""The schema of JSON objects in Spark's DDL, such as ``id bigint, tags array<string>``, read without Spark.

What a schema may say is less than what Spark would take: every type here is decoded to exactly the value that the
record holds, or not at all. A feed file is checked with it, and the Spark job makes its expressions from it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

RESERVED_PREFIX: Final = "kafka_"
"""How the names of this project's columns begin; fields of records are not stored under such names."""

MAX_FIELDS: Final = 1_000
MAX_DEPTH: Final = 20
MAX_NAME: Final = 255
MAX_PRECISION: Final = 38

SAME_TYPES: Final = {
    "string": "string",
    "boolean": "boolean",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
"""Spark's names of the types that have no parameters, each with the one that is used here."""

DECIMALS: Final = frozenset({"decimal", "dec", "numeric"})
DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
"""A decimal type as Spark names it: its precision and its scale."""
KNOWN: Final = "string, boolean, smallint, int, bigint, float, double, decimal(p,s), date, timestamp, timestamp_ntz, "
KNOWN_TYPES: Final = KNOWN + "array<…>, map<string,…>, struct<…>"

TOKEN: Final = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[A-Za-z0-9_]+)|(?P<sign>[<>(),:])|(?P<other>\S))")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value. ``name``: as in :data:`SAME_TYPES`, or ``decimal(p,s)``."""

    name: str

    @property
    def ddl(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """Values of one type."""

    element: "RecordType"

    @property
    def ddl(self) -> str:
        return f"array<{self.element.ddl}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with any names, and values of one type. ``key``: Spark's type of the names, where they are no text."""

    value: "RecordType"
    key: str = "string"

    @property
    def ddl(self) -> str:
        return f"map<{self.key},{self.value.ddl}>"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an object."""

    name: str
    type: "RecordType"


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with the fields that its schema names, in their order."""

    fields: tuple[Field, ...]

    @property
    def fields_ddl(self) -> str:
        return ",".join(f"{quoted(field.name)}:{field.type.ddl}" for field in self.fields)

    @property
    def ddl(self) -> str:
        return f"struct<{self.fields_ddl}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


RecordType = Scalar | ArrayOf | MapOf | Struct


def kinds_in(kind: RecordType) -> Iterator[RecordType]:
    """Yield a type, and all types in it."""
    yield kind
    match kind:
        case Struct(fields):
            for field in fields:
                yield from kinds_in(field.type)
        case ArrayOf(inner) | MapOf(inner):
            yield from kinds_in(inner)


class WrongSchemaError(ValueError):
    """The text is no schema that can be used; the message says what was expected, and where what was found."""


def read_schema(text: str) -> Struct:
    """Return the object that a schema describes; raises WrongSchemaError."""
    reading = SchemaText(text)
    schema = Struct(reading.fields(end=None, depth=1))
    if reading.number_of_fields > MAX_FIELDS:
        raise WrongSchemaError(f"expected at most {MAX_FIELDS:,} fields, found {reading.number_of_fields:,}")
    return schema


def read_type(text: str) -> RecordType:
    """Return the type of a column that is computed, which may also be binary; raises WrongSchemaError."""
    reading = SchemaText(text, SAME_TYPES | {"binary": "binary"})
    found = reading.type(depth=1)
    kind, token = reading.take()
    if kind != "end":
        raise reading.refused("the end", token)
    return found


def collisions(columns: Iterator[str] | tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    """Return the names that cannot be columns beside others: in any case of letters taken, or this project's own."""
    taken = {other.lower() for other in others}
    return [name for name in columns if name.lower() in taken or name.lower().startswith(RESERVED_PREFIX)]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class SchemaText:
    """A schema that is being read, token by token."""

    def __init__(self, text: str, types: Mapping[str, str] = SAME_TYPES) -> None:
        self.types = types
        self.text = text.rstrip()
        self.at = 0
        self.number_of_fields = 0

    def fields(self, end: str | None, depth: int) -> tuple[Field, ...]:
        """Read fields up to a sign, or up to the text's end."""
        if depth > MAX_DEPTH:
            raise WrongSchemaError(f"expected at most {MAX_DEPTH} levels of types, found more")
        found: dict[str, Field] = {}
        while True:
            name = self.name()
            if name.lower() in found:
                other = found[name.lower()].name
                raise WrongSchemaError(
                    f"expected names that differ in more than the case of their letters, found {name[:100]!r} "
                    + ("twice" if other == name else f"and {other[:100]!r}")
                )
            if self.sees(":"):
                self.take()
            found[name.lower()] = Field(name, self.type(depth))
            self.number_of_fields += 1
            if not self.follows(",", end):
                return tuple(found.values())

    def follows(self, sign: str, end: str | None) -> bool:
        """Read a sign (True), or the end (False)."""
        kind, token = self.take()
        if kind == "sign" and token == sign:
            return True
        if (end is None and kind == "end") or (kind == "sign" and token == end):
            return False
        raise self.refused(f"{sign!r} or {'the end' if end is None else repr(end)}", token)

    def name(self) -> str:
        kind, token = self.take()
        if kind == "quoted":
            token = token[1:-1].replace("``", "`")
        elif kind != "word" or token[0].isdigit():
            raise self.refused("a field's name (letters, digits and '_', or anything between backticks)", token)
        if len(token) > MAX_NAME or not token.isprintable() or not token.strip():
            raise self.refused(f"a field's name of at most {MAX_NAME} printable characters", token)
        return token

    def type(self, depth: int) -> RecordType:
        if depth > MAX_DEPTH:
            raise WrongSchemaError(f"expected at most {MAX_DEPTH} levels of types, found more")
        kind, token = self.take()
        word = token.lower() if kind == "word" else ""
        if word in self.types:
            return Scalar(self.types[word])
        match word:
            case "array":
                self.expect("<")
                element = self.type(depth + 1)
                self.expect(">")
                return ArrayOf(element)
            case "map":
                self.expect("<")
                key = self.take()[1]
                if key.lower() != "string":
                    raise self.refused("string, as JSON has no other keys", key)
                self.expect(",")
                value = self.type(depth + 1)
                self.expect(">")
                return MapOf(value)
            case "struct":
                self.expect("<")
                return Struct(self.fields(">", depth + 1))
            case _ if word in DECIMALS:
                return self.decimal()
        hint = " (smallint for tinyint)" if word in {"tinyint", "byte"} else ""
        raise self.refused(f"a type: one of {KNOWN_TYPES}{hint}", token)

    def decimal(self) -> Scalar:
        """Read what follows the word."""
        precision, scale = 10, 0
        if self.sees("("):
            self.take()
            precision = self.number()
            if self.sees(","):
                self.take()
                scale = self.number()
            self.expect(")")
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            raise WrongSchemaError(
                f"expected a decimal of 1 to {MAX_PRECISION} digits, of which some are after the point, found "
                f"decimal({precision},{scale})"
            )
        return Scalar(f"decimal({precision},{scale})")

    def number(self) -> int:
        kind, token = self.take()
        if kind != "word" or not re.fullmatch("[0-9]{1,3}", token):
            raise self.refused("a number of digits", token)
        return int(token)

    def expect(self, sign: str) -> None:
        kind, token = self.take()
        if kind != "sign" or token != sign:
            raise self.refused(repr(sign), token)

    def sees(self, sign: str) -> bool:
        before = self.at
        _, token = self.take()
        self.at = before
        return token == sign

    def take(self) -> tuple[str, str]:
        """Read the next token: its kind, and its text."""
        found = TOKEN.match(self.text, self.at)
        if found is None:
            return "end", ""
        self.at = found.end()
        return str(found.lastgroup), found[str(found.lastgroup)]

    def refused(self, expected: str, found: str) -> WrongSchemaError:
        line = self.text.count("\n", 0, self.at) + 1
        where = f" in line {line}" if "\n" in self.text else ""
        before = self.text[: self.at - len(found)].rstrip()[-40:]
        after = f" after {before!r}" if before else ""
        return WrongSchemaError(f"expected {expected}{after}{where}, found {repr(found[:100]) if found else 'the end'}")
