"""What every implementation of the control tables does.

The in-memory fake, SQLite and PostgreSQL, by the same tests.
"""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    OUTPUT,
    STEPS,
    TOPIC_ID,
    attempt_of,
    batch_id_of,
    bring_to,
    commit,
    counts_of,
    gap,
    hold,
    jump,
    orders,
    pin,
    plan_first,
    plan_next,
    plan_of,
    publish,
    receipt_of,
    record,
    refused,
    seed,
    snapshot_of,
    stored,
    write,
)
from tests.contract.conftest import SqlStore, Store

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import (
    BatchStateError,
    FeedChangedError,
    KafkaIngestError,
    OffsetsMovedError,
    UnknownBatchError,
)
from kafka_ingest.model.batch import AttemptState, BatchKind, BatchState, sha256
from kafka_ingest.model.control_rows import NewFeed, PlanRecord
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.summaries import BatchRange
from kafka_ingest.ports.control import ControlTables

OTHER_FEED = UUID("01890000-0000-7000-8000-00000000beef")


# ── Plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_was_never_planned_is_not_there(control: ControlTables):
    assert control.feed("orders") is None


def test_a_first_plan_writes_feed_seeds_and_batch(control: ControlTables):
    plan_first(control, FIRST_PLAN, seed(orders(0), 0, leader_epoch=7), seed(orders(1), 40), seed(orders(2), 12))

    feed = snapshot_of(control)
    assert (feed.feed_id, feed.name, feed.cluster_id) == (ORDERS_FEED, "orders", CLUSTER)
    assert {tp: (row.first_offset, row.next_offset) for tp, row in feed.stored.items()} == {
        orders(0): (0, 0),
        orders(1): (40, 40),
        orders(2): (12, 12),
    }
    assert {row.topic_id for row in feed.stored.values()} == {"orders-topic-id"}
    assert {row.seeded_by for row in feed.stored.values()} == {"earliest"}
    assert [feed.stored[orders(number)].leader_epoch for number in (0, 1)] == [7, None]
    assert feed.open_batch is not None
    assert feed.open_batch.plan == FIRST_PLAN
    assert (feed.open_batch.state, feed.open_batch.planned_by) == (BatchState.PLANNED, "planner")
    assert feed.open_batch.pinned_attempt is None
    assert control.batch(FIRST_PLAN.batch_id) == feed.open_batch
    assert (control.attempts(FIRST_PLAN.batch_id), control.range_counts(FIRST_PLAN.batch_id)) == ([], [])


def test_a_first_plan_that_reads_nothing_writes_the_seeds_alone(control: ControlTables):
    plan_first(control, None, seed(orders(0), 1_000, rule="latest"))

    assert stored(control) == {orders(0): 1_000}
    assert snapshot_of(control).open_batch is None


def test_stored_offsets_come_in_the_order_of_their_partitions(control: ControlTables):
    zebra, apple = TopicPartition("Zebra", 0), TopicPartition("apple", 0)
    plan_first(control, None, *(seed(tp, 0) for tp in (orders(10), apple, orders(9), zebra)))

    assert list(snapshot_of(control).stored) == [zebra, apple, orders(9), orders(10)]


def test_a_second_first_plan_of_the_same_name_is_refused(store: Store):
    plan_first(store.connect())

    late = plan_of((orders(0), 0, 90), number=2, feed_id=OTHER_FEED)
    with refused(store, FeedChangedError, match="feed orders: another first plan was faster"):
        plan_first(store.connect(), late)


def test_two_feeds_have_an_open_batch_each(control: ControlTables):
    refunds = plan_of((TopicPartition("refunds", 0), 5, 6), number=2, feed_id=OTHER_FEED, feed_name="refunds")
    plan_first(control)
    plan_first(control, refunds)

    assert snapshot_of(control, "orders").open_batch == control.batch(FIRST_PLAN.batch_id)
    assert snapshot_of(control, "refunds").open_batch == control.batch(refunds.batch_id)
    assert stored(control, "refunds") == {TopicPartition("refunds", 0): 5}


def test_a_plan_decided_on_older_rows_is_refused_and_nothing_of_it_is_written(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0))
    old = snapshot_of(control)
    plan_next(store.connect(), None, seed(orders(2), 0))

    with refused(store, FeedChangedError, match="feed orders: another process wrote"):
        plan_next(control, plan_of((orders(0), 0, 10)), seed(orders(3), 0), snapshot=old)


def test_a_plan_while_a_batch_is_open_is_refused_and_nothing_of_it_is_written(store: Store):
    control = store.connect()
    plan_first(control)

    with refused(store, FeedChangedError, match="another batch is open already"):
        plan_next(control, plan_of((orders(2), 5, 6), number=2), seed(orders(2), 5))


@pytest.mark.parametrize("state", [BatchState.WRITTEN, BatchState.COMMITTING])
def test_a_batch_is_open_until_it_is_finished(store: Store, state: BatchState):
    control = store.connect()
    bring_to(control, state)

    with refused(store, FeedChangedError, match="another batch is open already"):
        plan_next(control, plan_of((orders(0), 0, 1), number=2))


def test_a_plan_that_does_not_start_at_the_stored_offsets_is_refused_and_nothing_is_written(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 40), seed(orders(2), 0))

    plan = plan_of((orders(0), 0, 10), (orders(1), 45, 50), (orders(2), 5, 10))
    with refused(store, OffsetsMovedError) as refusal:
        plan_next(control, plan, seed(orders(3), 0))

    assert "orders-1: expected 45, found 40" in str(refusal.value)
    assert "orders-2: expected 5, found 0" in str(refusal.value)
    assert "orders-0" not in str(refusal.value)


def test_a_plan_of_a_partition_without_a_stored_offset_is_refused(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))

    with refused(store, OffsetsMovedError, match="orders-1: expected 0, found None"):
        plan_next(control, plan_of((orders(0), 0, 10), (orders(1), 0, 10)))


def test_a_plan_of_a_partition_whose_seed_is_pending_is_refused(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), None))

    with refused(store, OffsetsMovedError, match="orders-0: expected 0, found None"):
        plan_next(control, plan_of((orders(0), 0, 10)))


def test_a_plan_of_another_topic_id_than_the_stored_one_is_refused(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0, topic_id="deleted-topic"))

    with refused(store, OffsetsMovedError, match="orders-0"):
        plan_next(control, plan_of((orders(0), 0, 10), topic_id="made-again"))


def test_every_write_to_a_feeds_rows_grows_its_revision(control: ControlTables):
    revisions = []

    def note() -> None:
        revisions.append(snapshot_of(control).revision)

    plan_first(control)
    note()
    control.open_attempt(attempt_of(FIRST_PLAN, 1))
    note()
    pin(control, FIRST_PLAN, 1)
    note()
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="damaged", actor="committer")
    note()
    control.open_attempt(attempt_of(FIRST_PLAN, 2))
    note()
    pin(control, FIRST_PLAN, 2)
    note()
    control.begin_commit(FIRST_PLAN.batch_id, 2)
    note()
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    note()
    plan_next(control, plan_of((orders(0), 100, 110), number=2))
    note()
    control.abandon(batch_id_of(2), reason="not wanted", actor="ops")
    note()

    assert all(later > earlier for earlier, later in pairwise(revisions))


def test_reading_changes_nothing(store: Store):
    control = store.connect()
    bring_to(control, BatchState.COMMITTING)
    before = store.dump()

    control.feed("orders")
    control.batch(FIRST_PLAN.batch_id)
    control.attempts(FIRST_PLAN.batch_id)
    control.range_counts(FIRST_PLAN.batch_id)
    control.ledger(FIRST_PLAN.batch_id)

    assert store.dump() == before


# ── Seeds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pending_seed_is_kept_as_a_row_without_offsets(control: ControlTables):
    plan_first(control, None, seed(orders(0), None, rule="latest"))

    row = snapshot_of(control).stored[orders(0)]
    assert (row.first_offset, row.next_offset, row.seeded_by, row.is_pending) == (None, None, "latest", True)


def test_a_pending_seed_is_resolved_by_a_later_plan_that_reads_from_there(control: ControlTables):
    plan_first(control, None, seed(orders(0), None, rule="latest"), seed(orders(1), 7))
    plan = plan_of((orders(0), 500, 510))
    plan_next(control, plan, seed(orders(0), 500, rule="latest", leader_epoch=4))

    row = snapshot_of(control).stored[orders(0)]
    assert (row.first_offset, row.next_offset, row.seeded_by, row.leader_epoch) == (500, 500, "latest", 4)
    assert stored(control) == {orders(0): 500, orders(1): 7}
    assert control.batch(plan.batch_id).state is BatchState.PLANNED


def test_a_start_rule_never_moves_an_existing_offset(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), 40))

    with refused(store, FeedChangedError, match="orders-0 has a stored offset already"):
        plan_next(control, None, seed(orders(0), 0), seed(orders(1), 0))


def test_a_seed_that_was_resolved_is_not_resolved_again(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), None))
    plan_next(control, None, seed(orders(0), 500))

    with refused(store, FeedChangedError, match="orders-0 has a stored offset already"):
        plan_next(control, None, seed(orders(0), 700))


def test_a_partition_gained_later_is_seeded_without_touching_the_others(control: ControlTables):
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, None, seed(orders(2), 0, rule="new partition"))

    assert stored(control) == {orders(0): 100, orders(1): 50, orders(2): 0}
    assert snapshot_of(control).stored[orders(2)].seeded_by == "new partition"


# ── Attempts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_attempts_are_found_as_they_were_opened_in_the_order_of_their_numbers(control: ControlTables):
    plan_first(control)
    attempts = [attempt_of(FIRST_PLAN, number) for number in (1, 2, 3, 10)]
    for attempt in (attempts[0], attempts[2], attempts[1], attempts[3]):
        control.open_attempt(attempt)

    assert control.attempts(FIRST_PLAN.batch_id) == attempts
    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.PLANNED


def test_the_second_actor_that_opens_an_attempt_of_the_same_number_is_refused(store: Store):
    control = store.connect()
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))

    with refused(store, FeedChangedError, match="attempt 1 was opened by another process"):
        store.connect().open_attempt(attempt_of(FIRST_PLAN, 1))


def test_the_number_of_a_discarded_attempt_is_not_free_again(store: Store):
    control = store.connect()
    plan_first(control)
    write(control, FIRST_PLAN)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="damaged", actor="committer")

    with refused(store, FeedChangedError, match="attempt 1"):
        control.open_attempt(attempt_of(FIRST_PLAN, 1))


# ── Pinning ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pinned_attempt_makes_the_batch_written(control: ControlTables):
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))
    pin(control, FIRST_PLAN, 1, rows={orders(0): 98, orders(1): 10})

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.pinned_attempt) == (BatchState.WRITTEN, 1)
    assert (batch.rows, batch.size_bytes) == (108, 2_000)
    receipt = receipt_of(FIRST_PLAN, 1, {orders(0): 98, orders(1): 10})
    attempt = control.attempts(FIRST_PLAN.batch_id)[0]
    assert (attempt.state, attempt.receipt_sha256) == (AttemptState.PINNED, sha256(receipt.as_bytes()))
    assert stored(control) == {orders(0): 0, orders(1): 40}


def test_a_pinned_receipt_with_records_without_a_date_is_in_the_journal(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))
    whole = receipt_of(FIRST_PLAN, 1)
    first, *others = whole.files
    receipt = replace(whole, files=(replace(first, without_date=3), *others))

    control.pin(FIRST_PLAN.batch_id, 1, receipt, sha256(receipt.as_bytes()), receipt.range_counts(FIRST_PLAN))

    [event] = store.events("no_dates")
    assert (event.batch_id, event.actor, event.detail) == (FIRST_PLAN.batch_id, "spark 1", {"attempt": 1, "rows": 3})


def test_the_counts_of_each_range_are_stored_with_the_pin_in_the_plans_order(control: ControlTables):
    zebra, apple = TopicPartition("Zebra", 0), TopicPartition("apple", 0)
    plan = plan_of((orders(10), 0, 5), (orders(9), 3, 13), (zebra, 0, 4), (apple, 7, 9))
    plan_first(control, plan)
    control.open_attempt(attempt_of(plan, 1))
    pin(control, plan, 1, rows={orders(9): 8, apple: 0})

    counts = control.range_counts(plan.batch_id)
    assert [
        (count.offset_range, count.rows, count.invisible, count.smallest_offset, count.largest_offset)
        for count in counts
    ] == [
        (OffsetRange(zebra, 0, 4), 4, 0, 0, 3),
        (OffsetRange(apple, 7, 9), 0, 2, None, None),
        (OffsetRange(orders(9), 3, 13), 8, 2, 3, 10),
        (OffsetRange(orders(10), 0, 5), 5, 0, 0, 4),
    ]


def test_an_attempt_that_was_never_opened_cannot_be_pinned(store: Store):
    control = store.connect()
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))

    with refused(store, BatchStateError, match="attempt 2 is not open"):
        pin(control, FIRST_PLAN, 2)


def test_the_second_pin_is_refused_with_who_won(store: Store):
    control = store.connect()
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))
    control.open_attempt(attempt_of(FIRST_PLAN, 2))
    pin(control, FIRST_PLAN, 2)

    with refused(store, BatchStateError, match="found WRITTEN") as refusal:
        pin(store.connect(), FIRST_PLAN, 1)

    assert "attempt 2" in str(refusal.value)


def test_the_attempts_that_lost_stay_open_and_unpinned(control: ControlTables):
    plan_first(control)
    for number in (1, 2, 3):
        control.open_attempt(attempt_of(FIRST_PLAN, number))
    pin(control, FIRST_PLAN, 2)

    assert [
        (attempt.state, attempt.receipt_sha256 is not None) for attempt in control.attempts(FIRST_PLAN.batch_id)
    ] == [
        (AttemptState.OPEN, False),
        (AttemptState.PINNED, True),
        (AttemptState.OPEN, False),
    ]


# ── Discarding ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_discarding_takes_a_written_batch_back_to_planned_with_all_its_attempts(control: ControlTables):
    bring_to(control, BatchState.WRITTEN)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="part-00000 is short", actor="committer")

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.pinned_attempt, batch.rows, batch.size_bytes) == (BatchState.PLANNED, None, None, None)
    assert batch.plan == FIRST_PLAN
    assert [(attempt.state, attempt.reason) for attempt in control.attempts(FIRST_PLAN.batch_id)] == [
        (AttemptState.DISCARDED, "part-00000 is short"),
        (AttemptState.DISCARDED, "part-00000 is short"),
    ]
    assert control.range_counts(FIRST_PLAN.batch_id) == []
    assert snapshot_of(control).open_batch == batch


@pytest.mark.parametrize("number", [1, 2])
def test_no_attempt_of_before_a_discard_can_be_pinned(store: Store, number: int):
    control = store.connect()
    bring_to(control, BatchState.WRITTEN)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="damaged", actor="committer")

    with refused(store, BatchStateError, match=f"attempt {number} is not open any more"):
        pin(control, FIRST_PLAN, number)


def test_a_discarded_attempt_keeps_the_reason_it_was_discarded_for(control: ControlTables):
    plan_first(control)
    write(control, FIRST_PLAN)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="first reason", actor="committer")
    control.open_attempt(attempt_of(FIRST_PLAN, 2))
    pin(control, FIRST_PLAN, 2)
    control.discard_written(FIRST_PLAN.batch_id, 2, reason="second reason", actor="committer")

    assert [attempt.reason for attempt in control.attempts(FIRST_PLAN.batch_id)] == ["first reason", "second reason"]


def test_a_discard_in_the_name_of_another_attempt_is_refused(store: Store):
    control = store.connect()
    bring_to(control, BatchState.WRITTEN)

    with refused(store, BatchStateError, match="expected attempt 2 to be the pinned one, found 1"):
        control.discard_written(FIRST_PLAN.batch_id, 2, reason="damaged", actor="committer")


def test_a_discard_is_recorded_in_the_journal(store: Store):
    control = store.connect()
    bring_to(control, BatchState.WRITTEN)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="damaged", actor="committer")

    (event,) = store.events("attempts_discarded")
    assert (event.actor, event.batch_id) == ("committer", FIRST_PLAN.batch_id)
    assert event.detail == {"attempt": 1, "reason": "damaged"}


# ── Beginning a commit ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", [BatchState.COMMITTING, BatchState.COMMITTED])
def test_a_commit_that_has_begun_is_not_begun_again(store: Store, state: BatchState):
    control = store.connect()
    bring_to(control, state)
    before = store.dump()

    control.begin_commit(FIRST_PLAN.batch_id, 1)

    assert store.dump() == before


@pytest.mark.parametrize("state", [BatchState.WRITTEN, BatchState.COMMITTING, BatchState.COMMITTED])
def test_a_commit_in_the_name_of_another_attempt_is_refused(store: Store, state: BatchState):
    control = store.connect()
    bring_to(control, state)

    with refused(store, BatchStateError, match="expected attempt 2 to be the pinned one, found 1"):
        control.begin_commit(FIRST_PLAN.batch_id, 2)


def test_a_commit_does_not_begin_where_stored_offsets_were_moved(store: Store):
    control = store.connect()
    plan = plan_of((orders(0), 0, 100), (orders(1), 40, 50), (orders(2), 7, 9))
    plan_first(control, plan)
    write(control, plan)
    store.reset_by_hand(orders(1), 30)
    store.reset_by_hand(orders(2), 900)

    with refused(store, OffsetsMovedError) as refusal:
        control.begin_commit(plan.batch_id, 1)

    assert "orders-1: expected 40, found 30" in str(refusal.value)
    assert "orders-2: expected 7, found 900" in str(refusal.value)
    assert "orders-0" not in str(refusal.value)


def test_a_commit_does_not_begin_where_a_topic_has_another_id(store: Store):
    control = store.connect()
    plan_first(control)
    write(control, FIRST_PLAN)
    store.recreate_by_hand(orders(1), "made-again")

    with refused(store, OffsetsMovedError, match="orders-1"):
        control.begin_commit(FIRST_PLAN.batch_id, 1)


# ── Completing a commit ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_completed_commit_moves_all_stored_offsets_of_the_batch_and_no_others(control: ControlTables):
    plan = plan_of((orders(0), 0, 100), (orders(1), 40, 50), leader_epochs={orders(0): 9})
    plan_first(
        control, plan, seed(orders(0), 0, leader_epoch=8), seed(orders(1), 40, leader_epoch=5), seed(orders(2), 12)
    )
    publish(control, plan)
    done = control.complete_commit(plan.batch_id, actor="committer")

    assert (done.state, done.committed_by, done.rows) == (BatchState.COMMITTED, "committer", 110)
    assert done.committed_at is not None
    assert control.batch(plan.batch_id) == done
    rows = snapshot_of(control).stored
    assert stored(control) == {orders(0): 100, orders(1): 50, orders(2): 12}
    assert [rows[orders(number)].first_offset for number in (0, 1, 2)] == [0, 40, 12]
    assert [rows[orders(number)].batch_id for number in (0, 1, 2)] == [plan.batch_id, plan.batch_id, None]
    assert [rows[orders(number)].leader_epoch for number in (0, 1, 2)] == [9, None, None]
    assert snapshot_of(control).open_batch is None


def test_a_commit_moves_no_offset_of_another_feed_that_reads_the_same_topic(control: ControlTables):
    rival = plan_of((orders(0), 0, 7), number=2, feed_id=OTHER_FEED, feed_name="orders-copy")
    plan_first(control)
    plan_first(control, rival)
    commit(control, FIRST_PLAN)

    assert stored(control, "orders-copy") == {orders(0): 0}


def test_one_moved_row_of_many_holds_back_all_of_them(store: Store):
    control = store.connect()
    plan = plan_of(*((orders(number), number, number + 10) for number in range(1_000)))
    plan_first(control, plan)
    publish(control, plan)
    store.reset_by_hand(orders(617), 600)

    with refused(store, OffsetsMovedError, match="orders-617: expected 617, found 600"):
        control.complete_commit(plan.batch_id, actor="committer")

    assert control.batch(plan.batch_id).state is BatchState.COMMITTING
    assert stored(control) == {orders(number): number for number in range(1_000)} | {orders(617): 600}


def test_a_commit_completes_once_the_moved_row_is_back(store: Store):
    control = store.connect()
    plan_first(control)
    publish(control, FIRST_PLAN)
    store.reset_by_hand(orders(1), 30)
    with pytest.raises(OffsetsMovedError):
        control.complete_commit(FIRST_PLAN.batch_id, actor="first try")
    store.reset_by_hand(orders(1), 40)

    assert control.complete_commit(FIRST_PLAN.batch_id, actor="second try").committed_by == "second try"
    assert stored(control) == {orders(0): 100, orders(1): 50}


@pytest.mark.parametrize(("planned", "found"), [("orders-topic-id", "made-again"), ("known", None), (None, "known")])
def test_another_topic_id_holds_back_a_commit_and_is_named(store: Store, planned: str | None, found: str | None):
    control = store.connect()
    plan = plan_of((orders(0), 0, 100), (orders(1), 40, 50), topic_id=planned)
    plan_first(control, plan)
    publish(control, plan)
    store.recreate_by_hand(orders(1), found)

    with refused(store, OffsetsMovedError, match="orders-1"):
        control.complete_commit(plan.batch_id, actor="committer")


def test_a_topic_whose_id_nobody_knows_is_committed(control: ControlTables):
    plan = plan_of((orders(0), 0, 100), topic_id=None)
    plan_first(control, plan)
    commit(control, plan)

    assert stored(control) == {orders(0): 100}


def test_a_commit_that_landed_is_not_made_twice_and_stays_with_the_first(store: Store):
    control = store.connect()
    plan_first(control)
    publish(control, FIRST_PLAN)
    first = control.complete_commit(FIRST_PLAN.batch_id, actor="first")
    before = store.dump()

    again = store.connect().complete_commit(FIRST_PLAN.batch_id, actor="second")

    assert again == first
    assert again.committed_by == "first"
    assert store.dump() == before


def test_a_batch_is_committed_forever_whatever_is_committed_after_it(control: ControlTables):
    plan_first(control)
    commit(control, FIRST_PLAN, actor="first")
    later = plan_of((orders(0), 100, 130), number=2)
    plan_next(control, later)
    commit(control, later, actor="second")

    assert control.complete_commit(FIRST_PLAN.batch_id, actor="a week later").committed_by == "first"
    assert stored(control) == {orders(0): 130, orders(1): 50}
    assert snapshot_of(control).stored[orders(0)].batch_id == later.batch_id


def test_ten_thousand_partitions_are_committed_together(sql_control: SqlControlTables):
    plan = plan_of(*((orders(number), number, number + 3) for number in range(10_000)))
    plan_first(sql_control, plan)
    commit(sql_control, plan)

    assert stored(sql_control) == {orders(number): number + 3 for number in range(10_000)}
    assert sql_control.batch(plan.batch_id).rows == 30_000
    assert len(sql_control.range_counts(plan.batch_id)) == 10_000


# ── Abandoning ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN])
def test_an_abandoned_batch_moves_no_offset_and_says_why(store: Store, state: BatchState):
    control = store.connect()
    bring_to(control, state)
    control.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops")

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.reason) == (BatchState.ABANDONED, "wrong topic")
    assert stored(control) == {orders(0): 0, orders(1): 40}
    (event,) = store.events("abandoned")
    assert (event.actor, event.batch_id) == ("ops", FIRST_PLAN.batch_id)
    assert event.detail == {"reason": "wrong topic", "was": state.value}


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN])
def test_after_an_abandoned_batch_the_same_offsets_are_planned_again(control: ControlTables, state: BatchState):
    bring_to(control, state)
    control.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops")
    assert snapshot_of(control).open_batch is None
    again = plan_of((orders(0), 0, 120), number=2)
    plan_next(control, again)
    commit(control, again)

    assert stored(control) == {orders(0): 120, orders(1): 40}
    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.ABANDONED


def test_a_batch_that_may_be_visible_is_not_abandoned_plainly(control: ControlTables):
    bring_to(control, BatchState.COMMITTING)

    with pytest.raises(BatchStateError, match=r"is COMMITTING: .*revoked first: `kafka-ingest abandon`"):
        control.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops")

    assert control.complete_commit(FIRST_PLAN.batch_id, actor="committer").state is BatchState.COMMITTED


def test_a_batch_that_was_to_be_abandoned_only_while_planned_is_kept_once_it_is_written(store: Store):
    control = store.connect()
    bring_to(control, BatchState.WRITTEN)

    with refused(store, BatchStateError, match="is WRITTEN: expected PLANNED to abandon it"):
        control.abandon(FIRST_PLAN.batch_id, reason="does not fit", actor="planner", only_from={BatchState.PLANNED})


def test_a_planned_batch_is_abandoned_by_a_call_that_abandons_only_planned_ones(control: ControlTables):
    bring_to(control, BatchState.PLANNED)
    control.abandon(FIRST_PLAN.batch_id, reason="does not fit", actor="planner", only_from={BatchState.PLANNED})

    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.ABANDONED


# ── The transition table ──────────────────────────────────────────────────────────────────────────────────────────────

ENDS_IN: dict[tuple[BatchState, str], BatchState] = {
    (BatchState.PLANNED, "open_attempt"): BatchState.PLANNED,
    (BatchState.PLANNED, "pin"): BatchState.WRITTEN,
    (BatchState.PLANNED, "abandon"): BatchState.ABANDONED,
    (BatchState.WRITTEN, "discard_written"): BatchState.PLANNED,
    (BatchState.WRITTEN, "begin_commit"): BatchState.COMMITTING,
    (BatchState.WRITTEN, "abandon"): BatchState.ABANDONED,
    (BatchState.COMMITTING, "begin_commit"): BatchState.COMMITTING,
    (BatchState.COMMITTING, "complete_commit"): BatchState.COMMITTED,
    (BatchState.COMMITTED, "begin_commit"): BatchState.COMMITTED,
    (BatchState.COMMITTED, "complete_commit"): BatchState.COMMITTED,
}


@pytest.mark.parametrize(("state", "step"), ENDS_IN)
def test_an_allowed_step_ends_in_the_state_of_the_table(control: ControlTables, state: BatchState, step: str):
    bring_to(control, state)

    STEPS[step](control, FIRST_PLAN)

    assert control.batch(FIRST_PLAN.batch_id).state is ENDS_IN[state, step]


@pytest.mark.sqlite_is_enough
@pytest.mark.parametrize(
    ("state", "step"), [(state, step) for state in BatchState for step in STEPS if (state, step) not in ENDS_IN]
)
def test_every_other_step_is_refused_and_changes_nothing(store: Store, state: BatchState, step: str):
    control = store.connect()
    bring_to(control, state)

    with refused(store, BatchStateError, match=state.value):
        STEPS[step](control, FIRST_PLAN)


@pytest.mark.sqlite_is_enough
@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_a_batch_that_was_abandoned_before_it_was_written_is_refused(store: Store, step: str):
    control = store.connect()
    bring_to(control, BatchState.PLANNED)
    control.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops")

    with refused(store, BatchStateError, match="ABANDONED"):
        STEPS[step](control, FIRST_PLAN)


@pytest.mark.sqlite_is_enough
@pytest.mark.parametrize("step", STEPS)
def test_a_step_on_a_batch_nobody_knows_is_refused_by_its_id(store: Store, step: str):
    control = store.connect()
    plan_first(control)

    with refused(store, UnknownBatchError, match=str(batch_id_of(404))):
        STEPS[step](control, plan_of((orders(0), 0, 100), number=404))


def test_a_question_about_a_batch_nobody_knows_is_refused_by_its_id(control: ControlTables):
    plan_first(control)

    with pytest.raises(UnknownBatchError, match=str(batch_id_of(404))):
        control.batch(batch_id_of(404))


# ── The ledger ────────────────────────────────────────────────────────────────────────────────────────────────────────


def seeds_in(control: ControlTables, batch_id: UUID) -> list[list[tuple[int, int | None]]]:
    """Return (partition, offset) of the seeds that a batch's ledger carries, event by event."""
    return [
        [(entry["partition"], entry["offset"]) for entry in event.detail["partitions"]]
        for event in control.ledger(batch_id)
        if event.kind == "seeded"
    ]


def test_the_first_published_batch_carries_the_feeds_seeds(control: ControlTables):
    plan_first(control, FIRST_PLAN, seed(orders(0), 0), seed(orders(1), 40), seed(orders(2), None, rule="latest"))
    publish(control, FIRST_PLAN)

    (event,) = control.ledger(FIRST_PLAN.batch_id)
    assert (event.kind, event.actor, event.batch_id) == ("seeded", "planner", None)
    assert event.detail == {
        "partitions": [
            {"topic": "orders", "partition": 0, "topic_id": "orders-topic-id", "offset": 0, "rule": "earliest"},
            {"topic": "orders", "partition": 1, "topic_id": "orders-topic-id", "offset": 40, "rule": "earliest"},
            {"topic": "orders", "partition": 2, "topic_id": "orders-topic-id", "offset": None, "rule": "latest"},
        ]
    }


def test_a_batch_carries_what_happened_since_the_previous_published_one(control: ControlTables):
    plan_first(control)
    commit(control, FIRST_PLAN)
    plan_next(control, None, seed(orders(2), 0))
    control.record_event(ORDERS_FEED, "reset", actor="ops", batch_id=None, detail={"to": 90})
    second = plan_of((orders(3), 5, 6), number=2)
    plan_next(control, second, seed(orders(3), 5))
    publish(control, second)

    assert [event.kind for event in control.ledger(second.batch_id)] == ["seeded", "reset", "seeded"]
    assert seeds_in(control, second.batch_id) == [[(2, 0)], [(3, 5)]]


def test_a_batch_carries_nothing_where_nothing_happened_since_the_previous_one(control: ControlTables):
    plan_first(control)
    commit(control, FIRST_PLAN)
    second = plan_of((orders(0), 100, 110), number=2)
    plan_next(control, second)
    publish(control, second)

    assert control.ledger(second.batch_id) == []


def test_the_ledger_of_a_batch_says_the_same_when_asked_again_after_later_batches(control: ControlTables):
    plan_first(control)
    publish(control, FIRST_PLAN)
    first = control.ledger(FIRST_PLAN.batch_id)
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    second = plan_of((orders(2), 5, 6), number=2)
    plan_next(control, second, seed(orders(2), 5))
    commit(control, second)
    control.record_event(ORDERS_FEED, "gap", actor="ops", batch_id=None, detail={"partition": 0})

    assert control.ledger(FIRST_PLAN.batch_id) == first
    assert seeds_in(control, FIRST_PLAN.batch_id) == [[(0, 0), (1, 40)]]
    assert seeds_in(control, second.batch_id) == [[(2, 5)]]


def test_what_happens_while_a_batch_is_being_published_goes_to_the_next_one(control: ControlTables):
    plan_first(control)
    publish(control, FIRST_PLAN)
    control.record_event(ORDERS_FEED, "gap", actor="ops", batch_id=None, detail={"partition": 1})
    first = control.ledger(FIRST_PLAN.batch_id)
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    second = plan_of((orders(0), 100, 110), number=2)
    plan_next(control, second)
    publish(control, second)

    assert [event.kind for event in first] == ["seeded"]
    assert [event.kind for event in control.ledger(second.batch_id)] == ["gap"]


def test_the_seeds_of_an_abandoned_batch_go_to_the_next_published_one(control: ControlTables):
    bring_to(control, BatchState.WRITTEN)
    control.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops")
    second = plan_of((orders(0), 0, 120), number=2)
    plan_next(control, second)
    publish(control, second)

    assert seeds_in(control, second.batch_id) == [[(0, 0), (1, 40)]]


def test_the_ledger_carries_no_other_events_and_none_of_other_feeds(control: ControlTables):
    plan_first(control)
    plan_first(
        control, plan_of((TopicPartition("refunds", 0), 5, 6), number=2, feed_id=OTHER_FEED, feed_name="refunds")
    )
    control.record_event(ORDERS_FEED, "mirror_failed", actor="committer", batch_id=None, detail={})
    control.record_event(OTHER_FEED, "gap", actor="ops", batch_id=None, detail={})
    control.record_event(ORDERS_FEED, "reset", actor="ops", batch_id=None, detail={})
    publish(control, FIRST_PLAN)

    assert [event.kind for event in control.ledger(FIRST_PLAN.batch_id)] == ["seeded", "reset"]


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.ABANDONED])
def test_a_batch_that_is_not_being_published_has_no_ledger(control: ControlTables, state: BatchState):
    bring_to(control, state)

    with pytest.raises(BatchStateError, match=state.value):
        control.ledger(FIRST_PLAN.batch_id)


# ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_events_are_kept_as_they_were_recorded_newest_first(store: Store):
    control = store.connect()
    plan_first(control)
    control.record_event(
        ORDERS_FEED, "mirror_failed", actor="committer", batch_id=FIRST_PLAN.batch_id, detail={"reason": "größer"}
    )
    control.record_event(
        ORDERS_FEED, "mirror_failed", actor="ops", batch_id=None, detail={"partitions": [0, {"to": None}]}
    )

    newest, oldest = store.events("mirror_failed")
    assert (newest.actor, newest.batch_id, newest.detail) == ("ops", None, {"partitions": [0, {"to": None}]})
    assert (oldest.actor, oldest.batch_id, oldest.detail) == ("committer", FIRST_PLAN.batch_id, {"reason": "größer"})
    assert newest.event_id > oldest.event_id
    assert newest.at.utcoffset() == oldest.at.utcoffset() == timedelta(0)


def test_an_event_changes_no_other_row(store: Store):
    control = store.connect()
    plan_first(control)
    before = snapshot_of(control)
    control.record_event(ORDERS_FEED, "mirror_failed", actor="committer", batch_id=None, detail={})

    after = snapshot_of(control)
    assert (after.stored, after.open_batch) == (before.stored, before.open_batch)


# ── What only the command line asks, of a database ────────────────────────────────────────────────────────────────────


def test_the_newest_events_of_a_kind_are_found_up_to_a_limit(sql_control: SqlControlTables):
    plan_first(sql_control)
    for number in range(5):
        sql_control.record_event(ORDERS_FEED, "reset", actor=f"ops {number}", batch_id=None, detail={})
        sql_control.record_event(ORDERS_FEED, "gap", actor="planner", batch_id=None, detail={})

    assert [event.actor for event in sql_control.journal(ORDERS_FEED, kinds=["reset"], limit=2)] == ["ops 4", "ops 3"]
    assert sql_control.journal(OTHER_FEED, kinds=["reset"], limit=1) == []


def test_rows_by_partition_counts_what_was_committed_by_live_batches_and_backfills(sql_control: SqlControlTables):
    plan_first(sql_control)
    sql_control.open_attempt(attempt_of(FIRST_PLAN, 1))
    pin(sql_control, FIRST_PLAN, 1, rows={orders(0): 90, orders(1): 10})
    assert sql_control.rows_by_partition(ORDERS_FEED) == {}
    sql_control.begin_commit(FIRST_PLAN.batch_id, 1)
    sql_control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    second = plan_of((orders(0), 100, 105), number=2)
    plan_next(sql_control, second)
    commit(sql_control, second)
    backfill = plan_of((orders(0), 0, 50), number=3, kind=BatchKind.BACKFILL)
    plan_next(sql_control, backfill)
    commit(sql_control, backfill)
    written = plan_of((orders(0), 105, 110), number=4)
    plan_next(sql_control, written)
    write(sql_control, written)

    assert sql_control.rows_by_partition(ORDERS_FEED) == {orders(0): 145, orders(1): 10}


def test_feed_summaries_say_where_each_feed_stands(sql_control: SqlControlTables):
    refunds = plan_of((TopicPartition("refunds", 0), 5, 6), number=2, feed_id=OTHER_FEED, feed_name="refunds")
    plan_first(sql_control, refunds)
    write(sql_control, refunds)
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)

    first, second = sql_control.feed_summaries()
    assert (first.name, first.cluster_id, first.partitions, first.rows_committed) == ("orders", CLUSTER, 2, 110)
    assert (first.open_batch, first.open_batch_state) == (None, None)
    assert first.last_committed_at == sql_control.batch(FIRST_PLAN.batch_id).committed_at
    assert (second.name, second.partitions, second.rows_committed) == ("refunds", 1, 0)
    assert (second.open_batch, second.open_batch_state) == (refunds.batch_id, BatchState.WRITTEN)
    assert second.last_committed_at is None


def test_without_feeds_there_are_no_summaries(sql_control: SqlControlTables):
    assert sql_control.feed_summaries() == []
    assert sql_control.batch_summaries() == []


def three_batches(control: SqlControlTables) -> None:
    """Commit batches 1 and 2, abandon batch 3; each planned an hour after the one before it."""
    plan_first(control)
    commit(control, FIRST_PLAN)
    second = plan_of((orders(0), 100, 130), number=2)
    plan_next(control, second)
    commit(control, second)
    third = plan_of((orders(0), 130, 131), number=3)
    plan_next(control, third)
    control.abandon(third.batch_id, reason="not wanted", actor="ops")


def test_batches_are_listed_newest_first(sql_control: SqlControlTables):
    three_batches(sql_control)

    assert [(line.batch_id, line.state, line.reason) for line in sql_control.batch_summaries("orders")] == [
        (batch_id_of(3), BatchState.ABANDONED, "not wanted"),
        (batch_id_of(2), BatchState.COMMITTED, None),
        (batch_id_of(1), BatchState.COMMITTED, None),
    ]


def test_batches_of_one_instant_are_listed_by_their_time_ordered_ids(sql_control: SqlControlTables):
    plan_first(sql_control)
    for number in (12, 11, 13):
        plan_next(sql_control, plan_of((orders(0), 0, 1), number=number, kind=BatchKind.BACKFILL, planned_at=NOON))

    assert [line.batch_id for line in sql_control.batch_summaries("orders")] == [
        batch_id_of(1),
        batch_id_of(13),
        batch_id_of(12),
        batch_id_of(11),
    ]


def test_the_list_of_batches_is_limited_to_the_newest(sql_control: SqlControlTables):
    three_batches(sql_control)

    assert [line.batch_id for line in sql_control.batch_summaries("orders", limit=2)] == [
        batch_id_of(3),
        batch_id_of(2),
    ]


def test_the_list_of_batches_begins_at_an_instant_that_is_in_it(sql_control: SqlControlTables):
    three_batches(sql_control)

    since = NOON + timedelta(hours=2)
    assert [line.batch_id for line in sql_control.batch_summaries("orders", since=since)] == [
        batch_id_of(3),
        batch_id_of(2),
    ]


def test_the_list_of_batches_is_of_one_feed_or_of_all(sql_control: SqlControlTables):
    plan_first(sql_control)
    refunds = plan_of((TopicPartition("refunds", 0), 5, 6), number=2, feed_id=OTHER_FEED, feed_name="refunds")
    plan_first(sql_control, refunds)

    assert [line.feed for line in sql_control.batch_summaries()] == ["refunds", "orders"]
    assert [line.feed for line in sql_control.batch_summaries("orders")] == ["orders"]
    assert sql_control.batch_summaries("nobody") == []


def test_a_batch_is_listed_with_what_it_read_and_wrote(sql_control: SqlControlTables):
    plan_first(sql_control)
    sql_control.open_attempt(attempt_of(FIRST_PLAN, 1))
    pin(sql_control, FIRST_PLAN, 1, rows={orders(0): 97, orders(1): 0})

    (line,) = sql_control.batch_summaries("orders")
    assert (line.kind, line.rows, line.size_bytes, line.committed_by) == ("live", 97, 1_000, None)
    assert (line.planned_by, line.output) == ("planner", OUTPUT)
    assert (line.planned_at, line.written_at) == (NOON + timedelta(hours=1), NOON + timedelta(minutes=30))
    assert line.ranges == (
        BatchRange("orders", 0, TOPIC_ID, 0, 100, rows=97, filtered=0, dead_letters=0, invisible=3),
        BatchRange("orders", 1, TOPIC_ID, 40, 50, rows=0, filtered=0, dead_letters=0, invisible=10),
    )


def test_a_batch_that_is_not_written_is_listed_without_counts(sql_control: SqlControlTables):
    plan_first(sql_control)

    (line,) = sql_control.batch_summaries("orders")
    assert (line.rows, line.size_bytes, line.written_at, line.committed_at) == (None, None, None, None)
    assert line.ranges[0] == BatchRange(
        "orders", 0, TOPIC_ID, 0, 100, rows=None, filtered=None, dead_letters=None, invisible=None
    )


def test_a_pin_never_loses_a_range_of_the_plan_whatever_its_counts_name(database: SqlStore):
    control = database.connect()
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))
    receipt = receipt_of(FIRST_PLAN, 1)
    with suppress(KafkaIngestError, ValueError):
        control.pin(FIRST_PLAN.batch_id, 1, receipt, sha256(receipt.as_bytes()), counts_of(FIRST_PLAN)[:1])

    (line,) = control.batch_summaries("orders")
    assert [(entry.partition, entry.start_offset, entry.end_offset) for entry in line.ranges] == [
        (0, 0, 100),
        (1, 40, 50),
    ]


def test_a_feed_that_is_not_known_has_no_events_recorded(database: SqlStore):
    control = database.connect()
    plan_first(control)

    with refused(database, KafkaIngestError, match=str(OTHER_FEED)):
        control.record_event(OTHER_FEED, "gap", actor="ops", batch_id=None, detail={})


def test_two_first_plans_under_one_feed_id_are_refused(store: Store):
    plan_first(store.connect())

    with refused(store, FeedChangedError):
        store.connect().record_plan(NewFeed(ORDERS_FEED, "refunds"), PlanRecord(CLUSTER, ["refunds"]), actor="planner")


# ── Announcing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_dag_run_commits_is_to_be_announced_until_that_is_noted(control: ControlTables):
    plan_first(control)
    publish(control, FIRST_PLAN)
    assert control.to_announce(ORDERS_FEED) == []
    control.complete_commit(FIRST_PLAN.batch_id, actor="airflow:orders/run-1")

    [batch] = control.to_announce(ORDERS_FEED)
    assert batch.batch_id == FIRST_PLAN.batch_id
    revision = snapshot_of(control).revision
    control.note_announced(ORDERS_FEED, [batch.batch_id])
    assert control.to_announce(ORDERS_FEED) == []
    assert snapshot_of(control).revision == revision, "no decision rests on it"


def test_what_the_command_line_commits_is_not_announced(control: ControlTables):
    bring_to(control, BatchState.COMMITTED)
    assert control.to_announce(ORDERS_FEED) == []


# ── Many feeds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_several_feeds_are_read_at_once_each_with_its_own_rows(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    record(control, jumps=[jump(orders(0), 100, 110)], holds=[hold(1)], waiting_since=NOON)
    record(control, jumps=[jump(orders(0), 110, 120)], holds=[hold(1)], plan=plan_of((orders(1), 50, 60), number=2))
    refunds = plan_of((TopicPartition("refunds", 0), 0, 100), number=9, feed_id=OTHER_FEED, feed_name="refunds")
    plan_first(control, refunds)
    control.file_gap(snapshot_of(control, "refunds"), gap(TopicPartition("refunds", 0), 7, 8), seed=None, actor="ops")

    found = control.feeds(["refunds", "never planned", "orders"])

    assert found == {name: snapshot_of(control, name) for name in ("orders", "refunds")}
    assert found["orders"].behind_losses == {orders(0)}
    assert found["orders"].published_to == FIRST_PLAN.output
    assert found["orders"].open_batch == control.batch(batch_id_of(2))
    assert found["refunds"].open_batch == control.batch(refunds.batch_id)
    assert found["orders"].holds == [hold(1)]
    assert control.feeds([]) == {}


def test_a_plan_that_changes_nothing_is_noted_of_the_feeds_that_are_as_it_found_them(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    other = plan_of((TopicPartition("refunds", 0), 0, 100), number=9, feed_id=OTHER_FEED, feed_name="refunds")
    plan_first(control, other)
    known = [snapshot_of(control, name) for name in ("orders", "refunds")]
    write(control, other)

    assert control.note_unchanged(known, NOON) == {ORDERS_FEED}

    assert snapshot_of(control) == replace(known[0], planned_at=NOON, revision=known[0].revision + 1)
    assert snapshot_of(control, "refunds").planned_at is None
