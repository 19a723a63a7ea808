"""The end of a data file, and the types of its columns by the names that schemas of records have.

Importing this imports pyarrow.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened, open_to_read
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


@contextlib.contextmanager
def staged_footer(path: Opened) -> Iterator[pyarrow.parquet.FileMetaData]:
    """Yield a staged file's footer; raises StagedOutputUnusableError where it is damaged or of unknown types."""
    try:
        with open_to_read(path) as file:
            yield pyarrow.parquet.read_metadata(file)
    except (pa.ArrowException, ValueError, OSError) as error:
        # Arrow raises OSError for a damaged footer, too, but only the system's errors have a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise StagedOutputUnusableError(f"{path} is not a readable Parquet file: {error}") from error


def struct_of(fields: "pa.Schema | pa.StructType") -> Struct:
    """Return columns, or the fields of a struct; of a type without a name of ours, Arrow's own."""
    return Struct(tuple(Field(each.name, type_of(each.type)) for each in fields))


def type_of(found: Any) -> RecordType:  # noqa: ANN401 - Arrow's types have no class that has all that is read
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
