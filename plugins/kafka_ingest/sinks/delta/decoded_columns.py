"""The columns of decoded records in a Delta table: as they are listed, named and added.

Fields are what the Delta protocol writes into ``schemaString``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import path_of
from kafka_ingest.sinks.delta.columns import columns_of, nullable
from kafka_ingest.sinks.tables.decoded_columns import is_own

Fields = Sequence[Mapping[str, Any]]
Kind = str | Mapping[str, Any]

IN_WORDS: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Delta's names of types that a feed file has other names for."""

NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
"""What Delta's own writers refuse in the names of fields of a table without column mapping."""


def listed(fields: Fields) -> dict[str, str]:
    """Return a table's or a file's columns beside Kafka's own, as receipts list them."""
    return {
        path: kind
        for field in fields
        if not is_own(field["name"])
        for path, kind in below(field["type"], path_of("", field["name"]))
    }


def below(kind: Kind, path: str) -> Iterator[tuple[str, str]]:
    """Yield a type by its path, and what is in it."""
    if not isinstance(kind, Mapping):
        yield path, IN_WORDS.get(kind, kind)
        return
    match kind["type"]:
        case "struct":
            yield path, "struct"
            for field in kind["fields"]:
                yield from below(field["type"], path_of(path, field["name"]))
        case "array":
            yield path, "array"
            yield from below(kind["elementType"], f"{path}[]")
        case "map":
            key = kind["keyType"]
            yield path, f"map of {IN_WORDS.get(key, key) if isinstance(key, str) else key['type']}"
            yield from below(kind["valueType"], f"{path}[]")


def named(fields: Fields) -> Iterator[tuple[str, str]]:
    """Yield the paths of all fields, those in the keys of maps included, each with the field's name."""
    yield from names_in({"type": "struct", "fields": fields}, "")


def without_nulls(there: Fields, names: Collection[str]) -> Iterator[str]:
    """Yield what allows no nulls in columns of a table that files have, too: a record may lack it, or have null."""
    for field in there:
        if field["name"] in names and not is_own(field["name"]):
            yield from without_nulls_in(field["type"], path_of("", field["name"]))


def without_nulls_in(kind: Kind, path: str) -> Iterator[str]:
    """Yield the same of what is in a type."""
    if not isinstance(kind, Mapping):
        return
    match kind["type"]:
        case "struct":
            parts = [(path_of(path, each["name"]), each["type"], each["nullable"]) for each in kind["fields"]]
        case "array":
            parts = [(f"{path}[]", kind["elementType"], kind["containsNull"])]
        case _:
            parts = [(f"{path}[]", kind["valueType"], kind["valueContainsNull"])]
    for inner, inner_kind, allows_nulls in parts:
        if not allows_nulls:
            yield f"{inner}, which is NOT NULL in the table"
        yield from without_nulls_in(inner_kind, inner)


def names_in(kind: Kind | None, path: str) -> Iterator[tuple[str, str]]:
    """Yield the names of all fields in a type, with their paths."""
    if not isinstance(kind, Mapping):
        return
    for field in kind.get("fields", ()):
        inner = path_of(path, field["name"])
        yield inner, field["name"]
        yield from names_in(field["type"], inner)
    for part in ("elementType", "keyType", "valueType"):
        yield from names_in(kind.get(part), f"{path}[]")


def new_schema(fields: Fields, options: TableOptions) -> dict[str, Any]:
    """Return the schema of a new table: the columns of its first batch's files, in their order; all allow nulls."""
    own = columns_of(options)
    return {
        "type": "struct",
        "fields": [nullable(each["name"], own.get(each["name"]) or with_nulls(each["type"])) for each in fields],
    }


def to_add(there: Fields, fields: Fields) -> list[dict[str, Any]]:
    """Return those columns of files that a table lacks, or lacks a field of: as they are to be, all allowing nulls."""
    types = {field["name"]: field["type"] for field in there}
    known, found = listed(there), [field for field in fields if not is_own(field["name"])]
    return [
        nullable(field["name"], both(types.get(field["name"]), field["type"]))
        for field in found
        if not listed([field]).keys() <= known.keys()
    ]


def both(there: Kind | None, found: Kind) -> Kind:
    """Return a table's type with the fields that a file's has beside them."""
    if there is None or not isinstance(there, Mapping) or not isinstance(found, Mapping):
        return with_nulls(found)
    if found["type"] == "struct":
        known = {field["name"] for field in there["fields"]}
        types = {field["name"]: field["type"] for field in found["fields"]}
        kept = [{**each, "type": both(each["type"], types.get(each["name"], each["type"]))} for each in there["fields"]]
        new = [nullable(name, with_nulls(kind)) for name, kind in types.items() if name not in known]
        return {**there, "fields": kept + new}
    part = "elementType" if found["type"] == "array" else "valueType"
    return {**there, part: both(there[part], found[part])}


def with_nulls(kind: Kind) -> Kind:
    """Return a type of which every part but the keys of maps allows nulls: a later batch may have some."""
    if not isinstance(kind, Mapping):
        return kind
    match kind["type"]:
        case "struct":
            fields = [nullable(each["name"], with_nulls(each["type"])) for each in kind["fields"]]
            return {"type": "struct", "fields": fields}
        case "array":
            return {"type": "array", "elementType": with_nulls(kind["elementType"]), "containsNull": True}
        case _:
            value = with_nulls(kind["valueType"])
            return {"type": "map", "keyType": kind["keyType"], "valueType": value, "valueContainsNull": True}
