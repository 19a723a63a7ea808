"""JSON objects that fit their schema plainly, read by Arrow in Spark's Python workers, in half of ``from_json``'s time.

Only what is certain is read so (:mod:`.object_batches`). All else is left to :mod:`.decode_json`, be it dead or only
unusual, such as a number where the schema has a text.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from kafka_ingest.model.record_schema import DECIMAL, ArrayOf, MapOf, RecordType, Scalar, Struct, quoted
from kafka_ingest.writing.decode_limits import is_date, textual
from kafka_ingest.writing.decoded_part import FITS, SURE, VALUE, PlainSchema, named, once, text
from kafka_ingest.writing.for_workers import for_workers
from kafka_ingest.writing.object_batches import ObjectColumn, with_objects
from kafka_ingest.writing.session import say
from kafka_ingest.writing.table_partitions import FAR

BATCH_RECORDS, BATCH_BYTES = "500", str(32 * 1024 * 1024)
"""How large a batch may be: without a limit of bytes, Spark makes it of records of whatever size."""

ARROW_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
"""The types that Arrow reads from JSON exactly as Spark does, besides decimals."""

FAILURES = {
    FAR: "a time is far from that of the plan",
    "ManyLargeRecordsError": "most records are too large",
    "org.apache.spark.api.python.PythonException": "one of them raised an error",
    "Python worker": "one of them has ended",
    "Cannot run program": "none could be started",
}
"""What Spark says where the workers could not do it, and why that is."""


def arrow_type(kind: RecordType) -> Any:  # noqa: ANN401 - one of Arrow's many types
    """Return Arrow's type of a schema's; dates and times are texts yet. Arrow reads no maps."""
    match kind:
        case Struct(fields):
            return pa.struct([(field.name, arrow_type(field.type)) for field in fields])
        case ArrayOf(element):
            return pa.list_(arrow_type(element))
        case Scalar(name) if decimal := DECIMAL.fullmatch(name):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        case Scalar(name):
            return ARROW_TYPES["string" if is_date(kind) else name]
        case MapOf():
            raise TypeError(f"expected a type without maps, found {kind.ddl}")


def with_plain_objects(
    records: DataFrame, columns: Mapping[str, PlainSchema], constants: Mapping[str, str | None], *, with_bytes: bool
) -> DataFrame:
    """Return records with a column ``struct<fits, sure, value>`` of what is read plainly, by its name.

    ``constants``: columns with the same value in each record, which workers need not be sent. Without ``with_bytes``
    the bodies of objects that fit are empty then.
    """
    settings, fields = records.sparkSession.conf, []
    settings.set("spark.sql.execution.arrow.maxBytesPerBatch", BATCH_BYTES)
    settings.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH_RECORDS)
    read = [
        ObjectColumn(name, plain.body, pa.schema(list(arrow_type(plain.schema))), plain.may_have_unknown)
        for name, plain in columns.items()
    ]
    for name, plain in columns.items():
        kind = DataType.fromDDL(f"{FITS} boolean, {SURE} boolean, {VALUE} {textual(plain.schema).ddl}")
        fields.append(StructField(name, kind))
    sent = records.drop(*constants)
    schema = StructType([*sent.schema.fields, *fields])
    add = for_workers(lambda batches: with_objects(batches, read, with_bytes=with_bytes), with_objects.__module__)
    found = sent.mapInArrow(add, schema)
    return with_constants(found, constants, records, *columns)


def with_constants(records: DataFrame, constants: Mapping[str, str | None], like: DataFrame, *others: str) -> DataFrame:
    """Return records in the columns of those that they were made ``like``, and in others that only they have."""
    required = {field.name for field in like.schema.fields if not field.nullable}
    columns = {name: literal(known, required=name in required) for name, known in constants.items()}
    names = [*like.columns, *others]
    return records.selectExpr(*(named(columns.get(name, quoted(name)), name) for name in names))


def literal(known: str | None, *, required: bool) -> str:
    """Return a text as a literal, of a type that may be null where it is not required."""
    if known is None:
        return "cast(null as string)"
    return text(known) if required else once(text(known))


def done_by_workers(stage: Callable[[], None], what: str) -> bool:
    """Stage what workers ``read`` or ``write``; False where they failed. The reason is on stderr then."""
    try:
        stage()
    except (Py4JJavaError, PySparkException) as error:
        why = next((why for said, why in FAILURES.items() if said in str(error)), None)
        if why is None:
            raise
        found = f"Python's workers could not {what} the objects of this batch ({why})"
        say(f"{found}: Spark {what}s all of it.")
        return False
    return True
