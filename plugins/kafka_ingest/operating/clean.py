"""Remove the staged output of attempts that are over: by retention, or one batch's because somebody said so."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from kafka_ingest.batch import Attempt, AttemptState, Batch, BatchPlan, BatchState
from kafka_ingest.boundaries import ControlTables, FeedSnapshot, KafkaCluster, Sinks
from kafka_ingest.errors import BatchStateError, InvalidReceiptError, KafkaUnavailableError, OutputUnavailableError
from kafka_ingest.identity import is_other_topic
from kafka_ingest.offsets import OffsetRange, Unavailable, listing, without
from kafka_ingest.submitting.pin_receipt import valid_receipt


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """What an attempt that is over left behind. ``kept`` says why it stays, None where it may go."""

    batch: Batch
    attempt: Attempt
    size_bytes: int
    kept: str | None


def staged_outputs(
    feed: FeedSnapshot, control: ControlTables, kafka: KafkaCluster, sinks: Sinks, *, ended_before: datetime
) -> Iterator[StagedOutput]:
    """Yield what is staged in attempts that ended before a time: of finished and abandoned batches, and discarded ones.

    An open attempt of an open batch is never among them, and nothing that is published. Files with a valid receipt stay where
    they are the last copy of offsets that were never committed and that Kafka holds no more.
    """
    for attempt in control.ended_attempts(feed.feed_id, ended_before=ended_before):
        batch = control.batch(attempt.batch_id)
        sink = sinks(batch.plan)
        size_bytes, kept = 0, None
        try:
            size_bytes = sink.staged_bytes(attempt.directory)
            receipt = sink.read_receipt(attempt.directory)
        except OutputUnavailableError as error:
            kept = str(error)
        else:
            if batch.state is not BatchState.COMMITTED and is_valid(attempt, batch.plan, receipt):
                kept = last_copy(batch.plan, control, kafka)
        yield StagedOutput(batch, attempt, size_bytes, kept)


def staged_outputs_of_batch(batch_id: UUID, control: ControlTables, sinks: Sinks) -> list[StagedOutput]:
    """Return what is staged in one batch's attempts that are over, last copies included; raises BatchStateError on an open one.

    A batch that is open still may have discarded attempts; those are over.
    """
    batch = control.batch(batch_id)
    over = [
        attempt
        for attempt in control.attempts(batch_id)
        if not batch.state.is_open or attempt.state is AttemptState.DISCARDED
    ]
    if batch.state.is_open and not over:
        raise BatchStateError(
            f"batch {batch_id} is {batch.state}: its staged output is still needed. Nothing was removed. Finish it (run the "
            f"feed), or give it up first: `kafka-ingest abandon {batch_id} --reason …`."
        )
    sink = sinks(batch.plan)
    return [StagedOutput(batch, attempt, sink.staged_bytes(attempt.directory), None) for attempt in over]


def clean_up(found: Iterable[StagedOutput], control: ControlTables, sinks: Sinks) -> Iterator[StagedOutput]:
    """Remove what may go, and yield everything; what cannot be removed now is kept, and says why."""
    for staged in found:
        try:
            if staged.kept is None:
                remove(staged, control, sinks)
        except OutputUnavailableError as error:
            yield replace(staged, kept=str(error))
        else:
            yield staged


def remove(staged: StagedOutput, control: ControlTables, sinks: Sinks) -> None:
    """Remove one attempt's directory; the control tables say so afterwards, so that nothing is left that they call removed."""
    sinks(staged.batch.plan).remove_attempt(staged.attempt.directory)
    control.note_cleaned(staged.attempt)


def is_valid(attempt: Attempt, plan: BatchPlan, content: bytes | None) -> bool:
    """Whether an attempt's receipt is one that could be pinned."""
    try:
        valid_receipt(plan, attempt, content)
    except InvalidReceiptError:
        return False
    return True


def last_copy(plan: BatchPlan, control: ControlTables, kafka: KafkaCluster) -> str | None:
    """Return which offsets a plan's staged files may be the last copy of, None where all are committed or in Kafka still."""
    missing = without(plan.ranges, control.committed_ranges(plan.batch_id))
    if not missing:
        return None
    try:
        missing = without(missing, ranges_in_kafka(plan, missing, kafka))
    except KafkaUnavailableError as error:
        return f"whether Kafka still holds its offsets is not known: {error}"
    if not missing:
        return None
    return f"the last copy of {listing(missing)}: neither committed nor in Kafka any more"


def ranges_in_kafka(plan: BatchPlan, ranges: list[OffsetRange], kafka: KafkaCluster) -> list[OffsetRange]:
    """Return what Kafka still holds of a plan's partitions: nothing of another cluster, or of a topic that was made again.

    Raises KafkaUnavailableError where it cannot say.
    """
    if kafka.cluster_id() != plan.cluster_id:
        return []
    described = kafka.describe_topics({offset_range.topic for offset_range in ranges})
    partitions = {
        offset_range.topic_partition
        for offset_range in ranges
        if (topic := described.get(offset_range.topic)) is not None
        and not is_other_topic(plan.topic_ids[offset_range.topic], topic.topic_id)
        and offset_range.partition in topic.partitions
    }
    held: list[OffsetRange] = []
    for topic_partition, found in kafka.log_bounds(partitions).items():
        if isinstance(found, Unavailable):
            raise KafkaUnavailableError(f"{topic_partition}: {found.reason}")
        held.append(OffsetRange(topic_partition, found.log_start_offset, found.high_watermark))
    return held
