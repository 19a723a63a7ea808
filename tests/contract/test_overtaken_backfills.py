"""A backfill whose offsets others read since it was planned: it is not committed, since they would come twice."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.contract.builders import (
    CLUSTER,
    NOON,
    ORDERS_FEED,
    TOPIC_ID,
    as_adopted,
    batch_id_of,
    commit,
    gap,
    jump,
    orders,
    plan_first,
    plan_next,
    plan_of,
    record,
    refused,
    seed,
    snapshot_of,
    write,
)
from tests.contract.conftest import Store

from kafka_ingest.errors import OffsetsMovedError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, NewFeed, StartOver
from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.published_output import Adoption
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough


def a_hole(control: OperatorTables) -> Gap:
    """Record a feed whose orders-0[20, 60) is an open gap, and whose live batch 1 committed orders-0[60, 100)."""
    plan_first(control, None, seed(orders(0), 20))
    record(control, jumps=[jump(orders(0), 20, 60)])
    live = plan_of((orders(0), 60, 100))
    plan_next(control, live)
    commit(control, live)
    rows = control.coverage("orders")
    assert rows is not None
    (found,) = rows.gaps
    return found


def claimed(control: OperatorTables, number: int = 2, planned_at: datetime | None = None) -> BatchPlan:
    """Plan a backfill of the hole, and write it."""
    plan = plan_of((orders(0), 20, 60), number=number, kind=BatchKind.BACKFILL, planned_at=planned_at)
    control.record_backfill(snapshot_of(control), BackfillRecord([plan], (), {"open_gaps": True}), actor="operator")
    write(control, plan)
    return plan


def test_what_came_after_its_plan_overtakes_a_backfill_whatever_the_clock_said_then(store: Store) -> None:
    control = store.connect()
    a_hole(control)
    plan = claimed(control, planned_at=datetime(2999, 1, 1, tzinfo=UTC))
    cut_off(control)
    again = plan_of((orders(0), 30, 100), number=3)
    plan_next(control, again)
    commit(control, again)

    with refused(store, OffsetsMovedError, match=r"orders-0\[30, 60\).*abandon"):
        control.begin_commit(plan.batch_id, 1)


def test_what_came_before_its_plan_overtakes_no_backfill_whatever_the_clock_said_then(store: Store) -> None:
    control = store.connect()
    a_hole(control)
    cut_off(control, at=30)
    control.file_gap(snapshot_of(control), gap(orders(0), 30, 60), seed=None, actor="ops")
    plan = claimed(control, planned_at=datetime(1999, 1, 1, tzinfo=UTC))
    commit_written(control, plan)

    assert control.batch(plan.batch_id).state is BatchState.COMMITTED


def cut_off(control: OperatorTables, at: int = 30) -> None:
    """Rewind orders-0 to where its log ends now."""
    feed = snapshot_of(control)
    row = replace(feed.stored[orders(0)], next_offset=at)
    control.start_over(feed, CLUSTER, [StartOver("orders", row.topic_id, [row])], reason="it was cut off", actor="ops")


def commit_written(control: OperatorTables, plan: BatchPlan) -> None:
    """Commit a batch that is WRITTEN."""
    control.begin_commit(plan.batch_id, 1)
    control.complete_commit(plan.batch_id, actor="committer")


def test_a_backfill_of_older_control_tables_is_not_committed_beside_the_one_that_was_planned_in_its_place(
    store: Store,
) -> None:
    control = store.connect()
    found = a_hole(control)
    plan = claimed(control)
    other = plan_of((orders(0), 20, 60), number=3, kind=BatchKind.BACKFILL)
    adopt(control, replace(found, closed_by_batch=other.batch_id), other)

    with refused(store, OffsetsMovedError, match=r"orders-0\[20, 60\).*abandon"):
        control.begin_commit(plan.batch_id, 1)


def test_one_that_nobody_overtook_is_committed(store: Store) -> None:
    control = store.connect()
    a_hole(control)
    plan = claimed(control)
    skipped = control.file_gap(snapshot_of(control), gap(orders(0), 100, 110), seed=None, actor="ops")
    commit_written(control, plan)

    assert [(each.offset_range, each.state) for each in store.gaps()] == [
        (plan.ranges[0], "closed"),
        (skipped.offset_range, "open"),
    ]


def test_tables_that_knew_nothing_adopt_a_gap_with_the_batch_that_closed_it(store: Store) -> None:
    filling = plan_of((orders(0), 20, 60), number=2, kind=BatchKind.BACKFILL)
    closed = Gap(
        gap_id=batch_id_of(90),
        offset_range=filling.ranges[0],
        topic_id=TOPIC_ID,
        cause=GapCause.SKIPPED,
        reason="poisoned",
        decided_by="ops",
        decided_at=NOON,
        applied_at=NOON,
        closed_by_batch=filling.batch_id,
    )
    adopt(store.connect(), closed, filling, feed=NewFeed(ORDERS_FEED, "orders"))

    assert store.gaps() == [closed]
    assert store.connect().batch(filling.batch_id).state is BatchState.COMMITTED


def adopt(control: OperatorTables, found: Gap, *plans: BatchPlan, feed: NewFeed | None = None) -> None:
    """Adopt batches and a gap."""
    adoption = Adoption(CLUSTER, ["orders"], [], [as_adopted(plan) for plan in plans], [found], [])
    control.adopt(feed or snapshot_of(control), adoption, reason="restored", actor="ops")
