"""Read exactly the records of the plan: offset ranges from Kafka, or of a replay dead letters from their files."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from uuid import UUID
from zlib import crc32

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_ingest.model.batch import AttemptDocument, BatchPlan, DataNeeds
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import Place, spark_path, spark_source
from kafka_ingest.model.written_columns import BATCH_COLUMN, END_OF_SECONDS, FIRST_SECOND
from kafka_ingest.writing.decoded_part import text
from kafka_ingest.writing.kafka_records import RECORD_COLUMNS, kafka_records
from kafka_ingest.writing.session import AT_ONCE, is_local
from kafka_ingest.writing.share_out import (
    SIZES_OF_HEAPS,
    memory_per_task,
    read_sizes,
    records_per_task,
    shared_out,
    shared_tasks,
    small_ranges,
)
from kafka_ingest.writing.shared_consumer import driver_sizes, read_together

# Measured defaults for a bounded read (docs/decisions.md); the connection's own settings win. How much is read at a
# time is less where many tasks share a heap, and of ranges of few records (`memory.py`).
READ_DEFAULTS = {
    "max.poll.records": "10000",
    "max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "receive.buffer.bytes": "-1",
    # At the end of a log the client's next fetch waits for new records, and Spark's question for the log's bounds
    # after it: half a second for each range by default. A bounded read wants none that come later, so none is enough.
    # Less patience (fetch.max.wait.ms) would do the same, but before KIP-1018 it is also how long a broker reads from
    # tiered storage.
    "fetch.min.bytes": "0",
    # Registering some hundred metrics with JMX, and naming them for brokers that may ask (KIP-714), is half of making
    # a consumer.
    "auto.include.jmx.reporter": "false",
    "enable.metrics.push": "false",
}

NO_TIMESTAMP = -1
"""Kafka's own word for none (RecordBatch.NO_TIMESTAMP): records of the oldest message format have it."""

REBASED_BEFORE = datetime(1900, 1, 1, tzinfo=UTC)
"""What is earlier, Spark's source takes from the Julian calendar to ours (DateTimeUtils.fromJavaTimestamp): by days."""

REBASED = "kafka_ingest: a timestamp before 1900, which is not what Kafka holds any more"


def read_ranges(
    spark: SparkSession,
    plan: BatchPlan,
    ranges: Sequence[OffsetRange],
    kafka: Mapping[str, str],
    needs: DataNeeds,
    *,
    any_timestamp: bool,
) -> DataFrame:
    """Return the records of ranges of the plan, in the raw format's columns (docs/output.md).

    ``kafka`` holds the Java client's settings. Without ``any_timestamp`` Spark's own source reads, and fails on a
    timestamp that it cannot take (:func:`is_about_timestamps`). ``needs``: which columns there are. Partitions are
    read with explicit numbers at both ends: a subscription would fail on a partition added since the plan, and -1 or
    -2 would be resolved late and not recorded.
    """
    records = records_of(spark, plan, ranges, kafka, any_timestamp=any_timestamp)
    # As SQL: each expression that pyspark makes is several calls of Java, and of a literal it imports pandas.
    is_date = (
        f"timestamp_ms >= {FIRST_SECOND * 1000} and timestamp_ms < {END_OF_SECONDS * 1000} "
        f"and timestamp_ms != {NO_TIMESTAMP}"
    )
    columns = {
        "kafka_topic": "topic",
        "kafka_partition": "partition",
        "kafka_offset": "offset",
        "kafka_timestamp": f"case when {is_date} then timestamp_millis(timestamp_ms) end",
        "key": "key",
        "value": "value",
        "kafka_headers": "headers",
        "kafka_topic_id": topic_id(plan),
        "kafka_timestamp_ms": f"case when not ({is_date}) then timestamp_ms end",
        **({BATCH_COLUMN: f"'{plan.batch_id}'"} if needs.batch_column else {}),
    }
    return records.selectExpr(*(f"{sql} as {name}" for name, sql in columns.items() if name not in needs.without))


def is_about_timestamps(error: Exception) -> bool:
    """Whether Spark's source failed on a record whose timestamp it cannot take, or changes."""
    return any(said in str(error) for said in ("ArithmeticException: long overflow", REBASED))


def milliseconds_of(when: datetime) -> int:
    return round(when.timestamp()) * 1000


def records_of(
    spark: SparkSession,
    plan: BatchPlan,
    ranges: Sequence[OffsetRange],
    kafka: Mapping[str, str],
    *,
    any_timestamp: bool,
) -> DataFrame:
    """Return the records of ranges: many small ones by one consumer and as one file, a large one by several tasks."""
    processors = spark.sparkContext.defaultParallelism
    at_most = records_per_task([offset_range.span for offset_range in ranges], processors)
    small = small_ranges(ranges, alone=spark.conf.get(AT_ONCE, None) is None)
    large = sorted(set(ranges).difference(small))
    found: list[DataFrame] = []
    if small:
        shared = read_together(spark, small, client_settings(plan, driver_sizes(spark, small), kafka))
        if shared.records is not None:
            found.append(shared.records.coalesce(1))
        small = list(shared.unread)
    if any_timestamp and (rest := sorted((*small, *large))):
        client = client_settings(plan, task_sizes(spark, rest), kafka)
        return reduce(DataFrame.unionAll, [*found, kafka_records(spark, shared_out(rest, at_most), client)])
    if large:
        found.append(records_of_source(spark, large, client_settings(plan, task_sizes(spark, large), kafka), at_most))
    if small:
        records = records_of_source(spark, small, client_settings(plan, task_sizes(spark, small), kafka), None)
        # Without a shuffle: each of these tasks writes one file.
        found.append(records.coalesce(shared_tasks(small, processors)))
    return reduce(DataFrame.unionAll, found)


def client_settings(plan: BatchPlan, sizes: Mapping[str, str], kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the consumers that read some of the plan's ranges."""
    return {**READ_DEFAULTS, **sizes, **kafka, "isolation.level": plan.isolation.value}


def task_sizes(spark: SparkSession, ranges: Sequence[OffsetRange]) -> dict[str, str]:
    # All of Spark's settings would be a hundred questions to Java.
    asked = {name: spark.conf.get(name, None) for name in SIZES_OF_HEAPS}
    conf = {name: size for name, size in asked.items() if size is not None}
    memory = memory_per_task(conf, spark.sparkContext.defaultParallelism, is_local=is_local(spark))
    return read_sizes(memory, max(offset_range.span for offset_range in ranges))


def records_of_source(
    spark: SparkSession, ranges: Sequence[OffsetRange], client: Mapping[str, str], at_most: int | None
) -> DataFrame:
    """Return the records by Spark's own source, and their timestamps in milliseconds again."""
    is_as_it_was = f.expr(f"timestamp >= timestamp_millis({milliseconds_of(REBASED_BEFORE)})")
    failed = f.expr(f"cast(raise_error('{REBASED}') as bigint)")
    return (
        spark.read.format("kafka")
        .options(**({"maxRecordsPerPartition": at_most} if at_most is not None else {}))
        .options(**{f"kafka.{key}": value for key, value in client.items()})
        .option("assign", by_topic(ranges, None))
        .option("startingOffsets", by_topic(ranges, "start_offset"))
        .option("endingOffsets", by_topic(ranges, "end_offset"))
        # With false, an end past the last stable offset silently drops the rest of the range.
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
        .withColumn("timestamp_ms", f.when(is_as_it_was, f.unix_millis("timestamp")).otherwise(failed))
        .select(*RECORD_COLUMNS)
    )


def topic_id(plan: BatchPlan) -> str:
    """Return the plan's id of each record's topic, as SQL; null where the broker gave none.

    A position alone is not unique in an output: a topic that was deleted and made again counts its offsets from 0
    again.
    """
    ids = {offset_range.topic: plan.topic_ids[offset_range.topic] for offset_range in plan.ranges}
    if len(ids) == 1:
        [known] = ids.values()
        return "cast(null as string)" if known is None else f"'{known}'"
    return value_of_topic({topic: f"'{known}'" for topic, known in ids.items() if known is not None}, "topic", "string")


def value_of_topic(literals: Mapping[str, str], column: str, kind: str) -> str:
    """Return the SQL value of the topic that a column names, null for any other.

    Spark looks through a map entry by entry, so each topic has a small one.
    """
    buckets: list[list[str]] = [[] for _ in range(max(1, len(literals)))]
    for topic, literal in literals.items():
        buckets[crc32(topic.encode()) % len(buckets)].append(f"'{topic}',{literal}")
    nothing = f"cast(null as map<string,{kind}>)"
    maps = ",".join(f"map({','.join(pairs)})" if pairs else nothing for pairs in buckets)
    return f"array({maps})[cast(crc32({column}) % {len(buckets)} as int)][{column}]"


def by_topic(ranges: Sequence[OffsetRange], bound: str | None) -> str:
    """Return the ranges' partitions, or one bound of theirs, as the Kafka source's JSON."""
    partitions: dict[str, list[int]] = {}
    bounds: dict[str, dict[str, int]] = {}
    for offset_range in ranges:
        partitions.setdefault(offset_range.topic, []).append(offset_range.partition)
        if bound is not None:
            bounds.setdefault(offset_range.topic, {})[str(offset_range.partition)] = getattr(offset_range, bound)
    return json.dumps(partitions if bound is None else bounds)


RAW_FORMAT = (
    "kafka_topic string, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamp, key binary, "
    "value binary, kafka_headers array<struct<key: string, value: binary>>, kafka_topic_id string, "
    "kafka_timestamp_ms bigint"
)
LETTERS = f"{RAW_FORMAT}, error_class string, kafka_batch string"
"""The raw format's columns, in its order, then the cause, and the batch from the path.

A file that lacks one, as another version may have written it, has nulls there.
"""

TAKEN_UP = "array<struct<batch: string, topic: string, partition: int, first: bigint, end: bigint, cause: string>>"


def root_of(file: Place, batch_id: UUID) -> Place:
    """Return the output of dead letters that a batch's file is in; there may be folders between it and the batch's."""
    folder = file.parent
    while not folder.name.endswith(str(batch_id)):
        if folder == folder.parent:
            raise ValueError(f"expected a file below the folder of batch {batch_id}, found {file}")
        folder = folder.parent
    return folder.parent


def dead_letter_records(spark: SparkSession, document: AttemptDocument) -> DataFrame:
    """Return the dead letters that the plan replays, in the raw format's columns (docs/output.md).

    Of each batch's files those letters that the plan names, by range and cause.
    """
    files = [path for _, of_batch in sorted(document.letters.items()) for path in of_batch]
    any_batch, (any_file, *_) = next(iter(document.letters.items()))
    letters = (
        spark.read.schema(LETTERS)
        .option("basePath", spark_path(root_of(any_file, any_batch)))
        .parquet(*(spark_source(path) for path in files))
    )
    taken_up = [
        {
            "batch": str(each.batch_id),
            "topic": each.topic_partition.topic,
            "partition": each.topic_partition.partition,
            "first": each.offset_range.start_offset,
            "end": each.offset_range.end_offset,
            "cause": cause,
        }
        for each in document.plan.replays
        for cause, _ in each.records
    ]
    # As one text that Spark parses: there may be thousands of ranges, too many for a condition.
    rows = spark.range(1).select(f.expr(f"inline(from_json({text(json.dumps(taken_up))}, {text(TAKEN_UP)}))"))
    is_taken_up = (
        "letters.kafka_batch = taken_up.batch and letters.kafka_topic = taken_up.topic "
        "and letters.kafka_partition = taken_up.partition and letters.kafka_offset >= taken_up.first "
        "and letters.kafka_offset < taken_up.`end` and letters.error_class = taken_up.cause"
    )
    found = letters.alias("letters").join(f.broadcast(rows.alias("taken_up")), f.expr(is_taken_up), "left_semi")
    found = found.drop("error_class", BATCH_COLUMN)
    return found.selectExpr("*", f"'{document.plan.batch_id}' as kafka_batch") if document.data.batch_column else found
