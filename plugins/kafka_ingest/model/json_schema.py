"""A JSON Schema as a schema in Spark's DDL: which fields there are, and of which types.

What JSON Schema says beyond that (lengths, patterns, which fields are required) is not checked of records. Where a
value may be of several types, or its type is not known here (a type in itself, one of another document, too many
levels), its column is a string with the JSON text of the value: so no schema of objects is refused for a part of it.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_foreign_json
from kafka_ingest.model.record_schema import MAX_DEPTH, WrongSchemaError, quoted, read_schema
from kafka_ingest.model.schema_source import ELEMENTS, MAP_VALUES, Paths, ReadAs, field_path

ANY: Final = "string"
SCALARS: Final = {"integer": "bigint", "number": "double", "boolean": "boolean"}
FORMATS: Final = {"date": "date", "date-time": "timestamp"}

MAX_VISITS: Final = 10_000
"""So many types are read, those that references lead to each time: a few of them can stand for billions."""
IN_ITSELF: Final = 2
"""So often a reference has led to a type that is text where it leads there again.

Once is not enough: of ``allOf: [{$ref: pet}, {properties: {friend: {$ref: pet}}}]`` a friend is no type in itself."""
MOST_BITS: Final = 4_096
"""Of a whole number in a schema, such as a maximum."""

Node = Any
"""What JSON has."""

ANYTHING: Final[Mapping[str, Node]] = {"type": ["object", "string"]}
"""What holds of a value of which nothing is known."""


def ddl_of_json_schema(text: str, read_as: Mapping[str, ReadAs] | None = None) -> str:
    """Return the DDL of the objects that a JSON Schema describes; raises WrongSchemaError."""
    try:
        root = read_foreign_json(text, most_bits=MOST_BITS)
    except ForeignJsonError as error:
        raise WrongSchemaError(f"expected a JSON Schema, found text that is not JSON: {error}") from None
    if not isinstance(root, dict):
        raise WrongSchemaError("expected a JSON Schema of objects, found one without properties")
    paths = Paths(read_as or {})
    fields = JsonSchema(root, paths).top()
    paths.check()
    read_schema(fields)
    return fields


class JsonSchema:
    """A schema that is being read. ``paths``: what the feed says of its values."""

    def __init__(self, root: Mapping[str, Node], paths: Paths) -> None:
        self._root = root
        self._paths = paths
        self._visits = 0
        self._open = ["#"] * IN_ITSELF
        """The references that have led to the type that is being read, and to others that hold of it as well."""

    def top(self) -> str:
        """Return the fields of the whole, those of its alternatives together."""
        fields: dict[str, list[Node]] = {}
        for shape in self.shapes(self._root, 1):
            for name, node in shape.items():
                fields.setdefault(name, []).append(node)
        found = {name: {"allOf": nodes} if len(nodes) > 1 else nodes[0] for name, nodes in fields.items()}
        if not found:
            raise WrongSchemaError("expected a JSON Schema of objects with properties, found one of other values")
        return self.fields_of(found, 1, "")

    def shapes(self, node: Node, depth: int) -> list[dict[str, Node]]:
        """Return the properties that hold of all values, and those of each alternative."""
        if depth >= MAX_DEPTH:
            raise WrongSchemaError(f"expected at most {MAX_DEPTH} levels of alternatives, found more")
        before = len(self._open)
        parts = self.parts(node, depth)
        del self._open[before:]
        others = [self.shapes(each, depth + 1) for part in parts for each in alternatives_of(part)]
        return [merged(parts), *(shape for other in others for shape in other)]

    def fields_of(self, fields: Mapping[str, Node], depth: int, path: str) -> str:
        """Return an object's fields, without those that the feed leaves out."""
        paths = {name: field_path(path, name) for name in fields}
        kept = {name: node for name, node in fields.items() if self._paths.at(paths[name]) is not ReadAs.SKIP}
        if not kept:
            raise WrongSchemaError(f"expected at least one field beside those left out, found none in {path or 'it'}")
        return ",".join(f"{quoted(name)}:{self.type(each, depth + 1, paths[name])}" for name, each in kept.items())

    def type(self, node: Node, depth: int, path: str) -> str:
        said = self._paths.at(path)
        if said is ReadAs.SKIP:
            raise WrongSchemaError(f"expected under as a field to be left out, found {path}, which is none")
        if said is not None or depth >= MAX_DEPTH:
            return ANY
        before = len(self._open)
        parts = self.parts(node, depth)
        try:
            if fields := merged(parts):
                return self.object(fields, parts, depth, path)
            if len(parts) > 1:
                return self.all_of(parts, depth, path)
            return self.single(parts[0], depth, path) if parts else ANY
        finally:
            del self._open[before:]

    def parts(self, node: Node, depth: int) -> list[Mapping[str, Node]]:
        """Return all that holds of a value at once: a schema itself, and what is in its allOf."""
        self._visits += 1
        if self._visits > MAX_VISITS:
            raise WrongSchemaError(f"expected a JSON Schema of at most {MAX_VISITS:,} types with all references")
        if not isinstance(node, dict):
            return []
        if "$ref" in node:
            reference = str(node["$ref"])
            is_known = self._open.count(reference) < IN_ITSELF and depth < MAX_DEPTH
            found = self.referred(reference) if is_known else ANYTHING
            self._open.append(reference)
            return self.parts(found, depth + 1)
        inner = node.get("allOf")
        others = [self.parts(each, depth + 1) for each in inner] if isinstance(inner, list) else []
        return [{key: node[key] for key in node if key != "allOf"}, *(part for other in others for part in other)]

    def all_of(self, parts: list[Mapping[str, Node]], depth: int, path: str) -> str:
        """Return the type of values of which several schemas hold; those that name no type say nothing."""
        found = {self.single(part, depth, path) for part in parts if says_type(part)}
        return found.pop() if len(found) == 1 else ANY

    def single(self, node: Mapping[str, Node], depth: int, path: str) -> str:
        kind = node.get("type")
        alternatives = alternatives_of(node)
        if alternatives and not (isinstance(kind, str) and not any(map(says_type, alternatives))):
            return self.one_of(alternatives, depth, path)
        if isinstance(kind, list):
            return self.one_of([{**node, "type": name} for name in kind], depth, path)
        return self.named(str(kind), node, depth, path)

    def named(self, kind: str, node: Mapping[str, Node], depth: int, path: str) -> str:
        match kind:
            case "object":
                values = node.get("additionalProperties")
                inner = path + MAP_VALUES
                return f"map<string,{self.type(values, depth + 1, inner)}>" if isinstance(values, dict) else ANY
            case "array":
                return f"array<{self.type(node.get('items'), depth + 1, path + ELEMENTS)}>"
            case "string":
                return FORMATS.get(str(node.get("format")), ANY)
            case _:
                return SCALARS.get(kind, ANY)

    def one_of(self, nodes: list[Node], depth: int, path: str) -> str:
        others = [node for node in nodes if not (isinstance(node, dict) and node.get("type") == "null")]
        return self.type(others[0], depth + 1, path) if len(others) == 1 else ANY

    def object(self, fields: Mapping[str, Node], parts: list[Mapping[str, Node]], depth: int, path: str) -> str:
        """Return the type of objects with fields; text where they may have others besides, or be no objects."""
        if not all(is_object(part) for part in parts):
            return ANY
        for part in parts:
            for alternative in alternatives_of(part):
                before = len(self._open)
                inner = self.parts(alternative, depth + 1)
                del self._open[before:]
                is_null = isinstance(alternative, dict) and alternative.get("type") == "null"
                if not (is_null or all(map(is_object, inner))) or merged(inner).keys() - fields.keys():
                    return ANY
        return f"struct<{self.fields_of(fields, depth, path)}>"

    def referred(self, reference: str) -> Node:
        """Return what a reference inside of this schema leads to; anything where it leads elsewhere, or to nothing."""
        found: Node = self._root
        if not reference.startswith("#"):
            return ANYTHING
        for name in filter(None, reference[1:].split("/")):
            key = unquote(name).replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                return ANYTHING
            found = found[key]
        return found


def merged(parts: list[Mapping[str, Node]]) -> dict[str, Node]:
    """Return the properties of schemas that hold at once; of one that several name, all that they say."""
    found: dict[str, Node] = {}
    for part in parts:
        properties = part.get("properties")
        for name, node in properties.items() if isinstance(properties, dict) else ():
            found[name] = {"allOf": [found[name], node]} if found.get(name, node) != node else node
    return found


def alternatives_of(node: Mapping[str, Node]) -> list[Node]:
    return [each for key in ("oneOf", "anyOf") if isinstance(node.get(key), list) for each in node[key]]


def is_object(node: Mapping[str, Node]) -> bool:
    """Whether a schema is one of objects, or of null besides, where it says a type at all."""
    kind = node.get("type", "object")
    return [each for each in (kind if isinstance(kind, list) else [kind]) if each != "null"] == ["object"]


def says_type(node: Node) -> bool:
    """Whether a schema says of which type values are, itself or by another."""
    names = ("type", "properties", "$ref", "oneOf", "anyOf", "allOf")
    return isinstance(node, dict) and any(name in node for name in names)
