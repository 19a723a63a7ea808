"""Whether a written batch keeps to what its feed allows: dead letters, filtered records, fields that are not there."""

import logging

from kafka_ingest.errors import FieldsNeverFoundError, TooManyDeadLettersError, TooManyFilteredError
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.batch_limits import BatchLimits, OnNeverFound, nearly_all_dead, nearly_all_filtered
from kafka_ingest.model.control_rows import RESTORED_BY
from kafka_ingest.model.never_found import LEAST_RECORDS, described
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.summaries import ReadCounts
from kafka_ingest.ports.control import ControlReader

log = logging.getLogger(__name__)

NOT_MOVED = "Nothing was published and no offset was moved."
AGAIN = (
    "and run it again: the batch is written again. `kafka-ingest preview` shows what becomes of the newest records, "
    "`kafka-ingest skip` passes over records that nobody needs."
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
        raise TooManyDeadLettersError(
            f"batch {batch.batch_id}: {receipt.dead_letter_rows:,} of its {counted(receipt.rows_read, 'record')} "
            f"cannot be "
            f"decoded, more than the feed allows ({limit}). {NOT_MOVED} Mend what the feed says of its records, "
            f"or allow more, {AGAIN}"
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
    """Return what became of all records of an output, where its first batch may have to be stopped; else of none.

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
