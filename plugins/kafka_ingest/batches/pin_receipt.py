"""Pinning: the one way to WRITTEN. The first valid receipt of an open attempt counts, no matter which task finds it."""

import logging
from uuid import UUID

from kafka_ingest.errors import BatchStateError, InvalidReceiptError
from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.model.batch import Attempt, AttemptState, Batch, BatchPlan, BatchState, sha256
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.parts import Parts

log = logging.getLogger(__name__)


def pin_attempt(batch_id: UUID, number: int, parts: Parts) -> Batch:
    """Pin one attempt's receipt and return the batch; another attempt's earlier receipt counts as well.

    Raises InvalidReceiptError where the receipt cannot be used, BatchStateError where the batch was abandoned.
    """
    attempt = next(attempt for attempt in parts.control.attempts(batch_id) if attempt.attempt == number)
    batch = parts.control.batch(batch_id)
    if batch.state is BatchState.PLANNED:
        content = parts.sinks(batch.plan.output).staging.read_receipt(attempt.directory)
        try:
            receipt = valid_receipt(batch.plan, attempt, content)
        except InvalidReceiptError as error:
            raise InvalidReceiptError(f"{error} It is not used; the next try writes the batch again.") from error
        if content is not None and try_to_pin(batch, attempt, receipt, sha256(content), parts):
            log.info("batch %s: attempt %d is pinned, %s rows", batch_id, number, f"{receipt.rows:,}")
        batch = parts.control.batch(batch_id)
    if batch.state in {BatchState.PLANNED, BatchState.ABANDONED}:
        why = f"is PLANNED ({attempt.reason or 'its attempts were discarded'})"
        raise BatchStateError(
            f"batch {batch_id}: the receipt of attempt {number} is refused: the batch "
            f"{batch.end if batch.state is BatchState.ABANDONED else why}. Its files stay invisible."
        )
    return batch


def pin_first_valid_receipt(batch: Batch, parts: Parts, *, actor: str) -> bool:
    """Look through the open attempts of a PLANNED batch, in order, and pin the first valid receipt.

    Returns whether the batch is written now. An unusable receipt is recorded and left in place.
    """
    for attempt in parts.control.attempts(batch.batch_id):
        if attempt.state is not AttemptState.OPEN:
            continue
        content = parts.sinks(batch.plan.output).staging.read_receipt(attempt.directory)
        if content is None:
            continue
        try:
            receipt = valid_receipt(batch.plan, attempt, content)
        except InvalidReceiptError as error:
            log.warning("%s It is not used.", error)
            parts.control.record_event(
                batch.plan.feed_id,
                "receipt_refused",
                actor=actor,
                batch_id=batch.batch_id,
                detail={"attempt": attempt.attempt, "reason": str(error)},
            )
            continue
        if try_to_pin(batch, attempt, receipt, sha256(content), parts):
            log.info("batch %s: attempt %d had written it already", batch.batch_id, attempt.attempt)
            return True
        # Another process was first: it pinned another receipt or abandoned the batch.
        return parts.control.batch(batch.batch_id).state in {
            BatchState.WRITTEN,
            BatchState.COMMITTING,
            BatchState.COMMITTED,
        }
    return False


def try_to_pin(batch: Batch, attempt: Attempt, receipt: Receipt, receipt_sha256: str, parts: Parts) -> bool:
    """Ask Kafka whether the topics are still those of the plan, then pin; False where another process was first.

    Where a topic was recreated, it is unknown which records were read: the batch stays PLANNED, its files are kept.
    """
    check_identity(batch, parts.kafka)
    try:
        parts.control.pin(batch.batch_id, attempt.attempt, receipt, receipt_sha256, receipt.range_counts(batch.plan))
    except BatchStateError as error:
        log.info("%s", error)
        return False
    if receipt.left_out:
        log.warning(
            "batch %s: attempt %d left out %s: Kafka had deleted records of them",
            batch.batch_id,
            attempt.attempt,
            listing(receipt.left_out),
        )
    return True


def check_identity(batch: Batch, kafka: KafkaCluster) -> None:
    """Ask Kafka; raise WrongClusterError, TopicGoneError or TopicRecreatedError unless all ids are as planned.

    A batch that does not read Kafka has nothing to ask: its topics may be gone.
    """
    plan = batch.plan
    if not plan.kind.reads_kafka:
        return
    # After Spark the client is new, and asking for the cluster's id first would take 50 ms.
    described = kafka.describe_topics(plan.topic_ids.keys())
    check_cluster(plan.cluster_id, kafka.cluster_id(), batch.feed_name)
    check_topic_ids(plan.topic_ids, described, batch.feed_name)


def valid_receipt(plan: BatchPlan, attempt: Attempt, content: bytes | None) -> Receipt:
    """Return the receipt in an attempt's directory; raises InvalidReceiptError, with the reason, if unusable."""
    where = f"attempt {attempt.attempt} of batch {plan.batch_id} in {attempt.directory}"
    if content is None:
        raise InvalidReceiptError(
            f"{where}: expected a receipt, found none: Spark ended without finishing its output, or it was removed."
        )
    try:
        receipt = Receipt.from_bytes(content)
    except ForeignJsonError as error:
        raise InvalidReceiptError(f"{where}: its receipt cannot be read ({error}).") from error
    problems = receipt.contradictions(plan) or receipt.not_replayed(plan)
    if receipt.attempt != attempt.attempt:
        problems.append(f"expected attempt {attempt.attempt}, found {receipt.attempt}")
    if receipt.document_sha256 != attempt.document_sha256:
        problems.append(f"expected the attempt document {attempt.document_sha256}, found {receipt.document_sha256}")
    if problems:
        raise InvalidReceiptError(f"{where}: its receipt does not belong to its plan: {'; '.join(problems)}.")
    return receipt
