"""Whether the columns of an attempt go with those of the files that its output has."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.decoding import RAW, Decoding
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import OutputLocation
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
from kafka_ingest.ports.parts import Parts

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
    return


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """How the columns of an attempt are found, and what happens to new ones."""

    columns_of: ColumnsOf = unknown_columns
    on_new_fields: OnNewFields = OnNewFields.ADD


NO_RULES = ColumnRules()


@dataclass(frozen=True, slots=True)
class FittingColumns:
    """What an attempt decodes with, and which columns that makes; None: unknown."""

    decoding: Decoding
    columns: WrittenColumns | None = None


AS_RAW = FittingColumns(RAW)


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """The columns that a feed makes now beside those of its output.

    ``before`` and ``now`` are None where they are not known, ``new`` are fields that the output does not have, and
    ``refused`` says why no attempt would be opened. ``fitting`` is what one would decode with.
    """

    fitting: FittingColumns
    before: WrittenColumns | None = None
    now: WrittenColumns | None = None
    new: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def left_out(self) -> tuple[str, ...]:
        """Which of the new fields an attempt would leave out."""
        written = self.fitting.columns
        return tuple(path for path in self.new if written is not None and path not in written)


def fitting_columns(batch: Batch, decoding: Decoding, parts: Parts, rules: ColumnRules) -> FittingColumns:
    """Return what an attempt decodes with, so that its columns go with those of the newest batches in its output.

    Raises ColumnsChangedError where a field is missing or has another type, and on new fields where these stop the
    feed.
    """
    plan = batch.plan
    compared = compare_columns(batch.feed_name, plan.feed_id, plan.output, decoding, parts, rules)
    if compared.refused is not None:
        raise ColumnsChangedError(compared.refused)
    return compared.fitting


def compare_columns(
    feed_name: str, feed_id: UUID, output: OutputLocation, decoding: Decoding, parts: Parts, rules: ColumnRules
) -> ComparedColumns:
    """Compare the columns of a feed with those of the newest batches in an output.

    Or with those of the table that the output is: a field there that no batch has written, and this one does not
    write, is not missed. Where new fields are ignored, the feed is decoded with a ``select`` that leaves them out.
    Nothing is known of the columns of raw batches, of those that a function made, and of those that versions wrote
    which did not record them. Raises ColumnsChangedError where the output cannot hold such records at all.
    """
    publisher = parts.sinks(output).publisher
    publisher.check_records(decoded=not decoding.is_raw)
    compared = compare_types(feed_name, feed_id, output, decoding, parts, rules)
    written = compared.fitting.columns
    if compared.refused is None and written is not None and (found := publisher.misfits(written)):
        problem = f"feed {feed_name}: expected fields that {output} can have, found {listing(found)}.\n{REFUSED}"
        return replace(compared, refused=problem)
    return compared


def compare_types(
    feed_name: str, feed_id: UUID, output: OutputLocation, decoding: Decoding, parts: Parts, rules: ColumnRules
) -> ComparedColumns:
    """Compare which columns there are, and their types, as above."""
    made = None if decoding.is_raw else rules.columns_of(decoding)
    if made is None:
        return ComparedColumns(FittingColumns(decoding))
    now = written_columns(made)
    newest = newest_columns(feed_id, output, parts.control, parts.sinks)
    before = {path: kind for _, columns in reversed(newest) for path, kind in columns.items()}
    there = parts.sinks(output).publisher.columns_there(now)
    if there is not None:
        before = dict(of_table(there, before, now))
        newest = [(f"the table {output}", before)]
    if not newest:
        return ComparedColumns(FittingColumns(decoding, now), now=now)
    found = changes(before, now)
    refused, why = [*found.retyped, *found.removed], REFUSED
    if not refused and rules.on_new_fields is OnNewFields.STOP:
        refused, why = list(found.added), NEW
    if refused:
        who = next((who for who, columns in newest if set(refused) & set(columns)), newest[0][0])
        problem = (
            f"feed {feed_name}: expected the fields that {who} has, found others:\n"
            f"{side_by_side(before, now, refused)}\n{why}"
        )
        return ComparedColumns(FittingColumns(decoding, now), before, now, found.added, problem)
    if found.added and rules.on_new_fields is OnNewFields.IGNORE:
        kept = replace(
            decoding.shape, select=columns_without_new(made, before, decoding.shape.select), keeps_others=False
        )
        return ComparedColumns(FittingColumns(replace(decoding, shape=kept), before), before, now, found.added)
    return ComparedColumns(FittingColumns(decoding, now), before, now, found.added)


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
    newest = control.newest_of_kinds(feed_id).values()
    found = [each.batch_id for each in newest if each.output == target]
    receipts = [(batch_id, sinks(target).archive.receipt(batch_id)) for batch_id in sorted(found, reverse=True)]
    return [
        (f"batch {batch_id} in {target}", receipt.columns)
        for batch_id, receipt in receipts
        if receipt is not None and receipt.columns is not None
    ]
