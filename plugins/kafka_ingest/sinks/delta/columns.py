"""The columns of a Delta table: those of the raw format, and those of decoded records as they are listed and added.

A schema is what the Delta protocol writes into ``schemaString``:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka_ingest.model.partition_term import Transform
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, NEVER_NULL, path_of
from kafka_ingest.sinks.tables.decoded_columns import Part, is_own, listed_in, parts_without_nulls


def nullable(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


HEADERS = {
    "type": "array",
    "elementType": {"type": "struct", "fields": [nullable("key", "string"), nullable("value", "binary")]},
    "containsNull": True,
}
RAW_COLUMNS: Mapping[str, object] = {
    "kafka_topic": "string",
    "kafka_partition": "integer",
    "kafka_offset": "long",
    "kafka_timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "kafka_headers": HEADERS,
    "kafka_topic_id": "string",
    "kafka_timestamp_ms": "long",
    BATCH_COLUMN: "string",
}
"""Name → type. Every column allows nulls, so that a table does not have to be changed for one that turns up."""

OWN_TYPES = {Transform.DAY: "date", Transform.HOUR: "string"}


def columns_of(options: TableOptions) -> dict[str, object]:
    """Return the columns of a table: those of the raw format, and one for a day or hour that it is partitioned by.

    Without those that decoded records bring.
    """
    own = {each.own_column: OWN_TYPES[each.transform] for each in options.partition_by if each.is_of_time}
    return {name: kind for name, kind in RAW_COLUMNS.items() if not options.is_of_records(name)} | own


def raw_schema(options: TableOptions = NO_TABLE_OPTIONS) -> dict[str, Any]:
    return {"type": "struct", "fields": [nullable(name, kind) for name, kind in columns_of(options).items()]}


def differences_of_table(schema: Mapping[str, Any], options: TableOptions) -> Iterator[str]:
    """Yield why records of the raw format cannot be appended to a table of this schema; nothing where they can."""
    fields = {field["name"]: field for field in schema["fields"]}
    columns = columns_of(options)
    for name, kind in columns.items():
        field = fields.get(name)
        if field is None:
            if not options.takes_without(name):
                yield f"column {name}: expected {in_words(kind)}, found none"
        elif plain(field["type"]) != plain(kind):
            yield f"column {name}: expected {in_words(kind)}, found {in_words(field['type'])}"
        elif not field["nullable"] and name not in NEVER_NULL:
            yield f"column {name}: expected one that allows nulls, found NOT NULL"
    for name, field in fields.items():
        if name not in columns and not field["nullable"]:
            yield f"column {name}: it is NOT NULL, and nothing would be written into it"
        if used := sorted(key for key in field["metadata"] if key.startswith("delta.")):
            yield f"column {name}: it has {', '.join(used)}, which is not kept up"


def differences_of_file(
    schema: Mapping[str, Any], options: TableOptions, unknown: Collection[str] = ()
) -> Iterator[str]:
    """Yield where a staged file's columns are not those of the raw format, without those that the table lacks."""
    found = {field["name"]: field["type"] for field in schema["fields"]}
    for name in sorted(set(unknown) & found.keys()):
        yield f"column {name}: the table has none"
    columns = columns_of(options)
    if options.decoded:
        found = {name: kind for name, kind in found.items() if is_own(name)}
    for name in sorted(columns.keys() | found.keys()):
        expected, there = columns.get(name), found.get(name)
        if there is None and name in options.may_lack:
            continue
        if expected is None or there is None or plain(there) != plain(expected):
            yield f"column {name}: expected {in_words(expected)}, found {in_words(there)}"


def plain(kind: object) -> object:
    """Return a type without the metadata of its fields, which do not affect the values."""
    if not isinstance(kind, Mapping):
        return kind
    if kind.get("type") == "struct":
        fields = [(field["name"], plain(field["type"]), field["nullable"]) for field in kind["fields"]]
        return ("struct", tuple(fields))
    return tuple(sorted((key, plain(value)) for key, value in kind.items()))


def in_words(kind: object) -> str:
    if kind is None:
        return "none"
    if not isinstance(kind, Mapping):
        return str(kind)
    match kind["type"]:
        case "struct":
            fields = (f"{each['name']}: {in_words(each['type'])}" for each in kind["fields"])
            return f"struct<{', '.join(fields)}>"
        case "array":
            return f"array<{in_words(kind['elementType'])}>"
        case other:
            return str(other)


Fields = Sequence[Mapping[str, Any]]
Kind = str | Mapping[str, Any]

IN_WORDS: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Delta's names of types that a feed file has other names for."""

NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=")
"""What Delta's own writers refuse in the names of fields of a table without column mapping."""


def parts_of(kind: Kind, path: str, *, allows_nulls: bool) -> Iterator[Part]:
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
    for field in fields:
        yield from parts_of(field["type"], path_of("", field["name"]), allows_nulls=field["nullable"])


def listed(fields: Fields) -> dict[str, str]:
    """Return a table's or a file's columns beside Kafka's own, as receipts list them."""
    return listed_in(parts_in(fields))


def without_nulls(there: Fields, names: Collection[str]) -> Iterator[str]:
    return parts_without_nulls(parts_in(there), names, "NOT NULL")


def named(fields: Fields) -> Iterator[tuple[str, str]]:
    """Yield the paths of all fields, those in the keys of maps included, each with the field's name."""
    yield from names_in({"type": "struct", "fields": fields}, "")


def names_in(kind: Kind | None, path: str) -> Iterator[tuple[str, str]]:
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
