"""Rows that an output refuses become dead letters, where the feed says so: by another attempt, before a commit.

The rows of a WRITTEN batch are tried in the output. Where it refuses some, these are noted beside the attempt, and the
batch goes back to PLANNED; the next attempt has made dead letters of their records. So what is committed, counted and
replayed is what every other receipt says. A note that a crash has lost is made again, as the rows are tried again.
"""

import json
import logging
from collections.abc import Sequence
from itertools import takewhile
from uuid import UUID

from kafka_ingest.batches.ask_kafka import ask_about_plan
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import (
    BatchStateError,
    KafkaIngestError,
    KafkaUnavailableError,
    OperatorDecisionError,
    OutputConflictError,
    OutputUnavailableError,
    TooManyDeadLettersError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Attempt, AttemptState, BatchPlan, BatchState
from kafka_ingest.model.control_rows import RESTORED_BY
from kafka_ingest.model.offsets import OffsetRange, Unavailable, listing, ranges_outside_log
from kafka_ingest.model.omissions import MOST_REFUSED, RefusedRows, refused_by_cause
from kafka_ingest.model.place import FailureCode, read_code
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.parts import Parts

log = logging.getLogger(__name__)

REFUSES = "the output refuses"
"""How the reason of an attempt begins that was taken back."""

CHANGE_THE_TABLE = (
    "Nothing was published and no offset was moved. Change the table's constraint, or the rows that are in the way, "
    "and run it again"
)


def refused_before(batch_id: UUID, parts: Parts) -> tuple[RefusedRows, ...]:
    """Return the rows that the output has refused of a batch's newest attempts."""
    attempts = taken_back(parts.control.attempts(batch_id))
    if not attempts:
        return ()
    staging = parts.sinks(parts.control.batch(batch_id).plan.output).staging
    noted = [each for attempt in attempts for each in read_note(staging.read_failure(attempt.directory) or "")]
    return refused_by_cause((each.topic_partition, offset, each.cause) for each in noted for offset in each.offsets)


def taken_back(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the newest of a batch's attempts, while their rows were refused.

    Those before one that was discarded for another reason do not count: the table may have been changed since.
    """
    ended = [each for each in attempts if each.state is AttemptState.DISCARDED]
    newest = takewhile(lambda each: (each.reason or "").startswith(REFUSES), reversed(ended))
    return list(newest)[::-1]


def read_note(failure: str) -> list[RefusedRows]:
    """Return the rows that a note names; none where it says something else, or a crash cut it off."""
    code, named = read_code(failure)
    try:
        return list(map(RefusedRows.from_document, json.loads(named))) if code is FailureCode.ROWS_REFUSED else []
    except ValueError:
        return []


def take_back(batch_id: UUID, parts: Parts, *, actor: str) -> bool:
    """Whether a batch is PLANNED again, since the output refuses rows of what was written: WRITTEN → PLANNED.

    What else is wrong with a batch, the commit names. A restored batch may be the last copy of its records, and a
    replacement has a row for each one that it replaces: their refused rows stop the commit. Raises
    TooManyDeadLettersError, OutputConflictError where Kafka may not have all of its records any more, and
    OutputUnavailableError or KafkaUnavailableError; the batch stays WRITTEN then.
    """
    batch = parts.control.batch(batch_id)
    sink = parts.sinks(batch.plan.output)
    if sink.refused is None or batch.state is not BatchState.WRITTEN or batch.plan.replaces:
        return False
    if batch.planned_by.startswith(RESTORED_BY):
        return False
    attempt = next(each for each in parts.control.attempts(batch_id) if each.attempt == batch.pinned_attempt)
    try:
        receipt = valid_receipt(batch.plan, attempt, sink.staging.read_receipt(attempt.directory))
        found = sink.refused(attempt.directory, receipt)
    except OutputUnavailableError:
        raise
    except KafkaIngestError as error:
        log.warning("batch %s: its rows were not tried, the commit says why: %s", batch_id, error)
        return False
    if not found:
        return False
    number = sum(len(each.offsets) for each in found)
    if number > MOST_REFUSED:
        raise TooManyDeadLettersError(
            f"batch {batch_id}: expected {batch.plan.output} to refuse at most {MOST_REFUSED:,} of its "
            f"{counted(receipt.rows, 'row')}, found more: {listing(map(str, found))}. {CHANGE_THE_TABLE}; or "
            f"let where leave such records out, and abandon the batch: `kafka-ingest abandon {batch_id} --reason …`."
        )
    if lost := why_not_again(batch.plan, receipt.ranges_read(batch.plan), parts.kafka):
        raise OutputConflictError(
            f"batch {batch_id}: {batch.plan.output} refuses {listing(map(str, found))}. Expected Kafka to have all of "
            f"its records still, so that they can be written again without these rows; found: {lost} The batch stays "
            f"WRITTEN: its staged files may be the last copy. {CHANGE_THE_TABLE}; or abandon it, and with it what "
            f"Kafka has lost: `kafka-ingest abandon {batch_id} --reason …`."
        )
    sink.staging.note_failure(
        attempt.directory,
        FailureCode.ROWS_REFUSED.says(json.dumps([each.as_document() for each in found], ensure_ascii=False)),
    )
    reason = f"{REFUSES} {counted(number, 'row')}, which become dead letters: {listing(map(str, found))}"
    try:
        parts.control.discard_written(batch_id, attempt.attempt, reason=reason, actor=actor)
    except BatchStateError as error:
        log.info("%s", error)  # another process found the same, or commits it
        return parts.control.batch(batch_id).state is BatchState.PLANNED
    log.warning("batch %s: attempt %d is discarded: %s", batch_id, attempt.attempt, reason)
    return True


def why_not_again(plan: BatchPlan, ranges: tuple[OffsetRange, ...], kafka: KafkaCluster) -> str:
    """Return why another attempt may not read all that the first one read, as a sentence; empty where it will.

    A live batch can be read without ranges that retention has reached; these would be lost here. So would the records
    that compaction removes. Raises KafkaUnavailableError where Kafka cannot answer for one of its partitions.
    """
    if not plan.kind.reads_kafka:
        return ""
    answers = ask_about_plan(plan, kafka)
    try:
        check_cluster(plan.cluster_id, answers.cluster_id, plan.feed_name)
        check_topic_ids(plan.topic_ids, answers.topics, plan.feed_name)
    except OperatorDecisionError as error:
        return str(error)
    if problems := ranges_outside_log(ranges, answers.bounds, plan.isolation):
        return f"{listing(problems)}."
    if answers.unanswered:
        raise KafkaUnavailableError(
            f"batch {plan.batch_id}: its output refuses rows, and Kafka cannot answer for {listing(answers.unanswered)}"
            ", so it is not known whether their records can be read again. No offset was moved. Check the brokers and "
            "run it again."
        )
    for topic, kept in sorted(kafka.retentions({each.topic for each in ranges}).items()):
        if isinstance(kept, Unavailable):
            return (
                f"whether topic {topic!r} is compacted is not known ({kept.reason}); it needs the right "
                "DESCRIBE_CONFIGS."
            )
        if kept.compacts:
            return f"topic {topic!r} is compacted, which may have removed some."
    return ""
