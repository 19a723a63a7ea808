"""Statements on batches, their ranges and attempts. Each runs inside a transaction that holds the feed's lock."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from kafka_ingest.control.database import transaction
from kafka_ingest.control.feed_statements import append_event, touch_feed
from kafka_ingest.control.offset_statements import check_offsets_in_place
from kafka_ingest.control.rows import NEWEST_LEDGER_EVENT, batch_row, insert_rows
from kafka_ingest.control.schema import attempt, batch, batch_range, feed
from kafka_ingest.errors import BatchStateError, FeedChangedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Attempt, BatchPlan, BatchState, Transition
from kafka_ingest.model.documents import row_of
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.receipt import RangeCount, Receipt


def begin_batch(connection: Connection, plan: BatchPlan, actor: str, *, lag: int | None = None) -> None:
    """Write a batch as PLANNED, after the newest ledger event; the unique index refuses a second open live one."""
    planned = {"state": BatchState.PLANNED.value, "ledger_upto": NEWEST_LEDGER_EVENT, "lag": lag}
    connection.execute(insert(batch).values(**first_values(plan, actor), **planned), {"of_feed": plan.feed_id})


def begin_adopted_batch(connection: Connection, plan: BatchPlan, actor: str) -> BatchState:
    """Write a batch that only its output knows, and return its state: it holds nothing until it is adopted.

    As PLANNED it could conflict with an open batch, and a COMMITTED one names an attempt, which names the batch.
    """
    state = BatchState.ABANDONED
    connection.execute(insert(batch).values(**first_values(plan, actor), state=state.value, reason="being adopted"))
    return state


def move_batch(connection: Connection, transition: Transition, **values: object) -> datetime:
    """Write a batch's next state, and the values that come with it; return when it was updated."""
    at = datetime.now(UTC)
    moved = connection.execute(
        update(batch)
        .where(batch.c.batch_id == transition.batch_id, batch.c.state == transition.found.value)
        .values(state=transition.to.value, updated_at=at, **values)
    ).rowcount
    if moved != 1:
        raise BatchStateError(
            f"batch {transition.batch_id} cannot become {transition.to}: expected it to be {transition.found} still, "
            "found it changed or deleted under the feed's lock. Nothing was changed; find out who writes to the "
            "control tables by hand."
        )
    return at


def transition_of(row: RowMapping, to: BatchState) -> Transition:
    """Return the change of a locked row's batch to a state; raises BatchStateError where its table has none."""
    return Transition(row["batch_id"], BatchState(row["state"]), to)


def first_values(plan: BatchPlan, actor: str) -> dict[str, object]:
    """Return a batch's row as it begins, without its state."""
    return row_of(plan, "batch_id", "feed_id", "kind", "planned_at") | {
        "plan": plan.as_document(),
        "plan_fingerprint": plan.fingerprint,
        "planned_by": actor,
        "updated_at": plan.planned_at,
    }


OF_BATCH = select(batch.c.feed_id).where(batch.c.batch_id == bindparam("batch_id"))
LOCKED_FEED_OF_BATCH = select(feed.c.feed_id).where(feed.c.feed_id.in_(OF_BATCH)).with_for_update()
NEW_ATTEMPT = insert(attempt)
NO_RANGES = batch_range.delete().where(batch_range.c.batch_id == bindparam("of_batch"))


@contextlib.contextmanager
def locked_batch(engine: Engine, batch_id: UUID) -> Iterator[tuple[Connection, RowMapping]]:
    """Open a write transaction that holds the lock of the batch's feed, and yield the batch as it is under it."""
    with transaction(engine, "write") as connection:
        yield connection, lock_batch(connection, batch_id)


def lock_batch(connection: Connection, batch_id: UUID) -> RowMapping:
    """Take the lock of the batch's feed until the transaction ends, and return the batch as it is under it."""
    connection.execute(LOCKED_FEED_OF_BATCH, {"batch_id": batch_id})
    return batch_row(connection, batch_id, for_update=True)


def insert_plan(connection: Connection, plan: BatchPlan, actor: str, *, lag: int | None = None) -> None:
    """Write the batch and its ranges; the unique index refuses a second open live batch."""
    try:
        begin_batch(connection, plan, actor, lag=lag)
    except IntegrityError as error:
        raise FeedChangedError(
            f"feed {plan.feed_name}: another batch is open already. Nothing was written; plan again to resume it."
        ) from error
    insert_rows(connection, batch_range, [range_values(plan, offset_range) for offset_range in plan.ranges])
    check_offsets_in_place(connection, plan.feed_id, plan.batch_id)


def range_values(plan: BatchPlan, offset_range: OffsetRange) -> dict[str, object]:
    """Return the row of a range as it begins."""
    return {
        "batch_id": plan.batch_id,
        "topic": offset_range.topic,
        "partition": offset_range.partition,
        "topic_id": plan.topic_ids[offset_range.topic],
        "start_offset": offset_range.start_offset,
        "end_offset": offset_range.end_offset,
        "leader_epoch": plan.leader_epochs.get(offset_range.topic_partition),
    }


def insert_attempt(connection: Connection, new: Attempt) -> None:
    """Write the attempt's row; of two drivers that open the same number one wins."""
    try:
        connection.execute(NEW_ATTEMPT, row_of(new))
    except IntegrityError as error:
        raise FeedChangedError(f"batch {new.batch_id}: attempt {new.attempt} was opened by another process") from error


def abandon_batch(
    connection: Connection, row: RowMapping, *, reason: str, actor: str, only_from: Collection[BatchState]
) -> None:
    """→ ABANDONED, from one of these states; raises BatchStateError from any other."""
    batch_id, found = row["batch_id"], BatchState(row["state"])
    abandoned = transition_of(row, BatchState.ABANDONED)
    if found not in only_from:
        raise BatchStateError(
            f"batch {batch_id} is {found}: expected {' or '.join(sorted(only_from))} to abandon it. Nothing was "
            "changed; a COMMITTING batch may be visible already, so its staged files are revoked first: `kafka-ingest "
            "abandon` does that."
        )
    touch_feed(connection, row["feed_id"])
    move_batch(connection, abandoned, reason=reason, abandoned_by=actor)
    append_event(connection, row["feed_id"], "abandoned", actor, batch_id, {"reason": reason, "was": found.value})


def require_pinned(batch_id: UUID, row: RowMapping, attempt_number: int) -> None:
    """Raise BatchStateError unless this is the attempt whose receipt counts."""
    if row["pinned_attempt"] != attempt_number:
        raise BatchStateError(
            f"batch {batch_id}: expected attempt {attempt_number} to be the pinned one, found {row['pinned_attempt']} "
            f"in a {row['state']} batch. Nothing was changed."
        )


def set_range_counts(connection: Connection, plan: BatchPlan, receipt: Receipt, counts: Sequence[RangeCount]) -> None:
    """Replace a batch's ranges with those it has read, with the counts of its pinned receipt.

    A range that was left out has no row from then on: questions about a batch's ranges and its commit cover those that
    were read.
    """
    read = receipt.ranges_read(plan)
    if [count.offset_range for count in counts] != list(read):
        raise ValueError(
            f"batch {plan.batch_id}: expected a count of each of its {counted(len(read), 'range')}, found "
            f"{len(counts):,}"
        )
    rows = [
        range_values(plan, count.offset_range)
        | {
            "rows": count.rows,
            "filtered": count.filtered,
            "dead_letters": count.dead_letters,
            "invisible": count.invisible,
            "smallest_offset": count.smallest_offset,
            "largest_offset": count.largest_offset,
        }
        for count in counts
    ]
    # One bulk insert instead of an update a row: 10,000 partitions stay well under a second.
    connection.execute(NO_RANGES, {"of_batch": plan.batch_id})
    insert_rows(connection, batch_range, rows)


def plan_ranges_again(connection: Connection, plan: BatchPlan) -> None:
    """Write a batch's ranges as planned, without the counts of a receipt."""
    connection.execute(NO_RANGES, {"of_batch": plan.batch_id})
    insert_rows(connection, batch_range, [range_values(plan, offset_range) for offset_range in plan.ranges])


def left_out_document(receipt: Receipt) -> list[dict[str, Any]] | None:
    """Return which ranges a receipt leaves out as the batch's row holds them."""
    return [each.as_document() for each in receipt.left_out] or None
