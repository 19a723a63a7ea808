"""What one plan writes beside its batch: seeds, jumps over gaps, holds, what it waits for; all of it or nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    attempt_of,
    batch_id_of,
    bring_to,
    commit,
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
from tests.contract.conftest import Store

from kafka_ingest.errors import BatchStateError, FeedChangedError, KafkaIngestError, OffsetsMovedError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import NewFeed, PlanRecord
from kafka_ingest.model.gap import Gap, GapCause, Jump
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

OTHER_FEED = UUID("01890000-0000-7000-8000-00000000beef")


# ── All or nothing ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_writes_seeds_jumps_holds_and_its_batch_together(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0))
    record(
        control,
        topic_pattern="ord.*",
        seeds=[seed(orders(2), 7)],
        jumps=[jump(orders(0), 0, 40)],
        holds=[hold(1)],
        waiting_since=NOON,
        plan=plan_of((orders(0), 40, 50), (orders(2), 7, 9)),
    )

    feed = snapshot_of(control)
    assert stored(control) == {orders(0): 40, orders(1): 0, orders(2): 7}
    assert [found.offset_range for found in store.gaps()] == [OffsetRange(orders(0), 0, 40)]
    assert feed.holds == [hold(1)]
    assert (feed.topic_pattern, feed.waiting_since) == ("ord.*", NOON)
    assert feed.open_batch is not None
    assert feed.open_batch.plan == plan_of((orders(0), 40, 50), (orders(2), 7, 9))


def test_a_first_plan_jumps_from_the_seed_that_it_writes(store: Store) -> None:
    control = store.connect()
    control.record_plan(
        NewFeed(ORDERS_FEED, "orders"),
        PlanRecord(
            CLUSTER,
            ["orders"],
            topic_pattern="ord.*",
            seeds=[seed(orders(0), 0)],
            jumps=[jump(orders(0), 0, 40)],
            holds=[hold(1)],
            waiting_since=NOON,
            plan=plan_of((orders(0), 40, 50)),
        ),
        actor="planner",
    )

    feed = snapshot_of(control)
    row = feed.stored[orders(0)]
    assert (row.first_offset, row.next_offset) == (0, 40)
    assert (feed.topic_pattern, feed.holds, feed.waiting_since) == ("ord.*", [hold(1)], NOON)
    assert feed.open_batch is not None


def test_a_jump_from_elsewhere_than_the_stored_offset_is_refused_and_nothing_of_the_plan_is_written(
    store: Store,
) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 5), seed(orders(1), 0))

    with refused(store, OffsetsMovedError, match="orders-0: expected 4, found 5"):
        record(
            control,
            topic_pattern="ord.*",
            seeds=[seed(orders(2), 7)],
            jumps=[jump(orders(1), 0, 10), jump(orders(0), 4, 40)],
            holds=[hold(1)],
            waiting_since=NOON,
            plan=plan_of((orders(2), 7, 9)),
        )


def test_every_jump_from_elsewhere_is_named_on_a_database(database: Store) -> None:
    control = database.connect()
    plan_first(control, None, seed(orders(0), 5), seed(orders(1), 0), seed(orders(2), None))

    with pytest.raises(OffsetsMovedError) as refusal:
        record(control, jumps=[jump(orders(0), 4, 40), jump(orders(1), 0, 10), jump(orders(2), 0, 10)])

    assert "orders-0: expected 4, found 5" in str(refusal.value)
    assert "orders-2: expected 0, found None" in str(refusal.value)
    assert "orders-1" not in str(refusal.value)


def test_a_first_plan_whose_jump_is_refused_leaves_no_feed(store: Store) -> None:
    control = store.connect()

    with pytest.raises(OffsetsMovedError):
        control.record_plan(
            NewFeed(ORDERS_FEED, "orders"),
            PlanRecord(CLUSTER, ["orders"], seeds=[seed(orders(0), 5)], jumps=[jump(orders(0), 0, 40)]),
            actor="planner",
        )

    assert control.feed("orders") is None
    assert not any(store.dump().values())


def test_a_batch_that_does_not_start_where_the_jump_ends_takes_the_jump_with_it(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))

    with refused(store, OffsetsMovedError, match="orders-0: expected 41, found 40"):
        record(
            control,
            seeds=[seed(orders(1), 0)],
            jumps=[jump(orders(0), 0, 40)],
            holds=[hold(1)],
            plan=plan_of((orders(0), 41, 50)),
        )


def test_a_plan_of_one_feed_changes_nothing_of_another_that_reads_the_same_topic(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    other = plan_of((orders(0), 0, 10), number=2, feed_id=OTHER_FEED, feed_name="copy")
    plan_first(control, other)
    control.hold(OTHER_FEED, hold(0))
    before = control.feed("copy")

    record(control, topic_pattern="ord.*", jumps=[jump(orders(0), 0, 40)], holds=[hold(1)], waiting_since=NOON)

    assert control.feed("copy") == before


# ── Jumps and gaps ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_jump_moves_the_next_offset_and_forgets_the_leader_epoch_of_the_old_one(control: OperatorTables) -> None:
    plan_first(control, FIRST_PLAN, seed(orders(0), 0, leader_epoch=7), seed(orders(1), 40))
    commit(control, FIRST_PLAN)
    before = snapshot_of(control).stored[orders(0)]
    record(control, jumps=[jump(orders(0), 100, 140)])

    after = snapshot_of(control).stored[orders(0)]
    assert after == replace(before, next_offset=140, leader_epoch=None, updated_at=after.updated_at)
    assert (after.first_offset, after.batch_id) == (0, FIRST_PLAN.batch_id)
    assert stored(control) == {orders(0): 140, orders(1): 50}


@pytest.mark.postgresql_too
def test_a_plan_notes_the_leader_epochs_in_which_logs_reached_their_stored_offsets_after_a_jump_too(
    control: OperatorTables,
) -> None:
    plan_first(control, FIRST_PLAN, seed(orders(0), 0, leader_epoch=7), seed(orders(1), 40))
    commit(control, FIRST_PLAN)
    record(control, jumps=[jump(orders(0), 100, 140)], leader_epochs={orders(0): 9, orders(1): 4})
    rows = snapshot_of(control).stored
    assert [rows[orders(number)].leader_epoch for number in (0, 1)] == [9, 4]
    assert stored(control) == {orders(0): 140, orders(1): 50}


def test_a_gap_that_a_plan_jumps_over_is_kept_with_who_why_and_when(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    record(control, jumps=[jump(orders(0), 0, 40, reason="the log starts at 40")], actor="run 7")

    (kept,) = store.gaps()
    assert kept.offset_range == OffsetRange(orders(0), 0, 40)
    assert (kept.cause, kept.reason) == (GapCause.RETENTION, "the log starts at 40")
    assert (kept.topic_id, kept.decided_by, kept.closed_by_batch) == ("orders-topic-id", "run 7", None)
    assert kept.applied_at == kept.decided_at
    assert kept.decided_at.utcoffset() == timedelta(0)
    assert kept.state == "open"
    assert snapshot_of(control).gaps_ahead == []


def test_a_jump_over_several_gaps_files_each_of_them(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0))
    lost = gap(orders(0), 0, 40, GapCause.RETENTION, "the log starts at 40")
    behind = gap(orders(0), 40, 900, GapCause.BEHIND, "860 behind")
    record(control, jumps=[Jump(orders(0), 0, 900, (lost, behind)), jump(orders(1), 0, 3)])

    assert [(kept.offset_range, kept.cause) for kept in store.gaps()] == [
        (OffsetRange(orders(0), 0, 40), GapCause.RETENTION),
        (OffsetRange(orders(0), 40, 900), GapCause.BEHIND),
        (OffsetRange(orders(1), 0, 3), GapCause.RETENTION),
    ]
    assert stored(control) == {orders(0): 900, orders(1): 3}


def test_gaps_are_sorted_by_partition_and_offset_however_they_were_filed(store: Store) -> None:
    control = store.connect()
    zebra, apple = TopicPartition("Zebra", 0), TopicPartition("apple", 0)
    partitions = [orders(10), apple, orders(9), zebra]
    plan_first(control, None, *(seed(tp, 0) for tp in partitions))
    record(control, jumps=[jump(tp, 0, 5) for tp in partitions])
    control.file_gap(snapshot_of(control), gap(apple, 90, 95), seed=None, actor="ops")
    control.file_gap(snapshot_of(control), gap(apple, 20, 25), seed=None, actor="ops")

    expected = [
        OffsetRange(zebra, 0, 5),
        OffsetRange(apple, 0, 5),
        OffsetRange(apple, 20, 25),
        OffsetRange(apple, 90, 95),
        OffsetRange(orders(9), 0, 5),
        OffsetRange(orders(10), 0, 5),
    ]
    assert [kept.offset_range for kept in store.gaps()] == expected
    assert [found.offset_range for found in snapshot_of(control).gaps_ahead] == [expected[2], expected[3]]


def planned_gap(control: OperatorTables, partition: int, start: int, end: int) -> Gap:
    """File a gap ahead of the stored offset."""
    filed = control.file_gap(snapshot_of(control), gap(orders(partition), start, end), seed=None, actor="ops")
    assert filed.state == "ahead"
    return filed


def test_a_planned_gap_that_is_passed_is_applied_and_stays_whose_it_was(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0))
    ahead = planned_gap(control, 0, 20, 30)
    later = planned_gap(control, 0, 50, 60)
    retention = gap(orders(0), 0, 20, GapCause.RETENTION, "the log starts at 25")
    record(control, jumps=[Jump(orders(0), 0, 30, (retention,), passed=(ahead,))])

    lost, passed, still_ahead = store.gaps()
    assert (lost.offset_range, lost.state) == (OffsetRange(orders(0), 0, 20), "open")
    assert passed == replace(ahead, applied_at=passed.applied_at)
    assert (passed.state, passed.decided_by) == ("open", "ops")
    assert still_ahead == later
    assert snapshot_of(control).gaps_ahead == [later]
    assert stored(control) == {orders(0): 30, orders(1): 0}


def test_a_plan_that_jumps_over_a_planned_gap_alone_files_no_other(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 20))
    ahead = planned_gap(control, 0, 30, 40)
    plan = plan_of((orders(0), 20, 30))
    plan_next(control, plan)
    commit(control, plan)
    record(control, jumps=[Jump(orders(0), 30, 40, passed=(ahead,))], plan=plan_of((orders(0), 40, 50), number=2))

    (passed,) = store.gaps()
    assert (passed.gap_id, passed.state) == (ahead.gap_id, "open")
    assert stored(control) == {orders(0): 40}


def test_the_journal_names_all_gaps_of_a_plan_in_one_event_as_they_are_kept(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0))
    ahead = planned_gap(control, 1, 5, 9)
    before = len(store.events("gap"))
    record(
        control,
        jumps=[
            jump(orders(0), 0, 40),
            Jump(orders(1), 0, 9, (gap(orders(1), 0, 5, GapCause.RETENTION),), passed=(ahead,)),
        ],
        actor="run 7",
    )

    event, *older = store.events("gap")
    assert len(older) == before == 1
    assert (event.actor, event.batch_id) == ("run 7", None)
    recorded = [Gap.from_document(document) for document in event.detail["gaps"]]
    assert sorted(recorded, key=lambda each: each.offset_range) == store.gaps()
    assert event.detail["gaps"][0] == {
        "gap_id": str(recorded[0].gap_id),
        "topic": "orders",
        "topic_id": "orders-topic-id",
        "partition": 0,
        "start_offset": 0,
        "end_offset": 40,
        "cause": "retention",
        "reason": "the log starts later",
        "decided_by": "run 7",
        "decided_at": recorded[0].decided_at.isoformat(),
        "applied_at": recorded[0].decided_at.isoformat(),
        "closed_by_batch": None,
    }


def test_a_plan_without_jumps_records_no_gap(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    record(control, holds=[hold(0)])

    assert store.events("gap") == []


def test_the_next_published_batch_carries_the_gaps_of_its_plan_after_the_seeds(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    plan = plan_of((orders(0), 40, 50))
    record(control, seeds=[seed(orders(1), 0)], jumps=[jump(orders(0), 0, 40)], plan=plan)
    publish(control, plan)

    assert [event.kind for event in control.ledger(plan.batch_id)] == ["seeded", "seeded", "gap"]


def test_ten_thousand_partitions_jump_together(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, *(seed(orders(number), 0) for number in range(10_000)))
    record(control, jumps=[jump(orders(number), 0, number + 1) for number in range(10_000)])

    assert stored(control) == {orders(number): number + 1 for number in range(10_000)}
    assert len(store.gaps()) == 10_000


# ── Seeds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pending_seed_that_is_resolved_is_kept_with_the_rule_that_resolved_it(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), None, rule="group billing, else earliest"))
    record(control, seeds=[seed(orders(0), 500, rule="earliest, group billing has no offset", leader_epoch=4)])

    row = snapshot_of(control).stored[orders(0)]
    assert (row.first_offset, row.next_offset, row.leader_epoch) == (500, 500, 4)
    assert row.seeded_by == "earliest, group billing has no offset"
    resolved, noted = store.events("seeded")
    assert noted.detail["partitions"][0]["rule"] == "group billing, else earliest"
    assert resolved.detail == {
        "partitions": [
            {
                "topic": "orders",
                "partition": 0,
                "topic_id": "orders-topic-id",
                "offset": 500,
                "rule": "earliest, group billing has no offset",
            }
        ]
    }


def test_a_pending_seed_that_is_resolved_below_the_log_start_is_jumped_from_in_the_same_plan(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), None, rule="new partition"))
    record(control, seeds=[seed(orders(0), 0, rule="new partition")], jumps=[jump(orders(0), 0, 40)])

    row = snapshot_of(control).stored[orders(0)]
    assert (row.first_offset, row.next_offset, row.seeded_by) == (0, 40, "new partition")


# ── Pattern and waiting ───────────────────────────────────────────────────────────────────────────────────────────────


def test_pattern_topics_and_since_when_a_batch_waits_are_those_of_the_last_plan(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    feed = snapshot_of(control)
    assert (feed.topics, feed.topic_pattern, feed.waiting_since) == (("orders",), None, None)

    record(control, topics=["orders", "offers"], topic_pattern="o.*ers", waiting_since=NOON, planned_at=NOON)
    feed = snapshot_of(control)
    assert (feed.topics, feed.topic_pattern, feed.waiting_since) == (("offers", "orders"), "o.*ers", NOON)
    assert feed.planned_at == NOON

    record(control)
    feed = snapshot_of(control)
    assert (feed.topics, feed.topic_pattern, feed.waiting_since) == (("orders",), None, None)


# ── Holds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

EVERY_HOLD = [
    hold(0, HoldCause.NO_ANSWER, reason="LEADER_NOT_AVAILABLE"),
    hold(1, HoldCause.OPEN_TRANSACTION, at_offset=0, reason="größer"),
    hold(2, HoldCause.UNREADABLE, at_offset=2**40),
    hold(3, HoldCause.NEW_OR_OLDER, reason="its first record is dated by its producer"),
    replace(hold(3), partition=None, topic="refunds", cause=HoldCause.TOPIC_MISSING),
    replace(hold(3), partition=None, topic="returns", cause=HoldCause.TOPIC_CHANGED),
]


def test_every_kind_of_hold_is_read_as_it_was_written(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    record(control, holds=EVERY_HOLD)

    assert snapshot_of(control).holds == EVERY_HOLD


def test_the_holds_of_a_plan_replace_those_of_the_one_before(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    record(control, holds=[hold(0), hold(1)])
    record(control, holds=[hold(1), hold(2)])
    assert snapshot_of(control).holds == [hold(1), hold(2)]

    record(control)
    assert snapshot_of(control).holds == []


def test_holds_are_sorted_by_topic_partition_and_cause_the_whole_topic_first(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    topic = replace(hold(0), partition=None, cause=HoldCause.TOPIC_MISSING)
    unreadable, open_transaction = hold(2, HoldCause.UNREADABLE, 7), hold(2, HoldCause.OPEN_TRANSACTION, 9)
    zebra, apple = replace(hold(0), topic="Zebra"), replace(hold(0), topic="apple")
    record(control, holds=[unreadable, hold(10), apple, topic, zebra, open_transaction])

    assert snapshot_of(control).holds == [zebra, apple, topic, open_transaction, unreadable, hold(10)]


def test_a_hold_that_is_found_between_two_plans_is_added_to_the_others(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    record(control, holds=[hold(0)])
    found = hold(1, HoldCause.UNREADABLE, at_offset=55, since=NOON + timedelta(hours=1))
    before = snapshot_of(control)

    control.hold(ORDERS_FEED, found)

    after = snapshot_of(control)
    assert after.holds == [hold(0), found]
    assert after.revision > before.revision
    assert (after.stored, after.open_batch) == (before.stored, before.open_batch)


def test_a_plan_decided_before_a_hold_was_added_is_refused(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    old = snapshot_of(control)
    control.hold(ORDERS_FEED, hold(0, HoldCause.UNREADABLE, at_offset=5))

    with refused(store, FeedChangedError):
        record(control, snapshot=old, plan=plan_of((orders(0), 0, 10)))


def test_a_hold_of_a_feed_nobody_knows_is_refused(store: Store) -> None:
    control = store.connect()
    plan_first(control)

    with refused(store, KafkaIngestError, match=str(OTHER_FEED)):
        control.hold(OTHER_FEED, hold(0))


# ── Abandoning with jumps ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_abandoned_and_what_the_log_lost_of_it_is_a_gap_in_one_step(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    control.abandon(
        FIRST_PLAN.batch_id,
        reason="its ranges can no longer be read",
        actor="run 7",
        only_from={BatchState.PLANNED},
        jumps=[jump(orders(0), 0, 30)],
    )

    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.ABANDONED
    assert stored(control) == {orders(0): 30, orders(1): 40}
    assert [(kept.offset_range, kept.state) for kept in store.gaps()] == [(OffsetRange(orders(0), 0, 30), "open")]
    (event,) = store.events("gap")
    assert (event.actor, event.batch_id) == ("run 7", FIRST_PLAN.batch_id)
    plan_next(control, plan_of((orders(0), 30, 100), (orders(1), 40, 50), number=2))
    assert snapshot_of(control).open_batch == control.batch(batch_id_of(2))


def test_a_batch_whose_jumps_are_refused_stays_open(store: Store) -> None:
    control = store.connect()
    plan_first(control)

    with refused(store, OffsetsMovedError, match="orders-1: expected 39, found 40"):
        control.abandon(
            FIRST_PLAN.batch_id,
            reason="lost",
            actor="run 7",
            jumps=[jump(orders(0), 0, 30), jump(orders(1), 39, 45)],
        )


REFUSED: Mapping[str, Callable[[OperatorTables], object]] = {
    "written": lambda control: pin(control, FIRST_PLAN, 1),
    "abandoned": lambda control: control.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops"),
}


@pytest.mark.parametrize("rival", REFUSED)
def test_no_offset_jumps_where_the_batch_cannot_be_abandoned(store: Store, rival: str) -> None:
    control = store.connect()
    plan_first(control)
    control.open_attempt(attempt_of(FIRST_PLAN, 1))
    REFUSED[rival](control)

    with refused(store, BatchStateError):
        control.abandon(
            FIRST_PLAN.batch_id,
            reason="lost",
            actor="run 7",
            only_from={BatchState.PLANNED},
            jumps=[jump(orders(0), 0, 30)],
        )


# ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_is_found_by_its_id_as_by_its_name(control: OperatorTables) -> None:
    bring_to(control, BatchState.WRITTEN)
    control.hold(ORDERS_FEED, hold(0))

    assert control.feed_of_id(ORDERS_FEED) == control.feed("orders")
    assert control.feed_of_id(OTHER_FEED) is None


def test_the_states_of_all_batches_of_a_feed_are_returned_and_of_no_other(control: OperatorTables) -> None:
    bring_to(control, BatchState.ABANDONED)
    second = plan_of((orders(0), 0, 10), number=2)
    plan_next(control, second)
    commit(control, second)
    third = plan_of((orders(0), 10, 20), number=3)
    plan_next(control, third)
    write(control, third)
    plan_first(control, plan_of((orders(0), 0, 10), number=4, feed_id=OTHER_FEED, feed_name="copy"))

    assert control.batch_states(ORDERS_FEED) == {
        batch_id_of(1): BatchState.ABANDONED,
        batch_id_of(2): BatchState.COMMITTED,
        batch_id_of(3): BatchState.WRITTEN,
    }
    assert control.batch_states(OTHER_FEED) == {batch_id_of(4): BatchState.PLANNED}
    assert control.batch_states(batch_id_of(404)) == {}


def test_asking_for_gaps_states_and_feeds_changes_nothing(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.COMMITTING)
    before = store.dump()

    control.feed_of_id(ORDERS_FEED)
    control.batch_states(ORDERS_FEED)
    store.gaps()

    assert store.dump() == before


# ── What the next plan goes by ────────────────────────────────────────────────────────────────────────────────────────


def test_a_partition_is_behind_losses_after_two_in_a_row_until_something_of_it_is_read(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0), seed(orders(2), 0))
    skipped = Jump(orders(1), 0, 40, gaps=(gap(orders(1), 0, 40),))
    record(control, jumps=[jump(orders(0), 0, 40), jump(orders(2), 0, 5), skipped])
    assert set(snapshot_of(control).behind_losses) == set()

    record(control, jumps=[jump(orders(0), 40, 50), jump(orders(1), 40, 45), jump(orders(2), 5, 6)])
    assert set(snapshot_of(control).behind_losses) == {orders(0), orders(2)}

    plan = plan_of((orders(0), 50, 60), number=2)
    record(control, plan=plan)
    commit(control, plan)
    assert set(snapshot_of(control).behind_losses) == {orders(2)}


@pytest.mark.postgresql_too
def test_the_speed_of_a_batch_is_what_it_read_from_the_beginning_of_its_attempt_to_its_receipt(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.COMMITTING)
    assert control.speeds(ORDERS_FEED) == []
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    second = plan_of((orders(0), 100, 900), number=2)
    plan_next(control, second)
    commit(control, second)

    took_s = (receipt_of(FIRST_PLAN, 1).written_at - attempt_of(FIRST_PLAN, 1).opened_at).total_seconds()
    assert control.speeds(ORDERS_FEED) == [pytest.approx(800 / took_s), pytest.approx(110 / took_s)]


@pytest.mark.parametrize(
    ("planner", "writer"),
    [(f"restore:{batch_id_of(1)}", "operator"), ("adopter", f"restore:{batch_id_of(1)}")],
    ids=["restored", "restored_and_adopted"],
)
def test_what_a_restore_copied_in_seconds_says_nothing_of_speed(store: Store, planner: str, writer: str) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    restored, read = plan_of((orders(0), 0, 800), number=2), plan_of((orders(0), 800, 900), number=3)
    record(control, actor=planner, plan=restored)
    control.open_attempt(replace(attempt_of(restored, 1), opened_by=writer))
    pin(control, restored, 1)
    control.begin_commit(restored.batch_id, 1)
    control.complete_commit(restored.batch_id, actor="committer")
    assert control.speeds(ORDERS_FEED) == []

    plan_next(control, read)
    commit(control, read)
    took_s = (receipt_of(read, 1).written_at - attempt_of(read, 1).opened_at).total_seconds()
    assert control.speeds(ORDERS_FEED) == [pytest.approx(100 / took_s)]


def test_the_speeds_are_those_of_the_newest_twenty_batches(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    for number in range(1, 23):
        plan = plan_of((orders(0), number - 1, number), number=number)
        plan_next(control, plan)
        commit(control, plan)
    assert len(control.speeds(ORDERS_FEED)) == 20
