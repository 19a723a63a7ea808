"""A feed's own Python function over all rows of a batch: it may drop and change rows, and adds none.

It is given rows that are staged already, from files. So whatever it does with them (a limit, a join, nothing at all),
how many there were is known from the files, by partition; and what it returns is compared with them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place, spark_path, spark_source
from kafka_ingest.model.receipt import WrittenFile, rows_by_partition
from kafka_ingest.model.record_schema import RESERVED_PREFIX, Struct, WrongSchemaError, quoted, read_type
from kafka_ingest.model.spark_settings import FIXED
from kafka_ingest.model.written_columns import POSITION, WrittenColumns, written_columns
from kafka_ingest.writing.expressions import ExpressionRefusedError

UNCHANGED = ("kafka_timestamp", "kafka_topic_id", "kafka_timestamp_ms")
"""What else a row keeps of its record; headers are not compared, since they may be large."""


def stage_transformed(rows: DataFrame, name: str, data: Place) -> tuple[StructType, int]:
    """Write what a function makes of rows below ``data``, which must not exist.

    Return the columns of that, and how many rows Spark counted.

    ``name``: ``package.module:function``. Raises ExpressionRefusedError where it is none, or returns other rows than it
    was given, and whatever it raises itself.
    """
    made = returned_by(rows, name)
    check_columns(rows, made, name)
    counted = Observation()
    made.observe(counted, f.count("*").alias("rows")).write.mode("error").parquet(spark_path(data))
    check_rows(rows, rows.sparkSession.read.schema(made.schema).parquet(spark_source(data)), name)
    return made.schema, int(counted.get["rows"])


def columns_in(spark: SparkSession, file: Place) -> WrittenColumns | None:
    """Return the columns beside Kafka's own that a file has; None where one is of a type that no schema names.

    Only the files tell which types a function's rows have.
    """
    fields = [
        f"{quoted(each.name)}:{each.dataType.simpleString()}"
        for each in spark.read.parquet(spark_source(file)).schema
        if not each.name.lower().startswith(RESERVED_PREFIX)
    ]
    try:
        found = read_type(f"struct<{','.join(fields)}>")
    except WrongSchemaError:
        return None
    return written_columns(found) if isinstance(found, Struct) else None


def imported(name: str) -> Callable[[DataFrame], DataFrame]:
    module, _, function = name.partition(":")
    try:
        called: Callable[[DataFrame], DataFrame] = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ExpressionRefusedError(
            f"transform {name}: expected a function that the driver's Python can import, found none: {error}"
        ) from error
    return called


def returned_by(rows: DataFrame, name: str) -> DataFrame:
    conf = rows.sparkSession.conf
    meaning = {setting: value for setting in FIXED if (value := conf.get(setting, None)) is not None}
    try:
        made = imported(name)(rows)
    except SystemExit as error:  # of several attempts it would end a thread, for whose result the job waits
        raise ExpressionRefusedError(
            f"transform {name}: expected a DataFrame, found that it ends the process ({error.code})"
        ) from error
    # What follows is ours, and by these: of which day a row is, and how times are written.
    for setting, value in meaning.items():
        conf.set(setting, value)
    if not isinstance(made, DataFrame):
        raise ExpressionRefusedError(f"transform {name}: expected a DataFrame, found {type(made).__name__}")
    return made


def check_columns(rows: DataFrame, made: DataFrame, name: str) -> None:
    """Raise ExpressionRefusedError unless Kafka's own columns are there, and no others are called like them."""
    expected = {field.name: field.dataType for field in rows.schema if field.name.startswith(RESERVED_PREFIX)}
    found = {field.name: field.dataType for field in made.schema if field.name.lower().startswith(RESERVED_PREFIX)}
    often = Counter(column.lower() for column in made.columns)
    if twice := sorted(column for column, count in often.items() if count > 1):
        raise ExpressionRefusedError(
            f"transform {name}: expected names that differ in more than the case of their letters, found "
            f"{', '.join(twice)} more than once"
        )
    for column in sorted({*expected, *found}):
        wanted, there = (
            types[column].simpleString() if column in types else "no such column" for types in (expected, found)
        )
        if wanted != there:
            raise ExpressionRefusedError(f"transform {name}: {column}: expected {wanted}, found {there}")


def check_rows(rows: DataFrame, made: DataFrame, name: str) -> None:
    """Raise ExpressionRefusedError unless each row is one of those that the function was given, and comes once."""
    kept = f"struct({', '.join(UNCHANGED)})"
    by_position = made.groupBy(*POSITION).agg(f.expr("count(*) as times"), f.expr(f"any_value({kept}) as made"))
    given = rows.selectExpr(*POSITION, f"{kept} as given")
    [counts] = (
        by_position.join(given, list(POSITION), "left")
        .selectExpr(
            "count_if(times > 1) as twice",
            "count_if(given is null) as unknown",
            "count_if(not made <=> given) as other",
        )
        .collect()
    )
    for number, found in (
        (counts["twice"], "that come more than once"),
        (counts["unknown"], "at positions that it was not given"),
        (counts["other"], f"with another {', '.join(UNCHANGED[:-1])} or {UNCHANGED[-1]}"),
    ):
        if number:
            raise ExpressionRefusedError(
                f"transform {name}: expected rows that it was given, each at most once, with the columns of its "
                f"position unchanged; found {number:,} {found}"
            )


def left_out(before: Sequence[WrittenFile], after: Sequence[WrittenFile]) -> dict[TopicPartition, int]:
    counts = rows_by_partition(before)
    counts.subtract(rows_by_partition(after))
    return {topic_partition: number for topic_partition, number in counts.items() if number}
