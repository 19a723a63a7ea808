"""Stage decoded records, and apart from them those that cannot be decoded.

One pass decodes and writes the records that fit, and counts the others. Only where there are others, a second pass
reads their ranges again and stores them as they are: so a batch whose records all fit pays nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from kafka_ingest.foundation.storage import Opened, is_folder
from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.batch import AttemptDocument
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import Place, spark_path
from kafka_ingest.model.receipt import WrittenFile
from kafka_ingest.writing.decode import DEAD, RAW_KEY, RAW_VALUE, decoded
from kafka_ingest.writing.rounds import Remove
from kafka_ingest.writing.schema_ids import check_ids
from kafka_ingest.writing.shape import FILTERED, PerPartition, check_shape, shaped
from kafka_ingest.writing.transform import left_out, stage_transformed

BATCH = "kafka_batch"

OpenPlace = Callable[[Place], Opened]
Read = Callable[[Sequence[OffsetRange]], DataFrame]
"""Returns the records of ranges in the raw format's columns."""
FilesIn = Callable[[Place], Sequence[WrittenFile]]
"""Reads back what was written to a place."""


class DeadLetterPlaces:
    """Where an attempt's dead letters are staged: below one directory, named as the place of the data beside them.

    ``filtered``: how many records were filtered of each partition beside the data that counts.
    """

    def __init__(self, directory: Place, data: Place, at: OpenPlace) -> None:
        self._directory = directory
        self._data = data
        self._at = at
        self._now: Place | None = None
        self.place = directory / DATA
        self.filtered: Mapping[TopicPartition, int] = {}

    @property
    def beside(self) -> Place:
        """The attempt's directory."""
        return self._directory.parent

    def of(self, data: Place) -> Place:
        """Return where the dead letters go whose good records go to ``data``.

        In a store nothing can be renamed: those of a later round stay in a folder of their own.
        """
        if isinstance(self.place, Path):
            return self._directory / data.name
        return self.place if data == self._data else self.place / data.name

    def now(self, data: Place) -> None:
        """Note that only what is written beside ``data`` counts."""
        self._now = self.of(data)

    @property
    def has_any(self) -> bool:
        """Whether there are any."""
        return is_folder(self._at(self.place))

    def settle(self) -> None:
        """Move what counts to where it is published from."""
        now, place = self._now, self.place
        if isinstance(now, Path) and isinstance(place, Path) and now != place and now.is_dir():
            now.rename(place)


GOOD = f"{DEAD} is null"


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """How many records Spark counted in all, and how many of them were filtered of each partition."""

    rows_read: int
    filtered: Mapping[TopicPartition, int] = field(default_factory=dict)


class StagedRowsMissingError(Exception):
    """A file that Spark has written is not where it is read."""


class RecordsChangedError(Exception):
    """Another number of records could not be decoded when they were read again: Kafka compacted the log since."""


def stage_decoded(
    read: Read,
    ranges: Sequence[OffsetRange],
    document: AttemptDocument,
    data: Place,
    dead_letters: Place,
    before: Place,
    files_in: FilesIn,
    remove: Remove,
) -> StagedRecords:
    """Write the records of ranges below ``data``, or below ``dead_letters``; return how many Spark counted.

    Neither place must exist. ``before``: where rows are staged that a function is handed; whatever lies there is of an
    earlier try. Raises RecordsChangedError where the second pass finds another number of dead letters
    than the first, UnknownSchemaIdsError where the registry has to be asked for schemas before, ExpressionRefusedError
    where Spark refuses an expression of the feed's.
    """
    shape, partitions = document.decode.shape, PerPartition(ranges)

    def rows_of(raw: DataFrame, *, with_reasons: bool = False) -> DataFrame:
        each = decoded(raw, document.decode)
        return shaped(each, shape, with_reasons=with_reasons) if shape.has_expressions else each

    raw = read(ranges)
    if shape.has_expressions:
        check_shape(decoded(raw, document.decode), shape)
    records = rows_of(raw)
    first = Observation("decoded")
    counts = [f.count("*").alias("rows"), f.count(DEAD).alias("dead")]
    if shape.where is not None:
        counts.append(partitions.counted(FILTERED).alias("filtered"))
    kept = records.observe(first, *counts).where(GOOD if shape.where is None else f"{GOOD} and not {FILTERED}")
    # Expressions may use columns that the table lacks, and dead letters have them.
    kept = kept.drop(DEAD, RAW_KEY, RAW_VALUE, FILTERED, *document.data.without)
    place = data
    if shape.transform is not None:
        remove(place := before)
    kept.write.mode("error").parquet(spark_path(place))
    rows, dead, filtered = int(first.get["rows"]), int(first.get["dead"]), partitions.of(first.get.get("filtered"))
    if shape.transform is not None:
        check_count(rows, dead, filtered, given := files_in(place))
        staged = raw.sparkSession.read.schema(kept.schema).parquet(spark_path(place))
        transformed = stage_transformed(staged, shape.transform, data)
        filtered = dict(Counter(filtered) + Counter(left_out(given, after := files_in(data))))
        check_count(transformed, 0, {}, after)
        remove(place)
    if dead:
        incomplete = without_complete(ranges, files_in(data), filtered)
        letters = rows_of(read(incomplete), with_reasons=True)
        stored = stage_dead_letters(letters, dead_letters, document.attempt)
        if stored != dead:
            raise RecordsChangedError(
                f"{dead:,} records could not be decoded; read again they were {stored:,}: expected the same ones. "
                "Compaction may have removed some in between; the next try reads the batch again"
            )
        if document.decode.has_ids:
            check_ids(records.sparkSession.read.parquet(spark_path(dead_letters)), document.decode)
    return StagedRecords(rows, filtered)


def check_count(counted: int, dead: int, filtered: Mapping[TopicPartition, int], files: Sequence[WrittenFile]) -> None:
    """Raise StagedRowsMissingError unless files hold what Spark counted.

    Where a function is handed them, and drops some, the receipt could not tell.
    """
    expected, found = counted - dead - sum(filtered.values()), sum(file.rows for file in files)
    if expected != found:
        raise StagedRowsMissingError(
            f"Spark wrote {expected:,} rows, the files hold {found:,}: a file did not reach the storage"
        )


def without_complete(
    ranges: Sequence[OffsetRange], written: Sequence[WrittenFile], filtered: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Return the ranges of which not every offset became a row or was filtered: any dead letter is in one of them."""
    rows: Counter[TopicPartition] = Counter(filtered)
    for held in (each for file in written for each in file.partitions):
        rows[held.topic_partition] += held.rows
    return [each for each in ranges if rows[each.topic_partition] < each.span]


def stage_dead_letters(records: DataFrame, place: Place, attempt: int) -> int:
    """Write those of the records that cannot be decoded as they came, and why; return how many Spark counted."""
    # A letter's batch is known by its path.
    of_the_job = {DEAD, RAW_KEY, RAW_VALUE, FILTERED, BATCH}
    kept = [name for name in records.columns if name.startswith("kafka_") and name not in of_the_job]
    letters = records.where(f"{DEAD} is not null").selectExpr(
        *kept,
        f"{RAW_KEY} as key",
        f"{RAW_VALUE} as value",
        f"{DEAD}.part as error_part",
        f"{DEAD}.class as error_class",
        f"{DEAD}.text as error",
        f"{attempt} as attempt",
    )
    counted = Observation("dead letters")
    letters.observe(counted, f.count("*").alias("rows")).write.mode("error").parquet(spark_path(place))
    return int(counted.get["rows"])
