"""Why a write failed: Kafka is asked what became of the batch's ranges, and what Spark said is searched for the rest."""

import re
from datetime import UTC, datetime

from kafka_ingest.batch import Attempt, BatchPlan
from kafka_ingest.boundaries import ControlTables, KafkaCluster, Sinks
from kafka_ingest.errors import PartitionUnreadableError, RangeNotInLogError
from kafka_ingest.hold import Hold, HoldCause
from kafka_ingest.identity import check_identity
from kafka_ingest.offsets import TopicPartition, listing, ranges_outside_log


def check_readable(plan: BatchPlan, kafka: KafkaCluster) -> None:
    """Ask Kafka whether a plan can be read as it is.

    Raises WrongClusterError, TopicGoneError or TopicRecreatedError where its offsets mean other records by now, and
    RangeNotInLogError where some are deleted; the next plan decides what becomes of the batch.
    """
    check_identity(plan, kafka)
    bounds = kafka.log_bounds([offset_range.topic_partition for offset_range in plan.ranges])
    if problems := ranges_outside_log(plan.ranges, bounds, plan.isolation):
        raise RangeNotInLogError(
            f"batch {plan.batch_id} cannot be read as it was planned: {listing(problems)}. No offset was moved. Run the feed "
            "again: the plan gives this batch up, and goes on or stops as on_data_loss says."
        )


def explain_failure(attempt: Attempt, control: ControlTables, kafka: KafkaCluster, sinks: Sinks) -> None:
    """Raise the named error behind a failed Spark run; return where there is none to be found.

    A record that Kafka holds and no consumer can read is noted as a hold, so that the next plan ends before it.
    """
    plan = control.batch(attempt.batch_id).plan
    check_readable(plan, kafka)
    failure = sinks(plan).read_failure(attempt.directory) or ""
    found = unreadable_position(failure, plan)
    if found is None:
        return
    topic_partition, offset = found
    reasons = kafka.unreadable_at({topic_partition: offset})
    if topic_partition not in reasons:
        return
    reason = f"the record at offset {offset:,} cannot be read ({reasons[topic_partition]})"
    control.hold(
        plan.feed_id,
        Hold(topic_partition.topic, topic_partition.partition, HoldCause.UNREADABLE, reason, datetime.now(UTC), offset),
    )
    raise PartitionUnreadableError(
        f"{topic_partition}: {reason}. No offset was moved. Run the feed again: the plan ends before that offset, and the other "
        "partitions go on. Mend the broker's log, or jump over the interval: "
        f"`kafka-ingest skip {plan.feed_name} {topic_partition.topic} {topic_partition.partition} {offset}-TO --reason …`."
    )


def unreadable_position(failure: str, plan: BatchPlan) -> tuple[TopicPartition, int] | None:
    """Return the position that Spark's consumer stumbled over, where its message names one of the plan."""
    for match in UNREADABLE.finditer(failure):
        topic_partition = TopicPartition(match["topic"], int(match["partition"]))
        offset = int(match["offset"])
        for offset_range in plan.ranges:
            if offset_range.topic_partition == topic_partition and offset < offset_range.end_offset:
                return topic_partition, max(offset, offset_range.start_offset)
    return None


UNREADABLE = re.compile(
    r"(?:partition|record from) (?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]+) at offset (?P<offset>[0-9]+)"
)
"""How the Java consumer says it: org.apache.kafka.clients.consumer.internals.CompletedFetch."""
