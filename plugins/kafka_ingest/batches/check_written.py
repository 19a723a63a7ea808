"""Whether a written batch may be published: what its feed allows, its dead letters, and the columns of its output.

Columns were compared when the attempt was opened. Since then another batch of the feed may have been committed, or be
about to be: a chunk of a backfill, say, that was written by another version of the feed file.
"""

import logging
from collections.abc import Iterator

from kafka_ingest.batches.fitting_columns import newest_columns
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.batches.refused_rows import taken_back
from kafka_ingest.errors import (
    ColumnsChangedError,
    FieldsNeverFoundError,
    OffsetsMissingError,
    TooManyDeadLettersError,
    TooManyFilteredError,
)
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.batch import Attempt, Batch, BatchKind, BatchState
from kafka_ingest.model.batch_limits import BatchLimits, OnNeverFound, nearly_all_dead, nearly_all_filtered
from kafka_ingest.model.control_rows import RESTORED_BY
from kafka_ingest.model.dead_letters import output_of_dead_letters, staged_dead_letters
from kafka_ingest.model.decoding import DeadClass
from kafka_ingest.model.offsets import OffsetsPolicy, listing
from kafka_ingest.model.omissions import LEAST_RECORDS, described
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.summaries import ReadCounts
from kafka_ingest.model.written_columns import WrittenColumns, changes, side_by_side
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.ports.outputs import Sinks

log = logging.getLogger(__name__)

NOT_MOVED = "Nothing was published and no offset was moved."
AGAIN = (
    "and run it again: the batch is written again. `kafka-ingest preview` shows how the newest records are decoded, "
    "`kafka-ingest skip` passes over records that are not needed."
)


def check_limits(batch: Batch, receipt: Receipt, limits: BatchLimits, control: ControlReader) -> None:
    """Raise a RefusedBatchError where a batch exceeds a limit of its feed's.

    A restored batch is never refused: its records may be in its files only. Neither is a replay: all that it reads
    were dead letters before.
    """
    if batch.planned_by.startswith(RESTORED_BY) or batch.plan.replays:
        return
    read = ReadCounts(receipt.rows, receipt.filtered_records, receipt.dead_letter_rows)
    first = read_first(batch, read, control)
    if (limit := limits.too_many_dead_letters(read, first)) is not None:
        cause, mend = "", ""
        if taken_back(control.attempts(batch.batch_id)):
            cause = f", or their rows are refused ({DeadClass.REFUSED_BY_OUTPUT})"
            mend = ", or the table that refuses rows"
        raise TooManyDeadLettersError(
            f"batch {batch.batch_id}: {receipt.dead_letter_rows:,} of its {counted(receipt.rows_read, 'record')} "
            f"cannot be decoded{cause}, more than the feed allows ({limit}). {NOT_MOVED} Mend what the feed says of "
            f"its records{mend}, or allow more, {AGAIN}"
        )
    # The likely cause of the other, and it names what is there.
    check_fields(batch, receipt, limits, control)
    if (limit := limits.too_many_filtered(read, first)) is not None:
        raise TooManyFilteredError(
            f"batch {batch.batch_id}: {receipt.filtered_records:,} of its {counted(receipt.rows_read, 'record')} "
            f"{were(receipt.filtered_records)} filtered, "
            f"more than the feed allows ({limit}). {NOT_MOVED} Mend where or transform, or what the feed says "
            f"its records are; or, where records may all be filtered, set limits.max_filtered_percent: 100; {AGAIN}"
        )


def check_fields(batch: Batch, receipt: Receipt, limits: BatchLimits, control: ControlReader) -> None:
    """Raise FieldsNeverFoundError where fields are in no record, and the feed's batches stop there; else log them."""
    if not (missing := limits.never_found(receipt)):
        return
    names = "; ".join(described(missing))
    found = f"batch {batch.batch_id}: expected records with the fields of the schema, found {names}."
    does = limits.on_never_found
    if does is OnNeverFound.STOP or (does is None and is_first(counts(batch, control))):
        raise FieldsNeverFoundError(
            f"{found} They would be null in all rows. {NOT_MOVED} Mend the names in the feed's schema; or, where such "
            f"fields may be missing in all records of a batch, set on_never_found: warn; {AGAIN}"
        )
    log.warning("%s They are null in all rows.", found)


def read_first(batch: Batch, read: ReadCounts, control: ControlReader) -> ReadCounts:
    """Return the counts of all records of an output, where its first batch may have to be stopped; else of none.

    Batches of few records are one with those after them, until there are enough to judge by.
    """
    if not (nearly_all_dead(read) or nearly_all_filtered(read)) or not is_first(before := counts(batch, control)):
        return ReadCounts()
    return before.plus(read)


def counts(batch: Batch, control: ControlReader) -> ReadCounts:
    """Return what the records became that were committed to a batch's output before, as far as that matters here."""
    return control.committed_counts(batch.plan.feed_id, batch.plan.output, LEAST_RECORDS)


def is_first(before: ReadCounts) -> bool:
    """Whether too few records to judge by were decoded before."""
    return before.rows + before.filtered < LEAST_RECORDS


def check_density(batch: Batch, receipt: Receipt) -> None:
    """Raise OffsetsMissingError on a feed with ``offsets: dense`` whose ranges hold offsets without a record."""
    if batch.plan.offsets_policy is not OffsetsPolicy.DENSE:
        return
    sparse = [
        f"{count.offset_range}: {counted(count.rows, 'record')}, {counted(count.invisible, 'offset')} without one"
        for count in receipt.range_counts(batch.plan)
        if count.invisible
    ]
    if sparse:
        raise OffsetsMissingError(
            f"batch {batch.batch_id}: every offset must be a record (kafka.offsets: dense), found {listing(sparse)}. "
            "Nothing was published. If compaction or transactions explain it, set kafka.offsets: auto and abandon the "
            "batch."
        )


def check_dead_letters(batch: Batch, attempt: Attempt, receipt: Receipt, sinks: Sinks) -> None:
    """Ask before COMMITTING whether the dead letters can be published, and check their files; moves nothing.

    Raises what :meth:`Publisher.can_take` and :meth:`Staging.verify` raise.
    """
    if not receipt.dead_letters:
        return
    sink = sinks(output_of_dead_letters(batch.plan.output))
    directory, letters = staged_dead_letters(attempt.directory), receipt.of_dead_letters()
    # Beside the output, whose storage was found available before.
    sink.publisher.prepare()
    sink.publisher.can_take(directory, letters)
    sink.staging.verify(directory, letters)


PINNED = frozenset({BatchState.WRITTEN, BatchState.COMMITTING})


def check_columns(batch: Batch, receipt: Receipt, control: ControlReader, sinks: Sinks) -> None:
    """Raise ColumnsChangedError where a field has another type than in a batch of the same output.

    Those that are written and not committed yet count, too: of two batches at once, the one that was written later sees
    the other, so that never both are published. A field that only the other has is null here, as in older files. Tables
    compare by themselves, in the step that adds the files. A restored batch is never refused: its records may be in its
    files only.
    """
    if receipt.columns is None or batch.planned_by.startswith(RESTORED_BY):
        return
    for who, before in columns_beside(batch, control, sinks):
        retyped = changes(before, receipt.columns).retyped
        if not retyped:
            continue
        if sinks(batch.plan.output).publisher.columns_there(receipt.columns) is not None:
            return
        raise ColumnsChangedError(
            f"batch {batch.batch_id}: expected fields of the types that {who} has, found others. Both were written at "
            f"the same time:\n{side_by_side(before, receipt.columns, retyped)}\n"
            "Readers of the output would fail on these, or read other values. Nothing was published and no offset was "
            "moved. Run it again: it is written again as the feed file says now, or refused before anything is "
            "written. Where the other batch is the wrong one and not committed yet, abandon that one before: "
            "`kafka-ingest abandon BATCH --reason …`."
        )


def columns_beside(batch: Batch, control: ControlReader, sinks: Sinks) -> Iterator[tuple[str, WrittenColumns]]:
    """Yield the columns of the newest committed batches in a batch's output, and of those that may be next."""
    output = batch.plan.output
    yield from newest_columns(batch.plan.feed_id, output, control, sinks)
    others = control.open_backfills(batch.plan.feed_id)
    if batch.plan.kind is not BatchKind.LIVE:
        feed = control.feed_of_id(batch.plan.feed_id)
        others = [*([feed.open_batch] if feed is not None and feed.open_batch is not None else []), *others]
    for other in others:
        if other.batch_id == batch.batch_id or other.state not in PINNED or other.plan.output != output:
            continue
        receipt = receipt_of(other, control, sinks)
        if receipt is not None and receipt.columns is not None:
            yield f"batch {other.batch_id} ({other.state}, for {output})", receipt.columns


def receipt_of(batch: Batch, control: ControlReader, sinks: Sinks) -> Receipt | None:
    """Return what a batch is about to publish, None where another process has removed it since.

    Raises InvalidReceiptError, OutputConflictError.
    """
    sink = sinks(batch.plan.output)
    pinned = [each for each in control.attempts(batch.batch_id) if each.attempt == batch.pinned_attempt]
    for attempt in pinned:
        content = sink.staging.read_receipt(attempt.directory)
        if content is not None:
            return valid_receipt(batch.plan, attempt, content)
    return sink.archive.receipt(batch.batch_id)
