"""The columns of decoded records in an Iceberg table: as they are listed, and which ones it cannot have.

Importing this imports pyiceberg, without pyarrow.
"""

from collections.abc import Iterator
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType

from kafka_ingest.model.written_columns import WrittenColumns, path_of
from kafka_ingest.sinks.iceberg.columns import differences_of_mapping, taken_names
from kafka_ingest.sinks.tables.decoded_columns import Part, listed_in, names_of_columns, parts_without_nulls

IN_WORDS: Final = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Iceberg's names of types that a feed file has other names for."""

SAME: Final = (("int", "smallint"),)
"""What Iceberg has no type of its own for, beside that as which it stores it."""


def parts_of(kind: IcebergType, path: str, *, allows_nulls: bool) -> Iterator[Part]:
    """Yield a type by its path, and what is in it."""
    match kind:
        case StructType():
            yield Part(path, "struct", allows_nulls)
            yield from parts_in(kind, path)
        case ListType():
            yield Part(path, "array", allows_nulls)
            yield from parts_of(kind.element_type, f"{path}[]", allows_nulls=not kind.element_required)
        case MapType():
            yield Part(path, f"map of {named(kind.key_type)}", allows_nulls)
            yield from parts_of(kind.value_type, f"{path}[]", allows_nulls=not kind.value_required)
        case _:
            yield Part(path, named(kind), allows_nulls)


def parts_in(columns: Schema | StructType, path: str = "") -> Iterator[Part]:
    """Yield columns or fields, and what is in them."""
    for field in columns.fields:
        yield from parts_of(field.field_type, path_of(path, field.name), allows_nulls=not field.required)


def listed(columns: Schema) -> dict[str, str]:
    """Return a table's or a file's columns beside Kafka's own, as receipts list them."""
    return listed_in(parts_in(columns))


def named(kind: IcebergType) -> str:
    """Return what a feed file calls a type."""
    return IN_WORDS.get(str(kind), str(kind).replace(" ", "")) if isinstance(kind, PrimitiveType) else "struct"


def misfits(table: Table, written: WrittenColumns) -> Iterator[str]:
    """Yield which columns that are to be written a table has otherwise than by their type, with why."""
    schema, names, mapping = table.schema(), names_of_columns(written), table.name_mapping()
    yield from parts_without_nulls(parts_in(schema), names, "required")
    yield from differences_of_mapping(schema, mapping, names)
    if mapping is not None:
        yield from (why for path, why in taken_names(schema.as_struct(), mapping.root) if path in written)
