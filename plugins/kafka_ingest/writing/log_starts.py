"""Where logs start, asked of Kafka's Java client: Spark's driver has it, and no other."""

import sys
from collections.abc import Mapping, Sequence

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.writing.kafka_records import drivers_consumer, jvm_of
from kafka_ingest.writing.read_ranges import READ_DEFAULTS

ANSWER_WITHIN_S = 30
"""The default of Kafka's own clients (``default.api.timeout.ms`` is a minute): a new leader is found by then."""

CLOSE_WITHIN_S = 5


def log_starts(
    spark: SparkSession, ranges: Sequence[OffsetRange], kafka: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Return the log starts of ranges (ListOffsets, with the right that reading them needs); empty without an answer.

    ``kafka`` holds the Java client's settings.
    """
    jvm = jvm_of(spark)
    wanted = jvm.java.util.ArrayList()
    for offset_range in ranges:
        wanted.add(jvm.org.apache.kafka.common.TopicPartition(offset_range.topic, offset_range.partition))
    try:
        with drivers_consumer(jvm, {**READ_DEFAULTS, **kafka}, CLOSE_WITHIN_S) as consumer:
            found = consumer.beginningOffsets(wanted, jvm.java.time.Duration.ofSeconds(ANSWER_WITHIN_S))
            return {TopicPartition(each.topic(), each.partition()): int(found.get(each)) for each in found.keySet()}
    except (Py4JError, TypeError) as error:
        sys.stderr.write(f"Kafka did not say where the logs start: {error}\n")
        return {}
