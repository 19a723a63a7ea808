"""Whether the columns of an attempt go with those of the files that its output has."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.batch import Batch, BatchKind
from kafka_ingest.model.decoding import RAW, Decoding
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.record_schema import Struct
from kafka_ingest.model.written_columns import (
    OnNewFields,
    WrittenColumns,
    changes,
    columns_without_new,
    side_by_side,
    written_columns,
)
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.ports.outputs import Sinks

REFUSED = (
    "Readers of the output would fail on these, or read other values. Nothing was written or moved. "
    "Keep the fields as they are in the output, by a select (cast(… as …), cast(null as …)) or an earlier version of "
    "the schema. Or abandon the batch, and give the feed another sink.path, where all files have the new columns."
)
NEW = (
    "Nothing was written or moved, since the feed file says on_new_fields: stop. Set it to add, and new files have "
    "them, or to ignore, and they are left out."
)

ColumnsOf = Callable[[Decoding], Struct | None]
"""The columns of rows beside Kafka's own; None where they are not known before rows are written."""


def unknown_columns(_decoding: Decoding) -> None:
    """Return that the columns are not known."""
    return


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """How the columns of an attempt are found, and what becomes of new ones."""

    columns_of: ColumnsOf = unknown_columns
    on_new_fields: OnNewFields = OnNewFields.ADD


NO_RULES = ColumnRules()


@dataclass(frozen=True, slots=True)
class FittingColumns:
    """What an attempt decodes with, and which columns that makes; None: unknown."""

    decoding: Decoding
    columns: WrittenColumns | None = None


AS_RAW = FittingColumns(RAW)


def fitting_columns(
    batch: Batch,
    decoding: Decoding,
    control: ControlReader,
    sinks: Sinks,
    rules: ColumnRules,
) -> FittingColumns:
    """Return what an attempt decodes with, so that its columns go with those of the newest batch in its output.

    Or with those of the table that the output is: a field there that no batch has written, and this one does not
    write, is not missed. Where new fields are ignored, that is with a ``select`` that leaves them out. Raises
    ColumnsChangedError where a field is missing or has another type, and on new fields where these stop the feed.
    Nothing is known of the columns of raw batches, of those that a function made, and of those that versions wrote
    which did not record them.
    """
    publisher = sinks(batch.plan.output).publisher
    publisher.check_records(decoded=not decoding.is_raw)
    made = None if decoding.is_raw else rules.columns_of(decoding)
    if made is None:
        return FittingColumns(decoding)
    now = written_columns(made)
    newest = newest_columns(batch.plan.feed_id, batch.plan.output, control, sinks)
    before = {path: kind for _, columns in reversed(newest) for path, kind in columns.items()}
    there = publisher.columns_there(now)
    if there is not None:
        newest = [(f"the table {batch.plan.output}", of_table(there, before, now))]
        before = dict(newest[0][1])
    if not newest:
        return FittingColumns(decoding, now)
    found = changes(before, now)
    refused, why = [*found.retyped, *found.removed], REFUSED
    if not refused and rules.on_new_fields is OnNewFields.STOP:
        refused, why = list(found.added), NEW
    if refused:
        who = next((who for who, columns in newest if set(refused) & set(columns)), newest[0][0])
        raise ColumnsChangedError(
            f"feed {batch.feed_name}: expected the fields that {who} has, found others:\n"
            f"{side_by_side(before, now, refused)}\n{why}"
        )
    if found.added and rules.on_new_fields is OnNewFields.IGNORE:
        kept = replace(decoding.shape, select=columns_without_new(made, before, decoding.shape.select))
        return FittingColumns(replace(decoding, shape=kept), before)
    return FittingColumns(decoding, now)


def of_table(there: WrittenColumns, newest: WrittenColumns, now: WrittenColumns) -> WrittenColumns:
    """Return the columns of a table that a batch has written, or is to write."""
    mine = {path.lower() for path in (*newest, *now)}
    return {path: kind for path, kind in there.items() if path.lower() in mine}


def newest_columns(
    feed_id: UUID, target: OutputLocation, control: ControlReader, sinks: Sinks
) -> list[tuple[str, WrittenColumns]]:
    """Return the columns of the newest committed batch of each kind in an output that has recorded some, newest first.

    With whose they are. Of each kind, since a backfill may have added a field to the files while live batches were
    written without it. Receipts are kept permanently, also where files have expired.
    """
    newest = [control.newest_published(feed_id, kind) for kind in BatchKind]
    found = [each.batch_id for each in newest if each is not None and each.output == target]
    receipts = [(batch_id, sinks(target).archive.receipt(batch_id)) for batch_id in sorted(found, reverse=True)]
    return [
        (f"batch {batch_id} in {target}", receipt.columns)
        for batch_id, receipt in receipts
        if receipt is not None and receipt.columns is not None
    ]
