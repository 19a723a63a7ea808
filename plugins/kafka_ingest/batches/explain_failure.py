"""Why a write failed: Kafka is asked about the batch's ranges, and Spark's output is searched for other causes."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NoReturn

from kafka_ingest.batches.open_attempt import check_readable
from kafka_ingest.errors import (
    InstallationError,
    InvalidExpressionError,
    InvalidSchemaError,
    KafkaAccessDeniedError,
    KafkaIngestError,
    KafkaLoginRefusedError,
    KafkaTlsRefusedError,
    PartitionUnreadableError,
    SchemaIdsUnknownError,
    SparkExecutorsMissingError,
    TooManyTablePartitionsError,
)
from kafka_ingest.model.batch import Attempt, Batch, BatchKind, BatchPlan
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import TopicPartition, Unavailable, listing
from kafka_ingest.model.place import FailureCode, read_code
from kafka_ingest.model.spark_settings import Heap, too_large
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.parts import Parts


def hold_too_large(batch: Batch, heap: Heap, control: ControlTables, kafka: KafkaCluster) -> None:
    """Hold the partitions whose records are to blame for Spark's lack of memory; return where there is none."""
    if not batch.plan.kind.reads_kafka:
        return
    blamed = too_large(kafka.large_records(batch.plan.ranges, batch.plan.isolation), heap.surely_fits)
    if not blamed:
        return
    reasons = {tp: (record.offset, f"Spark has too little memory for {record}") for tp, record in blamed.items()}
    needed = heap.size_for(max(record.size for record in blamed.values()))
    hold_unreadable(batch, reasons, control, f"Raise {heap.setting} in the feed's spark.conf to {needed}")


def hold_unreadable(
    batch: Batch, found: Mapping[TopicPartition, tuple[int, str]], control: ControlTables, remedy: str
) -> NoReturn:
    """Hold partitions at an offset each, for a reason, and raise PartitionUnreadableError.

    A backfill reads what it was asked for: its partitions are not held.
    """
    plan, skips = batch.plan, []
    reasons = listing(f"{tp}: {reason}" for tp, (_, reason) in sorted(found.items()))
    if plan.kind is not BatchKind.LIVE:
        raise PartitionUnreadableError(
            f"{reasons}. {remedy}, or abandon this {plan.kind} (`kafka-ingest abandon {plan.batch_id} "
            "--reason …`) and plan it again without that offset."
        )
    for tp, (offset, reason) in sorted(found.items()):
        control.hold(
            plan.feed_id, Hold(tp.topic, tp.partition, HoldCause.UNREADABLE, reason, datetime.now(UTC), offset)
        )
        skips.append(f"`kafka-ingest skip {batch.feed_name} {tp.topic} {tp.partition} {offset}-TO --reason …`")
    raise PartitionUnreadableError(
        f"{reasons}. No offset was moved. Run the feed again: the plan ends before that offset, and the other "
        f"partitions continue. {remedy}, or skip the interval: {listing(skips)}."
    )


def explain_failure(attempt: Attempt, parts: Parts) -> None:
    """Raise the named error behind a failed Spark run; return where none is found.

    A record that Kafka holds and no consumer can read is recorded as a hold, so that the next plan ends before it.
    """
    batch = parts.control.batch(attempt.batch_id)
    plan = batch.plan
    failure = parts.sinks(plan.output).staging.read_failure(attempt.directory) or ""
    which = f"attempt {attempt.attempt} of batch {plan.batch_id}"
    match read_code(failure):
        case FailureCode.NO_EXECUTORS, found:
            raise SparkExecutorsMissingError(
                f"{which}: {found}. Nothing was read and no offset was moved. Free cores or memory on the cluster, or "
                "raise the limit; the next try starts again."
            )
        case FailureCode.TOO_MANY_TABLE_PARTITIONS, found:
            raise TooManyTablePartitionsError(
                f"{which}: {found}. Nothing was staged and no offset was moved. Abandon the batch (`kafka-ingest "
                f"abandon {plan.batch_id} --reason …`), and either set limits.max_records so that a batch has fewer of "
                "them (a batch never has more of them than records), or give the feed a new sink.path and a table that "
                "is partitioned by less."
            )
        case FailureCode.UNKNOWN_SCHEMA_IDS, found:
            raise SchemaIdsUnknownError(
                f"{which}: expected schema ids that the registry was asked for, found others: {found[:300]}. Nothing "
                "was moved; the next try asks for them."
            )
    check_expressions(failure, which)
    if found_schema := re.search(SCHEMA_REFUSED, failure):
        raise InvalidSchemaError(
            f"{which}: expected an Avro schema that Spark takes, found one "
            f"that it refuses: {found_schema[1].strip()}. Nothing was moved. Correct the schema; the next try asks for "
            "it again."
        )
    if missing := re.search(MODULE_MISSING, failure):
        raise InstallationError(
            f"{which}: expected the Python package of {missing[1]} where "
            "Spark's workers run, found none. Nothing was moved. Install requirements-protobuf.txt, pyspark and "
            "pyarrow for the Python of Spark's machines, with the same versions as here."
        )
    check_readable(batch, parts)
    if refused := refused_by_kafka(failure):
        raise refused
    position = unreadable_position(failure, plan)
    if position is None:
        return
    topic_partition, offset = position
    damage = parts.kafka.unreadable_at({topic_partition: offset}).get(topic_partition)
    if damage is None or isinstance(damage, Unavailable):
        # Readable now, or no answer, which proves nothing about the record.
        return
    reason = f"the record at offset {offset:,} cannot be read ({damage})"
    hold_unreadable(batch, {topic_partition: (offset, reason)}, parts.control, "Repair the broker's log")


def check_expressions(failure: str, what: str) -> None:
    """Raise InvalidExpressionError where an attempt ended since Spark refused an expression of the feed file."""
    code, found = read_code(failure)
    if code is FailureCode.EXPRESSION_REFUSED:
        raise InvalidExpressionError(
            f"{what}: {found[:1_000]}. Nothing was moved. Correct the feed file; `kafka-ingest preview` shows what "
            "is made of real records."
        )


def refused_by_kafka(failure: str) -> KafkaIngestError | None:
    """Return the error where Kafka refused Spark's client a login or a read, though it answered this machine before."""
    for exception, (error, expected) in REFUSED.items():
        if found := re.search(rf"{exception}: (?P<text>[^\n]+)", failure):
            return error(
                f"Kafka refused Spark's client: {found['text'].strip().removesuffix('.')}. Expected {expected} "
                "(docs/security.md). No offset was moved."
            )
    return None


MODULE_MISSING = r"PythonException[\s\S]*?ModuleNotFoundError: No module named '([\w.]{1,100})'"
"""What a worker says that decodes Protobuf without its libraries."""

SCHEMA_REFUSED = (
    r"org\.apache\.(?:avro\.(?:SchemaParseException|AvroTypeException|AvroRuntimeException)|"
    r"spark\.sql\.avro\.IncompatibleSchemaException): ([^\n]+(?:\n[^\n\t]{1,200})?)"
)
"""Java's exceptions about schemas, which come before anything is read."""

REFUSED: Mapping[str, tuple[type[KafkaIngestError], str]] = {
    "TopicAuthorizationException": (KafkaAccessDeniedError, "the right READ on these topics for the connection's user"),
    "GroupAuthorizationException": (KafkaAccessDeniedError, "the right READ on this group for the connection's user"),
    "SaslAuthenticationException": (KafkaLoginRefusedError, "the user and the password of the Kafka connection"),
    "SslAuthenticationException": (
        KafkaTlsRefusedError,
        "an authority, and where brokers ask for one a certificate, that Java accepts as well",
    ),
}
"""Kafka's Java exceptions (org.apache.kafka.common.errors), as Spark's output quotes them."""


def unreadable_position(failure: str, plan: BatchPlan) -> tuple[TopicPartition, int] | None:
    """Return the position at which Spark's consumer failed, where its message names one of the plan."""
    for match in (found for pattern in UNREADABLE for found in pattern.finditer(failure)):
        topic_partition = TopicPartition(match["topic"], int(match["partition"]))
        offset = int(match["offset"])
        for offset_range in plan.ranges:
            if offset_range.topic_partition == topic_partition and offset < offset_range.end_offset:
                return topic_partition, max(offset, offset_range.start_offset)
    return None


UNREADABLE = (
    re.compile(
        r"(?:partition|record from) (?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]+) at offset (?P<offset>[0-9]+)"
    ),
    re.compile(r"offset (?P<offset>[0-9]+) for topic-partition (?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]+)"),
)
"""The Java consumer's messages: CompletedFetch and FetchCollector in org.apache.kafka.clients.consumer.internals."""
