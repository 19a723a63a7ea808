"""The first half of the write task: find out whether Spark is needed at all, and open an attempt if it is."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from kafka_ingest.batches.ask_kafka import ask_about_plan
from kafka_ingest.batches.fitting_columns import AS_RAW, NO_RULES, ColumnRules, FittingColumns, fitting_columns
from kafka_ingest.batches.freeze_schemas import Freeze, as_it_is, found_ids
from kafka_ingest.batches.pin_receipt import pin_first_valid_receipt
from kafka_ingest.errors import (
    BatchStateError,
    FeedChangedError,
    KafkaUnavailableError,
    RangeNotInLogError,
    RecordsDeletedError,
)
from kafka_ingest.model.batch import (
    Attempt,
    AttemptDocument,
    AttemptState,
    Batch,
    BatchKind,
    BatchPlan,
    BatchState,
    sha256,
)
from kafka_ingest.model.completion import Unit
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.decoding import RAW, Decoding
from kafka_ingest.model.hold import beyond_log
from kafka_ingest.model.offsets import LogBounds, listing, ranges_outside_log
from kafka_ingest.model.partition_term import LateRows
from kafka_ingest.model.place import Place
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.ports.parts import REPLAY_DEAD_LETTERS, Parts, role_of

log = logging.getLogger(__name__)

TRIES = 5


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


def files_to_replay(
    plan: BatchPlan, sinks: Sinks, directory: Place, *, bring: bool = False
) -> Mapping[UUID, tuple[Place, ...]]:
    """Return the files of dead letters that an attempt replays, by the batches that published them; of others, none.

    With ``bring`` those are written that are to be in the attempt's ``directory``.

    Raises OutputUnavailableError where one is missing, RecordsDeletedError where an operator gave the letters up since
    the plan.
    """
    if not plan.replays:
        return {}
    output = output_of_dead_letters(plan.output)
    reader = role_of(output, sinks(output).dead_letters, REPLAY_DEAD_LETTERS)
    try:
        batch_ids = sorted({each.batch_id for each in plan.replays})
        for batch_id in batch_ids if bring else ():
            reader.bring(batch_id, directory)
        return {batch_id: reader.files(batch_id, directory) for batch_id in batch_ids}
    except BatchStateError as error:
        raise RecordsDeletedError(
            f"batch {plan.batch_id} cannot replay what was planned: {error} Nothing was moved. Abandon it "
            f"(`kafka-ingest abandon {plan.batch_id} --reason …`), and replay what is left."
        ) from error


def open_attempt(
    batch_id: UUID,
    parts: Parts,
    *,
    actor: str,
    decoding: Decoding = RAW,
    freeze: Freeze = as_it_is,
    rules: ColumnRules = NO_RULES,
    late_by: Unit | None = None,
) -> Attempt | None:
    """Open the batch's next attempt, or return None where its records are written already.

    The attempt's row is durable before its directory is made, so that a receipt is always found through its row. Asks
    Kafka just before the read whether the plan can be read as it is: the same topics, and no offset deleted.
    ``late_by``: rows of its hours or days that are complete now go to a dataset of their own; not those of backfills.
    ``decoding`` is frozen with the attempt, after ``freeze`` has asked for its schemas. Raises BatchStateError on an
    abandoned batch, ColumnsChangedError where the columns do not go with those of the output's files, and what
    ``freeze`` raises.
    """
    for _ in range(TRIES):
        batch = parts.control.batch(batch_id)
        if batch.state is BatchState.ABANDONED:
            raise BatchStateError(
                f"batch {batch_id} {batch.end}; it will not be written. The next run plans a new one."
            )
        if batch.state is not BatchState.PLANNED or pin_first_valid_receipt(batch, parts, actor=actor):
            return None
        check_readable(batch, parts)
        frozen = with_schemas(batch, parts, decoding, freeze) if decoding.has_sources else decoding
        fitting = fitting_columns(batch, frozen, parts, rules)
        attempt, document = attempt_and_document(batch, parts, actor, fitting, late_by)
        try:
            parts.control.open_attempt(attempt)
        except (FeedChangedError, BatchStateError) as error:
            log.info("%s", error)  # another process opened, wrote or abandoned it: check again
            continue
        parts.sinks(batch.plan.output).staging.open_attempt(attempt.directory, document)
        files_to_replay(batch.plan, parts.sinks, attempt.directory, bring=True)
        return attempt
    raise FeedChangedError(
        f"batch {batch_id}: {TRIES} times another process opened an attempt at the same time; try again"
    )


def with_schemas(batch: Batch, parts: Parts, decoding: Decoding, freeze: Freeze) -> Decoding:
    """Return what an attempt decodes with: also by the schema ids that earlier ones found, and could not ask for."""
    staging = parts.sinks(batch.plan.output).staging
    failures = [staging.read_failure(attempt.directory) or "" for attempt in parts.control.attempts(batch.batch_id)]
    return freeze(decoding, {each.topic for each in batch.plan.ranges}, found_ids(failures))


def attempt_and_document(
    batch: Batch, parts: Parts, actor: str, fitting: FittingColumns = AS_RAW, late_by: Unit | None = None
) -> tuple[Attempt, bytes]:
    number = max((attempt.attempt for attempt in parts.control.attempts(batch.batch_id)), default=0) + 1
    sink = parts.sinks(batch.plan.output)
    directory = sink.staging.attempt_directory(batch.batch_id, number)
    needs = sink.publisher.data_needs(directory)
    if late_by is not None and batch.plan.kind is BatchKind.LIVE:
        if sink.check_late is not None:
            sink.check_late()
        complete = parts.control.complete_span(batch.plan.feed_id, late_by)
        needs = replace(needs, late=LateRows(first=complete[0], before=complete[1]) if complete else None)
    letters = files_to_replay(batch.plan, parts.sinks, directory)
    document = AttemptDocument(batch.plan, number, fitting.decoding, needs, letters, fitting.columns).as_bytes()
    attempt = Attempt(
        batch_id=batch.batch_id,
        attempt=number,
        state=AttemptState.OPEN,
        directory=directory,
        document_sha256=sha256(document),
        opened_at=datetime.now(UTC),
        opened_by=actor,
    )
    return attempt, document
