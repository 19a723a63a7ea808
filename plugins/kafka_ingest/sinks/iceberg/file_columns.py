"""The columns of a staged file: as a table has them, and what differs from the raw format.

Importing this imports pyiceberg and pyarrow.
"""

from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema
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

from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import path_of
from kafka_ingest.sinks.iceberg.columns import RAW, in_words, own_fields
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


def differences_of_file(schema: pa.Schema, options: TableOptions, unknown: Collection[str] = ()) -> Iterator[str]:
    """Yield where a staged file's columns are not those of the raw format, without those that the table lacks.

    Of decoded records only Kafka's own are read.
    """
    own, may_lack = own_fields(options), options.may_lack
    expected = {field.name for field in own if field.name in schema.names or field.name not in may_lack}
    found_names = {name for name in schema.names if is_own(name) or not options.decoded}
    for name in sorted(set(unknown) & set(schema.names)):
        yield f"column {name}: the table has none"
    for name in sorted(expected ^ found_names):
        yield f"column {name}: {'missing' if name in expected else 'not of the raw format'}"
    for field in own:
        if field.name not in schema.names:
            continue
        try:
            found = pyarrow_to_schema(pa.schema([schema.field(field.name)]), RAW.name_mapping)
        except (ValueError, TypeError) as error:
            yield f"column {field.name}: expected {in_words(field.field_type)}, found {error}"
            continue
        if in_words(found.fields[0].field_type) != in_words(field.field_type):
            kind = in_words(found.fields[0].field_type)
            yield f"column {field.name}: expected {in_words(field.field_type)}, found {kind}"


def schema_of(files: pa.Schema) -> Schema:
    """Return the columns of files as a table has them: all of their parts allow nulls, as a later batch may have some.

    Raises ValueError for a type that Iceberg has not.
    """
    numbers = count(1)
    return Schema(*(field_of(each, numbers, each.name) for each in files))


def field_of(found: "pa.Field[pa.DataType]", numbers: Iterator[int], path: str) -> NestedField:
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
