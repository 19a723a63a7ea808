"""A JSON Schema as a schema in Spark's DDL: which fields there are, and of which types.

What JSON Schema says beyond that (lengths, patterns, which fields are required) is not checked of records. Where a
value may be of several types, its column is a string with the JSON text of the value.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from kafka_ingest.model.record_schema import MAX_DEPTH, WrongSchemaError, quoted, read_schema

ANY: Final = "string"
SCALARS: Final = {"integer": "bigint", "number": "double", "boolean": "boolean"}
FORMATS: Final = {"date": "date", "date-time": "timestamp"}

MAX_VISITS: Final = 10_000
"""So many types are looked at, those that references lead to each time: a few of them can stand for billions."""

Node = Any
"""What JSON has."""


def ddl_of_json_schema(text: str) -> str:
    """Return the DDL of the objects that a JSON Schema describes; raises WrongSchemaError."""
    try:
        root = json.loads(text)
    except ValueError as error:
        raise WrongSchemaError(f"expected a JSON Schema, found text that is not JSON: {error}") from None
    except RecursionError:
        raise WrongSchemaError("expected a JSON Schema, found JSON with too many levels to be read") from None
    if not isinstance(root, dict):
        raise WrongSchemaError("expected a JSON Schema of objects, found one without properties")
    ddl = JsonSchema(root).type(root, 1)
    if not ddl.startswith("struct<"):
        raise WrongSchemaError("expected a JSON Schema of objects with properties, found one of other values")
    fields = ddl.removeprefix("struct<").removesuffix(">")
    read_schema(fields)
    return fields


class JsonSchema:
    """A schema that is being read."""

    def __init__(self, root: Mapping[str, Node]) -> None:
        self._root = root
        self._visits = 0

    def type(self, node: Node, depth: int) -> str:
        """Return the type of values."""
        parts = self.parts(node, depth)
        if fields := merged(parts):
            return self.object(fields, parts, depth)
        if len(parts) > 1:
            return self.all_of(parts, depth)
        return self.single(parts[0], depth) if parts else ANY

    def parts(self, node: Node, depth: int) -> list[dict[str, Node]]:
        """Return all that holds of a value at once: a schema itself, and what is in its allOf."""
        self._visits += 1
        if self._visits > MAX_VISITS:
            raise WrongSchemaError(f"expected a JSON Schema of at most {MAX_VISITS:,} types with all references")
        if depth > MAX_DEPTH:
            raise WrongSchemaError(f"expected at most {MAX_DEPTH} levels of types, found more, or a type in itself")
        if not isinstance(node, dict):
            return []
        if "$ref" in node:
            return self.parts(self.referred(node["$ref"]), depth + 1)
        inner = node.get("allOf")
        others = [self.parts(each, depth + 1) for each in inner] if isinstance(inner, list) else []
        return [{key: node[key] for key in node if key != "allOf"}, *(part for other in others for part in other)]

    def all_of(self, parts: list[dict[str, Node]], depth: int) -> str:
        """Return the type of values of which several schemas hold; those that name no type say nothing."""
        found = {self.single(part, depth) for part in parts if says_type(part)}
        return found.pop() if len(found) == 1 else ANY

    def single(self, node: Mapping[str, Node], depth: int) -> str:
        """Return the type of values of a schema without properties."""
        kind = node.get("type")
        alternatives = alternatives_of(node)
        if alternatives and not (isinstance(kind, str) and not any(map(says_type, alternatives))):
            return self.one_of(alternatives, depth)
        if isinstance(kind, list):
            return self.one_of([{**node, "type": name} for name in kind], depth)
        return self.named(str(kind), node, depth)

    def named(self, kind: str, node: Mapping[str, Node], depth: int) -> str:
        """Return the type of values of one of JSON Schema's types."""
        match kind:
            case "object":
                values = node.get("additionalProperties")
                return f"map<string,{self.type(values, depth + 1)}>" if isinstance(values, dict) else ANY
            case "array":
                return f"array<{self.type(node.get('items'), depth + 1)}>"
            case "string":
                return FORMATS.get(str(node.get("format")), ANY)
            case _:
                return SCALARS.get(kind, ANY)

    def one_of(self, nodes: list[Node], depth: int) -> str:
        """Return the type of values of one of some types."""
        others = [node for node in nodes if not (isinstance(node, dict) and node.get("type") == "null")]
        return self.type(others[0], depth + 1) if len(others) == 1 else ANY

    def object(self, fields: Mapping[str, Node], parts: list[dict[str, Node]], depth: int) -> str:
        """Return the type of objects with fields; text where they may have others besides, or be no objects."""
        if not all(is_object(part) for part in parts):
            return ANY
        for part in parts:
            for alternative in alternatives_of(part):
                inner = self.parts(alternative, depth + 1)
                is_null = isinstance(alternative, dict) and alternative.get("type") == "null"
                if not (is_null or all(map(is_object, inner))) or merged(inner).keys() - fields.keys():
                    return ANY
        types = (f"{quoted(name)}:{self.type(each, depth + 1)}" for name, each in fields.items())
        return f"struct<{','.join(types)}>"

    def referred(self, reference: Node) -> Node:
        """Return what a reference inside of this schema leads to."""
        found: Node = self._root
        path = str(reference)
        if not path.startswith("#"):
            raise WrongSchemaError(f"expected references inside of the schema (#/…), found {path[:100]!r}")
        for name in filter(None, path[1:].split("/")):
            key = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise WrongSchemaError(f"expected what {path[:100]!r} refers to, found nothing there")
            found = found[key]
        return found


def merged(parts: list[dict[str, Node]]) -> dict[str, Node]:
    """Return the properties of schemas that hold at once; of one that several name, all that they say."""
    found: dict[str, Node] = {}
    for part in parts:
        properties = part.get("properties")
        for name, node in properties.items() if isinstance(properties, dict) else ():
            found[name] = {"allOf": [found[name], node]} if found.get(name, node) != node else node
    return found


def alternatives_of(node: Mapping[str, Node]) -> list[Node]:
    """Return the schemas of which a value has one."""
    return [each for key in ("oneOf", "anyOf") if isinstance(node.get(key), list) for each in node[key]]


def is_object(node: Mapping[str, Node]) -> bool:
    """Whether a schema is one of objects, or of null besides, where it says a type at all."""
    kind = node.get("type", "object")
    return [each for each in (kind if isinstance(kind, list) else [kind]) if each != "null"] == ["object"]


def says_type(node: Node) -> bool:
    """Whether a schema says of which type values are, itself or by another."""
    names = ("type", "properties", "$ref", "oneOf", "anyOf", "allOf")
    return isinstance(node, dict) and any(name in node for name in names)
