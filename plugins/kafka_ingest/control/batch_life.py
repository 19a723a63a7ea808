"""A batch from its receipt to its end: each step is one transaction that takes the feed's lock first (invariant 2)."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select, update
from sqlalchemy.exc import DBAPIError

from kafka_ingest.control.backfill_statements import check_below_stored, check_not_overtaken, close_gaps
from kafka_ingest.control.batch_statements import (
    abandon_batch,
    left_out_document,
    lock_batch,
    locked_batch,
    move_batch,
    plan_ranges_again,
    require_pinned,
    set_range_counts,
    transition_of,
)
from kafka_ingest.control.database import Store, unavailable
from kafka_ingest.control.feed_statements import append_event, touch_feed
from kafka_ingest.control.offset_statements import (
    advance_stored_offsets,
    apply_jumps,
    check_offsets_in_place,
    row_detail,
)
from kafka_ingest.control.read_again import add_replayed, check_still_replaceable, check_still_replayable
from kafka_ingest.control.row_sums import add_to_partitions
from kafka_ingest.control.rows import batch_of, is_dag_run, newest_ledger_event, of_newest_published, stored_offsets
from kafka_ingest.control.schema import attempt, batch
from kafka_ingest.errors import BatchStateError
from kafka_ingest.foundation.postgresql import INSUFFICIENT_PRIVILEGE
from kafka_ingest.model.batch import ABANDONABLE, AttemptState, Batch, BatchKind, BatchState
from kafka_ingest.model.gap import Jump
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.receipt import RangeCount, Receipt


class BatchLife(Store):
    """The steps that move a batch from state to state."""

    def pin(
        self, batch_id: UUID, attempt_number: int, receipt: Receipt, receipt_sha256: str, counts: Sequence[RangeCount]
    ) -> None:
        with locked_batch(self._engine, batch_id) as (connection, row):
            if row["pinned_attempt"] is not None:
                raise BatchStateError(
                    f"batch {batch_id}: the receipt of attempt {attempt_number} is refused: expected a PLANNED batch, "
                    f"found {row['state']} by attempt {row['pinned_attempt']}, whose receipt was first. Nothing was "
                    "changed."
                )
            written = transition_of(row, BatchState.WRITTEN)
            pinned = connection.execute(
                update(attempt)
                .where(
                    attempt.c.batch_id == batch_id,
                    attempt.c.attempt == attempt_number,
                    attempt.c.state == AttemptState.OPEN.value,
                )
                .values(state=AttemptState.PINNED.value, receipt_sha256=receipt_sha256)
            ).rowcount
            if pinned != 1:
                raise BatchStateError(
                    f"batch {batch_id}: attempt {attempt_number} is not open any more, so its receipt is refused. "
                    "Its files stay invisible; `kafka-ingest batches --json` shows which attempt counts."
                )
            touch_feed(connection, row["feed_id"])
            move_batch(
                connection,
                written,
                pinned_attempt=attempt_number,
                rows=receipt.rows,
                size_bytes=receipt.size_bytes,
                written_at=receipt.written_at,
                left_out=left_out_document(receipt),
            )
            set_range_counts(connection, batch_of(row).plan, receipt, counts)
            if receipt.without_date:
                detail = {"attempt": attempt_number, "rows": receipt.without_date}
                append_event(connection, row["feed_id"], "no_dates", receipt.written_by, batch_id, detail)
            if receipt.left_out:
                left_out = {"attempt": attempt_number, "ranges": left_out_document(receipt)}
                append_event(connection, row["feed_id"], "ranges_left_out", receipt.written_by, batch_id, left_out)

    def discard_written(self, batch_id: UUID, attempt_number: int, *, reason: str, actor: str) -> None:
        with locked_batch(self._engine, batch_id) as (connection, row):
            planned_again = transition_of(row, BatchState.PLANNED)
            require_pinned(batch_id, row, attempt_number)
            touch_feed(connection, row["feed_id"])
            nothing = dict.fromkeys(("pinned_attempt", "rows", "size_bytes", "written_at", "left_out"))
            move_batch(connection, planned_again, **nothing)
            connection.execute(
                update(attempt)
                .where(attempt.c.batch_id == batch_id, attempt.c.state != AttemptState.DISCARDED.value)
                .values(state=AttemptState.DISCARDED.value, reason=reason)
            )
            plan_ranges_again(connection, batch_of(row).plan)
            detail = {"attempt": attempt_number, "reason": reason}
            append_event(connection, row["feed_id"], "attempts_discarded", actor, batch_id, detail)

    def begin_commit(self, batch_id: UUID, attempt_number: int) -> None:
        with locked_batch(self._engine, batch_id) as (connection, row):
            require_pinned(batch_id, row, attempt_number)
            if BatchState(row["state"]) in {BatchState.COMMITTING, BatchState.COMMITTED}:
                return
            committing = transition_of(row, BatchState.COMMITTING)
            check_offsets_in_place(connection, row["feed_id"], batch_id)
            check_below_stored(connection, row["feed_id"], batch_id)
            is_live = row["kind"] == BatchKind.LIVE.value
            if row["kind"] == BatchKind.BACKFILL.value:
                check_not_overtaken(connection, row["feed_id"], batch_id)
            elif row["kind"] == BatchKind.REPLACE.value:
                check_still_replaceable(connection, row["feed_id"], batch_id)
            elif row["kind"] == BatchKind.REPLAY.value:
                check_still_replayable(connection, row["feed_id"], batch_id)
            # Of a backfill it was noted when it was planned; one of an earlier version carries nothing.
            ledger_after = note_output_changed(connection, row) if is_live else row["ledger_after"]
            ledger_upto = row["ledger_upto"]
            if is_live or ledger_upto is None:
                ledger_upto = newest_ledger_event(connection, row["feed_id"])
            touch_feed(connection, row["feed_id"])
            move_batch(
                connection,
                committing,
                ledger_after=ledger_upto if ledger_after is None else ledger_after,
                ledger_upto=ledger_upto,
            )

    def complete_commit(self, batch_id: UUID, *, actor: str) -> Batch:
        with locked_batch(self._engine, batch_id) as (connection, row):
            return complete(connection, row, actor)

    def complete_commit_within(self, connection: object, batch_id: UUID, *, actor: str) -> bool:
        """Do that in an output's open transaction in this database, if its role may; return whether.

        The feed's lock comes after the output's, as no holder of it waits for an output.
        """
        assert isinstance(connection, Connection)  # noqa: S101 - one that these tables are in
        try:
            with connection.begin_nested():
                complete(connection, lock_batch(connection, batch_id), actor)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == INSUFFICIENT_PRIVILEGE:
                return False
            raise unavailable(self._engine, error) from error
        return True

    def abandon(
        self,
        batch_id: UUID,
        *,
        reason: str,
        actor: str,
        only_from: Collection[BatchState] = ABANDONABLE,
        jumps: Sequence[Jump] = (),
    ) -> None:
        with locked_batch(self._engine, batch_id) as (connection, row):
            abandon_batch(connection, row, reason=reason, actor=actor, only_from=only_from)
            apply_jumps(connection, row["feed_id"], jumps, actor=actor, batch_id=batch_id)


def complete(connection: Connection, row: RowMapping, actor: str) -> Batch:
    """Move a locked batch's stored offsets, and the batch to COMMITTED, if it is not; return it as it is then."""
    batch = batch_of(row)
    if batch.state is BatchState.COMMITTED:
        return batch
    committed = transition_of(row, BatchState.COMMITTED)
    if batch.plan.kind is BatchKind.LIVE:
        advance_stored_offsets(connection, batch)
    elif batch.plan.kind is BatchKind.BACKFILL:
        close_gaps(connection, row["feed_id"], batch.batch_id, actor)
    elif batch.plan.kind is BatchKind.REPLAY:
        add_replayed(connection, batch.plan.replays)
    touch_feed(connection, row["feed_id"], more_rows=add_to_partitions(connection, batch))
    end: dict[str, Any] = {"committed_at": datetime.now(UTC), "committed_by": actor}
    at = move_batch(connection, committed, to_announce=is_dag_run(actor), **end)
    return replace(batch, state=BatchState.COMMITTED, updated_at=at, **end)


def note_output_changed(connection: Connection, row: RowMapping) -> int:
    """Return after which event the ledger of a live batch's published receipt begins.

    After the newest published batch's, whose receipt is in the same output and carries what was before. Another output
    has no such receipt: there the ledger is carried from its beginning, followed by the stored offsets.
    """
    query = of_newest_published(select(batch.c.plan, batch.c.ledger_upto), row["feed_id"])
    published = connection.execute(query).mappings().one_or_none()
    if published is None:
        return 0
    was, now = published["plan"]["sink"], row["plan"]["sink"]
    if OutputLocation.from_document(was) == OutputLocation.from_document(now):
        return int(published["ledger_upto"] or 0)
    stored = stored_offsets(connection, row["feed_id"])
    detail = {"was": was, "is": now, "partitions": [row_detail(found) for found in stored.values()]}
    append_event(connection, row["feed_id"], "output_changed", row["planned_by"], row["batch_id"], detail)
    return 0
