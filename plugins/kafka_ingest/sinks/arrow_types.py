"""The types of a data file's columns, by the names that schemas of records have. Importing this imports pyarrow."""

from typing import Any, Final

import pyarrow as pa

from kafka_ingest.model.record_schema import ArrayOf, Field, MapOf, RecordType, Scalar, Struct

NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


def struct_of(fields: "pa.Schema | pa.StructType") -> Struct:
    """Return columns, or the fields of a struct; of a type without a name of ours, Arrow's own."""
    return Struct(tuple(Field(each.name, type_of(each.type)) for each in fields))


def type_of(found: Any) -> RecordType:  # noqa: ANN401 - Arrow's types have no class that has all that is read
    """Return the type of a column."""
    if pa.types.is_struct(found):
        return struct_of(found)
    if pa.types.is_map(found):
        key = type_of(found.key_type)
        return MapOf(type_of(found.item_type), key.ddl)
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return ArrayOf(type_of(found.value_type))
    if pa.types.is_timestamp(found) and found.unit == "us":
        return Scalar("timestamp" if found.tz is not None else "timestamp_ntz")
    if pa.types.is_decimal(found):
        return Scalar(f"decimal({found.precision},{found.scale})")
    return Scalar(NAMES.get(found, str(found)))
