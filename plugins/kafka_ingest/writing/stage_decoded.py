"""Stage decoded records, and apart from them those that cannot be decoded.

One pass decodes and writes the records that certainly fit, and counts the others. Only where there are others, a second
pass reads their ranges again and decides on each: it becomes a row like those before, or is stored as it is. So a batch
whose records all fit pays nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib import import_module
from operator import or_, xor
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.storage import files_below, move_files
from kafka_ingest.model.batch import NOBODY, AttemptDocument, DataNeeds
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.omissions import LEAST_RECORDS, NeverFound
from kafka_ingest.model.partition_term import PartitionTerm
from kafka_ingest.model.place import Place, spark_path, spark_source
from kafka_ingest.model.receipt import WrittenFile, rows_by_partition
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.writing.decode import DEAD, FILTERED, RAW_KEY, RAW_VALUE, decoded
from kafka_ingest.writing.found_fields import FOUND, FoundFields
from kafka_ingest.writing.rounds import Remove
from kafka_ingest.writing.schema_ids import check_ids, id_found
from kafka_ingest.writing.session import say
from kafka_ingest.writing.shape import PerPartition, check_shape, shaped
from kafka_ingest.writing.stage_files import staged_files
from kafka_ingest.writing.table_partitions import OpenPlace, stage_counted, stage_partitioned, with_own_columns
from kafka_ingest.writing.transform import left_out, stage_transformed

FEW_OBJECTS = 250_000
"""Up to here it does not pay to start Python's workers (bench/README.md)."""

SWITCH = "spark.kafka_ingest.objects_in_workers"
"""A setting of this project among Spark's: ``false`` leaves all records to Spark."""

FOR_OBJECTS = "kafka_ingest.writing.stage_objects"
"""Imported for large batches only: it takes 50 milliseconds."""

Read = Callable[[Sequence[OffsetRange]], DataFrame]
"""Returns the records of ranges in the raw format's columns."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What opens and what removes a place, on a disk or in a store."""

    at: OpenPlace
    remove: Remove

    def files_in(self, place: Place) -> list[WrittenFile]:
        """Read back what was written to a place."""
        return staged_files(self.at(place))


@dataclass(frozen=True, slots=True)
class Places:
    """Where the records of some ranges go: rows, dead letters, and what a function is given, and has made.

    What it has made is there only where it has to be divided by partitions of a table then.
    """

    data: Place
    dead_letters: Place
    before_transform: Place
    after_transform: Place


GOOD = f"{DEAD} is null"
POSITION_AS_NUMBER = "xxhash64(kafka_topic, kafka_partition, kafka_offset)"
DEAD_AS_NUMBER = f"if({GOOD}, cast(0 as bigint), {POSITION_AS_NUMBER})"

ADDED = "added"
"""How the folder begins for rows that are divided, until they are among the others."""


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """How many records Spark counted in all, and how many of them were filtered of each partition, or are dead.

    ``in_any_order``: files of a partition may overlap, since workers wrote some of its rows, and Spark others.
    ``found``: which fields have a value in some row, as bits; ``never_found``: those that no record has.
    ``left``: which records are dead, as one number of their positions; of a second pass, which ones it has decided on.
    """

    rows_read: int
    filtered: Mapping[TopicPartition, int] = field(default_factory=dict)
    dead: int = 0
    in_any_order: bool = False
    found: int = 0
    never_found: tuple[NeverFound, ...] = ()
    left: int = field(default=0, compare=False)


class StagedRowsMissingError(Exception):
    """A file that Spark has written is not where it is read."""


class RecordsChangedError(Exception):
    """Other records could not be decoded when they were read again: Kafka compacted the log since."""


def stage_decoded(
    read: Read, ranges: Sequence[OffsetRange], document: AttemptDocument, places: Places, storage: Storage
) -> StagedRecords:
    """Write the records of ranges as rows, or as dead letters; return how many Spark counted.

    None of the places may exist, but for what an earlier try has left before its transform. Raises RecordsChangedError
    where the second pass finds another number of records than the first has left, UnknownSchemaIdsError where the
    registry has to be asked for schemas before, ExpressionRefusedError where Spark refuses an expression of the feed's.
    """
    shape, needs = document.decode.shape, document.data
    place = places.data if shape.transform is None else places.before_transform
    rows = CountedRows(read(ranges), ranges, document)
    passes = TwoPasses(rows, read, ranges, document, place, places.dead_letters, storage)
    if shape.transform is not None:
        storage.remove(place)
    try:
        staged = passes.staged()
    except RecordsChangedError:
        if not rows.plainly:
            raise
        # What workers read with certainty depends on the records beside it, so the second pass may have found others
        # than the first has left. What Spark alone is certain of is the same each time.
        say("Read again, Python's workers were certain of other records: Spark reads all of them.")
        rows.plainly = False
        for written in (place, places.dead_letters):
            storage.remove(written)
        staged = passes.staged()
    if shape.transform is not None:
        check_count(staged, given := storage.files_in(place))
        schema, spark = rows.all().schema, rows.raw.sparkSession
        made = made_by_function(spark, schema, shape.transform, needs, places, storage)
        staged = replace(staged, filtered=dict(Counter(staged.filtered) + Counter(left_out(given, made))))
    decoded_records, is_preview = staged.rows_read - staged.dead, document.plan.feed_id == NOBODY
    if not decoded_records or not document.plan.kind.reads_kafka:
        return staged
    if decoded_records < LEAST_RECORDS and not is_preview and not rows.fields.parts_without_value(staged.found):
        return staged
    return replace(staged, never_found=rows.fields.never_found(staged.found, read, ranges))


@dataclass(frozen=True, slots=True)
class TwoPasses:
    """The records of ranges on their way to ``place``, and the dead ones of them to ``letters``."""

    rows: "CountedRows"
    read: Read
    ranges: Sequence[OffsetRange]
    document: AttemptDocument
    place: Place
    letters: Place
    storage: Storage

    def staged(self) -> StagedRecords:
        """Write what is certain, and then what is left, if there is any: as rows, or as dead letters."""
        self.stage_certain()
        staged = self.rows.counted()
        if not staged.dead:
            return staged
        incomplete = without_complete(self.ranges, self.storage.files_in(self.place), staged.filtered)
        undecided = self.rows.undecided(self.read(incomplete), many=are_many(incomplete))
        if self.document.decode.has_json:
            return self.stage_decided(undecided, incomplete, staged)
        stage_letters(undecided, self.document, self.letters, expected=staged.dead)
        return staged

    def stage_decided(self, decided: DataFrame, ranges: Sequence[OffsetRange], before: StagedRecords) -> StagedRecords:
        """Write what the first pass has left, and has been decided on now: rows beside the others, and dead letters.

        They are kept on Spark's disks in between, so that none is read or decoded twice.
        """
        decided.persist(StorageLevel.DISK_ONLY)
        try:
            self.add(lambda: self.rows.only(decided), ranges)
            found = self.rows.counted()
            check_unchanged(before.dead, found.rows_read, same=before.left == found.left)
            if found.dead:
                stage_letters(decided, self.document, self.letters, expected=found.dead)
        finally:
            decided.unpersist()
        filtered = dict(Counter(before.filtered) + Counter(found.filtered))
        in_any_order = before.in_any_order or found.rows_read > found.dead
        return StagedRecords(before.rows_read, filtered, found.dead, in_any_order, before.found | found.found)

    @property
    def terms(self) -> tuple[PartitionTerm, ...]:
        """What rows are divided by: those that a function is given are divided afterwards."""
        return () if self.document.decode.shape.transform is not None else self.document.data.terms

    def add(self, rows: Callable[[], DataFrame], ranges: Sequence[OffsetRange]) -> None:
        """Write more rows to a place that has some."""
        if not self.terms:
            rows().write.mode("append").parquet(spark_path(self.place))
            return
        added = f"{ADDED}-{uuid4()}"
        self.divide(rows, ranges, self.place / added)
        names = [name for name in files_below(self.storage.at(self.place / added)) if name.endswith(".parquet")]
        move_files(self.storage.at(self.place), {f"{added}/{name}": name for name in names})

    def divide(self, rows: Callable[[], DataFrame], ranges: Sequence[OffsetRange], place: Place) -> None:
        planned_at, storage = self.document.plan.planned_at, self.storage
        stage_partitioned(rows, ranges, place, self.terms, planned_at, storage.at, storage.remove)

    def stage_all(self) -> None:
        if self.terms:
            self.divide(self.rows.all, self.ranges, self.place)
        else:
            self.rows.all().write.mode("error").parquet(spark_path(self.place))

    def stage_certain(self) -> None:
        """Write the rows that are certain, by workers where these can, in the form that the sink needs."""
        if not self.rows.plainly:
            self.stage_all()
            return
        for_objects = import_module(FOR_OBJECTS)
        objects = for_objects.objects_for_workers(
            self.rows.raw, self.ranges, self.document, self.place, self.storage.at
        )
        if objects is not None:
            by_workers = objects.stage(lambda records: self.add(lambda: self.rows.some(records), self.ranges))
            if by_workers is not None:
                self.rows.by_workers, self.rows.found_by_workers = by_workers, objects.found
                return
            self.storage.remove(self.place)
        if not for_objects.done_by_workers(self.stage_all, "read"):
            self.rows.plainly = False
            self.storage.remove(self.place)
            self.stage_all()
        if objects is not None:
            objects.remove()


class CountedRows:
    """The rows that the records of some ranges become, counted as they are written.

    ``plainly``: whether workers read objects. ``by_workers``: how many they wrote without Spark counting them, and
    ``found_by_workers`` which fields had values.
    """

    def __init__(self, raw: DataFrame, ranges: Sequence[OffsetRange], document: AttemptDocument) -> None:
        self.raw = raw
        settings = raw.sparkSession.sparkContext.getConf()
        # Workers write whole files, and know nothing of rows that the output refuses.
        may_be_plain = document.decode.has_json and not document.decode.refused
        self.plainly = may_be_plain and are_many(ranges) and settings.get(SWITCH, "true") == "true"
        self.by_workers = self.found_by_workers = 0
        self.fields = FoundFields(document.decode)
        self._partitions = PerPartition(ranges)
        self._plan, self._decode, self._needs = document.plan, document.decode, document.data
        self._observed: list[Observation] = []
        if (shape := document.decode.shape).has_expressions:
            check_shape(decoded(raw, document.decode, with_reasons=False), shape)

    def of(
        self, records: DataFrame, *, plainly: bool = False, with_reasons: bool = False, with_bytes: bool = False
    ) -> DataFrame:
        """Return records decoded and shaped, with those that are dead."""
        shape = self._decode.shape
        constants = import_module(FOR_OBJECTS).constants_of(self._plan, records.columns) if plainly else {}
        each = decoded(
            records,
            self._decode,
            plainly=plainly,
            constants=constants,
            with_reasons=with_reasons,
            with_bytes=with_bytes,
        )
        if not shape.has_expressions:
            return each
        # The columns of a select are no longer the fields.
        found = (f.expr(sql).alias(name) for name, sql in self.fields.expressions().items())
        return shaped(each.select("*", *found), shape, with_reasons=with_reasons)

    def undecided(self, records: DataFrame, *, many: bool) -> DataFrame:
        """Return records decoded strictly, and why those that are dead are; of JSON those alone that are not certain.

        A record for which an expression fails is among them: it is certain, but has no reason yet.
        """
        if self._decode.has_json:
            raw = {"key": RAW_KEY, "value": RAW_VALUE}
            uncertain = self.of(records, plainly=self.plainly and many, with_bytes=True).where(f"{DEAD} is not null")
            records = uncertain.selectExpr(*(f"{raw.get(name, name)} as {name}" for name in records.columns))
        return self.of(records, with_reasons=True, with_bytes=True)

    def all(self) -> DataFrame:
        """Return the rows of all records; each time anew, should writing them have to be repeated."""
        self._observed.clear()
        self.by_workers = self.found_by_workers = 0
        return self.some(self.raw, plainly=self.plainly)

    def some(self, records: DataFrame, *, plainly: bool = False) -> DataFrame:
        """Return the rows of some records, which are counted besides those that were before."""
        return self._rows(self.of(records, plainly=plainly))

    def only(self, decided: DataFrame) -> DataFrame:
        """Return the rows of records that are decoded, and count these alone."""
        self._observed.clear()
        self.by_workers = self.found_by_workers = 0
        return self._rows(decided, left=POSITION_AS_NUMBER)

    def _rows(self, decided: DataFrame, *, left: str = DEAD_AS_NUMBER) -> DataFrame:
        shape, needs = self._decode.shape, self._needs
        filters = shape.where is not None or self._decode.skips_others
        counts = [f.count("*").alias("rows"), f.count(DEAD).alias("dead"), f.expr(f"bit_xor({left})").alias("left")]
        if filters:
            counts.append(self._partitions.counted(FILTERED).alias("filtered"))
        for name, sql in self.fields.expressions().items():
            found = name if shape.has_expressions else sql
            counts.append(f.expr(f"bit_or(if({GOOD}, {found}, cast(0 as bigint)))").alias(name))
        # Without a name of ours: of two with one name on the same records the second may never get its counts, and
        # waits for ever, where Spark found the first one's query empty.
        self._observed.append(Observation())
        observed = decided.observe(self._observed[-1], *counts)
        good = observed.where(f"{GOOD} and not {FILTERED}" if filters else GOOD)
        # Expressions may use columns that the table lacks, and dead letters have them.
        rows = good.drop(DEAD, RAW_KEY, RAW_VALUE, FILTERED, *self.fields.expressions(), *needs.without)
        # A function is not given columns that follow from others: it could change them.
        return with_own_columns(rows, needs.partition_by) if needs.own_columns and shape.transform is None else rows

    def counted(self) -> StagedRecords:
        """Return what Spark counted, once they are written."""
        found = [each.get for each in self._observed]
        rows, dead = (sum(int(each[name]) for each in found) for name in ("rows", "dead"))
        filtered = self._partitions.of(found[-1].get("filtered"))
        bits = reduce(or_, map(self.fields.all_bits, found), self.found_by_workers)
        left, in_any_order = reduce(xor, (each["left"] or 0 for each in found)), self.by_workers > 0 and dead < rows
        return StagedRecords(self.by_workers + rows, filtered, dead, in_any_order, bits, left=left)


def are_many(ranges: Sequence[OffsetRange]) -> bool:
    """Whether there may be so many records that it pays to prepare for them."""
    return sum(each.span for each in ranges) > FEW_OBJECTS


def made_by_function(
    spark: SparkSession, schema: StructType, function: str, needs: DataNeeds, places: Places, storage: Storage
) -> Sequence[WrittenFile]:
    """Hand staged rows to the feed's function, write what it makes of them, and return the files of that.

    They are divided by the table's partitions afterwards, from files: a function need not make the same rows twice.
    """
    place = places.after_transform if needs.terms else places.data
    storage.remove(places.after_transform)
    staged = spark.read.schema(schema).parquet(spark_source(places.before_transform))
    columns, rows = stage_transformed(staged, function, place)
    check_count(StagedRecords(rows), found := storage.files_in(place))
    storage.remove(places.before_transform)
    if not needs.terms:
        return found

    def made() -> DataFrame:
        rows = spark.read.schema(columns).parquet(spark_source(place))
        return with_own_columns(rows, needs.partition_by) if needs.own_columns else rows

    stage_counted(made, places.data, needs.terms, storage.at)
    check_count(StagedRecords(rows), divided := storage.files_in(places.data))
    storage.remove(place)
    return divided


def check_count(staged: StagedRecords, files: Sequence[WrittenFile]) -> None:
    """Raise StagedRowsMissingError unless files hold what Spark counted.

    Where a function is given them, and drops some, the receipt could not tell.
    """
    expected = staged.rows_read - staged.dead - sum(staged.filtered.values())
    found = sum(file.rows for file in files)
    if expected != found:
        raise StagedRowsMissingError(
            f"Spark wrote {counted(expected, 'row')}, the files hold {found:,}: a file did not reach the storage"
        )


def without_complete(
    ranges: Sequence[OffsetRange], written: Sequence[WrittenFile], filtered: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Return the ranges of which not every offset became a row or was filtered: any dead letter is in one of them."""
    rows = rows_by_partition(written) + Counter(filtered)
    return [each for each in ranges if rows[each.topic_partition] < each.span]


def stage_letters(records: DataFrame, document: AttemptDocument, place: Place, *, expected: int) -> None:
    """Write those of the records that cannot be decoded; raises RecordsChangedError where they are not as many.

    UnknownSchemaIdsError where the registry has to be asked for their schemas before.
    """
    check_unchanged(expected, stage_dead_letters(records, document, place))
    if document.decode.has_ids:
        check_ids(records.sparkSession.read.parquet(spark_source(place)), document.decode)


def check_unchanged(expected: int, found: int, *, same: bool = True) -> None:
    """Raise RecordsChangedError unless as many records, and the same ones, were found when they were read again."""
    if found != expected or not same:
        raise RecordsChangedError(
            f"{counted(expected, 'record')} could not be decoded; read again they were {found:,}: expected the "
            f"same ones. "
            "Compaction may have removed some in between; the next try reads the batch again"
        )


def stage_dead_letters(records: DataFrame, document: AttemptDocument, place: Place) -> int:
    """Write those of the records that cannot be decoded as they came, and why; return how many Spark counted."""
    of_the_job = {DEAD, RAW_KEY, RAW_VALUE, FILTERED, BATCH_COLUMN}
    own = [name for name in records.columns if name.startswith("kafka_") and name not in of_the_job]
    kept = [name for name in own if not name.startswith(FOUND)]
    of_key = id_found("key", RAW_KEY, document.decode.key)
    of_value = id_found("value", RAW_VALUE, document.decode.value)
    letters = records.where(f"{DEAD} is not null").selectExpr(
        *kept,
        f"{RAW_KEY} as key",
        f"{RAW_VALUE} as value",
        f"{DEAD}.part as error_part",
        f"{DEAD}.class as error_class",
        f"{DEAD}.text as error",
        f"if({DEAD}.part = 'key', {of_key}, {of_value}) as schema_id",
        f"{document.attempt} as attempt",
        # Elsewhere by their path.
        *([f"'{document.plan.batch_id}' as {BATCH_COLUMN}"] if document.data.batch_column else []),
    )
    counted = Observation()
    letters.observe(counted, f.count("*").alias("rows")).write.mode("error").parquet(spark_path(place))
    return int(counted.get["rows"])
