"""Which attempts have ended, what of their offsets is committed, and what is cleaned up.

Over control tables in memory and in SQLite.
"""

from datetime import timedelta
from uuid import UUID

import pytest
from tests.contract.builders import (
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    attempt_of,
    bring_to,
    commit,
    orders,
    plan_first,
    plan_next,
    plan_of,
    seed,
)

from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import NewFeed, PlanRecord
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.ports.control import ControlTables, OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

LATER = NOON + timedelta(days=3650)
"""After everything that the tests do: batches change at the time the test runs."""

SALES_FEED = UUID("01890000-0000-7000-8000-00000000cafe")


def ended(control: ControlTables, ended_before=LATER) -> list[tuple[UUID, int]]:
    found = control.ended_attempts(ORDERS_FEED, ended_before=ended_before)
    return [(attempt.batch_id, attempt.attempt) for attempt in found]


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
def test_no_attempt_of_an_open_batch_has_ended(control: OperatorTables, state: BatchState):
    bring_to(control, state)
    assert ended(control) == []


@pytest.mark.parametrize("state", [BatchState.COMMITTED, BatchState.ABANDONED])
def test_all_attempts_of_an_ended_batch_have_ended_also_those_that_never_wrote_anything(
    control: OperatorTables, state: BatchState
):
    bring_to(control, state)
    assert ended(control) == [(FIRST_PLAN.batch_id, 1), (FIRST_PLAN.batch_id, 2)]


def test_discarded_attempts_have_ended_and_a_new_one_of_the_same_batch_has_not(control: OperatorTables):
    bring_to(control, BatchState.WRITTEN)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="damaged", actor="committer")
    control.open_attempt(attempt_of(FIRST_PLAN, 3))
    assert ended(control) == [(FIRST_PLAN.batch_id, 1), (FIRST_PLAN.batch_id, 2)]


def test_what_ended_after_the_time_that_is_asked_for_is_not_returned(control: OperatorTables):
    bring_to(control, BatchState.COMMITTED)
    changed = control.batch(FIRST_PLAN.batch_id).updated_at
    assert ended(control, changed) == []
    assert len(ended(control, changed + timedelta(microseconds=1))) == 2


def test_an_attempt_that_was_cleaned_up_is_not_returned_again(control: OperatorTables):
    bring_to(control, BatchState.COMMITTED)
    first, second = control.attempts(FIRST_PLAN.batch_id)
    control.note_cleaned(first)
    assert ended(control) == [(FIRST_PLAN.batch_id, 2)]
    control.note_cleaned(second)
    control.note_cleaned(second)
    assert ended(control) == []


def test_another_feeds_attempts_are_its_own(control: OperatorTables):
    bring_to(control, BatchState.COMMITTED)
    assert control.ended_attempts(SALES_FEED, ended_before=LATER) == []


def test_what_committed_batches_hold_of_a_batch_is_found_by_overlap(control: OperatorTables):
    abandoned = plan_first(control, plan_of((orders(0), 0, 100), (orders(1), 40, 50)))
    assert abandoned is not None
    control.abandon(abandoned.batch_id, reason="too large", actor="ops")
    again = [
        plan_of((orders(0), 0, 30), number=2),
        plan_of((orders(0), 30, 60), (orders(1), 40, 45), number=3),
        plan_of((orders(0), 60, 200), number=4),
    ]
    for plan in again[:2]:
        plan_next(control, plan)
        commit(control, plan)
    plan_next(control, again[2])

    assert control.committed_ranges(abandoned.batch_id) == [
        OffsetRange(orders(0), 0, 30),
        OffsetRange(orders(0), 30, 60),
        OffsetRange(orders(1), 40, 45),
    ]

    commit(control, again[2])
    assert OffsetRange(orders(0), 60, 200) in control.committed_ranges(abandoned.batch_id)


def test_ranges_that_only_touch_a_batchs_are_not_returned(control: OperatorTables):
    plan_first(control, plan_of((orders(0), 0, 30)))
    commit(control, plan_of((orders(0), 0, 30)))
    after = plan_of((orders(0), 30, 60), number=2)
    plan_next(control, after)
    assert control.committed_ranges(after.batch_id) == []


def test_what_another_feed_committed_of_the_same_topic_does_not_count(control: OperatorTables):
    sales = plan_of((orders(0), 0, 100), number=9, feed_id=SALES_FEED, feed_name="sales")
    control.record_plan(
        NewFeed(SALES_FEED, "sales"),
        PlanRecord("cluster-a", ["orders"], seeds=[seed(orders(0), 0)], plan=sales),
        actor="planner",
    )
    commit(control, sales)
    bring_to(control, BatchState.ABANDONED)
    assert control.committed_ranges(FIRST_PLAN.batch_id) == []
