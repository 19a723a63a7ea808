"""Batches over several outputs and names.

What a published receipt has to carry, so that each output describes the whole feed.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.contract.builders import (
    FIRST_PLAN,
    ORDERS_FEED,
    OUTPUT,
    batch_id_of,
    bring_to,
    commit,
    gap,
    orders,
    plan_first,
    plan_next,
    plan_of,
    publish,
    refused,
    seed,
    snapshot_of,
    write,
)
from tests.contract.conftest import Store

from kafka_ingest.errors import OffsetsMovedError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

OTHER_FEED = UUID("01890000-0000-7000-8000-00000000beef")
ELSEWHERE = Path("/data/elsewhere")


def second(output: Path = ELSEWHERE, **changes: Any) -> BatchPlan:
    """Return the plan of the batch after the first, into an output."""
    return plan_of((orders(0), 100, 110), **({"number": 2, "output": output} | changes))


def kinds(control: OperatorTables, plan: BatchPlan) -> list[str]:
    """Return the kinds of the events that a batch's published receipt carries."""
    return [event.kind for event in control.ledger(plan.batch_id)]


def rows(*offsets: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Return stored offsets as the journal keeps them: partition, first and next offset."""
    return [
        {"topic": "orders", "partition": partition, "topic_id": "orders-topic-id"}
        | {"first_offset": first, "next_offset": following, "rule": "earliest"}
        for partition, first, following in offsets
    ]


# ── Another output ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_batch_in_another_output_carries_where_every_partition_stands(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, second())
    publish(control, second())

    (event,) = store.events("output_changed")
    assert (event.actor, event.batch_id) == ("planner", second().batch_id)
    assert event.detail["was"]["path"] == str(OUTPUT)
    assert event.detail["is"]["path"] == str(ELSEWHERE)
    assert event.detail["partitions"] == rows((0, 0, 100), (1, 40, 50))


def test_the_ledger_in_another_output_is_that_of_the_feed_from_its_beginning(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    control.file_gap(snapshot_of(control), gap(orders(1), 50, 60), seed=None, actor="ops")
    plan_next(control, second())
    commit(control, second())

    assert kinds(control, FIRST_PLAN) == ["seeded"]
    assert kinds(control, second()) == ["seeded", "gap", "output_changed"]
    assert control.ledger(second().batch_id)[-1].detail["partitions"] == rows((0, 0, 100), (1, 40, 60))


def test_the_second_batch_in_the_new_output_carries_what_is_new_alone(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, second())
    commit(control, second())
    third = plan_of((orders(0), 110, 120), number=3, output=ELSEWHERE)
    plan_next(control, third)
    commit(control, third)

    assert kinds(control, third) == []
    assert len(store.events("output_changed")) == 1


def test_back_in_the_first_output_the_ledger_is_carried_from_its_beginning_again(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, second())
    commit(control, second())
    third = plan_of((orders(1), 50, 55), number=3)
    plan_next(control, third)
    commit(control, third)

    assert kinds(control, third) == ["seeded", "output_changed", "output_changed"]
    newest = control.ledger(third.batch_id)[-1]
    assert (newest.detail["was"]["path"], newest.detail["is"]["path"]) == (str(ELSEWHERE), str(OUTPUT))
    assert newest.detail["partitions"] == rows((0, 0, 110), (1, 40, 50))


@pytest.mark.parametrize("first_time", [True, False])
def test_in_the_same_output_nothing_is_said_to_have_changed(store: Store, *, first_time: bool) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    later = second(OUTPUT)
    if not first_time:
        plan_next(control, later)
        commit(control, later)
        later = plan_of((orders(0), 110, 120), number=3)
    plan_next(control, later)
    commit(control, later)

    assert store.events("output_changed") == []
    assert kinds(control, later) == []


def test_a_feeds_first_batch_has_no_output_before_it(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)

    assert store.events("output_changed") == []


def test_a_batch_that_was_abandoned_left_nothing_in_its_output(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, second())
    control.abandon(second().batch_id, reason="wrong output", actor="ops")
    back = plan_of((orders(0), 100, 110), number=3)
    plan_next(control, back)
    commit(control, back)

    assert store.events("output_changed") == []


def test_a_commit_that_is_begun_again_does_not_say_it_twice(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, second())
    write(control, second())
    control.begin_commit(second().batch_id, 1)
    once = store.dump()
    control.begin_commit(second().batch_id, 1)
    assert store.dump() == once
    control.complete_commit(second().batch_id, actor="committer")
    control.begin_commit(second().batch_id, 1)

    assert len(store.events("output_changed")) == 1
    assert kinds(control, second()) == ["seeded", "output_changed"]


def test_a_commit_that_is_refused_says_nothing_of_its_output(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, second())
    write(control, second())
    store.reset_by_hand(orders(0), 90)

    with refused(store, OffsetsMovedError):
        control.begin_commit(second().batch_id, 1)


def test_another_feeds_output_is_no_output_of_this_one(store: Store) -> None:
    control = store.connect()
    other = plan_of((orders(0), 3, 5), number=9, feed_id=OTHER_FEED, feed_name="copy", output=ELSEWHERE)
    plan_first(control, other)
    commit(control, other)
    plan_first(control)
    commit(control, FIRST_PLAN)

    assert store.events("output_changed") == []


def test_a_seed_that_is_pending_is_carried_as_pending_into_the_other_output(store: Store) -> None:
    control = store.connect()
    plan_first(control, plan_of((orders(0), 0, 100)), seed(orders(0), 0), seed(orders(2), None, rule="latest"))
    commit(control, plan_of((orders(0), 0, 100)))
    plan_next(control, second())
    publish(control, second())

    (event,) = store.events("output_changed")
    assert [
        (entry["partition"], entry["first_offset"], entry["next_offset"]) for entry in event.detail["partitions"]
    ] == [
        (0, 0, 100),
        (2, None, None),
    ]


def test_a_backfill_into_another_output_does_not_move_the_feeds_output(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    backfill = plan_of((orders(0), 20, 30), number=2, kind=BatchKind.BACKFILL, output=ELSEWHERE)
    plan_next(control, backfill)
    commit(control, backfill)
    later = second(OUTPUT, number=3)
    plan_next(control, later)
    commit(control, later)

    assert store.events("output_changed") == []


# ── The newest batch ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_without_batches_has_no_newest(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 40))

    assert snapshot_of(control).newest_batch is None


@pytest.mark.parametrize("state", BatchState)
def test_the_newest_batch_is_known_in_whatever_state_it_is(control: OperatorTables, state: BatchState) -> None:
    bring_to(control, state)

    assert snapshot_of(control).newest_batch == FIRST_PLAN.batch_id
    by_id = control.feed_of_id(ORDERS_FEED)
    assert by_id is not None
    assert by_id.newest_batch == FIRST_PLAN.batch_id


def test_the_newest_batch_is_the_one_with_the_largest_id_whenever_it_was_planned(control: OperatorTables) -> None:
    ahead = plan_of((orders(0), 0, 100), (orders(1), 40, 50), number=7)
    plan_first(control, ahead)
    commit(control, ahead)
    behind = plan_of((orders(0), 100, 110), number=3)
    plan_next(control, behind)

    assert snapshot_of(control).newest_batch == batch_id_of(7)


def test_the_newest_batch_of_another_feed_is_not_this_ones(control: OperatorTables) -> None:
    plan_first(control)
    plan_first(control, plan_of((orders(0), 3, 5), number=9, feed_id=OTHER_FEED, feed_name="copy"))

    assert snapshot_of(control).newest_batch == batch_id_of(1)
    assert snapshot_of(control, "copy").newest_batch == batch_id_of(9)


# ── The feed's present name ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", BatchState)
def test_a_batch_says_its_feeds_present_name_and_its_plan_that_of_its_time(
    control: OperatorTables, state: BatchState
) -> None:
    bring_to(control, state)
    assert control.batch(FIRST_PLAN.batch_id).feed_name == "orders"
    control.rename_feed(snapshot_of(control), "sales", reason="a better name", actor="ops")

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.feed_name, batch.plan.feed_name) == ("sales", "orders")
    assert batch.plan.fingerprint == FIRST_PLAN.fingerprint


def test_the_open_batch_of_a_feeds_rows_says_its_present_name(control: OperatorTables) -> None:
    bring_to(control, BatchState.WRITTEN)
    control.rename_feed(snapshot_of(control), "sales", reason="a better name", actor="ops")

    open_batch = snapshot_of(control, "sales").open_batch
    assert open_batch is not None
    assert (open_batch.feed_name, open_batch.plan.feed_name) == ("sales", "orders")


def test_a_commit_that_is_completed_under_a_new_name_says_it(control: OperatorTables) -> None:
    bring_to(control, BatchState.COMMITTING)
    control.rename_feed(snapshot_of(control), "sales", reason="a better name", actor="ops")

    assert control.complete_commit(FIRST_PLAN.batch_id, actor="committer").feed_name == "sales"


def test_the_batches_of_another_feed_keep_their_name(control: OperatorTables) -> None:
    plan_first(control)
    plan_first(control, plan_of((orders(0), 3, 5), number=9, feed_id=OTHER_FEED, feed_name="copy"))
    control.rename_feed(snapshot_of(control), "sales", reason="a better name", actor="ops")

    assert control.batch(batch_id_of(9)).feed_name == "copy"
