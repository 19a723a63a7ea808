"""A program of its own for ``doctor``: does Spark take a feed's expressions? It reads no record.

``python -m kafka_ingest.writing.check_feed`` reads the decoding as JSON from standard input, and writes what is wrong
as the last line of standard output: null, or a text.
"""

import json
import sys
from importlib import import_module

from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.model.decoding import Decoding
from kafka_ingest.writing.decode import decoded
from kafka_ingest.writing.expressions import ExpressionRefusedError
from kafka_ingest.writing.session import spark_session
from kafka_ingest.writing.shape import check_shape

RAW = {
    "kafka_topic": "string",
    "kafka_partition": "int",
    "kafka_offset": "bigint",
    "kafka_timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "kafka_headers": "array<struct<key: string, value: binary>>",
    "kafka_topic_id": "string",
    "kafka_timestamp_ms": "bigint",
}
"""The columns of the raw format (:mod:`kafka_ingest.writing.read_ranges`)."""


def main() -> None:
    decoding = Decoding.from_document(json.load(sys.stdin))
    with spark_session(settings=decoding.settings) as spark:
        problem = problem_of(no_records(spark), decoding)
    sys.stdout.write(f"\n{json.dumps(problem)}\n")


def no_records(spark: SparkSession) -> DataFrame:
    return spark.range(0).selectExpr(*(f"cast(null as {kind}) as {name}" for name, kind in RAW.items()))


def problem_of(records: DataFrame, decoding: Decoding) -> str | None:
    """Return what is wrong with a feed's expressions or its function, None where nothing is."""
    if (name := decoding.shape.transform) is not None:
        module, _, function = name.partition(":")
        try:
            found = getattr(import_module(module), function)
        except (ImportError, AttributeError) as error:
            return f"transform {name}: expected a function that the driver's Python can import, found none: {error}"
        if not callable(found):
            return f"transform {name}: expected a function, found {type(found).__name__}"
    try:
        check_shape(decoded(records, decoding, with_reasons=False), decoding.shape)
    except ExpressionRefusedError as error:
        return str(error).partition(": ")[2]
    return None


if __name__ == "__main__":
    main()
