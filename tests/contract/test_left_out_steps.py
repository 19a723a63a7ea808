"""The steps of a batch whose receipt leaves ranges out: what was not read is not committed, and moves no offset."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.contract.builders import (
    FIRST_PLAN,
    ORDERS_FEED,
    STEPS,
    TOPIC_ID,
    as_adopted,
    attempt_of,
    bring_to,
    orders,
    pin,
    plan_first,
    plan_of,
    receipt_of,
    record,
    refused,
    snapshot_of,
    stored,
)
from tests.contract.conftest import Store
from tests.contract.test_adopt_step import adopt, adoption, row

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import BatchStateError, OffsetsMovedError
from kafka_ingest.model.batch import BatchPlan, BatchState, sha256
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.folded import FoldCut
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.model.published_output import AdoptedBatch
from kafka_ingest.model.receipt import RangeCount, Receipt
from kafka_ingest.ports.control import ControlTables, OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

LOST, KEPT = FIRST_PLAN.ranges
LEFT_OUT = LeftOut(LOST, LOST.start_offset + 7)
COUNT = RangeCount(KEPT, KEPT.span, KEPT.start_offset, KEPT.end_offset - 1)


def receipt_without(plan: BatchPlan, number: int, *left_out: LeftOut) -> Receipt:
    """Return the receipt of an attempt that read all but these ranges."""
    lost = {each.offset_range.topic_partition for each in left_out}
    files = tuple(file for file in receipt_of(plan, number).files if file.partitions[0].topic_partition not in lost)
    return replace(receipt_of(plan, number), files=files, rows_read=sum(file.rows for file in files), left_out=left_out)


def pin_without(control: ControlTables, plan: BatchPlan = FIRST_PLAN, *left_out: LeftOut, number: int = 1) -> None:
    """Pin the receipt of an attempt that left ranges out."""
    receipt = receipt_without(plan, number, *(left_out or (LEFT_OUT,)))
    control.pin(plan.batch_id, number, receipt, sha256(receipt.as_bytes()), receipt.range_counts(plan))


def written(control: ControlTables) -> None:
    """Plan a batch, and pin a receipt that leaves its first range out."""
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))
    control.open_attempt(attempt_of(FIRST_PLAN, 2))
    pin_without(control)


def committed(control: ControlTables) -> None:
    """Commit such a batch."""
    written(control)
    control.begin_commit(FIRST_PLAN.batch_id, 1)
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")


def adopted_without(*left_out: LeftOut, number: int = 1) -> AdoptedBatch:
    """Return such a batch as its output describes it."""
    receipt = receipt_without(FIRST_PLAN, number, *left_out)
    return replace(as_adopted(FIRST_PLAN, number), receipt=receipt, receipt_sha256=sha256(receipt.as_bytes()))


# ── Pin, discard, abandon ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_written_batch_says_what_it_left_out_and_counts_what_it_has_read(store: Store) -> None:
    control = store.connect()
    written(control)

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.plan, batch.rows) == (BatchState.WRITTEN, FIRST_PLAN, KEPT.span)
    assert (batch.left_out, batch.ranges_read) == ((LEFT_OUT,), (KEPT,))
    assert control.range_counts(FIRST_PLAN.batch_id) == [COUNT]
    assert snapshot_of(control).open_batch == batch
    [event] = store.events("ranges_left_out")
    assert (event.batch_id, event.actor) == (FIRST_PLAN.batch_id, "spark 1")
    assert event.detail == {"attempt": 1, "ranges": [LEFT_OUT.as_document()]}


def test_a_batch_that_leaves_nothing_out_is_what_it_was(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.WRITTEN)
    assert control.batch(FIRST_PLAN.batch_id).left_out == ()
    assert store.events("ranges_left_out") == []


def test_what_was_discarded_makes_them_plain_planned_ranges_again(control: OperatorTables) -> None:
    written(control)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="damaged", actor="committer")

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.left_out, batch.ranges_read) == (BatchState.PLANNED, (), FIRST_PLAN.ranges)
    assert control.range_counts(FIRST_PLAN.batch_id) == []

    control.open_attempt(attempt_of(FIRST_PLAN, 3))
    pin(control, FIRST_PLAN, 3)
    control.begin_commit(FIRST_PLAN.batch_id, 3)
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    assert [count.offset_range for count in control.range_counts(FIRST_PLAN.batch_id)] == list(FIRST_PLAN.ranges)
    assert stored(control) == {each.topic_partition: each.end_offset for each in FIRST_PLAN.ranges}


def test_a_later_receipt_that_read_more_is_refused_as_any(store: Store) -> None:
    control = store.connect()
    written(control)
    with refused(store, BatchStateError, match="found WRITTEN"):
        pin(control, FIRST_PLAN, 2)


def test_one_that_is_abandoned_keeps_what_it_left_out(control: OperatorTables) -> None:
    written(control)
    control.abandon(FIRST_PLAN.batch_id, reason="not wanted", actor="ops")
    assert control.batch(FIRST_PLAN.batch_id).left_out == (LEFT_OUT,)
    assert stored(control) == {each.topic_partition: each.start_offset for each in FIRST_PLAN.ranges}


# ── Commit ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_commit_moves_the_stored_offsets_of_what_was_read_only(control: OperatorTables) -> None:
    committed(control)

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.left_out, batch.plan) == (BatchState.COMMITTED, (LEFT_OUT,), FIRST_PLAN)
    rows = snapshot_of(control).stored
    assert rows[KEPT.topic_partition].next_offset == KEPT.end_offset
    assert (rows[LOST.topic_partition].next_offset, rows[LOST.topic_partition].batch_id) == (LOST.start_offset, None)
    assert control.complete_commit(FIRST_PLAN.batch_id, actor="late") == batch, "again changes nothing"


@pytest.mark.postgresql_too
def test_what_was_left_out_does_not_count_as_committed(control: OperatorTables) -> None:
    committed(control)

    assert control.range_counts(FIRST_PLAN.batch_id) == [COUNT]
    assert control.committed_ranges(FIRST_PLAN.batch_id) == [KEPT]
    assert control.committed_within(ORDERS_FEED, list(FIRST_PLAN.ranges)) == [KEPT]
    assert control.starts_since(FIRST_PLAN.batch_id) == {KEPT.topic_partition: KEPT.start_offset}
    [batch] = control.committed_batches(ORDERS_FEED)
    assert [each.count for each in batch.ranges] == [COUNT]
    rows = control.coverage("orders")
    assert rows is not None
    coverage = coverage_of(rows)
    assert [problem for each in coverage.values() for problem in each.problems] == []
    assert coverage[LOST.topic_partition].committed == []
    assert coverage[KEPT.topic_partition].committed == [KEPT]


def test_while_it_is_open_what_was_left_out_is_not_pending(control: OperatorTables) -> None:
    written(control)
    rows = control.coverage("orders")
    assert rows is not None
    coverage = coverage_of(rows)
    assert list(coverage[LOST.topic_partition].pending_live) == []
    assert list(coverage[KEPT.topic_partition].pending_live) == [KEPT]


def test_once_it_is_folded_the_chains_hold_what_was_read_only(sql_control: SqlControlTables) -> None:
    committed(sql_control)
    for attempt in sql_control.attempts(FIRST_PLAN.batch_id):
        sql_control.note_cleaned(attempt)
    before = datetime.now(UTC) + timedelta(days=1)
    assert sql_control.fold(ORDERS_FEED, FoldCut(before, newest_stay=0)).ranges == 1

    assert [each.offset_range for each in sql_control.folded(ORDERS_FEED).ranges] == [KEPT]
    batch = sql_control.batch(FIRST_PLAN.batch_id)
    assert (batch.left_out, batch.ranges_read) == ((LEFT_OUT,), ())
    assert sql_control.committed_within(ORDERS_FEED, list(FIRST_PLAN.ranges)) == [KEPT]


@pytest.mark.parametrize("step", ["begin_commit", "complete_commit"])
def test_a_stored_offset_of_what_was_read_that_moved_stops_all_of_it(store: Store, step: str) -> None:
    control = store.connect()
    third = OffsetRange(orders(7), 0, 10)
    plan = plan_of(*((each.topic_partition, each.start_offset, each.end_offset) for each in (LOST, KEPT, third)))
    plan_first(control, plan)
    control.open_attempt(attempt_of(plan, 1))
    pin_without(control, plan)
    if step == "complete_commit":
        control.begin_commit(plan.batch_id, 1)
    store.reset_by_hand(third.topic_partition, 3)
    with refused(store, OffsetsMovedError, match=r"orders-7: expected 0, found 3"):
        STEPS[step](control, plan)


def test_a_stored_offset_of_what_was_left_out_says_nothing_about_the_batch(store: Store) -> None:
    control = store.connect()
    written(control)
    store.reset_by_hand(LOST.topic_partition, LOST.start_offset + 1)
    control.begin_commit(FIRST_PLAN.batch_id, 1)
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    assert stored(control) == {
        LOST.topic_partition: LOST.start_offset + 1,
        KEPT.topic_partition: KEPT.end_offset,
    }


def test_the_next_plan_begins_where_the_lost_range_began(control: OperatorTables) -> None:
    committed(control)
    again = plan_of((LOST.topic_partition, LOST.start_offset, LOST.end_offset), number=2)
    record(control, plan=again)
    control.open_attempt(attempt_of(again, 1))
    pin(control, again, 1)
    control.begin_commit(again.batch_id, 1)
    control.complete_commit(again.batch_id, actor="committer")
    assert stored(control) == {each.topic_partition: each.end_offset for each in FIRST_PLAN.ranges}


def test_sums_and_summaries_know_what_was_read(sql_control: SqlControlTables) -> None:
    committed(sql_control)
    [line] = sql_control.batch_summaries("orders")
    assert (line.rows, line.left_out) == (KEPT.span, (LEFT_OUT,))
    assert [(each.partition, each.rows) for each in line.ranges] == [(KEPT.partition, KEPT.span)]
    assert sql_control.rows_by_partition(ORDERS_FEED) == {KEPT.topic_partition: KEPT.span}
    [summary] = sql_control.feed_summaries()
    assert summary.rows_committed == KEPT.span
    for place, found in ((LOST, 0), (KEPT, 1)):
        rows = sql_control.offset_rows("orders", place.topic_partition, place.start_offset)
        assert rows is not None
        assert len(rows.batches) == found


# ── Adopt ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_adopted_batch_leaves_out_what_its_receipt_does(control: OperatorTables) -> None:
    kept = row(KEPT.partition, KEPT.end_offset, by=FIRST_PLAN)
    adopt(control, adoption(batches=[adopted_without(LEFT_OUT)], stored=[row(LOST.partition, LOST.start_offset), kept]))

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.left_out, batch.plan.topic_ids) == (
        BatchState.COMMITTED,
        (LEFT_OUT,),
        {"orders": TOPIC_ID},
    )
    assert control.range_counts(FIRST_PLAN.batch_id) == [COUNT]
    assert control.committed_within(ORDERS_FEED, list(FIRST_PLAN.ranges)) == [KEPT]


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
@pytest.mark.parametrize("known", [(), (LEFT_OUT,)])
@pytest.mark.parametrize("left_out", [(), (LEFT_OUT,)])
def test_what_the_published_attempt_read_counts_whatever_older_tables_say(
    control: OperatorTables, state: BatchState, known: tuple[LeftOut, ...], left_out: tuple[LeftOut, ...]
) -> None:
    if known and state is not BatchState.PLANNED:
        written(control)
        if state is BatchState.COMMITTING:
            control.begin_commit(FIRST_PLAN.batch_id, 1)
    else:
        bring_to(control, state)
    batches = [adopted_without(*left_out, number=2)]
    adopt(control, adoption(batches=batches, stored=[row(KEPT.partition, KEPT.end_offset, by=FIRST_PLAN)]))

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.left_out) == (BatchState.COMMITTED, left_out)
    read = [KEPT] if left_out else list(FIRST_PLAN.ranges)
    assert [count.offset_range for count in control.range_counts(FIRST_PLAN.batch_id)] == read
