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
    "Readers of a folder of Parquet files would fail on these, or read other values. Nothing was written or moved. "
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

    Where new fields are ignored, that is with a ``select`` that leaves them out. Raises ColumnsChangedError where a
    field is missing or has another type, and on new fields where these stop the feed. Nothing is known of the columns
    of raw batches, of those that a function made, and of those that versions wrote which did not record them.
    """
    made = rules.columns_of(decoding)
    if made is None:
        return FittingColumns(decoding)
    now = written_columns(made)
    newest = newest_columns(batch.plan.feed_id, batch.plan.output, control, sinks)
    if newest is None:
        return FittingColumns(decoding, now)
    batch_id, before = newest
    found = changes(before, now)
    refused, why = [*found.retyped, *found.removed], REFUSED
    if not refused and rules.on_new_fields is OnNewFields.STOP:
        refused, why = list(found.added), NEW
    if refused:
        raise ColumnsChangedError(
            f"feed {batch.feed_name}: expected the fields that batch {batch_id} has in {batch.plan.output}, found "
            f"others:\n{side_by_side(before, now, refused)}\n{why}"
        )
    if found.added and rules.on_new_fields is OnNewFields.IGNORE:
        kept = replace(decoding.shape, select=columns_without_new(made, before, decoding.shape.select))
        return FittingColumns(replace(decoding, shape=kept), before)
    return FittingColumns(decoding, now)


def newest_columns(
    feed_id: UUID, target: OutputLocation, control: ControlReader, sinks: Sinks
) -> tuple[UUID, WrittenColumns] | None:
    """Return the columns of the newest committed batch in an output that has recorded some; None where none has.

    Of each kind of batch the newest is looked at: receipts are kept permanently, also where files have expired.
    """
    newest = [control.newest_published(feed_id, kind) for kind in BatchKind]
    found = [each.batch_id for each in newest if each is not None and each.output == target]
    for batch_id in sorted(found, reverse=True):
        receipt = sinks(target).archive.receipt(batch_id)
        if receipt is not None and receipt.columns is not None:
            return batch_id, receipt.columns
    return None
