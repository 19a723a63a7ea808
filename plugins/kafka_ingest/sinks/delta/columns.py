"""The columns of the raw format as a Delta table has them, and what differs between them and a table's or a file's own.

A schema is what the Delta protocol writes into ``schemaString``:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kafka_ingest.model.partition_term import Transform
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, NEVER_NULL
from kafka_ingest.sinks.tables.decoded_columns import is_own


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
