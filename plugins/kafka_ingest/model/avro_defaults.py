"""Whether a field's default is a value of its type: Java's Avro refuses the whole schema where one is not."""

import math

from kafka_ingest.model.avro_types import AvroType, Enumeration, Fixed, Inside, Items, Primitive, Record, Union, Values

RANGES = {"int": 2**31, "long": 2**63}


def is_default(value: object, kind: AvroType) -> bool:
    """Whether a value in JSON is one of a type; of a union, one of any branch."""
    match kind:
        case Union(branches):
            return any(is_default(value, branch) for branch in branches)
        case Items(element):
            return isinstance(value, list) and all(is_default(each, element) for each in value)
        case Values(inner):
            return isinstance(value, dict) and all(is_default(each, inner) for each in value.values())
        case Record(_, fields):
            return isinstance(value, dict) and all(
                is_default(value[field.name], field.type) if field.name in value else field.has_default
                for field in fields
            )
        case Enumeration() | Fixed() | Inside():
            return is_of_name(value, kind)
        case Primitive(name):
            return is_single(value, name)


def is_of_name(value: object, kind: Enumeration | Fixed | Inside) -> bool:
    """Whether a value in JSON is one of a type that is known by its name."""
    match kind:
        case Enumeration(symbols=symbols):
            return value in symbols
        case Fixed(size=size):
            return isinstance(value, str) and len(value) == size
        case Inside():
            return isinstance(value, dict)


def is_single(value: object, name: str) -> bool:
    """Whether a value in JSON is one of a primitive type."""
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            return isinstance(value, int) and not isinstance(value, bool) and -RANGES[name] <= value < RANGES[name]
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case _:
            return isinstance(value, str)
