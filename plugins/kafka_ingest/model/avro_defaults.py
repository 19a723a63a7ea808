"""Whether a field's default is a value of its type: Java's Avro refuses the whole schema where one is not."""

import math

from kafka_ingest.model.avro_types import AvroType, Enumeration, Fixed, Items, Primitive, Record, Union, Values

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
        case Enumeration() | Fixed():
            fits = value in kind.symbols if isinstance(kind, Enumeration) else len(str(value)) == kind.size
            return isinstance(value, str) and fits
        case Primitive(name):
            return is_single(value, name)


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
