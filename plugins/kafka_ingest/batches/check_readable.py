"""Before a read and after a failed one: whether Kafka still has what a batch was planned to read."""

from datetime import UTC, datetime

from kafka_ingest.batches.ask_kafka import ask_about_plan
from kafka_ingest.errors import KafkaUnavailableError, RangeNotInLogError, RecordsDeletedError
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan
from kafka_ingest.model.hold import beyond_log
from kafka_ingest.model.identity import check_cluster, check_topic_ids
from kafka_ingest.model.offsets import LogBounds, listing, ranges_outside_log
from kafka_ingest.ports.parts import Parts


def check_readable(batch: Batch, parts: Parts) -> None:
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
    answers = ask_about_plan(plan, parts.kafka)
    check_cluster(plan.cluster_id, answers.cluster_id, batch.feed_name)
    check_topic_ids(plan.topic_ids, answers.topics, batch.feed_name)
    # Only a live batch begins at stored offsets.
    for planned in plan.ranges if plan.kind is BatchKind.LIVE else ():
        found = answers.bounds[planned.topic_partition]
        if isinstance(found, LogBounds) and planned.start_offset > found.high_watermark:
            # Recorded now, because the next plan may not see it: the log may have grown again by then.
            hold = beyond_log(planned.topic_partition, planned.start_offset, found.high_watermark, datetime.now(UTC))
            parts.control.hold(plan.feed_id, hold)
    if problems := ranges_outside_log(answers.ranges_to_read(plan), answers.bounds, plan.isolation):
        error = RangeNotInLogError if plan.kind is BatchKind.LIVE else RecordsDeletedError
        raise error(
            f"batch {plan.batch_id} cannot be read as planned: {listing(problems)}. No offset was moved. "
            f"{plan_again(plan)}"
        )
    if unanswered := answers.unanswered:
        raise KafkaUnavailableError(
            f"batch {plan.batch_id} cannot be read now, Kafka cannot answer for {listing(unanswered)}. No offset was "
            "moved. Check the brokers, or run the feed again: the plan continues with other partitions if they can be "
            "read."
        )


def plan_again(plan: BatchPlan) -> str:
    """Return what to do about a batch that cannot be read as planned."""
    if plan.kind is BatchKind.LIVE:
        return "Run the feed again: the plan abandons this batch, and continues or stops as on_data_loss says."
    return (
        f"Abandon it (`kafka-ingest abandon {plan.batch_id} --reason …`) and plan the {plan.kind} again: "
        "the new plan shows what is left."
    )
