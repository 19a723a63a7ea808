"""Kafka's records as rows of Spark, with any number as their timestamp.

Spark's source ``kafka`` makes microseconds of each record's milliseconds before a query sees them. A number that is
too large for that, say nanoseconds in a field of milliseconds, fails every read of its range with "long overflow"
(KafkaRecordToRowConverter of spark-sql-kafka), and no setting helps. So this goes one step below: the RDD that fetches
the records for the source, too, and a node of Spark's planner that makes rows of objects. It brings up Scala's runtime
reflection, half a second of processor time, so it is only used where the source has failed.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.writing.catalyst import BIGINT, BINARY, BOOLEAN, INT, Catalyst
from kafka_ingest.writing.java_classes import Java, classes_of

CLIENTS = "org.apache.kafka.clients.consumer"
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
HEADERS, HEADER = "org.apache.kafka.common.header.Headers", "org.apache.kafka.common.header.Header"
TEXT, ITERATOR = "java.lang.String", "java.util.Iterator"

ALWAYS = {
    "key.deserializer": BYTES,
    "value.deserializer": BYTES,
    # A missing offset is an error, and no consumer group is changed.
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
}
"""What Spark's source gives to its consumers, too."""


RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
"""What is read of a record, whichever way it is read."""


def kafka_records(spark: SparkSession, ranges: Sequence[OffsetRange], client: Mapping[str, str]) -> DataFrame:
    """Return the records of the ranges, each range read by one task.

    ``client`` holds the Java client's settings. The columns are those of Spark's source, but ``timestamp_ms`` is the
    record's own number. Raises Py4JError or TypeError on a Spark whose internals differ from the pinned version's.
    """
    jvm = jvm_of(spark)
    session: Java = spark._jsparkSession
    catalyst = Catalyst(jvm)
    record = catalyst.attribute("record", catalyst.type_of(f"{CLIENTS}.ConsumerRecord"))
    fetched = jvm.org.apache.spark.sql.execution.ExternalRDD(
        record, fetched_records(spark, jvm, ranges, client), session
    )
    columns = record_columns(catalyst, record)
    named = catalyst.seq(catalyst.named(expression, name) for name, expression in columns.items())
    rows = jvm.org.apache.spark.sql.catalyst.plans.logical.SerializeFromObject(named, fetched)
    return data_frame_of(spark, rows)


def data_frame_of(spark: SparkSession, plan: Java) -> DataFrame:
    return DataFrame(jvm_of(spark).org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def jvm_of(spark: SparkSession) -> Java:
    return classes_of(spark.sparkContext._jvm)


def is_gone(context: SparkContext) -> bool:
    """Whether Spark is stopping, as it does first where its process ends, or Java does not answer any more."""
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def activate(spark: SparkSession) -> Java:
    """Let the planner ask this session for settings where this thread calls it; return Java's context."""
    jvm_of(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    return spark._jsc.sc()


def set_options(spark: SparkSession, builder: SparkSession.Builder) -> None:
    """Give a session the settings of a builder, as pyspark does with one that it finds."""
    SparkSession(spark.sparkContext, spark._jsparkSession, builder._options)


def hadoop_settings(spark: SparkSession) -> Java:
    """Return Hadoop's settings, a site's own among them."""
    return spark._jsc.hadoopConfiguration()


def parser_of(spark: SparkSession) -> Java:
    session: Java = spark._jsparkSession
    return session.sessionState().sqlParser()


def analyzed(records: DataFrame) -> Java:
    """Return a data frame's logical plan, with all names and types resolved."""
    frame: Java = records._jdf
    return frame.queryExecution().analyzed()


def optimized(records: DataFrame) -> Java:
    """Return a data frame's logical plan, as it is executed."""
    frame: Java = records._jdf
    return frame.queryExecution().optimizedPlan()


def of_same_columns(records: DataFrame) -> DataFrame:
    """Return a data frame with the same columns, of whose rows Spark knows nothing."""
    spark = records.sparkSession
    session: Java = spark._jsparkSession
    frame: Java = records._jdf
    nothing: Java = spark._jsc.emptyRDD()
    return DataFrame(session.createDataFrame(nothing, frame.schema()), spark)


def fetched_records(spark: SparkSession, jvm: Java, ranges: Sequence[OffsetRange], client: Mapping[str, str]) -> Java:
    """Return the RDD of Kafka's own records, which fails where an offset of a range is not in the log any more."""
    settings = java_settings(jvm, {**client, "group.id": f"spark-kafka-relation-{uuid4()}-executor"})
    read = [
        jvm.org.apache.spark.sql.kafka010.KafkaOffsetRange(
            jvm.org.apache.kafka.common.TopicPartition(offset_range.topic, offset_range.partition),
            offset_range.start_offset,
            offset_range.end_offset,
            jvm.scala.Option.empty(),
        )
        for offset_range in ranges
    ]
    context: Java = spark.sparkContext._jsc.sc()
    # How long a record is waited for, by the same setting as in Spark's source.
    patience_ms = context.conf().getTimeAsSeconds("spark.network.timeout", "120s") * 1000
    fail_on_data_loss = True
    return jvm.org.apache.spark.sql.kafka010.KafkaSourceRDD(
        context, settings, jvm.PythonUtils.toSeq(read), patience_ms, fail_on_data_loss
    )


def java_settings(jvm: Java, client: Mapping[str, str]) -> Java:
    """Return a Java map of the settings of a consumer that reads bytes."""
    settings = jvm.java.util.HashMap()
    for name, value in {**client, **ALWAYS}.items():
        settings.put(name, value)
    return settings


@contextlib.contextmanager
def drivers_consumer(jvm: Java, client: Mapping[str, str], close_within_s: int) -> Iterator[Java]:
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(java_settings(jvm, client))
    try:
        yield consumer
    finally:
        consumer.close(jvm.java.time.Duration.ofSeconds(close_within_s))


def record_columns(catalyst: Catalyst, record: Java) -> dict[str, Java]:
    """Return the columns of a row, by their names."""
    headers = catalyst.call(record, "headers", HEADERS)
    any_header = catalyst.call(catalyst.call(headers, "iterator", ITERATOR), "hasNext", BOOLEAN)
    header = catalyst.element(HEADER)
    key, value = catalyst.utf8(catalyst.call(header, "key", TEXT)), catalyst.call(header, "value", BINARY)
    pair = catalyst.struct({"key": key, "value": value})
    # No header is ever null, but Spark's source says that one may be, and files of one output have one schema.
    nullable = catalyst.if_true(catalyst.not_null(header), pair)
    pairs = catalyst.each(catalyst.call(headers, "toArray", f"[L{HEADER};"), header, nullable)
    expressions = (
        catalyst.utf8(catalyst.call(record, "topic", TEXT)),
        catalyst.call(record, "partition", INT),
        catalyst.call(record, "offset", BIGINT),
        catalyst.call(record, "timestamp", BIGINT),
        catalyst.call(record, "key", BINARY),
        catalyst.call(record, "value", BINARY),
        catalyst.if_true(any_header, pairs),
    )
    return dict(zip(RECORD_COLUMNS, expressions, strict=True))
