"""The columns of decoded records in a Delta table: as they are listed, named and added.

Fields are what the Delta protocol writes into ``schemaString``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import path_of
from kafka_ingest.sinks.delta.columns import columns_of, nullable
from kafka_ingest.sinks.tables.decoded_columns import Part, is_own, listed_in, parts_without_nulls

Fields = Sequence[Mapping[str, Any]]
Kind = str | Mapping[str, Any]

IN_WORDS: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Delta's names of types that a feed file has other names for."""

NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
"""What Delta's own writers refuse in the names of fields of a table without column mapping."""


def parts_of(kind: Kind, path: str, *, allows_nulls: bool) -> Iterator[Part]:
    """Yield a type by its path, and what is in it."""
    if not isinstance(kind, Mapping):
        yield Part(path, IN_WORDS.get(kind, kind), allows_nulls)
        return
    match kind["type"]:
        case "struct":
            yield Part(path, "struct", allows_nulls)
            for field in kind["fields"]:
                yield from parts_of(field["type"], path_of(path, field["name"]), allows_nulls=field["nullable"])
        case "array":
            yield Part(path, "array", allows_nulls)
            yield from parts_of(kind["elementType"], f"{path}[]", allows_nulls=kind["containsNull"])
        case "map":
            key = kind["keyType"]
            key = IN_WORDS.get(key, key) if isinstance(key, str) else key["type"]
            yield Part(path, f"map of {key}", allows_nulls)
            yield from parts_of(kind["valueType"], f"{path}[]", allows_nulls=kind["valueContainsNull"])


def parts_in(fields: Fields) -> Iterator[Part]:
    """Yield the columns of a table or a file, and what is in them."""
    for field in fields:
        yield from parts_of(field["type"], path_of("", field["name"]), allows_nulls=field["nullable"])


def listed(fields: Fields) -> dict[str, str]:
    """Return a table's or a file's columns beside Kafka's own, as receipts list them."""
    return listed_in(parts_in(fields))


def without_nulls(there: Fields, names: Collection[str]) -> Iterator[str]:
    """Yield what allows no nulls in columns of a table that files have, too."""
    return parts_without_nulls(parts_in(there), names, "NOT NULL")


def named(fields: Fields) -> Iterator[tuple[str, str]]:
    """Yield the paths of all fields, those in the keys of maps included, each with the field's name."""
    yield from names_in({"type": "struct", "fields": fields}, "")


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
