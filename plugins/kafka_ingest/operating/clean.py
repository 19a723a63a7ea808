"""Remove the staged output of ended attempts: by retention, or one batch's on an operator's request."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.batches.used_output import check_output_there
from kafka_ingest.errors import BatchStateError, InvalidReceiptError, KafkaUnavailableError, OutputUnavailableError
from kafka_ingest.model.batch import Attempt, AttemptState, Batch, BatchPlan, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.identity import is_other_topic
from kafka_ingest.model.offset_sets import subtract
from kafka_ingest.model.offsets import OffsetRange, Unavailable, listing
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sinks


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """What an ended attempt left in an output's staging.

    ``kept`` is why it stays, None where it may be removed; ``failed``: its removal failed.
    """

    batch: Batch
    attempt: Attempt
    target: OutputLocation
    size_bytes: int = 0
    kept: str | None = None
    failed: bool = False


def staged_outputs(
    feed: FeedSnapshot,
    output: OutputLocation,
    control: ControlTables,
    kafka: KafkaCluster,
    sinks: Sinks,
    *,
    ended_before: datetime,
) -> Iterator[StagedOutput]:
    """Yield what is staged in attempts that ended before a time: of finished and abandoned batches, and discarded ones.

    Open attempts of open batches and published files are never among them. Files with a valid receipt stay if they are
    the last copy of offsets that were never committed and that Kafka no longer holds. ``output`` is the feed's current
    one; raises OutputUnavailableError where it is not available.
    """
    check_output_there(feed.feed_id, output, control, sinks)
    for attempt in control.ended_attempts(feed.feed_id, ended_before=ended_before):
        batch = control.batch(attempt.batch_id)
        yield from staged_output(
            batch,
            attempt,
            sinks,
            (batch.plan.output, output),
            lambda plan, written: last_copy(plan, written, control, kafka),
        )


def staged_outputs_of_batch(batch_id: UUID, control: ControlTables, sinks: Sinks) -> list[StagedOutput]:
    """Return what a batch's ended attempts staged, last copies included; raises BatchStateError on an open batch.

    Discarded attempts of an open batch have ended, too.
    """
    batch = control.batch(batch_id)
    over = [
        attempt
        for attempt in control.attempts(batch_id)
        if not batch.state.is_open or attempt.state is AttemptState.DISCARDED
    ]
    if batch.state.is_open and not over:
        raise BatchStateError(
            f"batch {batch_id} is {batch.state}: its staged output is still needed. Nothing was removed. Finish it "
            f"(run the feed), or abandon it first: `kafka-ingest abandon {batch_id} --reason …`."
        )
    return [
        staged
        for attempt in over
        for staged in staged_output(batch, attempt, sinks, (batch.plan.output,), lambda *_: None)
    ]


def staged_output(
    batch: Batch,
    attempt: Attempt,
    sinks: Sinks,
    outputs: Sequence[OutputLocation],
    why_kept: Callable[[BatchPlan, Sequence[OffsetRange]], str | None],
) -> Iterator[StagedOutput]:
    """Yield what an attempt's directory holds; nothing where it was removed and not created again."""
    target = next(
        (
            each
            for each in outputs
            if sinks(each).staging.attempt_directory(batch.batch_id, attempt.attempt) == attempt.directory
        ),
        None,
    )
    if target is None:
        where = f"{attempt.directory} is not where the output keeps its attempts: it was moved. Remove it by hand."
        yield StagedOutput(batch, attempt, batch.plan.output, kept=where)
        return
    sink = sinks(target)
    try:
        size_bytes, receipt = sink.staging.size_bytes(attempt.directory), sink.staging.read_receipt(attempt.directory)
    except OutputUnavailableError as error:
        # A former output may be gone with its storage; that is no failure.
        is_present = target == outputs[-1]
        yield StagedOutput(batch, attempt, target, kept=str(error), failed=is_present)
        return
    if not size_bytes and attempt.cleaned_at is not None:
        return
    written = ranges_written(attempt, batch.plan, receipt) if batch.state is not BatchState.COMMITTED else ()
    yield StagedOutput(batch, attempt, target, size_bytes, why_kept(batch.plan, written) if written else None)


def clean_up(found: Iterable[StagedOutput], control: ControlTables, sinks: Sinks) -> Iterator[StagedOutput]:
    """Remove what may be removed, and yield everything; what cannot be removed now is kept, with the reason."""
    for staged in found:
        try:
            if staged.kept is None:
                sinks(staged.target).staging.remove(staged.attempt.directory)
                # Afterwards, so that nothing remains that the control tables call removed.
                control.note_cleaned(staged.attempt)
        except OutputUnavailableError as error:
            yield replace(staged, kept=str(error), failed=True)
        else:
            yield staged


def ranges_written(attempt: Attempt, plan: BatchPlan, content: bytes | None) -> tuple[OffsetRange, ...]:
    """Return which of a plan's ranges an attempt has written; none where its receipt could not be pinned."""
    try:
        return valid_receipt(plan, attempt, content).ranges_read(plan)
    except InvalidReceiptError:
        return ()


def last_copy(
    plan: BatchPlan, written: Sequence[OffsetRange], control: ControlTables, kafka: KafkaCluster
) -> str | None:
    """Return which offsets staged files may be the last copy of, None where all are committed or still in Kafka."""
    if not plan.kind.reads_kafka:
        return None  # its records are still in the files that it read them from
    missing = subtract(written, control.committed_ranges(plan.batch_id))
    if not missing:
        return None
    try:
        missing = subtract(missing, ranges_in_kafka(plan, missing, kafka))
    except KafkaUnavailableError as error:
        return f"whether Kafka still holds its offsets is not known: {error}"
    if not missing:
        return None
    return f"the last copy of {listing(missing)}: neither committed nor in Kafka any more"


def ranges_in_kafka(plan: BatchPlan, ranges: list[OffsetRange], kafka: KafkaCluster) -> list[OffsetRange]:
    """Return what Kafka still holds of a plan's partitions: nothing of another cluster or of a recreated topic.

    Raises KafkaUnavailableError where Kafka does not answer.
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
