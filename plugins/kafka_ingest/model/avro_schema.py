"""An Avro schema, read without Java: a text that stands by itself, and the types in it.

A schema is refused here that Spark would refuse, or of which it would lose values without a word. A feed's schema is
checked with it before anything is planned, and the Spark job makes its expressions from the text.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_foreign_json
from kafka_ingest.model import avro_types as avro
from kafka_ingest.model.avro_columns import Columns, SparkValue
from kafka_ingest.model.record_schema import MAX_DEPTH, MAX_FIELDS, MAX_NAME, WrongSchemaError
from kafka_ingest.model.schema_source import Paths, ReadAs

RANGES = {"int": 2**31, "long": 2**63}


def is_default(value: object, kind: avro.AvroType) -> bool:
    """Whether a value in JSON is one of a type; of a union, one of any branch."""
    match kind:
        case avro.Union(branches):
            return any(is_default(value, branch) for branch in branches)
        case avro.Items(element):
            return isinstance(value, list) and all(is_default(each, element) for each in value)
        case avro.Values(inner):
            return isinstance(value, dict) and all(is_default(each, inner) for each in value.values())
        case avro.Record(_, fields):
            return isinstance(value, dict) and all(
                is_default(value[field.name], field.type) if field.name in value else field.has_default
                for field in fields
            )
        case avro.Enumeration() | avro.Fixed() | avro.Inside():
            return is_of_name(value, kind)
        case avro.Primitive(name):
            return is_single(value, name)


def is_of_name(value: object, kind: avro.Enumeration | avro.Fixed | avro.Inside) -> bool:
    match kind:
        case avro.Enumeration(symbols=symbols):
            return value in symbols
        case avro.Fixed(size=size):
            return isinstance(value, str) and len(value) == size
        case avro.Inside():
            return isinstance(value, dict)


def is_single(value: object, name: str) -> bool:
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


MAX_TEXT: Final = 1_000_000
MOST_BITS: Final = 256
"""Of a whole number in a schema."""
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SPARKS_OWN: Final = "spark.sql.catalyst.type"
"""By it Spark would read a value as something that only Spark knows."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema. ``named``: the types in it that have names."""

    type: avro.AvroType
    named: Mapping[str, avro.Named]

    @property
    def text(self) -> str:
        """Its JSON, with the types that it only refers to, and without what is not read, such as documentation."""
        return json.dumps(avro.node_of(self.type, "", set()), separators=(",", ":"))

    def read_as(self, read_as: Mapping[str, ReadAs], *, is_loose: bool = False) -> SparkValue:
        """Return what Spark reads it as, and the column; raises WrongSchemaError where that can be none."""
        paths = Paths(read_as)
        columns = Columns(self.named, paths, is_loose=is_loose)
        found = columns.value(self.type)
        paths.check()
        return replace(found, in_themselves=columns.in_themselves)


def read_avro(text: str, references: Mapping[str, str] | None = None, *, is_written_with: bool = False) -> AvroSchema:
    """Return a schema; raises WrongSchemaError.

    ``references``: the texts of schemas of other subjects, by the full names of the types that they define.
    ``is_written_with``: defaults that are no values of their fields are left out, since no writer's are ever used.
    """
    if len(text) > MAX_TEXT:
        raise WrongSchemaError(f"expected an Avro schema of at most {MAX_TEXT:,} characters, found {len(text):,}")
    reading = Reading(references or {}, is_written_with)
    kind = reading.type(json_of(text, "an Avro schema"), "", 1)
    return AvroSchema(kind, reading.named)


@dataclass
class Reading:
    """A schema that is being read: what has a name so far, and what is being defined, with its aliases."""

    references: Mapping[str, str]
    is_written_with: bool = False
    named: dict[str, avro.Named] = field(default_factory=dict)
    open: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fields: int = 0
    deepest: int = 0
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each record: how many levels are below it, and how many fields are in it."""

    def type(self, node: avro.Node, namespace: str, depth: int) -> avro.AvroType:
        self.grow(0, depth)
        if isinstance(node, list):
            return self.union(node, namespace, depth)
        if isinstance(node, str):
            return self.by_name(node, namespace, depth)
        if not isinstance(node, dict):
            raise WrongSchemaError(f"expected a type (a name, a list or an object), found {shown(node)}")
        if SPARKS_OWN in node:
            raise WrongSchemaError(f"expected types of Avro, found {SPARKS_OWN}, which only Spark knows")
        return self.described(node, namespace, depth)

    def grow(self, fields: int, depth: int) -> None:
        """Count fields, and levels, also those of a type that is named again."""
        self.fields, self.deepest = self.fields + fields, max(self.deepest, depth)
        if self.deepest > MAX_DEPTH:
            raise WrongSchemaError(f"expected at most {MAX_DEPTH} levels of types, found more")
        if self.fields > MAX_FIELDS:
            raise WrongSchemaError(f"expected at most {MAX_FIELDS:,} fields, found {self.fields:,}")

    def described(self, node: dict[str, avro.Node], namespace: str, depth: int) -> avro.AvroType:
        match node.get("type"):
            case "record" | "enum" | "fixed" as name:
                return self.definition(name, node, namespace, depth)
            case "array":
                element = self.type(required(node, "items"), namespace, depth + 1)
                if avro.takes_no_bytes(element):
                    raise WrongSchemaError("expected arrays of values that take bytes, found one of null or of nothing")
                return avro.Items(element)
            case "map":
                return avro.Values(self.type(required(node, "values"), namespace, depth + 1))
            case str(name) if name in avro.PRIMITIVES:
                return avro.Primitive(name, spark_of(name, node), time_of(node))
            case inner:
                return self.type(inner, namespace, depth + 1)

    def definition(self, name: str, node: Mapping[str, avro.Node], namespace: str, depth: int) -> avro.AvroType:
        if name == "record":
            return self.record(node, namespace, depth)
        return self.enumeration(node, namespace) if name == "enum" else self.fixed(node, namespace)

    def union(self, node: list[avro.Node], namespace: str, depth: int) -> avro.AvroType:
        self.grow(max(0, len(node) - 2), depth)  # beside null and one other, members are fields
        found = [self.type(each, namespace, depth + 1) for each in node]
        if not found or any(isinstance(kind, avro.Union) for kind in found):
            raise WrongSchemaError("expected a union that is not empty and holds no other union")
        names = list(map(avro.name_of, found))
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise WrongSchemaError(f"expected each type once in a union, found {', '.join(twice)} twice")
        return avro.Union(tuple(found))

    def by_name(self, name: str, namespace: str, depth: int) -> avro.AvroType:
        if name in avro.PRIMITIVES:
            return avro.Primitive(name, avro.PRIMITIVES[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if not self.knows(full) and self.knows(name):
            full = name  # as Java's Avro does, which looks without the namespace then
        if full in self.open:
            return avro.Inside(full, self.open[full])
        if full in self.named:
            levels, fields = self.sizes.get(full, (0, 0))
            self.grow(fields, depth + levels)
            return self.named[full]
        if full not in self.references:
            raise WrongSchemaError(f"expected a type of Avro, or one that is defined before, found {full[:MAX_NAME]!r}")
        node = json_of(self.references[full], full[:MAX_NAME])
        if isinstance(node, dict) and "." not in str(node.get("name", "")):
            node = {"namespace": "", **node}  # else it would be in the namespace of what refers to it
        kind = self.type(node, "", depth + 1)
        if self.named.get(full) is not kind:
            raise WrongSchemaError(f"expected a schema that defines {full}, found {avro.name_of(kind)}")
        return kind

    def knows(self, full: str) -> bool:
        return full in self.open or full in self.named or full in self.references

    def define(self, node: Mapping[str, avro.Node], namespace: str) -> tuple[str, str, tuple[str, ...]]:
        """Read the name of a definition; return it in full, its namespace, and the aliases."""
        name, own = required(node, "name"), node.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(own, str):
            raise WrongSchemaError(f"expected a name, found {shown(name)} in the namespace {shown(own)}")
        if "." in name:
            own, _, name = name.rpartition(".")
        full = f"{own}.{name}" if own else name
        if any(not NAME.fullmatch(part) for part in full.split(".")) or len(full) > MAX_NAME or name in avro.PRIMITIVES:
            raise WrongSchemaError(f"expected a name of letters, digits and '_', found {full[:100]!r}")
        if full in self.named or full in self.open:
            raise WrongSchemaError(f"expected each name to be defined once, found {full} twice")
        aliases = names_in(node)
        return full, own, tuple(each if "." in each or not own else f"{own}.{each}" for each in aliases)

    def record(self, node: Mapping[str, avro.Node], namespace: str, depth: int) -> avro.Record:
        full, own, aliases = self.define(node, namespace)
        entries = required(node, "fields")
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise WrongSchemaError(f"expected a list of fields in {full}, found {shown(entries)}")
        self.open[full] = aliases
        fields_before, deepest_before, self.deepest = self.fields, self.deepest, depth
        self.grow(len(entries), depth)
        found = []
        for entry in entries:
            name = required(entry, "name")
            if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > MAX_NAME:
                raise WrongSchemaError(f"expected names of letters, digits and '_' in {full}, found {shown(name)}")
            kind, default = self.type(required(entry, "type"), own, depth + 1), entry.get("default")
            has_default = "default" in entry and is_default(default, kind)
            if "default" in entry and not has_default and not self.is_written_with:
                expected = f"a {avro.name_of(kind)} as the default of {full}.{name}"
                raise WrongSchemaError(f"expected {expected}, found {shown(default)}")
            found.append(avro.RecordField(name, kind, has_default, names_in(entry), default))
        del self.open[full]
        names = [each.name for each in found]
        if len({*names}) < len(names):
            raise WrongSchemaError(f"expected each name once in {full}, found one twice")
        self.sizes[full] = self.deepest - depth, self.fields - fields_before
        self.deepest = max(self.deepest, deepest_before)
        record = avro.Record(full, tuple(found), aliases)
        self.named[full] = record
        return record

    def enumeration(self, node: Mapping[str, avro.Node], namespace: str) -> avro.Enumeration:
        full, _, aliases = self.define(node, namespace)
        symbols = texts(required(node, "symbols"), "symbols")
        if len({*symbols}) < len(symbols) or not all(NAME.fullmatch(each) for each in symbols):
            raise WrongSchemaError(f"expected different names as the symbols of {full}, found others")
        if "default" in node and node["default"] not in symbols:
            raise WrongSchemaError(f"expected a symbol of {full} as its default, found {shown(node['default'])}")
        kind = avro.Enumeration(full, symbols, node.get("default"), aliases)
        self.named[full] = kind
        return kind

    def fixed(self, node: Mapping[str, avro.Node], namespace: str) -> avro.Fixed:
        full, _, aliases = self.define(node, namespace)
        size = required(node, "size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_TEXT:
            raise WrongSchemaError(f"expected a number of bytes as the size of {full}, found {shown(size)}")
        kind = avro.Fixed(full, size, spark_of("fixed", node, size), aliases)
        self.named[full] = kind
        return kind


def spark_of(name: str, node: Mapping[str, avro.Node], size: int | None = None) -> str:
    logical = node.get("logicalType")
    if logical == "decimal" and name in {"bytes", "fixed"}:
        return avro.decimal_name(node.get("precision"), node.get("scale", 0), size) or "binary"
    return avro.LOGICAL.get((name, str(logical))) or avro.PRIMITIVES.get(name, "binary")


def time_of(node: Mapping[str, avro.Node]) -> str | None:
    """Return the logical type where it is one of the times, whatever it stands at."""
    logical = node.get("logicalType")
    return logical if isinstance(logical, str) and logical in avro.TIMES else None


def json_of(text: str, what: str) -> avro.Node:
    """Return a schema's JSON; raises WrongSchemaError."""
    try:
        return read_foreign_json(text, MAX_TEXT * 4, MOST_BITS)
    except ForeignJsonError as error:
        raise WrongSchemaError(f"expected {what} in JSON, found text that is none: {error}") from None


def required(node: Mapping[str, avro.Node], key: str) -> avro.Node:
    """Return what a schema has to say."""
    if key not in node:
        raise WrongSchemaError(f"expected {key!r} in {shown(node)}, found none")
    return node[key]


def texts(found: avro.Node, what: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise WrongSchemaError(f"expected a list of names as {what}, found {shown(found)}")
    return tuple(found)


def names_in(node: Mapping[str, avro.Node]) -> tuple[str, ...]:
    """Return earlier names; nothing can have had one that is none."""
    found = texts(node.get("aliases", []), "aliases")
    return tuple(each for each in found if all(map(NAME.fullmatch, each.split("."))))


def shown(node: avro.Node) -> str:
    """Return the beginning of what was found."""
    return json.dumps(node)[:100]
