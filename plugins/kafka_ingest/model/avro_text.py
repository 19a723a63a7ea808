"""Avro's types as JSON again: nothing but what was read of them, so that Java's Avro finds nothing else to refuse."""

from collections.abc import Sequence
from typing import Any

from kafka_ingest.model.avro_types import (
    AvroType,
    Enumeration,
    Fixed,
    Inside,
    Items,
    Primitive,
    Record,
    RecordField,
    Union,
    Values,
)
from kafka_ingest.model.record_schema import DECIMAL

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
    """Return the definition of a type that has a name."""
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
    """Return the definition of an enum."""
    default = {"default": kind.default} if kind.has_default else {}
    symbols = list(kind.symbols)
    return {**named_node("enum", kind.name, space), "symbols": symbols, **default, **aliases_of(kind.aliases)}


def field_node(field: RecordField, node: Node) -> dict[str, Node]:
    """Return a field of a record; ``node``: its type."""
    default = {"default": field.default} if field.has_default else {}
    return {"name": field.name, "type": node, **default, **aliases_of(field.aliases)}


def aliases_of(aliases: Sequence[str]) -> dict[str, Node]:
    """Return earlier names."""
    return {"aliases": list(aliases)} if aliases else {}


def namespace_of(name: str) -> str:
    """Return the namespace of a name in full."""
    return name.rpartition(".")[0]


def logical(kind: Primitive | Fixed) -> dict[str, Node]:
    """Return the logical type of a type, where it has one that counts here."""
    if decimal := DECIMAL.fullmatch(kind.spark):
        return {"logicalType": "decimal", "precision": int(decimal[1]), "scale": int(decimal[2])}
    return {"logicalType": kind.time} if isinstance(kind, Primitive) and kind.time else {}
