"""``clean``: remove expired staged output, or one batch's at an operator's request."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from kafka_ingest.assembly import FeedParts, assemble, feed_files, file_of_feed
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import (
    BatchStateError,
    InvalidReceiptError,
    KafkaIngestError,
    KafkaUnavailableError,
    OutputUnavailableError,
    WrongUseError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Attempt, AttemptState, Batch, BatchPlan, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import OffsetRange, Unavailable, listing, subtract
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.topics import is_other_topic
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables, OperatorTables
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import feed_of
from kafka_ingest.verbs.answer import Answer, FittingTable, Line
from kafka_ingest.verbs.request import BatchId, Call, Decided, Deciding, Option, Request, reason_given


class Clean(Request):
    """Remove staged output of finished and abandoned batches and discarded attempts, after sink.staging_retention."""

    verb = command = "clean"
    does = "removes staged output that has expired, or a batch's"
    deciding = Deciding.DRY_RUN
    needs_feed = False

    batch_id: Annotated[
        BatchId,
        Option("This batch alone, at once, last copies included; needs --reason.", flag="--batch", metavar="ID"),
    ] = None

    reason: Annotated[str | None, Option("Why; kept in the audit journal.")] = None

    def answer(self, call: Call) -> Answer:
        decided = self.decided_by_options(call) if call.is_shell else call.decided
        if self.batch_id is not None:
            return clean_batch(call.batch_named(self.batch_id), call.control, call.sinks, decided)
        if call.feed is not None:
            # A contested one may be running all the same: its staged output expires as any other.
            file = file_of_feed(call.feed, call.find_connection)
            found = clean_feed(file.contested or feed_of(file), call.find_connection, only_show=decided is None)
            return answer_of(found, [], executed=decided is not None)
        return clean_all(call.find_connection, only_show=decided is None)

    def decided_by_options(self, call: Call) -> Decided | None:
        """Return the decision; raises WrongUseError where options do not go together: a batch needs a reason."""
        if self.batch_id is not None and call.feed is not None:
            raise WrongUseError("expected a feed or --batch, found both; a batch's id says which feed it is of")
        if self.batch_id is None and self.reason is not None:
            raise WrongUseError("expected --reason with --batch only: without it, sink.staging_retention decides")
        if self.batch_id is None or call.decided is None:
            return call.decided
        return Decided(call.decided.actor, reason_given(self.reason))


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


def clean_all(find_connection: FindConnection, *, only_show: bool) -> Answer:
    found: list[StagedOutput] = []
    errors: list[KafkaIngestError] = []
    for file in feed_files(find_connection):
        if file.error is not None:
            errors.append(file.error)
        feed = file.feed or file.contested
        if feed is None:
            continue
        try:
            found += clean_feed(feed, find_connection, only_show=only_show)
        except KafkaIngestError as error:
            errors.append(error)
    return answer_of(found, errors, executed=not only_show)


def clean_feed(feed: Feed, find_connection: FindConnection, *, only_show: bool) -> list[StagedOutput]:
    """Clean up one feed, or only show what would be removed; one that was never planned has nothing."""
    parts = assemble(feed, find_connection)
    if parts.control.feed(feed.name) is None:
        return []
    found = expired_outputs(parts)
    return list(found if only_show else clean_up(found, parts.control, parts.sinks))


def expired_outputs(parts: FeedParts) -> Iterator[StagedOutput]:
    feed = known_feed(parts.control, parts.feed.name)
    return staged_outputs(
        feed,
        parts.plan_settings.output,
        parts.control,
        parts.kafka,
        parts.sinks,
        ended_before=datetime.now(UTC) - parts.feed.sink.staging_retention,
    )


def clean_batch(batch_id: UUID, control: OperatorTables, sinks: Sinks, decided: Decided | None) -> Answer:
    found = staged_outputs_of_batch(batch_id, control, sinks)
    if decided is not None and found:
        detail = {"reason": decided.reason, "attempts": [staged_document(staged) for staged in found]}
        feed_id = control.batch(batch_id).plan.feed_id
        # Before the files go: a last copy must not vanish without a trace.
        control.record_event(feed_id, "cleaned", actor=decided.actor, batch_id=batch_id, detail=detail)
        found = list(clean_up(found, control, sinks))
    return answer_of(found, [], executed=decided is not None)


def answer_of(found: list[StagedOutput], errors: list[KafkaIngestError], *, executed: bool) -> Answer:
    gone = [staged for staged in found if staged.kept is None]
    freed = sum(staged.size_bytes for staged in gone)
    attempts = [staged_document(staged) for staged in found]
    left_out = [{"code": error.code, "message": str(error), "exit_code": error.exit_code} for error in errors]
    verb = "removed" if executed else "would remove"
    return Answer(
        {"executed": executed, "freed_bytes": freed, "attempts": attempts, "errors": left_out},
        [
            *([staged_table(found, executed=executed)] if found else []),
            *(Line(f"left out: {error.code} {error}", "yellow", aside=True) for error in errors),
            Line(f"{verb} {counted(len(gone), 'attempt')}, {freed / 1e6:,.1f} MB"),
        ],
        max([error.exit_code for error in errors] + [1 for staged in found if staged.failed], default=0),
        only_shown=bool(gone) and not executed,
    )


def staged_table(found: list[StagedOutput], *, executed: bool) -> FittingTable:
    made = FittingTable("staged output", "batch", "feed", "state", "attempt", "MB", "result", numbers=("attempt", "MB"))
    for staged in found:
        fate = f"kept: {staged.kept}" if staged.kept is not None else "removed" if executed else "would be removed"
        batch, size = staged.batch, f"{staged.size_bytes / 1e6:,.1f}"
        made.add_line(batch.batch_id, batch.feed_name, batch.state, str(staged.attempt.attempt), size, fate)
    return made


def staged_document(staged: StagedOutput) -> dict[str, Any]:
    return {
        "feed": staged.batch.feed_name,
        **document_of(staged.batch, "batch_id", "state"),
        **document_of(staged.attempt, "attempt", "directory"),
        **document_of(staged, "size_bytes", "kept", "failed"),
    }
