"""Avro's types, and the types of columns that Spark makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafka_ingest.model.record_schema import MAX_PRECISION, ArrayOf, Field, MapOf, RecordType, Scalar, Struct

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

WIDER: Final = ((frozenset({"int", "long"}), "bigint"), (frozenset({"float", "double"}), "double"))
"""Unions that Spark reads as one type."""


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
    has_default: bool = False
    aliases: Sequence[str] = ()


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


@dataclass(frozen=True, slots=True)
class Record:
    """Fields with names."""

    name: str
    fields: Sequence[RecordField]
    aliases: Sequence[str] = ()


AvroType = Primitive | Fixed | Enumeration | Items | Values | Union | Record
Named = Fixed | Enumeration | Record


class NoColumnError(ValueError):
    """A type of which no column can be made; the message says what was expected, and what was found."""


def column_type(kind: AvroType, where: str = "the schema") -> RecordType:
    """Return the type of the column that Spark makes of values; raises NoColumnError where it makes none."""
    match kind:
        case Primitive(name="null"):
            raise NoColumnError(f"expected {where} to hold values, found only null")
        case Primitive(spark=spark) | Fixed(spark=spark):
            return Scalar(spark)
        case Enumeration():
            return Scalar("string")
        case Items(element):
            return ArrayOf(column_type(element, f"the items of {where}"))
        case Values(value):
            return MapOf(column_type(value, f"the values of {where}"))
        case Record(_, fields):
            return Struct(tuple(Field(field.name, column_type(field.type, f"field {field.name}")) for field in fields))
        case Union(branches):
            return union_type(branches, where)


def union_type(branches: Sequence[AvroType], where: str) -> RecordType:
    """Return the type of a union's column: null makes nothing but null, several others make a struct of members."""
    values = [each for each in branches if not (isinstance(each, Primitive) and each.name == "null")]
    names = frozenset(each.name if isinstance(each, Primitive) else "" for each in values)
    if len(values) == 1:
        return column_type(values[0], where)
    if not values:
        raise NoColumnError(f"expected {where} to hold values, found only null")
    for narrower, wider in WIDER:
        if names == narrower:
            return Scalar(wider)
    return Struct(tuple(Field(f"member{number}", column_type(each, where)) for number, each in enumerate(values)))


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

    ``size``: of a fixed, None for bytes. Raises NoColumnError for more digits than Spark has.
    """
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        return None
    if size is not None and precision > most_digits(size):
        return None
    if precision > MAX_PRECISION:
        raise NoColumnError(f"expected decimals of at most {MAX_PRECISION} digits, found one of {precision}")
    return f"decimal({precision},{scale})"


def most_digits(size: int) -> int:
    """Return how many digits every decimal may have that is written in so many bytes."""
    return len(str(2 ** (8 * size - 1) - 1)) - 1 if size else 0
