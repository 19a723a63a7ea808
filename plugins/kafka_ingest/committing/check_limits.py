"""Whether a written batch keeps to what its feed allows: dead letters, filtered records, fields that are not there."""

import logging

from kafka_ingest.errors import FieldsNeverFoundError, TooManyDeadLettersError, TooManyFilteredError
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.batch_limits import BatchLimits, OnNeverFound
from kafka_ingest.model.control_rows import RESTORED_BY
from kafka_ingest.model.never_found import LEAST_RECORDS, described
from kafka_ingest.model.receipt import Receipt
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
    if (limit := limits.too_many_dead_letters(receipt)) is not None:
        raise TooManyDeadLettersError(
            f"batch {batch.batch_id}: {receipt.dead_letter_rows:,} of its {receipt.rows_read:,} records cannot be "
            f"decoded, more than the feed allows (limits.{limit}). {NOT_MOVED} Mend what the feed says of its records, "
            f"or allow more, {AGAIN}"
        )
    # The likely cause of the other, and it names what is there.
    check_fields(batch, receipt, limits, control)
    limit = limits.too_many_filtered(receipt)
    if limit is not None and (limits.max_filtered_percent is not None or is_first(batch, control)):
        raise TooManyFilteredError(
            f"batch {batch.batch_id}: {receipt.filtered_records:,} of its {receipt.rows_read:,} records were filtered, "
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
    if does is OnNeverFound.STOP or (does is None and is_first(batch, control)):
        raise FieldsNeverFoundError(
            f"{found} They would be null in all rows. {NOT_MOVED} Mend the names in the feed's schema; or, where such "
            f"fields may be missing in all records of a batch, set on_never_found: warn; {AGAIN}"
        )
    log.warning("%s They are null in all rows.", found)


def is_first(batch: Batch, control: ControlReader) -> bool:
    """Whether no batch with enough records to judge by was committed to the same output before."""
    return not control.has_committed(batch.plan.feed_id, batch.plan.output, LEAST_RECORDS)
