"""The columns of decoded records in an Iceberg table: as files have them, and as they are listed.

Importing this imports pyiceberg.
"""

from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from kafka_ingest.model.written_columns import path_of
from kafka_ingest.sinks.tables.decoded_columns import is_own

TYPES: Final[dict[pa.DataType, PrimitiveType]] = {
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int16(): IntegerType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
    pa.timestamp("us"): TimestampType(),
}

IN_WORDS: Final = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Iceberg's names of types that a feed file has other names for."""

SAME: Final = (("int", "smallint"),)
"""What Iceberg has no type of its own for, beside that as which it stores it."""


def schema_of(files: pa.Schema) -> Schema:
    """Return the columns of files as a table has them: all of their parts allow nulls, as a later batch may have some.

    Raises ValueError for a type that Iceberg has not.
    """
    numbers = count(1)
    return Schema(*(field_of(each, numbers, each.name) for each in files))


def field_of(found: "pa.Field[pa.DataType]", numbers: Iterator[int], path: str) -> NestedField:
    """Return one column or field; ids are given by order."""
    return NestedField(next(numbers), found.name, type_of(found.type, numbers, path), required=False)


def type_of(kind: pa.DataType, numbers: Iterator[int], path: str) -> IcebergType:
    """Return a type; raises ValueError for one that Iceberg has not."""
    if isinstance(kind, pa.StructType):
        return StructType(*(field_of(each, numbers, path_of(path, each.name)) for each in kind))
    if isinstance(kind, pa.MapType):
        key_id, value_id = next(numbers), next(numbers)
        key, value = type_of(kind.key_type, numbers, f"{path}[]"), type_of(kind.item_type, numbers, f"{path}[]")
        return MapType(key_id, key, value_id, value, value_required=False)
    if isinstance(kind, pa.ListType):
        element_id = next(numbers)
        return ListType(element_id, type_of(kind.value_type, numbers, f"{path}[]"), element_required=False)
    if isinstance(kind, pa.Decimal128Type):
        return DecimalType(kind.precision, kind.scale)
    if kind not in TYPES:
        raise ValueError(f"{path} of type {kind}, which Iceberg tables have not")
    return TYPES[kind]


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


def wrong_names(columns: Schema) -> Iterator[str]:
    """Yield which fields have names by which the library would take them for fields of others."""
    yield from wrong_names_in(StructType(*columns.fields), "")


def wrong_names_in(kind: IcebergType, path: str) -> Iterator[str]:
    """Yield the same of what is in a type."""
    match kind:
        case StructType():
            for field in kind.fields:
                inner = path_of(path, field.name)
                if "." in field.name:
                    yield f"{inner} with '.' in its name"
                yield from wrong_names_in(field.field_type, inner)
        case ListType():
            yield from wrong_names_in(kind.element_type, f"{path}[]")
        case MapType():
            yield from wrong_names_in(kind.value_type, f"{path}[]")


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
