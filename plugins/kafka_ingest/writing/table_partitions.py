"""Stage records as files that hold one partition of a table each.

Each task sorts what it reads by the partitions, and so has one file open at a time; what does not fit into memory
Spark sorts on the disk. Spark takes the columns out of the files by which it names folders, so it gets copies of them;
the folders are called after the table's own columns then, as other writers call theirs: Polars takes values from them.

How the records of a batch get into files of one partition of a table each, so that these are not too many.

Each task writes a file for each partition that it reads records of. So their number is bounded by what the tasks read,
and by the days or hours of the records, which a producer chooses. Where that may be too many, the records of one
partition are brought together first, by a shuffle, so that one task writes them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from kafka_ingest.foundation.storage import Opened, files_below, move_files
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.partition_term import (
    LATE_FOLDER,
    LONGEST_TEXT,
    MOST_FILES,
    NO_VALUE,
    TIME,
    LateRows,
    PartitionTerm,
    Transform,
    folder_of,
)
from kafka_ingest.model.place import FailureCode, Place
from kafka_ingest.model.record_schema import quoted
from kafka_ingest.writing.rounds import Remove
from kafka_ingest.writing.share_out import records_per_task, shared_out
from kafka_ingest.writing.stage_files import processors_of, stage_files

ENOUGH_TIMES = 6
"""How many days or hours a batch that is up to date has at most, with those to come, where clocks differ."""


class TooManyFilesError(Exception):
    """A batch has records of more partitions of a table than it may have files."""


@dataclass(frozen=True, slots=True)
class Division:
    """``together``: whether records are brought together first. ``times``: of how many days or hours they may be.

    ``times`` is None where no number of them would be too many.
    """

    together: bool
    times: int | None = None


def uncounted(ranges: Collection[OffsetRange], terms: Sequence[PartitionTerm], processors: int) -> Division | None:
    """Return how ranges can be written at once, None where the files have to be counted first."""
    if not all(term.is_kafkas for term in terms):
        return None
    files, partitions = most_of_one_time(ranges, terms, processors)
    if not any(term.is_of_time for term in terms):
        return chosen(files, partitions)
    for together, number in ((False, files), (True, partitions)):
        times = MOST_FILES // number - 1  # and the partition of records without a time
        if times >= ENOUGH_TIMES:
            return Division(together, times)
    return None


def chosen(files: int, partitions: int) -> Division:
    """Return how records of so many partitions are written, which would be so many files as they are read.

    Raises TooManyFilesError where it cannot be done.
    """
    if files <= MOST_FILES:
        return Division(together=False)
    if partitions <= MOST_FILES:
        return Division(together=True)
    found = (
        f"expected records of at most {MOST_FILES:,} partitions of the table, each of which is a file, found "
        f"{partitions:,}"
    )
    raise TooManyFilesError(FailureCode.TOO_MANY_TABLE_PARTITIONS.says(found))


def most_of_one_time(
    ranges: Collection[OffsetRange], terms: Sequence[PartitionTerm], processors: int
) -> tuple[int, int]:
    """Return how many files there are at most, and partitions of the table, where all records are of one time."""
    columns = {term.column for term in terms}
    by_topic, by_partition = bool(columns & {"kafka_topic", "kafka_topic_id"}), "kafka_partition" in columns
    partitions = {(each.topic if by_topic else "", each.partition if by_partition else 0) for each in ranges}
    at_most = records_per_task([each.span for each in ranges], processors)
    each = 2 if any(isinstance(term, LateRows) for term in terms) else 1
    return each * len(shared_out(sorted(ranges), at_most)), each * len(partitions)


OpenPlace = Callable[[Place], Opened]

DAY_OF = "cast({} as date)"
HOUR_OF = "date_format({}, \"yyyy-MM-dd'T'HH\")"
"""As text: Delta writes the times of partitions without a zone, and engines differ in the one that they read."""
UNIT = {Transform.DAY: timedelta(days=1), Transform.HOUR: timedelta(hours=1)}
TO_COME = 2
"""How many days or hours after the plan a record may be from, for clocks that differ, without being counted first."""

FAR = "kafka_ingest: a time far from that of the plan, so that days or hours have to be counted first"


def with_own_columns(records: DataFrame, terms: Sequence[PartitionTerm]) -> DataFrame:
    """Return the records with columns of the terms that are no columns yet."""
    return records.selectExpr("*", *(f"{value_of(term)} as {term.own_column}" for term in terms if term.is_of_time))


def folder_at_once(
    ranges: Collection[OffsetRange], terms: Sequence[PartitionTerm], planned_at: datetime, processors: int
) -> str | None:
    """Return a record's folder with a slash at its end, as an SQL expression that fails on a time far from the plan's.

    None where records cannot be written as they are read.
    """
    division = uncounted(ranges, terms, processors)
    has_names = all(folder_of("kafka_topic", each.topic) for each in ranges)
    if division is None or division.together or not has_names:
        return None
    names = (
        f"if({value_of(term)}, '{LATE_FOLDER}/', '')"
        if isinstance(term, LateRows)
        else f"'{term.own_column}=', "
        f"coalesce(cast({value_near(term, planned_at, division)} as string), '{NO_VALUE}'), '/'"
        for term in terms
    )
    return f"concat({', '.join(names)})"


def stage_partitioned(
    read: Callable[[], DataFrame],
    ranges: Sequence[OffsetRange],
    data: Place,
    terms: Sequence[PartitionTerm],
    planned_at: datetime,
    at: OpenPlace,
    remove: Remove,
) -> int:
    """Write the records of ranges below ``data``, which must not exist; return how many Spark counted.

    ``read`` returns them, for each time that they are read. Times near the plan's are few by themselves. Where one is
    far from it, what was staged is discarded, and all is read again to count them first. Raises TooManyFilesError
    before more files are written than MOST_FILES.
    """
    records = read()
    division = uncounted(ranges, terms, processors_of(records))
    if division is not None:
        near = [value_near(term, planned_at, division) for term in terms]
        try:
            return write_divided(records, data, terms, near, at, together=division.together)
        except (Py4JJavaError, PySparkException) as error:
            if FAR not in str(error):
                raise
        remove(data)
    return stage_counted(read, data, terms, at)


def stage_counted(read: Callable[[], DataFrame], data: Place, terms: Sequence[PartitionTerm], at: OpenPlace) -> int:
    """Do the same with records whose days or hours, and whose tasks, nothing is known of: they are counted first."""
    values = [value_of(term) for term in terms]
    together = chosen(*counted(read(), values)).together
    return write_divided(read(), data, terms, values, at, together=together)


def write_divided(
    records: DataFrame,
    data: Place,
    terms: Sequence[PartitionTerm],
    values: Sequence[str],
    at: OpenPlace,
    *,
    together: bool,
) -> int:
    """Write a file for each task and combination of values, and return how many rows Spark counted."""
    rows = stage_files(records, data, named(values), together=together)
    staged = at(data)
    names = [name for name in files_below(staged) if name.endswith(".parquet")]
    move_files(staged, {name: own_name(name, number, terms) for number, name in enumerate(names)})
    return rows


def own_name(name: str, number: int, terms: Sequence[PartitionTerm]) -> str:
    """Return a file's name with folders that are called after the table's columns.

    Where such a name is too long, there is no folder; a task gives its files in all folders the same name.
    """
    *folders, file = PurePosixPath(name).parts
    if terms and isinstance(terms[0], LateRows):
        rest = own_name("/".join([*folders[1:], file]), number, terms[1:])
        return f"{LATE_FOLDER}/{rest}" if folders[0].endswith("=true") else rest
    own = [folder_of(term.own_column, each.partition("=")[2]) for term, each in zip(terms, folders, strict=True)]
    found = [each for each in own if each is not None]
    return "/".join([*found, file]) if found == own else f"{number:05}-{file}"


def counted(records: DataFrame, values: Sequence[str]) -> tuple[int, int]:
    """Return how many files the tasks would write, and of how many partitions; this reads all records."""
    columns = [f"{value} as {name}" for name, value in named(values).items()]
    of_tasks = records.selectExpr("spark_partition_id() as task", *columns).distinct()
    partitions = of_tasks.groupBy(*named(values)).count()
    [(files, number)] = partitions.selectExpr("coalesce(sum(count), 0)", "count(*)").collect()
    return int(files), int(number)


def named(values: Sequence[str]) -> dict[str, str]:
    """Return expressions by the names that Spark gives to folders of their values; no decoded column is called so."""
    return {f"kafka_by_{number}": value for number, value in enumerate(values)}


def value_of(term: PartitionTerm) -> str:
    """Return what records of one partition have in common, as an SQL expression; the session's time zone is UTC."""
    column = ".".join(map(quoted, term.column.split(".")))
    if isinstance(term, LateRows):
        first, before = (f"timestamp_millis({round(each.timestamp() * 1000)})" for each in (term.first, term.before))
        return f"coalesce({column} >= {first} and {column} < {before}, false)"
    match term.transform:
        case Transform.DAY:
            return DAY_OF.format(column)
        case Transform.HOUR:
            return HOUR_OF.format(column)
        case Transform.IDENTITY if not term.is_kafkas:
            as_text = f"cast({column} as string)"
            # A producer may write the name of the folder of no value: Spark would open its file a second time.
            return f"if(octet_length({as_text}) <= {LONGEST_TEXT} and {as_text} <> '{NO_VALUE}', {as_text}, null)"
        case Transform.IDENTITY if term.column == "kafka_topic":
            # Never null, which Spark has to know: otherwise it makes nulls of empty texts, row by row.
            return "coalesce(kafka_topic, '')"
        case Transform.IDENTITY:
            return term.column


def value_near(term: PartitionTerm, planned_at: datetime, division: Division) -> str:
    """Return the same expression, which fails on a time so far from the plan's that there may be too many of them."""
    if not term.is_of_time or division.times is None:
        return value_of(term)
    unit = UNIT[term.transform]
    first, end = (
        round((planned_at + number * unit).timestamp()) * 1000 for number in (TO_COME + 1 - division.times, TO_COME)
    )
    is_near = f"{TIME} is null or ({TIME} >= timestamp_millis({first}) and {TIME} < timestamp_millis({end}))"
    kind = "date" if term.transform is Transform.DAY else "string"
    return f"case when {is_near} then {value_of(term)} else cast(raise_error('{FAR}') as {kind}) end"
