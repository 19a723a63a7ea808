"""Stage records as files that hold one partition of a table each.

Each task sorts what it reads by the partitions, and so has one file open at a time; what does not fit into memory
Spark sorts on the disk. Spark names folders after values; the files come out of them, so that no place depends on a
value, and readers that take columns from folders' names find none.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kafka_ingest.model.attempt_directory import TOO_MANY_TABLE_PARTITIONS
from kafka_ingest.model.partition_term import MOST_TIMES, TIME, PartitionTerm, Transform
from kafka_ingest.model.place import Place, local
from kafka_ingest.writing.rounds import Remove
from kafka_ingest.writing.stage_files import stage_files

DAY_OF_RECORD = f"cast({TIME} as date)"
UNIT = {Transform.DAY: timedelta(days=1), Transform.HOUR: timedelta(hours=1)}
TO_COME = 2
"""How many days or hours after the plan a record may be from, for clocks that differ, without being counted first."""

FAR = "kafka_ingest: a time far from that of the plan, so that days or hours have to be counted first"


class TooManyPartitionsOfTimeError(Exception):
    """A batch has records of more days or hours than a table is partitioned into at once."""


def with_own_columns(records: DataFrame, terms: Sequence[PartitionTerm]) -> DataFrame:
    """Return the records with columns of the terms that are no columns yet."""
    values = {
        Transform.DAY: DAY_OF_RECORD,
        # As text: Delta writes the times of partitions without a zone, and engines differ in the one that they read.
        Transform.HOUR: f"date_format({TIME}, \"yyyy-MM-dd'T'HH\")",
    }
    return records.selectExpr(
        "*", *(f"{values[term.transform]} as {term.own_column}" for term in terms if term.is_of_time)
    )


def stage_partitioned(
    records: DataFrame, data: Place, terms: Sequence[PartitionTerm], planned_at: datetime, remove: Remove
) -> int:
    """Write the records below ``data``, a local directory, which must not exist; return how many Spark counted.

    Times near the plan's are few by themselves. Where one is far from it, what was staged is discarded, and all is
    read again to count them first. Raises TooManyPartitionsOfTimeError before more files are written than that allows.
    """
    try:
        return write_divided(records, data, [value_near(term, planned_at) for term in terms])
    except (Py4JJavaError, PySparkException) as error:
        if FAR not in str(error):
            raise
    remove(data)
    for term in terms:
        if term.is_of_time:
            check_number(records, term)
    return write_divided(records, data, [value_of(term) for term in terms])


def write_divided(records: DataFrame, data: Place, values: Sequence[str]) -> int:
    """Write a file for each task and combination of values, and return how many rows Spark counted."""
    names = [f"by_{number}" for number in range(len(values))]
    rows = stage_files(records, data, dict(zip(names, values, strict=True)))
    take_out_of_folders(local(data))
    return rows


def take_out_of_folders(data: Path) -> None:
    """Move files from folders into their directory; a task gives its files in all folders the same name."""
    for number, path in enumerate(sorted(data.rglob("*.parquet"))):
        path.rename(data / f"{number:05}-{path.name}")
    for folder in sorted((each for each in data.rglob("*") if each.is_dir()), reverse=True):
        folder.rmdir()


def check_number(records: DataFrame, term: PartitionTerm) -> None:
    """Raise TooManyPartitionsOfTimeError where the records are of too many days or hours; this reads all of them."""
    times = records.selectExpr(f"{value_of(term)} as time").where("time is not null").distinct()
    if times.limit(MOST_TIMES + 1).count() > MOST_TIMES:
        raise TooManyPartitionsOfTimeError(
            f"{TOO_MANY_TABLE_PARTITIONS}: expected records of at most {MOST_TIMES:,} different values of {term}, "
            "found more"
        )


def value_of(term: PartitionTerm) -> str:
    """Return what records of one partition have in common, as an SQL expression; the session's time zone is UTC."""
    match term.transform:
        case Transform.DAY:
            return DAY_OF_RECORD
        case Transform.HOUR:
            return f"date_trunc('hour', {TIME})"
        case Transform.IDENTITY if term.column == "kafka_topic":
            # Never null, which Spark has to know: otherwise it makes nulls of empty texts, row by row.
            return "coalesce(kafka_topic, '')"
        case Transform.IDENTITY:
            return term.column


def value_near(term: PartitionTerm, planned_at: datetime) -> str:
    """Return the same expression, which fails on a time so far from the plan's that there may be too many of them."""
    if not term.is_of_time:
        return value_of(term)
    unit = UNIT[term.transform]
    first, end = (
        round((planned_at + number * unit).timestamp()) * 1000 for number in (TO_COME + 1 - MOST_TIMES, TO_COME)
    )
    is_near = f"{TIME} is null or ({TIME} >= timestamp_millis({first}) and {TIME} < timestamp_millis({end}))"
    kind = "date" if term.transform is Transform.DAY else "timestamp"
    return f"case when {is_near} then {value_of(term)} else cast(raise_error('{FAR}') as {kind}) end"
