"""A program of its own for ``doctor``: does Spark take a feed's expressions? It reads no record.

``python -m kafka_ingest.writing.check_feed`` reads the decoding as JSON from standard input, and writes what is wrong
as the last line of standard output: null, or a text.
"""

import json
import sys
from importlib import import_module

from pyspark.sql import DataFrame

from kafka_ingest.model.decoding import Decoding
from kafka_ingest.writing.decode import decoded
from kafka_ingest.writing.decoded_part import text
from kafka_ingest.writing.expressions import ExpressionRefusedError
from kafka_ingest.writing.read_ranges import RAW_FORMAT
from kafka_ingest.writing.session import spark_session
from kafka_ingest.writing.shape import check_shape


def main() -> None:
    decoding = Decoding.from_document(json.load(sys.stdin))
    with spark_session(settings=decoding.settings) as spark:
        no_records = spark.range(0).selectExpr(f"from_json('', {text(RAW_FORMAT)}) as raw").select("raw.*")
        problem = problem_of(no_records, decoding)
    sys.stdout.write(f"\n{json.dumps(problem)}\n")


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
