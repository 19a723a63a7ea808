"""The columns of a Parquet file as a Delta schema holds them. Importing this imports pyarrow.

The library does the same for any type. For those of the raw format it need not be loaded, which takes as long as the
rest of a small commit.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.delta.columns import Fields, nullable
from kafka_ingest.sinks.delta.library import delta_lake
from kafka_ingest.sinks.tables.staged_checks import schema_of_files

TYPES: Mapping[pa.DataType, str] = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.int16(): "short",
    pa.bool_(): "boolean",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


def schema_of(found: pa.Schema) -> dict[str, Any]:
    """Return a file's columns as the Delta protocol writes them."""
    try:
        return struct_of(found)
    except KeyError:
        schema: dict[str, Any] = json.loads(delta_lake().Schema.from_arrow(found).to_json())
        return schema


def columns_of_files(data: Opened, receipt: Receipt) -> Fields:
    schema = schema_of_files(data, receipt)
    return () if schema is None else schema_of(schema)["fields"]


def struct_of(fields: "pa.Schema | pa.StructType") -> dict[str, Any]:
    """Return fields as the protocol writes them; raises KeyError for a type that the raw format has not."""
    return {
        "type": "struct",
        "fields": [nullable(each.name, type_of(each.type)) | {"nullable": each.nullable} for each in fields],
    }


def type_of(kind: pa.DataType) -> object:
    """Return a type as the protocol writes it; raises KeyError as above."""
    if isinstance(kind, pa.StructType):
        return struct_of(kind)
    if isinstance(kind, pa.ListType):
        element = type_of(kind.value_type)
        return {"type": "array", "elementType": element, "containsNull": kind.value_field.nullable}
    if isinstance(kind, pa.MapType):
        key, value = type_of(kind.key_type), type_of(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": kind.item_field.nullable}
    if isinstance(kind, pa.Decimal128Type):
        return f"decimal({kind.precision},{kind.scale})"
    return TYPES[kind]
