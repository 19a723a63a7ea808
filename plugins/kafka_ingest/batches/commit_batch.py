"""The commit task: the order of the commit, in one function."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka_ingest.batches.check_written import check_columns, check_dead_letters, check_density, check_limits
from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.batches.mirror_group import Mirrored, mirror_group
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import (
    BatchStateError,
    InvalidReceiptError,
    KafkaIngestError,
    OutputConflictError,
    RefusedBatchError,
    StagedOutputUnusableError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Attempt, Batch, BatchKind, BatchPlan, BatchState, sha256
from kafka_ingest.model.batch_limits import NO_LIMITS, BatchLimits
from kafka_ingest.model.dead_letters import output_of_dead_letters, staged_dead_letters, where_they_are
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import RangeCount, Receipt
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sink, Sinks
from kafka_ingest.ports.parts import REPLACE_ROWS, Parts, role_of


def publish_dead_letters(batch: Batch, attempt: Attempt, receipt: Receipt, sinks: Sinks) -> None:
    """Make the dead letters of a published batch visible, once; does nothing where that was done."""
    if not receipt.dead_letters:
        return
    letters = sinks(output_of_dead_letters(batch.plan.output))
    publish_letters(batch.plan, staged_dead_letters(attempt.directory), receipt, letters)


def publish_letters(plan: BatchPlan, staged: Place, receipt: Receipt, letters: Sink) -> None:
    letters.publisher.prepare()
    try:
        letters.publisher.publish(staged, PublishedReceipt(plan, receipt.of_dead_letters(), ()))
    except OutputConflictError as error:
        raise OutputConflictError(
            f"batch {plan.batch_id}: its rows are published, but its dead letters cannot be, and no offset was moved. "
            f"Expected them in {staged} or in {where_they_are(plan.output)}; found: "
            f"{str(error).partition('. ')[0].rstrip('.')}. Restore them from a backup and run it again; or "
            "give these dead letters up, for good: "
            f"`kafka-ingest dead-letters {plan.feed_name} --batch {plan.batch_id} --give-up --reason …`."
        ) from error


log = logging.getLogger(__name__)

IN_ONE = ", in one transaction with the stored offsets"

LATER = {
    BatchState.WRITTEN: frozenset({BatchState.COMMITTING, BatchState.COMMITTED, BatchState.ABANDONED}),
    BatchState.COMMITTING: frozenset({BatchState.COMMITTED, BatchState.ABANDONED}),
}
"""The states that a batch may have reached since a commit read it."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit. ``by_us``: whether this caller committed the batch, now or in an earlier recent try."""

    batch: Batch
    counts: tuple[RangeCount, ...]
    by_us: bool
    mirrored: Mirrored
    never_found: int = 0
    """How many fields no record of the batch had that it should have; 0 where an earlier try committed it."""
    in_one: bool = False
    """Whether this call has moved the stored offsets in the output's own transaction."""


def commit_batch(
    batch_id: UUID, parts: Parts, *, group: str | None, actor: str, limits: BatchLimits = NO_LIMITS
) -> Committed:
    """Publish a written batch and move its stored offsets; safe to call again after a crash at any line.

    WRITTEN and COMMITTING batches are committed without asking Kafka; for a COMMITTED one only the group is set.
    """
    control, sinks = parts.control, parts.sinks
    batch, never_found, in_one = control.batch(batch_id), 0, False
    counts: list[RangeCount] | None = None
    refuse_what_cannot_be_committed(batch)

    if batch.state is not BatchState.COMMITTED:
        attempt = pinned_attempt(batch, control)
        sink = sinks(batch.plan.output)
        seen = batch.state
        try:
            # 1. Verify: the output is available, the receipt is the pinned one, the files match it and are on the disk.
            check_output_there(batch.plan.feed_id, batch.plan.output, control, sinks)
            receipt = verified_receipt(batch, attempt, parts, actor=actor, limits=limits)
            # 2. COMMITTING: from here it rolls forward, unless an operator revokes it, and nothing else moves the
            # offsets.
            control.begin_commit(batch_id, attempt.attempt)
            seen = BatchState.COMMITTING
            # 3. Publish: visible once, under the batch's id.
            published = PublishedReceipt(batch.plan, receipt, control.ledger(batch_id))
            if sink.publish_within is not None:
                # With its dead letters and step 4 in it, where that can be.
                def within(transaction: object) -> bool:
                    nonlocal in_one
                    in_one = control.are_in(transaction) and control.complete_commit_within(
                        transaction, batch_id, actor=actor
                    )
                    return in_one

                sink.publish_within(attempt.directory, published, within)
            else:
                sink.publisher.publish(attempt.directory, published)
            publish_dead_letters(batch, attempt, receipt, sinks)
            # 4. The stored offsets, all or none; the batch is COMMITTED. Does nothing where it is.
            batch = control.complete_commit(batch_id, actor=actor)
        except KafkaIngestError:
            if control.batch(batch_id).state in LATER[seen]:
                # Another process committed or abandoned it in the meantime: report that, not its effect on the files.
                return commit_batch(batch_id, parts, group=group, actor=actor, limits=limits)
            raise
        counts, never_found = receipt.range_counts(batch.plan), len(limits.never_found(receipt))
        late = f", {receipt.late_rows:,} of them late" if receipt.late_rows else ""
        rows = f"{counted(receipt.rows, 'row')}{late}"
        log.info("batch %s is committed: %s%s", batch_id, rows, IN_ONE if in_one else "")
        if receipt.without_date:
            log.warning(
                "batch %s: %s with a timestamp that is no date: there kafka_timestamp is null, and kafka_timestamp_ms "
                "holds the number",
                batch_id,
                counted(receipt.without_date, "record"),
            )
        if receipt.dead_letters:
            log.warning(
                "batch %s: dead letters of %s are kept in %s",
                batch_id,
                counted(receipt.dead_letter_rows, "record"),
                where_they_are(batch.plan.output),
            )
        if receipt.left_out:
            log.warning(
                "batch %s lacks %s of its %s planned ranges: Kafka had deleted records of them before they were "
                "read: %s. Their stored offsets stay; the next plan handles the loss as the feed's on_data_loss says",
                batch_id,
                f"{len(receipt.left_out):,}",
                f"{len(batch.plan.ranges):,}",
                listing(receipt.left_out),
            )

    # 5. The consumer group follows; if that fails, the data stays committed. A backfill never moves it.
    follows = group if batch.plan.kind is BatchKind.LIVE else None
    mirrored = mirror_group(batch.plan.feed_id, follows, parts, batch_id=batch_id, actor=actor)
    # A folded batch was announced before, and its ranges are not available to announce it again.
    by_us = batch.committed_by == actor and batch.plan.folded is None
    counts = control.range_counts(batch_id) if counts is None else counts
    return Committed(batch, tuple(counts), by_us, mirrored, never_found, in_one)


def refuse_what_cannot_be_committed(batch: Batch) -> None:
    """Raise BatchStateError on a batch that was never written or was abandoned."""
    if batch.state is BatchState.PLANNED:
        raise BatchStateError(
            f"batch {batch.batch_id} is PLANNED: expected a pinned receipt, found none. Run the write task first."
        )
    if batch.state is BatchState.ABANDONED:
        raise BatchStateError(
            f"batch {batch.batch_id} {batch.end} and will not be committed; its offsets were not moved by it."
        )


def pinned_attempt(batch: Batch, control: ControlTables) -> Attempt:
    return next(attempt for attempt in control.attempts(batch.batch_id) if attempt.attempt == batch.pinned_attempt)


def verified_receipt(batch: Batch, attempt: Attempt, parts: Parts, *, actor: str, limits: BatchLimits) -> Receipt:
    """Return the pinned receipt after checking it against plan, pin and staged files.

    A WRITTEN batch whose staged output is proven unusable, or that is refused for what its records became, goes back to
    PLANNED, to be written again. An I/O error proves nothing: it is raised, and the batch stays as it is.
    """
    control, sinks = parts.control, parts.sinks
    sink = sinks(batch.plan.output)
    try:
        receipt = pinned_receipt(batch, attempt, sink)
        if batch.state is BatchState.WRITTEN:
            check_density(batch, receipt)
            check_limits(batch, receipt, limits, control)
            sink.publisher.can_take(attempt.directory, receipt)
            if batch.plan.replaces:
                replacer = role_of(batch.plan.output, sink.replacer, REPLACE_ROWS)
                replacer.can_take(attempt.directory, batch.plan, receipt)
            sink.staging.verify(attempt.directory, receipt)
            check_dead_letters(batch, attempt, receipt, sinks)
            check_columns(batch, receipt, control, sinks)
    except (InvalidReceiptError, StagedOutputUnusableError) as error:
        if batch.state is not BatchState.WRITTEN:
            raise OutputConflictError(
                f"{error} The batch is {batch.state}, so it may be visible already. No offset was moved. Restore the "
                f"receipt and run the commit again, or abandon the batch: `kafka-ingest abandon {batch.batch_id} "
                "--reason …`."
            ) from error
        discard(batch, attempt, control, reason=str(error), actor=actor)
        raise StagedOutputUnusableError(
            f"batch {batch.batch_id}: the staged output cannot be committed: {error} The batch is PLANNED again and "
            "its attempts are discarded: the next run writes it again. No offset was moved."
        ) from error
    except RefusedBatchError as error:
        if batch.state is not BatchState.WRITTEN:
            raise
        discard(batch, attempt, control, reason=str(error), actor=actor)
        raise
    return receipt


def discard(batch: Batch, attempt: Attempt, control: ControlTables, *, reason: str, actor: str) -> None:
    """WRITTEN → PLANNED, where no other process was first.

    Refused where another process has begun to commit the batch: then the files may be published, not damaged.
    """
    try:
        control.discard_written(batch.batch_id, attempt.attempt, reason=reason, actor=actor)
    except BatchStateError:
        if control.batch(batch.batch_id).state is not BatchState.PLANNED:
            raise
        log.info("batch %s: another process found the same and discarded its attempts", batch.batch_id)


def pinned_receipt(batch: Batch, attempt: Attempt, sink: Sink) -> Receipt:
    """Return the pinned receipt; raises InvalidReceiptError where it is not byte for byte the one that was pinned."""
    content = sink.staging.read_receipt(attempt.directory)
    if content is None and batch.state is BatchState.COMMITTING:
        # The attempt's directory was removed since.
        kept = sink.archive.receipt(batch.batch_id)
        content = kept.as_bytes() if kept is not None else None
    receipt = valid_receipt(batch.plan, attempt, content)
    if content is not None and (found := sha256(content)) != attempt.receipt_sha256:
        raise InvalidReceiptError(
            f"attempt {attempt.attempt} of batch {batch.batch_id}: its receipt was changed after it was pinned "
            f"(expected SHA-256 {attempt.receipt_sha256}, found {found})."
        )
    return receipt


MAX_RANGES = 100
MAX_TOPICS = 100


def announcement(plan: BatchPlan, counts: Sequence[RangeCount]) -> dict[str, Any]:
    """Return what the Asset event carries.

    ``ranges`` are all of them, or the first :data:`MAX_RANGES`, and ``ranges_left_out`` says how many more there are.
    ``topics`` has sums for up to :data:`MAX_TOPICS` topics; ``kafka-ingest batches FEED --json`` has everything, by
    batch id.
    """
    topics = topics_of(counts)
    return {
        "batch_id": str(plan.batch_id),
        "feed": plan.feed_name,
        "kind": plan.kind.value,
        "rows": sum(count.rows for count in counts),
        "dead_letters": sum(count.dead_letters for count in counts),
        "filtered": sum(count.filtered for count in counts),
        "ranges": [range_document(count) for count in counts[:MAX_RANGES]],
        "ranges_left_out": max(0, len(counts) - MAX_RANGES),
        "topics": topics[:MAX_TOPICS],
        "topics_left_out": max(0, len(topics) - MAX_TOPICS),
    }


def range_document(count: RangeCount) -> dict[str, Any]:
    return {
        "topic": count.offset_range.topic,
        "partition": count.offset_range.partition,
        "start_offset": count.offset_range.start_offset,
        "end_offset": count.offset_range.end_offset,
        "rows": count.rows,
    }


def topics_of(counts: Iterable[RangeCount]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for count in counts:
        topic = count.offset_range.topic
        of_topic = found.setdefault(topic, {"topic": topic, "partitions": 0, "offsets": 0, "rows": 0})
        of_topic["partitions"] += 1
        of_topic["offsets"] += count.offset_range.span
        of_topic["rows"] += count.rows
    return [found[topic] for topic in sorted(found)]
