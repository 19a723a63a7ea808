"""Before a read and after a failed one: whether Kafka still has what a batch was planned to read."""

from collections.abc import Mapping
from datetime import UTC, datetime

from kafka_ingest.batches.check_identity import check_identity
from kafka_ingest.batches.truncation import bounds_as_planned
from kafka_ingest.errors import KafkaUnavailableError, RangeNotInLogError, RecordsDeletedError
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan
from kafka_ingest.model.hold import beyond_log
from kafka_ingest.model.left_out import log_starts_of, ranges_read, to_leave_out
from kafka_ingest.model.offsets import LogBounds, OffsetRange, TopicPartition, Unavailable, listing, ranges_outside_log
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables


def check_readable(batch: Batch, control: ControlTables, kafka: KafkaCluster) -> None:
    """Ask Kafka whether a batch can be read as planned; of a live one, the ranges without deleted records suffice.

    Raises WrongClusterError, TopicGoneError or TopicRecreatedError where its offsets now mean other records,
    RangeNotInLogError where records of all ranges were deleted or a range holds other records, and
    KafkaUnavailableError where a partition has no leader; the next plan decides about the batch. A backfill's chunk is
    not planned again: it is read as planned, or RecordsDeletedError is raised. Of a batch that does not read Kafka,
    nothing is asked.
    """
    plan = batch.plan
    if not plan.kind.reads_kafka:
        return
    check_identity(batch, kafka)
    bounds = kafka.log_bounds([offset_range.topic_partition for offset_range in plan.ranges])
    bounds = bounds_as_planned(plan, bounds, kafka)
    # Only a live batch begins at stored offsets.
    for planned in plan.ranges if plan.kind is BatchKind.LIVE else ():
        found = bounds[planned.topic_partition]
        if isinstance(found, LogBounds) and planned.start_offset > found.high_watermark:
            # Recorded now, because the next plan may not see it: the log may have grown again by then.
            hold = beyond_log(planned.topic_partition, planned.start_offset, found.high_watermark, datetime.now(UTC))
            control.hold(plan.feed_id, hold)
    if problems := ranges_outside_log(ranges_to_read(plan, bounds), bounds, plan.isolation):
        error = RangeNotInLogError if plan.kind is BatchKind.LIVE else RecordsDeletedError
        raise error(
            f"batch {plan.batch_id} cannot be read as planned: {listing(problems)}. No offset was moved. "
            f"{plan_again(plan)}"
        )
    unanswered = [f"{tp}: {found.reason}" for tp, found in sorted(bounds.items()) if isinstance(found, Unavailable)]
    if unanswered:
        raise KafkaUnavailableError(
            f"batch {plan.batch_id} cannot be read now, Kafka cannot answer for {listing(unanswered)}. No offset was "
            "moved. Check the brokers, or run the feed again: the plan continues with other partitions if they can be "
            "read."
        )


def ranges_to_read(
    plan: BatchPlan, bounds: Mapping[TopicPartition, LogBounds | Unavailable]
) -> tuple[OffsetRange, ...]:
    """Return the ranges that an attempt reads now: all, except those that a live batch may leave out (`rounds.py`)."""
    if plan.kind is not BatchKind.LIVE:
        return plan.ranges
    return ranges_read(plan.ranges, to_leave_out(plan.ranges, log_starts_of(bounds)))


def plan_again(plan: BatchPlan) -> str:
    """Return what to do about a batch that cannot be read as planned."""
    if plan.kind is BatchKind.LIVE:
        return "Run the feed again: the plan abandons this batch, and continues or stops as on_data_loss says."
    return (
        f"Abandon it (`kafka-ingest abandon {plan.batch_id} --reason …`) and plan the {plan.kind} again: "
        "the new plan shows what is left."
    )
