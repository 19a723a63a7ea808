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

Node = Any
"""What JSON has."""


def ddl_of_json_schema(text: str) -> str:
    """Return the DDL of the objects that a JSON Schema describes; raises WrongSchemaError."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongSchemaError(f"expected a JSON Schema, found text that is no JSON: {error}") from None
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

    def type(self, node: Node, depth: int) -> str:
        """Return the type of values."""
        if depth > MAX_DEPTH:
            raise WrongSchemaError(f"expected at most {MAX_DEPTH} levels of types, found more, or a type in itself")
        if not isinstance(node, dict):
            return ANY
        if "$ref" in node:
            return self.type(self.referred(node["$ref"]), depth + 1)
        alternatives = next((node[key] for key in ("oneOf", "anyOf", "allOf") if isinstance(node.get(key), list)), None)
        if alternatives is not None:
            return self.one_of(alternatives, depth)
        kind = node.get("type", "object" if isinstance(node.get("properties"), dict) else None)
        if isinstance(kind, list):
            return self.one_of([{**node, "type": name} for name in kind], depth)
        return self.named(str(kind), node, depth)

    def named(self, kind: str, node: Mapping[str, Node], depth: int) -> str:
        """Return the type of values of one of JSON Schema's types."""
        match kind:
            case "object":
                return self.object(node, depth)
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

    def object(self, node: Mapping[str, Node], depth: int) -> str:
        """Return the type of objects."""
        properties = node.get("properties")
        if isinstance(properties, dict) and properties:
            fields = (f"{quoted(name)}:{self.type(each, depth + 1)}" for name, each in properties.items())
            return f"struct<{','.join(fields)}>"
        values = node.get("additionalProperties")
        return f"map<string,{self.type(values, depth + 1)}>" if isinstance(values, dict) else ANY

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
