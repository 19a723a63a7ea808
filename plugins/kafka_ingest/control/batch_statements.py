"""Statements on batches, their ranges and attempts. Each runs inside a transaction that holds the feed's lock."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping, bindparam, insert, select
from sqlalchemy.exc import IntegrityError

from kafka_ingest.control.batch_states import begin_batch, move_batch, transition_of
from kafka_ingest.control.database import transaction
from kafka_ingest.control.feed_statements import append_event, touch_feed
from kafka_ingest.control.many_rows import insert_rows
from kafka_ingest.control.offset_statements import check_offsets_in_place
from kafka_ingest.control.rows import batch_row
from kafka_ingest.control.schema import attempt, batch, batch_range, feed
from kafka_ingest.errors import BatchStateError, FeedChangedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Attempt, BatchPlan, BatchState
from kafka_ingest.model.documents import row_of
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.receipt import RangeCount, Receipt

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
