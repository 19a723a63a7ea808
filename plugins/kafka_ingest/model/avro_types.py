"""Avro's types, each with what Spark makes of a single value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

PRIMITIVES: Final = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
"""Avro's names, each with Spark's."""

LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
"""The logical types that Spark knows, apart from decimal; values of others are what they are without."""

TIMES: Final = frozenset(
    {
        "date",
        *("time-millis", "time-micros"),
        *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
    }
)
"""The logical types of numbers that are other times, or times of another unit, in another one of them."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A value of one of the :data:`PRIMITIVES`. ``spark``: what Spark makes of it, with its logical type.

    ``time``: the logical type, where it says what a number means as a time; also where Spark does not know it.
    """

    name: str
    spark: str
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """As many bytes as it says. ``spark``: binary, or a decimal."""

    name: str
    size: int
    spark: str
    aliases: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Enumeration:
    """One of some names."""

    name: str
    symbols: Sequence[str]
    default: str | None = None
    aliases: Sequence[str] = ()

    @property
    def has_default(self) -> bool:
        """Whether unknown symbols are read as one of these."""
        return self.default is not None


@dataclass(frozen=True, slots=True)
class Items:
    """An array."""

    element: "AvroType"


@dataclass(frozen=True, slots=True)
class Values:
    """A map."""

    value: "AvroType"


@dataclass(frozen=True, slots=True)
class Union:
    """A value of one of some types."""

    branches: Sequence["AvroType"]


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record."""

    name: str
    type: "AvroType"
    has_default: bool = False
    aliases: Sequence[str] = ()
    default: Any = None


@dataclass(frozen=True, slots=True)
class Record:
    """Fields with names."""

    name: str
    fields: Sequence[RecordField]
    aliases: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Inside:
    """A record in itself, by its name."""

    name: str
    aliases: Sequence[str] = ()


AvroType = Primitive | Fixed | Enumeration | Items | Values | Union | Record | Inside
Named = Fixed | Enumeration | Record | Inside


def name_of(kind: AvroType) -> str:
    """Return the name that distinguishes a type from the others of a union."""
    match kind:
        case Items():
            return "array"
        case Values():
            return "map"
        case Union():
            return "union"
        case _:
            return kind.name


def short(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition(".")[2]


def takes_no_bytes(kind: AvroType) -> bool:
    """Whether a value may be written as no byte at all, so that a few bytes can stand for billions of them."""
    match kind:
        case Primitive(name="null"):
            return True
        case Fixed(size=size):
            return size == 0
        case Record(_, fields):
            return all(takes_no_bytes(field.type) for field in fields)
        case _:
            return False


def decimal_name(precision: object, scale: object, size: int | None) -> str | None:
    """Return a decimal as Spark has it; None where Avro ignores the logical type, since it does not fit.

    ``size``: of a fixed, None for bytes. It may have more digits than Spark has.
    """
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return None
    if size is not None and precision > most_digits(size):
        return None
    return f"decimal({precision},{scale})"


def most_digits(size: int) -> int:
    """Return how many digits every decimal may have that is written in so many bytes."""
    return len(str(2 ** (8 * size - 1) - 1)) - 1 if size else 0
