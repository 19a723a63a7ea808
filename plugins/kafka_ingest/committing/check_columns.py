"""Whether the columns of a written batch still go with those of its output's files, when it is about to be published.

They were compared when its attempt was opened. Since then another batch of the feed may have been committed, or be
about to be: a chunk of a backfill, say, that was written by another version of the feed file.
"""

from collections.abc import Iterator

from kafka_ingest.batches.fitting_columns import newest_columns
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.batch import Batch, BatchKind, BatchState
from kafka_ingest.model.control_rows import RESTORED_BY
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.written_columns import WrittenColumns, changes, side_by_side
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.ports.outputs import Sinks

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
