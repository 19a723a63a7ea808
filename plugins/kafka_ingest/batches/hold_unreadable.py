"""Hold partitions at records that cannot be read, so that the next plan ends before these."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NoReturn

from kafka_ingest.errors import PartitionUnreadableError
from kafka_ingest.model.batch import Batch, BatchKind
from kafka_ingest.model.heap import Heap
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.large_record import too_large
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables


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
