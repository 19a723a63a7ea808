"""Many small ranges read by one consumer, in Spark's driver.

Spark's source makes a consumer for each partition: with its connection and its metadata 8 ms of processor time each,
which is eight seconds for a thousand partitions that may hold three records each. One consumer reads them all in a few
requests. What it reads has to fit into the driver, so it is bounded in records and in bytes; what is beyond that, and
every range that this consumer has any trouble with, is left to Spark's source, which knows what to say about it.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.model.heap import heap_bytes
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.writing.catalyst import Catalyst
from kafka_ingest.writing.java_classes import Java
from kafka_ingest.writing.kafka_records import CLIENTS, data_frame_of, drivers_consumer, jvm_of, record_columns
from kafka_ingest.writing.notes import say
from kafka_ingest.writing.session import AT_ONCE
from kafka_ingest.writing.share_out import most_rows_kept, shared_read_sizes

MOST_RECORDS = 100_000
"""More records than this are worth a consumer for each partition."""

NOT_STREAMING = False

TIMEOUT = "org.apache.kafka.common.errors.TimeoutException"

POLL_S = 1
PATIENCE_S = 10.0
"""After this time without progress, the rest is left to Spark's source."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The records that one consumer has read, and the ranges that it has not read to their end."""

    records: DataFrame | None
    unread: tuple[OffsetRange, ...]


def read_together(spark: SparkSession, ranges: Sequence[OffsetRange], client: Mapping[str, str]) -> Shared:
    """Read ranges by one consumer; the columns are those of :func:`kafka_ingest.writing.kafka_records.kafka_records`.

    ``client`` holds the Java client's settings. A range is read as a whole or not at all. Nothing is raised: a range
    that was not read is in ``unread``, and the reason is written to standard error where it is none of the bounds.
    """
    if sum(offset_range.span for offset_range in ranges) > MOST_RECORDS:
        return Shared(None, tuple(ranges))
    try:
        rows, ends = rows_of(jvm_of(spark), ranges, client, most_bytes(spark))
        records = records_of(spark, rows, ends) if ends else None
    except (Py4JError, PySparkException, TypeError) as error:  # TypeError: a name that this Spark's Java does not know
        say(f"One consumer for {len(ranges)} small ranges failed, each gets its own: {name_of(error)}")
        return Shared(None, tuple(ranges))
    return Shared(records, tuple(each for each in ranges if each.topic_partition not in ends))


def driver_sizes(spark: SparkSession, ranges: Sequence[OffsetRange]) -> dict[str, str]:
    longest = max(offset_range.span for offset_range in ranges)
    return shared_read_sizes(heap_of(spark), len(ranges), longest)


def most_bytes(spark: SparkSession) -> int:
    message = heap_bytes(spark.sparkContext.getConf().get("spark.rpc.message.maxSize") or "128m")
    return most_rows_kept(heap_of(spark), message)


def heap_of(spark: SparkSession) -> int:
    """Return how many bytes of the driver's memory an attempt may use."""
    return int(jvm_of(spark).java.lang.Runtime.getRuntime().maxMemory()) // int(spark.conf.get(AT_ONCE, "1") or "1")


def name_of(error: Exception) -> str:
    """Return the error's name; what it says may hold a setting's value, and Spark's source says it again."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getName())
    return type(error).__name__


def rows_of(
    jvm: Java, ranges: Sequence[OffsetRange], client: Mapping[str, str], most: int
) -> tuple[list[Java], dict[TopicPartition, int]]:
    """Return one row with an array of records for each poll, and the ends of the ranges that were read completely.

    There may be records of other ranges, and records after a range's end.
    """
    with drivers_consumer(jvm, client, POLL_S) as consumer:
        reading = Reading(jvm, consumer, ranges, most)
        while reading.may_continue():
            reading.poll()
        return reading.rows, reading.done


class Reading:
    """One consumer that reads ranges until all have ended, a bound is reached, or no progress is made."""

    def __init__(self, jvm: Java, consumer: Java, ranges: Sequence[OffsetRange], most_bytes: int) -> None:
        self.rows: list[Java] = []
        self.done: dict[TopicPartition, int] = {}
        self._jvm = jvm
        self._consumer = consumer
        self._catalyst = Catalyst(jvm)
        self._to_row = self._catalyst.projection(array_of_records(self._catalyst))
        self._names = {each.topic_partition: self._java_name(each.topic_partition) for each in ranges}
        self._positions = {each.topic_partition: each.start_offset for each in ranges}
        self._ends = {each.topic_partition: each.end_offset for each in ranges}
        self._bytes, self._most_bytes = 0, most_bytes
        self._assigned = jvm.java.util.HashSet(list(self._names.values()))
        consumer.assign(self._assigned)
        for offset_range in ranges:
            consumer.seek(self._names[offset_range.topic_partition], offset_range.start_offset)
        self._last_progress = time.monotonic()

    def may_continue(self) -> bool:
        patient = time.monotonic() - self._last_progress < PATIENCE_S
        return bool(self._positions) and self._bytes <= self._most_bytes and patient

    def poll(self) -> None:
        """Take the next records; partitions that have reached their end are not polled again."""
        polled = self._consumer.poll(self._jvm.java.time.Duration.ofSeconds(POLL_S))
        if polled.isEmpty():
            # A range may end in offsets that are no records (markers of transactions, compacted ones).
            self._look_at(list(self._positions))
            return
        records = self._jvm.org.apache.kafka.common.utils.Utils.toList(polled.iterator())
        row = self._to_row.apply(
            self._jvm.org.apache.spark.sql.catalyst.InternalRow.fromSeq(self._catalyst.seq([records]))
        )
        self._bytes += row.getSizeInBytes()
        if self._bytes > self._most_bytes:  # what it holds is read again
            return
        self.rows.append(row.copy())
        self._look_at(self._partitions_of(polled))

    def _look_at(self, partitions: Iterable[TopicPartition]) -> None:
        ended: list[TopicPartition] = []
        for partition in partitions:
            position = self._position(partition)
            if position != self._positions[partition]:
                self._positions[partition] = position
                self._last_progress = time.monotonic()
            if position >= self._ends[partition]:
                ended.append(partition)
        for partition in ended:
            del self._positions[partition]
            self.done[partition] = self._ends[partition]
            self._assigned.remove(self._names[partition])
        if ended and self._positions:
            # A consumer keeps what it has fetched of a paused partition, and drops that of one that it has no more.
            self._consumer.assign(self._assigned)

    def _position(self, partition: TopicPartition) -> int:
        """Return the offset that is read next; the last one known where the client waits for a new leader."""
        try:
            wait = self._jvm.java.time.Duration.ofSeconds(POLL_S)
            return int(self._consumer.position(self._names[partition], wait))
        except Py4JJavaError as error:
            if name_of(error) != TIMEOUT:
                raise
            return self._positions[partition]

    def _partitions_of(self, polled: Java) -> list[TopicPartition]:
        """Return the partitions of polled records, by one call for all; those that had ended before are left out."""
        java_list = self._jvm.java.util.ArrayList(polled.partitions())
        as_json = self._jvm.org.apache.spark.sql.kafka010.JsonUtils.partitions(self._jvm.PythonUtils.toSeq(java_list))
        found = (TopicPartition(topic, number) for topic, numbers in json.loads(as_json).items() for number in numbers)
        return [partition for partition in found if partition in self._positions]

    def _java_name(self, partition: TopicPartition) -> Java:
        return self._jvm.org.apache.kafka.common.TopicPartition(partition.topic, partition.partition)


def array_of_records(catalyst: Catalyst) -> Java:
    """Return an expression: of a row of one Java list of Kafka's records, the array of their columns."""
    record = catalyst.element(f"{CLIENTS}.ConsumerRecord", number=2)
    columns = catalyst.struct(record_columns(catalyst, record))
    return catalyst.each(catalyst.first_of_row("java.util.List"), record, columns)


def records_of(spark: SparkSession, rows: Sequence[Java], ends: Mapping[TopicPartition, int]) -> DataFrame:
    """Return those records of the rows that belong to ranges with these ends."""
    jvm = jvm_of(spark)
    catalyst = Catalyst(jvm)
    polled = catalyst.attribute("polled", array_of_records(catalyst).dataType())
    local = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(
        catalyst.seq([polled]), catalyst.seq(rows), NOT_STREAMING, jvm.scala.Option.empty()
    )
    return data_frame_of(spark, local).selectExpr("inline(polled)").where(f"offset < {end_of_partition(ends)}")


def end_of_partition(ends: Mapping[TopicPartition, int]) -> str:
    """Return the end of a row's range as an SQL expression; null where there is none, so that no comparison holds."""
    by_topic: dict[str, dict[int, int]] = {}
    for partition, end in ends.items():
        by_topic.setdefault(partition.topic, {})[partition.partition] = end
    pairs = []
    for topic, by_number in by_topic.items():
        numbers = (by_number.get(number) for number in range(max(by_number) + 1))
        listed = ",".join("cast(null as bigint)" if end is None else f"{end}L" for end in numbers)
        pairs.append(f"'{topic}',array({listed})")
    return f"get(map({','.join(pairs)})[topic], partition)"
