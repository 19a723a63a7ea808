"""Rows of decoded records: those for which a feed's ``where`` is true, with the columns of its ``select``.

A record for which an expression fails is a dead letter, and no error: the batch continues without it.
"""

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from kafka_ingest.model.decoding import DeadClass
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.record_schema import RESERVED_PREFIX, quoted
from kafka_ingest.model.written_columns import Shape
from kafka_ingest.writing.decode import DEAD, FILTERED, RAW_KEY, RAW_VALUE
from kafka_ingest.writing.decoded_part import named, reason, text
from kafka_ingest.writing.expressions import Expressions
from kafka_ingest.writing.read_ranges import value_of_topic

KEPT, SELECTED, SAID = "kafka_where", "kafka_select", "kafka_said"
FAILED = "expected an expression that gives a value for the record, found "
AN_ERROR = "an error"
CONDITION = r"^Failure\(org\.apache\.spark\.[A-Za-z.]+: \[([A-Z][A-Z0-9_.]*)\]"
"""Spark's own name of an error, in what Scala's ``Try`` says of it; no value of the record can stand before it."""
JAVA_CLASS = r"^Failure\((?:\w+\.)*(\w+)"
"""Of an error to which Spark gives no name."""


def shaped(records: DataFrame, shape: Shape, *, with_reasons: bool) -> DataFrame:
    """Return decoded records (:func:`~kafka_ingest.writing.decode.decoded`) with the rows' columns, in the same form.

    :data:`DEAD` is also the reason where an expression fails. Behind it is :data:`FILTERED`, never null. Expressions
    see the columns that the records have without ``select``, and are not evaluated for dead records.
    ``with_reasons``: texts name the error and the column that fails, for which each is tried by itself; else all are
    tried as one.
    """
    expressions = Expressions(records)
    is_other = FILTERED if FILTERED in records.columns else "false"
    steps, is_kept, failures = records, f"{DEAD} is null and not {is_other}", [(f"{DEAD} is not null", DEAD)]
    failures.append((is_other, "null"))
    is_filtered = is_other
    if shape.where is not None:
        steps = steps.select("*", expressions.tried({"is_true": shape.where}, is_kept).alias(KEPT))
        failures.append((f"{KEPT} is null", why("where", "where", shape.where, SAID if with_reasons else None)))
        if with_reasons:
            steps = steps.select("*", expressions.failure(shape.where, f"{is_kept} and {KEPT} is null").alias(SAID))
        is_filtered = f"{is_other} or {DEAD} is null and {KEPT} is not null and not coalesce({KEPT}.is_true, false)"
        is_kept = f"coalesce({KEPT}.is_true, false)"
    results: dict[str, str] = {}
    if shape.select:
        tries = [[column] for column in shape.select] if with_reasons else [list(shape.select)]
        made: list[Column] = []
        said: list[Column] = []
        for number, columns in enumerate(tries):
            one = f"{SELECTED}_{number}"
            made.append(expressions.tried({column.name: column.sql for column in columns}, is_kept).alias(one))
            fails, first, name = f"({is_kept}) and {one} is null", columns[0], f"{SAID}_{number}"
            if with_reasons:
                said.append(expressions.failure(first.sql, fails).alias(name))
                failures.append((fails, why("select", f"column {first.name}", first.sql, name)))
            else:
                failures.append((fails, why("select", "select")))
            results |= {column.name: f"{one}.{quoted(column.name)}" for column in columns}
        steps = steps.select("*", *made).select("*", *said)
    dead = "case " + " ".join(f"when {condition} then {cause}" for condition, cause in failures) + " end"
    made_columns = output_columns(records.columns, shape, results)
    return steps.selectExpr(*made_columns, named(dead, DEAD), RAW_KEY, RAW_VALUE, named(is_filtered, FILTERED))


def why(part: str, what: str, sql: str | None = None, said: str | None = None) -> str:
    """Return the reason of a record for which an expression fails; the expression is the feed's own text.

    ``said``: the column of what was said of the failure.
    """
    shown = f" in {what}: {' '.join(sql.split())}" if sql is not None else f" in {what}"
    found = error_name(said) if said is not None else text(AN_ERROR)
    return reason(part, DeadClass.EXPRESSION, f"concat({text(FAILED)}, {found}, {text(shown)})")


def error_name(said: str) -> str:
    """Return Spark's name of an error, or Java's, out of what was said of it, which may hold the record's values."""
    names = (f"nullif(regexp_extract({said}, {text(pattern)}, 1), '')" for pattern in (CONDITION, JAVA_CLASS))
    return f"coalesce({', '.join(names)}, {text(AN_ERROR)})"


def output_columns(columns: Sequence[str], shape: Shape, results: Mapping[str, str]) -> list[str]:
    """Return the columns of the output: those of ``select`` are in the place of what is not Kafka's own."""
    columns = [name for name in columns if name not in {DEAD, RAW_KEY, RAW_VALUE, FILTERED}]
    own = [name for name in columns if name.startswith(RESERVED_PREFIX)]
    first = next((number for number, name in enumerate(columns) if not name.startswith(RESERVED_PREFIX)), len(own))
    names = shape.columns([name for name in columns if not name.startswith(RESERVED_PREFIX)])
    others = [named(results[name], name) if name in results else quoted(name) for name in names]
    return [*map(quoted, own[:first]), *others, *map(quoted, own[first:])]


def check_shape(records: DataFrame, shape: Shape) -> None:
    """Raise ExpressionRefusedError where Spark refuses an expression over the columns of decoded records."""
    columns = records.drop(DEAD, RAW_KEY, RAW_VALUE, FILTERED)
    where = {"where": (shape.where, "boolean")} if shape.where is not None else {}
    select = {f"select.{column.name}": (column.sql, column.type) for column in shape.select}
    Expressions(columns).check(where | select)


class PerPartition:
    """Counts records by partition in the pass that writes them: as an aggregate that an observation takes.

    Spark's ``histogram_numeric`` is exact as long as there are no more values than bins: each has one of its own.
    Partitions of several topics are numbered one topic after the other.
    """

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        most: dict[str, int] = {}
        for each in ranges:
            most[each.topic] = max(most.get(each.topic, 0), each.partition)
        self._first: dict[str, int] = {}
        number = 0
        for topic, partition in sorted(most.items()):
            self._first[topic] = number
            number += partition + 1
        self._partitions = {self._first[each.topic] + each.partition: each.topic_partition for each in ranges}

    def counted(self, condition: str) -> Column:
        """Return how many records there are of each partition for which a condition holds, for :meth:`of`."""
        bins = max(2, len(self._partitions))
        return f.expr(f"to_json(histogram_numeric(if({condition}, {self._number()}, null), {bins}))")

    def of(self, counted: str | None) -> dict[TopicPartition, int]:
        """Return the counts; partitions without such a record are left out."""
        found: dict[TopicPartition, int] = {}
        for each in json.loads(counted or "[]"):
            partition = self._partitions[round(each["x"])]
            found[partition] = found.get(partition, 0) + round(each["y"])
        return found

    def _number(self) -> str:
        if len(self._first) == 1:
            return "cast(kafka_partition as double)"
        numbers = {topic: str(number) for topic, number in self._first.items()}
        return f"cast({value_of_topic(numbers, 'kafka_topic', 'int')} + kafka_partition as double)"
