"""Before a read, and after one that failed: whether Kafka can still give what a batch was planned to read."""

from collections.abc import Mapping
from datetime import UTC, datetime

from kafka_ingest.batch import Batch, BatchPlan
from kafka_ingest.boundaries import ControlTables, KafkaCluster
from kafka_ingest.errors import KafkaUnavailableError, RangeNotInLogError
from kafka_ingest.hold import Hold, HoldCause
from kafka_ingest.identity import check_identity
from kafka_ingest.offsets import LogBounds, TopicPartition, Unavailable, listing, ranges_outside_log


def check_readable(batch: Batch, control: ControlTables, kafka: KafkaCluster) -> None:
    """Ask Kafka whether a batch can be read as it is planned.

    Raises WrongClusterError, TopicGoneError or TopicRecreatedError where its offsets mean other records by now,
    RangeNotInLogError where some are deleted, and KafkaUnavailableError where a partition has nobody to read it from; the next
    plan decides what becomes of the batch.
    """
    plan = batch.plan
    check_identity(batch, kafka)
    bounds = kafka.log_bounds([offset_range.topic_partition for offset_range in plan.ranges])
    for hold in beyond_log(plan, bounds):
        # No plan may see it any more when it comes by: the log may have grown again.
        control.hold(plan.feed_id, hold)
    if problems := ranges_outside_log(plan.ranges, bounds, plan.isolation):
        raise RangeNotInLogError(
            f"batch {plan.batch_id} cannot be read as it was planned: {listing(problems)}. No offset was moved. Run the feed "
            "again: the plan gives this batch up, and goes on or stops as on_data_loss says."
        )
    unanswered = [f"{tp}: {found.reason}" for tp, found in sorted(bounds.items()) if isinstance(found, Unavailable)]
    if unanswered:
        raise KafkaUnavailableError(
            f"batch {plan.batch_id} cannot be read now, Kafka cannot answer for {listing(unanswered)}. No offset was moved. Look "
            "at the brokers, or run the feed again: where others of its partitions can be read, the plan goes on with those."
        )


def beyond_log(plan: BatchPlan, bounds: Mapping[TopicPartition, LogBounds | Unavailable]) -> list[Hold]:
    """Return a hold for each range that begins above the end of its log: the log was truncated below a stored offset."""
    return [
        Hold(
            planned.topic,
            planned.partition,
            HoldCause.BEYOND_LOG,
            f"the log ended at {found.high_watermark:,}, below the stored offset {planned.start_offset:,}",
            datetime.now(UTC),
            found.high_watermark,
        )
        for planned in plan.ranges
        if isinstance(found := bounds[planned.topic_partition], LogBounds)
        and planned.start_offset > found.high_watermark
    ]
