"""The columns of decoded records in an Iceberg table: as they are listed, and which ones it cannot have.

Importing this imports pyiceberg, without pyarrow.
"""

from collections.abc import Collection, Iterator
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType

from kafka_ingest.model.written_columns import WrittenColumns, path_of
from kafka_ingest.sinks.iceberg.columns import differences_of_mapping, taken_names
from kafka_ingest.sinks.tables.decoded_columns import is_own, names_of_columns

IN_WORDS: Final = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Iceberg's names of types that a feed file has other names for."""

SAME: Final = (("int", "smallint"),)
"""What Iceberg has no type of its own for, beside that as which it stores it."""


def listed(columns: Schema) -> dict[str, str]:
    """Return a table's or a file's columns beside Kafka's own, as receipts list them."""
    return {
        path: kind
        for field in columns.fields
        if not is_own(field.name)
        for path, kind in below(field.field_type, path_of("", field.name))
    }


def below(kind: IcebergType, path: str) -> Iterator[tuple[str, str]]:
    """Yield a type by its path, and what is in it."""
    match kind:
        case StructType():
            yield path, "struct"
            for field in kind.fields:
                yield from below(field.field_type, path_of(path, field.name))
        case ListType():
            yield path, "array"
            yield from below(kind.element_type, f"{path}[]")
        case MapType():
            yield path, f"map of {named(kind.key_type)}"
            yield from below(kind.value_type, f"{path}[]")
        case _:
            yield path, named(kind)


def named(kind: IcebergType) -> str:
    """Return what a feed file calls a type."""
    return IN_WORDS.get(str(kind), str(kind).replace(" ", "")) if isinstance(kind, PrimitiveType) else "struct"


def misfits(table: Table, written: WrittenColumns) -> Iterator[str]:
    """Yield which columns that are to be written a table has otherwise than by their type, with why."""
    schema, names, mapping = table.schema(), names_of_columns(written), table.name_mapping()
    yield from without_nulls(schema, names)
    yield from differences_of_mapping(schema, mapping, names)
    if mapping is not None:
        yield from (why for path, why in taken_names(schema.as_struct(), mapping.root) if path in written)


def without_nulls(there: Schema, names: Collection[str]) -> Iterator[str]:
    """Yield what allows no nulls in columns of a table that files have, too: a record may lack it, or have null."""
    for field in there.fields:
        if field.name in names:
            yield from without_nulls_in(field.field_type, path_of("", field.name))


def without_nulls_in(kind: IcebergType, path: str) -> Iterator[str]:
    """Yield the same of what is in a type."""
    match kind:
        case StructType():
            parts = [(path_of(path, each.name), each.field_type, each.required) for each in kind.fields]
        case ListType():
            parts = [(f"{path}[]", kind.element_type, kind.element_required)]
        case MapType():
            parts = [(f"{path}[]", kind.value_type, kind.value_required)]
        case _:
            return
    for inner, inner_kind, is_required in parts:
        if is_required:
            yield f"{inner}, which is required in the table"
        yield from without_nulls_in(inner_kind, inner)
