"""Many small ranges read by one consumer, in Spark's driver.

Spark's source makes a consumer for each partition: with its connection and its metadata 8 ms of processor time each,
which is eight seconds for a thousand partitions that may hold three records each. One consumer reads them all in a few
requests. What it reads has to fit into the driver, so it is bounded in records and in bytes; what is beyond that, and
every range that this consumer has any trouble with, is left to Spark's source, which knows what to say about it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.spark_settings import heap_bytes
from kafka_ingest.writing.catalyst import Catalyst
from kafka_ingest.writing.java_classes import Java
from kafka_ingest.writing.kafka_records import CLIENTS, data_frame_of, drivers_consumer, jvm_of, record_columns
from kafka_ingest.writing.session import AT_ONCE, say
from kafka_ingest.writing.share_out import most_rows_kept, shared_read_sizes

MOST_RECORDS = 100_000
"""More records than this are worth a consumer for each partition."""

NOT_STREAMING = False

POLL_S = 1
PATIENCE_S = 10
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
        rows, unread = rows_of(jvm_of(spark), ranges, client, most_bytes(spark))
        records = records_of(spark, rows, unread) if len(unread) < len(ranges) else None
    except (Py4JError, PySparkException, TypeError) as error:  # TypeError: a name that this Spark's Java does not know
        say(f"One consumer for {len(ranges)} small ranges failed, each gets its own: {name_of(error)}")
        return Shared(None, tuple(ranges))
    return Shared(records, unread)


def driver_sizes(spark: SparkSession, ranges: Sequence[OffsetRange]) -> dict[str, str]:
    longest = max(offset_range.span for offset_range in ranges)
    return shared_read_sizes(heap_of(spark), len(ranges), longest)


def most_bytes(spark: SparkSession) -> int:
    # All of Spark's settings would be a hundred questions to Java.
    return most_rows_kept(heap_of(spark), heap_bytes(spark.conf.get("spark.rpc.message.maxSize", "128m") or "128m"))


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
) -> tuple[Java, tuple[OffsetRange, ...]]:
    """Return Java's list of rows with an array of records each, one of each poll, and the ranges that were not read.

    There may be records of these.
    """
    with projection(jvm) as to_row, drivers_consumer(jvm, client, POLL_S) as consumer:
        reader = reader_class(jvm).newInstance()
        for each in ranges:
            reader.add(each.topic, each.partition, each.start_offset, each.end_offset)
        unread = reader.read(consumer, to_row, most, POLL_S * 1000, PATIENCE_S * 1000)
        return reader.rows(), tuple(ranges[int(number)] for number in unread.split())


@cache
def reader_class(jvm: Java) -> Java:
    """Return the class of :data:`READER`, which Spark's compiler of generated code makes."""
    compiler = jvm.org.codehaus.janino.ClassBodyEvaluator()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook("".join(f"import {name}; " for name in READER_IMPORTS) + READER)
    return compiler.getClazz()


@contextmanager
def projection(jvm: Java) -> Iterator[Java]:
    """Yield what makes a row of one Java list of Kafka's records; one thread at a time may use it."""
    try:
        to_row = PROJECTIONS.get_nowait()
    except Empty:
        catalyst = Catalyst(jvm)
        to_row = catalyst.projection(array_of_records(catalyst))
    yield to_row
    PROJECTIONS.put(to_row)


PROJECTIONS: SimpleQueue[Java] = SimpleQueue()
"""Those that no attempt uses. Spark would generate their code again for each."""

READER_IMPORTS: Final = (
    *("java.time.Duration", "java.util.*", f"{CLIENTS}.*", "org.apache.kafka.common.TopicPartition"),
    *("org.apache.kafka.common.errors.TimeoutException", "org.apache.spark.sql.catalyst.expressions.*"),
)
READER: Final = """
    private final List rows = new ArrayList();
    private final List ranges = new ArrayList();
    private final Map ends = new HashMap();
    private final Map positions = new HashMap();

    public List rows() {
        return rows;
    }

    public void add(String topic, int partition, long start, long end) {
        TopicPartition each = new TopicPartition(topic, partition);
        ranges.add(each);
        ends.put(each, Long.valueOf(end));
        positions.put(each, Long.valueOf(start));
    }

    /** Reads until all have ended, a bound is met, or nothing comes; returns the numbers of those left. */
    public String read(Consumer consumer, UnsafeProjection toRow, long mostBytes, long pollMs, long patienceMs) {
        Duration wait = Duration.ofMillis(pollMs);
        consumer.assign(positions.keySet());
        for (Object each : ranges) {
            consumer.seek((TopicPartition) each, ((Long) positions.get(each)).longValue());
        }
        long bytes = 0;
        long progress = System.nanoTime();
        while (!positions.isEmpty() && System.nanoTime() - progress < patienceMs * 1000000L) {
            ConsumerRecords polled = consumer.poll(wait);
            List wanted = new ArrayList();
            for (Object each : polled.partitions()) {
                if (positions.containsKey(each)) {
                    long end = ((Long) ends.get(each)).longValue();
                    for (Object record : polled.records((TopicPartition) each)) {
                        if (((ConsumerRecord) record).offset() < end) {
                            wanted.add(record);
                        }
                    }
                }
            }
            if (!wanted.isEmpty()) {
                UnsafeRow row = toRow.apply(new GenericInternalRow(new Object[] {wanted}));
                bytes += row.getSizeInBytes();
                if (bytes > mostBytes) {  // what it holds is read again
                    break;
                }
                rows.add(row.copy());
            }
            // A range may end in offsets that are no records (markers of transactions, compacted ones).
            boolean ended = false;
            for (Object each : new ArrayList(polled.isEmpty() ? positions.keySet() : polled.partitions())) {
                Long before = (Long) positions.get(each);
                if (before == null) {
                    continue;
                }
                long position = before.longValue();
                try {
                    position = consumer.position((TopicPartition) each, wait);
                } catch (TimeoutException error) {
                    // The client waits for a new leader.
                }
                if (position != before.longValue()) {
                    positions.put(each, Long.valueOf(position));
                    progress = System.nanoTime();
                }
                if (position >= ((Long) ends.get(each)).longValue()) {
                    positions.remove(each);
                    ended = true;
                }
            }
            if (ended && !positions.isEmpty()) {
                // What it has fetched of a paused partition a consumer keeps; of one that it has no more, it does not.
                consumer.assign(positions.keySet());
            }
        }
        StringBuilder left = new StringBuilder();
        for (int number = 0; number < ranges.size(); number++) {
            if (positions.containsKey(ranges.get(number))) {
                left.append(number).append(' ');
            }
        }
        return left.toString();
    }
"""
"""Java, since each step of a loop in Python would be a dozen calls of Java."""


def array_of_records(catalyst: Catalyst) -> Java:
    """Return an expression: of a row of one Java list of Kafka's records, the array of their columns."""
    record = catalyst.element(f"{CLIENTS}.ConsumerRecord", number=2)
    columns = catalyst.struct(record_columns(catalyst, record))
    return catalyst.each(catalyst.first_of_row("java.util.List"), record, columns)


def records_of(spark: SparkSession, rows: Java, unread: Sequence[OffsetRange]) -> DataFrame:
    """Return the records of the rows, but those of the ranges that were not read to their end."""
    jvm = jvm_of(spark)
    catalyst = Catalyst(jvm)
    polled = catalyst.attribute("polled", type_of_records(jvm))
    local = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(
        catalyst.seq([polled]), jvm.PythonUtils.toSeq(rows), NOT_STREAMING, jvm.scala.Option.empty()
    )
    records = data_frame_of(spark, local).selectExpr("inline(polled)")
    partitions: dict[str, list[str]] = {}
    for each in unread:
        partitions.setdefault(each.topic, []).append(str(each.partition))
    left = " or ".join(f"topic = '{topic}' and partition in ({','.join(of)})" for topic, of in partitions.items())
    return records.where(f"not ({left})") if left else records


@cache
def type_of_records(jvm: Java) -> Java:
    return array_of_records(Catalyst(jvm)).dataType()
