"""Rows that an output refuses become dead letters, where the feed says so: by another attempt, before a commit.

The rows of a WRITTEN batch are tried in the output. Where it refuses some, these are noted beside the attempt, and the
batch goes back to PLANNED; the next attempt has made dead letters of their records. So what is committed, counted and
replayed is what every other receipt says. A note that a crash has lost is made again, as the rows are tried again.
"""

import json
import logging
from uuid import UUID

from kafka_ingest.batches.check_readable import check_readable
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import BatchStateError, KafkaIngestError, OutputUnavailableError, TooManyDeadLettersError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.attempt_directory import FailureCode, read_code
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import RESTORED_BY
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.refused_rows import MOST_REFUSED, RefusedRows, refused_by_cause
from kafka_ingest.ports.parts import Parts

log = logging.getLogger(__name__)


def refused_before(batch_id: UUID, parts: Parts) -> tuple[RefusedRows, ...]:
    """Return the rows that the output has refused of a batch's earlier attempts."""
    attempts = parts.control.attempts(batch_id)
    if not attempts:
        return ()
    staging = parts.sinks(parts.control.batch(batch_id).plan.output).staging
    noted = [each for attempt in attempts for each in read_note(staging.read_failure(attempt.directory) or "")]
    return refused_by_cause((each.topic_partition, offset, each.cause) for each in noted for offset in each.offsets)


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
    TooManyDeadLettersError, and OutputUnavailableError; the batch stays WRITTEN then, as it does where Kafka
    does not have its records any more.
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
            f"{counted(receipt.rows, 'row')}, found more: {listing(map(str, found))}. Nothing was published and no "
            "offset was moved. Change the table's constraint, or the rows that are in the way, and run it again; or "
            f"let where leave such records out, and abandon the batch: `kafka-ingest abandon {batch_id} --reason …`."
        )
    check_readable(batch, parts)
    sink.staging.note_failure(
        attempt.directory,
        FailureCode.ROWS_REFUSED.says(json.dumps([each.as_document() for each in found], ensure_ascii=False)),
    )
    reason = f"the output refuses {counted(number, 'row')}, which become dead letters: {listing(map(str, found))}"
    try:
        parts.control.discard_written(batch_id, attempt.attempt, reason=reason, actor=actor)
    except BatchStateError as error:
        log.info("%s", error)  # another process found the same, or commits it
        return parts.control.batch(batch_id).state is BatchState.PLANNED
    log.warning("batch %s: attempt %d is discarded: %s", batch_id, attempt.attempt, reason)
    return True
