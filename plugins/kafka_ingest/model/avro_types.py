"""Avro's types, each with what Spark makes of a single value; and as JSON again.

That JSON says nothing but what was read of them, so that Java's Avro finds nothing else to refuse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_foreign_json
from kafka_ingest.model.record_schema import DECIMAL
from kafka_ingest.model.schema_source import RegisteredSchema

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


Node = Any
"""What JSON has."""


def node_of(kind: AvroType, space: str, defined: set[str]) -> Node:
    """Return a type. ``space``: the namespace around it; ``defined``: what has a definition before."""
    match kind:
        case Primitive(name):
            logic = logical(kind)
            return {"type": name, **logic} if logic else name
        case Items(element):
            return {"type": "array", "items": node_of(element, space, defined)}
        case Values(value):
            return {"type": "map", "values": node_of(value, space, defined)}
        case Union(branches):
            return [node_of(each, space, defined) for each in branches]
        case Fixed() | Enumeration() | Record() | Inside():
            is_known = isinstance(kind, Inside) or kind.name in defined
            defined.add(kind.name)
            return kind.name if is_known else defined_node(kind, space, defined)


def defined_node(kind: Fixed | Enumeration | Record | Inside, space: str, defined: set[str]) -> Node:
    match kind:
        case Fixed():
            return fixed_node(kind, space) | logical(kind)
        case Enumeration():
            return enumeration_node(kind, space)
        case Record(name, fields):
            inner = namespace_of(name)
            nodes = [field_node(each, node_of(each.type, inner, defined)) for each in fields]
            return {**named_node("record", name, space), "fields": nodes, **aliases_of(kind.aliases)}
        case Inside(name):
            return name


def named_node(kind: str, name: str, space: str) -> dict[str, Node]:
    """Return the beginning of a definition; a name without a namespace would have that of what is around it."""
    return {"type": kind, "name": name, **({"namespace": ""} if space and "." not in name else {})}


def fixed_node(kind: Fixed, space: str) -> dict[str, Node]:
    """Return the definition of a fixed without its logical type."""
    return {**named_node("fixed", kind.name, space), "size": kind.size, **aliases_of(kind.aliases)}


def enumeration_node(kind: Enumeration, space: str) -> dict[str, Node]:
    default = {"default": kind.default} if kind.has_default else {}
    symbols = list(kind.symbols)
    return {**named_node("enum", kind.name, space), "symbols": symbols, **default, **aliases_of(kind.aliases)}


def field_node(field: RecordField, node: Node) -> dict[str, Node]:
    """Return a field of a record; ``node``: its type."""
    default = {"default": field.default} if field.has_default else {}
    return {"name": field.name, "type": node, **default, **aliases_of(field.aliases)}


def aliases_of(aliases: Sequence[str]) -> dict[str, Node]:
    return {"aliases": list(aliases)} if aliases else {}


def namespace_of(name: str) -> str:
    return name.rpartition(".")[0]


def logical(kind: Primitive | Fixed) -> dict[str, Node]:
    """Return the logical type of a type, where it has one that counts here."""
    if decimal := DECIMAL.fullmatch(kind.spark):
        return {"logicalType": "decimal", "precision": int(decimal[1]), "scale": int(decimal[2])}
    return {"logicalType": kind.time} if isinstance(kind, Primitive) and kind.time else {}


def is_other_type(found: RegisteredSchema, reader: RegisteredSchema) -> bool:
    """Whether a schema is surely one of another type; not where one of the two has no name, or is not known."""
    if not found.text:
        return False
    if found.kind != reader.kind:
        return True
    names, wanted = names_in(found), names_in(reader)
    return bool(names and wanted) and names[0] not in wanted


def names_in(schema: RegisteredSchema) -> list[str]:
    """Return the name of a schema's type, and those that it had before: of Avro without the namespace."""
    try:
        node: Any = read_foreign_json(schema.text)
    except ForeignJsonError:
        return []
    match schema.kind, node:
        case "AVRO", {"type": "record" | "enum" | "fixed", "name": str(name)}:
            aliases = node.get("aliases")
            earlier = [each for each in aliases if isinstance(each, str)] if isinstance(aliases, list) else []
            return list(map(short, [name, *earlier]))
        case "AVRO", str(name) | {"type": str(name)}:
            return [name]
        case "JSON", {"title": str(title)}:
            return [title]
        case _:
            return []
