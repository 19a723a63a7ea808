"""Adopting what an output records of a feed.

One step, whether the control tables know nothing of it or an older state.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import IntegrityError
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    TOPIC_ID,
    as_adopted,
    attempt_of,
    batch_id_of,
    bring_to,
    commit,
    gap,
    orders,
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

from kafka_ingest.control.batch_statements import move_batch
from kafka_ingest.errors import BatchStateError, FeedChangedError, KafkaIngestError
from kafka_ingest.model.batch import AttemptState, BatchKind, BatchPlan, BatchState, Transition, sha256
from kafka_ingest.model.control_rows import NewFeed
from kafka_ingest.model.gap import Event, Gap, GapCause
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.model.published_output import Adoption
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

OTHER_FEED = UUID("01890000-0000-7000-8000-00000000beef")
NEW_FEED = NewFeed(ORDERS_FEED, "orders")
SECOND_PLAN = plan_of((orders(0), 100, 130), number=2, leader_epochs={orders(0): 4})


def recorded(kind: str, number: int, **detail: Any) -> Event:
    """Return an event as a receipt records it: with the number it had in the tables that were lost."""
    return Event(number, kind, NOON + timedelta(minutes=number, microseconds=7), "planner", None, detail)


SEEDED = recorded("seeded", 41, partitions=[{"topic": "orders", "partition": 0}])
RESET = recorded("reset", 57, reason="made again", same_records=[], removed=[], partitions=[])
KEPT_GAP = Gap(
    gap_id=batch_id_of(90),
    offset_range=OffsetRange(orders(1), 50, 60),
    topic_id=TOPIC_ID,
    cause=GapCause.SKIPPED,
    reason="poisoned",
    decided_by="ops",
    decided_at=NOON,
    applied_at=NOON + timedelta(hours=2),
)


def row(number: int, next_offset: int | None, *, by: BatchPlan | None = None, **changes: Any) -> StoredOffset:
    """Return a stored offset as the output records it, which began at 0."""
    first = None if next_offset is None else 0
    batch_id = by.batch_id if by is not None else None
    return replace(StoredOffset(orders(number), TOPIC_ID, first, next_offset, "earliest", batch_id=batch_id), **changes)


def adoption(*plans: BatchPlan, **named: Any) -> Adoption:
    """Return what an output records: these batches, each published by attempt 1, and what is named."""
    batches = [as_adopted(plan) for plan in plans]
    parts: dict[str, Any] = {"stored": [], "gaps": [], "ledger": [], "batches": batches} | named
    return Adoption(**({"cluster_id": CLUSTER, "topics": ["orders"]} | parts))


def adopt(control: OperatorTables, adopted: Adoption) -> None:
    """Adopt into a feed as it is known now, or as a new one."""
    control.adopt(control.feed("orders") or NEW_FEED, adopted, reason="tables lost", actor="ops")


def without_updated_at(control: OperatorTables) -> dict[TopicPartition, StoredOffset]:
    rows = snapshot_of(control).stored
    return {tp: replace(each, updated_at=None) for tp, each in rows.items()}


# ── A feed that nobody knows any more ─────────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_nobody_knows_is_there_again_with_its_rows_and_gaps(store: Store) -> None:
    control = store.connect()
    rows = [row(0, 130, by=SECOND_PLAN, leader_epoch=4), row(1, 60, by=FIRST_PLAN), row(2, None)]
    adopted = adoption(
        FIRST_PLAN, SECOND_PLAN, stored=rows, gaps=[KEPT_GAP], topics=["zebra", "orders"], topic_pattern="o.*|z.*"
    )
    adopt(control, replace(adopted, cluster_id="cluster-b"))

    feed = snapshot_of(control)
    assert (feed.feed_id, feed.cluster_id, feed.revision) == (ORDERS_FEED, "cluster-b", 1)
    assert (feed.topics, feed.topic_pattern) == (("orders", "zebra"), "o.*|z.*")
    assert without_updated_at(control) == {each.topic_partition: each for each in rows}
    assert all(each.updated_at is not None for each in feed.stored.values())
    assert store.gaps() == [KEPT_GAP]
    assert (feed.open_batch, feed.holds, feed.waiting_since, feed.gaps_ahead) == (None, [], None, [])


def test_an_adopted_batch_is_committed_by_the_attempt_that_was_published(control: OperatorTables) -> None:
    rows = {orders(0): 97, orders(1): 10}
    receipt = receipt_of(FIRST_PLAN, 3, rows)
    adopt(control, adoption(batches=[as_adopted(FIRST_PLAN, 3, rows)], stored=[row(0, 100, by=FIRST_PLAN)]))

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.plan, batch.state, batch.pinned_attempt) == (FIRST_PLAN, BatchState.COMMITTED, 3)
    assert (batch.rows, batch.size_bytes, batch.reason) == (107, 2_000, None)
    assert (batch.planned_by, batch.committed_by, batch.committed_at) == ("ops", "ops", receipt.written_at)
    (attempt,) = control.attempts(FIRST_PLAN.batch_id)
    assert (attempt.attempt, attempt.state, attempt.reason) == (3, AttemptState.PINNED, None)
    assert attempt.directory == attempt_of(FIRST_PLAN, 3).directory
    assert attempt.document_sha256 == receipt.document_sha256
    assert attempt.receipt_sha256 == sha256(receipt.as_bytes())
    assert control.range_counts(FIRST_PLAN.batch_id) == receipt.range_counts(FIRST_PLAN)


def test_adopted_batches_are_all_there_a_backfill_among_them(control: OperatorTables) -> None:
    backfill = plan_of((orders(0), 20, 30), number=3, kind=BatchKind.BACKFILL)
    adopt(control, adoption(FIRST_PLAN, SECOND_PLAN, backfill, stored=[row(0, 130, by=SECOND_PLAN)]))

    assert control.batch_states(ORDERS_FEED) == dict.fromkeys(map(batch_id_of, (1, 2, 3)), BatchState.COMMITTED)
    assert control.batch(backfill.batch_id).plan.kind is BatchKind.BACKFILL


def test_what_was_recorded_of_a_feed_is_in_its_journal_again_in_the_same_order(store: Store) -> None:
    control = store.connect()
    second = recorded("seeded", 58, partitions=[{"topic": "orders", "partition": 1}])
    adopt(control, adoption(FIRST_PLAN, ledger=[SEEDED, RESET, second]))

    ledger = control.ledger(FIRST_PLAN.batch_id)
    assert [(event.kind, event.at, event.actor, event.detail) for event in ledger] == [
        (event.kind, event.at, event.actor, event.detail) for event in (SEEDED, RESET, second)
    ]
    assert [event.event_id for event in ledger] == sorted(event.event_id for event in ledger)


def test_adopting_is_recorded_in_the_journal(store: Store) -> None:
    control = store.connect()
    adopt(control, adoption(FIRST_PLAN, SECOND_PLAN, stored=[row(0, 130, by=SECOND_PLAN)], ledger=[SEEDED]))

    (event,) = store.events("adopted")
    assert (event.actor, event.batch_id) == ("ops", None)
    assert event.detail == {
        "reason": "tables lost",
        "batches": [str(batch_id_of(1)), str(batch_id_of(2))],
        "abandoned": None,
        "partitions": [
            {"topic": "orders", "partition": 0, "topic_id": TOPIC_ID}
            | {"first_offset": 0, "next_offset": 130, "rule": "earliest"}
        ],
        "removed": [],
    }


def test_a_feed_whose_name_or_id_came_to_be_known_since_is_not_adopted_as_new(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    before = store.dump()

    for known in (NewFeed(OTHER_FEED, "orders"), NewFeed(ORDERS_FEED, "copy")):
        plan = replace(SECOND_PLAN, feed_id=known.feed_id)
        with pytest.raises(FeedChangedError):
            control.adopt(known, adoption(plan), reason="tables lost", actor="ops")

    assert store.dump() == before


def test_a_batch_that_is_committed_here_is_not_adopted_again(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.COMMITTED)

    with refused(store, BatchStateError, match=r"cannot become COMMITTED: expected .*, found COMMITTED"):
        adopt(control, adoption(FIRST_PLAN))


def test_a_batch_that_is_committed_is_not_abandoned_as_overtaken(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.COMMITTED)

    with refused(store, BatchStateError, match=r"cannot become ABANDONED: expected .*, found COMMITTED"):
        adopt(control, adoption(SECOND_PLAN, abandoned=FIRST_PLAN.batch_id))


@pytest.mark.postgresql_too
def test_a_state_that_was_changed_past_the_lock_is_not_written_over(database: SqlStore) -> None:
    bring_to(database.connect(), BatchState.COMMITTING)
    before = database.dump()

    move = Transition(FIRST_PLAN.batch_id, BatchState.PLANNED, BatchState.ABANDONED)
    with pytest.raises(BatchStateError, match="expected it to be PLANNED still"), database.by_hand() as connection:
        move_batch(connection, move, reason="late")

    assert database.dump() == before


# ── A feed of an older backup ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING, BatchState.ABANDONED])
@pytest.mark.parametrize("published", [1, 2, 3])
def test_a_batch_that_an_older_backup_knows_in_another_state_is_committed_by_the_attempt_that_was_published(
    control: OperatorTables, state: BatchState, published: int
) -> None:
    bring_to(control, state)  # attempts 1 and 2 are opened; 1 is pinned, where one is
    rows = {orders(0): 90 + published, orders(1): 10}
    known = snapshot_of(control)
    adopted = adoption(
        batches=[as_adopted(FIRST_PLAN, published, rows)],
        stored=[row(0, 100, by=FIRST_PLAN), row(1, 50, by=FIRST_PLAN)],
    )
    control.adopt(known, adopted, reason="older backup", actor="ops")

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.pinned_attempt, batch.rows) == (BatchState.COMMITTED, published, 100 + published)
    assert (batch.planned_by, batch.committed_by, batch.reason) == ("planner", "ops", None)
    attempts = control.attempts(FIRST_PLAN.batch_id)
    assert [attempt.attempt for attempt in attempts] == sorted({1, 2, published})
    for attempt in attempts:
        is_it = attempt.attempt == published
        assert attempt.state is (AttemptState.PINNED if is_it else AttemptState.DISCARDED)
        assert attempt.reason == (None if is_it else "another attempt was published")
    assert control.range_counts(FIRST_PLAN.batch_id) == receipt_of(FIRST_PLAN, published, rows).range_counts(FIRST_PLAN)
    assert stored(control) == {orders(0): 100, orders(1): 50}
    assert snapshot_of(control).open_batch is None
    assert snapshot_of(control).revision > known.revision


def test_an_attempt_that_was_discarded_for_a_reason_keeps_it_on_a_database(database: SqlStore) -> None:
    control = database.connect()
    bring_to(control, BatchState.WRITTEN)
    control.discard_written(FIRST_PLAN.batch_id, 1, reason="part-00000 is short", actor="committer")
    adopt(control, adoption(batches=[as_adopted(FIRST_PLAN, 3)]))

    assert [attempt.reason for attempt in control.attempts(FIRST_PLAN.batch_id)] == [
        "part-00000 is short",
        "part-00000 is short",
        None,
    ]


def test_of_what_receipts_record_only_what_is_not_known_is_added_to_the_journal(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    known = store.events("seeded")
    known_again = replace(known[0], event_id=977, batch_id=None)
    adopt(control, adoption(FIRST_PLAN, ledger=[known_again, RESET]))

    assert store.events("seeded") == known
    (reset,) = store.events("reset")
    assert (reset.at, reset.actor, reset.detail) == (RESET.at, RESET.actor, RESET.detail)


@pytest.mark.postgresql_too
def test_a_gap_that_is_known_is_replaced_by_what_receipts_record_of_it(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    ahead = control.file_gap(snapshot_of(control), gap(orders(0), 100, 110), seed=None, actor="ops")
    untold = control.file_gap(snapshot_of(control), gap(orders(0), 500, 510), seed=None, actor="ops")
    applied = replace(ahead, applied_at=NOON)
    adopt(control, adoption(FIRST_PLAN, gaps=[applied, KEPT_GAP], stored=[row(0, 110, by=FIRST_PLAN)]))

    assert store.gaps() == [applied, untold, KEPT_GAP]
    assert snapshot_of(control).gaps_ahead == [untold]


def test_rows_that_receipts_record_replace_those_of_the_same_partitions_and_no_others(control: OperatorTables) -> None:
    plan_first(control, FIRST_PLAN, *(seed(orders(number), at) for number, at in enumerate((0, 40, 7))))
    untold = snapshot_of(control).stored[orders(2)]
    adopted = [row(0, 100, by=FIRST_PLAN, leader_epoch=4), row(3, 8, topic_id="other")]
    adopt(control, adoption(FIRST_PLAN, stored=adopted))

    after = snapshot_of(control).stored
    assert after[orders(2)] == untold
    assert stored(control) == {orders(0): 100, orders(1): 40, orders(2): 7, orders(3): 8}
    assert without_updated_at(control)[orders(0)] == adopted[0]
    assert without_updated_at(control)[orders(3)] == adopted[1]


def test_the_settings_that_the_last_plan_left_stay_and_the_cluster_is_the_outputs(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    record(control, topics=["orders", "offers"], topic_pattern="o.*", waiting_since=NOON)
    adopt(control, adoption(FIRST_PLAN, cluster_id="cluster-b", topics=["orders"], topic_pattern="never used"))

    feed = snapshot_of(control)
    assert (feed.topics, feed.topic_pattern, feed.waiting_since) == (("offers", "orders"), "o.*", NOON)
    assert feed.cluster_id == "cluster-b"


def test_gaps_ahead_of_a_topic_that_was_made_again_since_the_backup_are_dropped(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(TopicPartition("refunds", 0), 0))
    control.file_gap(snapshot_of(control), gap(orders(0), 500, 510), seed=None, actor="ops")
    other = control.file_gap(snapshot_of(control), gap(TopicPartition("refunds", 0), 5, 9), seed=None, actor="ops")
    plan = plan_of((orders(0), 0, 10), topic_id="made-again")
    adopt(control, adoption(plan, stored=[row(0, 10, by=plan, topic_id="made-again")]))

    assert store.gaps() == [other]


def test_partitions_that_a_topic_does_not_have_any_more_lose_their_rows_and_the_journal_names_them(
    store: Store,
) -> None:
    control = store.connect()
    plan_first(control, FIRST_PLAN, *(seed(orders(number), at) for number, at in enumerate((0, 40, 7))))
    again = plan_of((orders(0), 0, 10), number=2, topic_id="made-again")
    new = row(0, 10, by=again, topic_id="made-again")
    adopt(control, adoption(FIRST_PLAN, again, stored=[new], removed=[orders(1)]))

    assert stored(control) == {orders(0): 10, orders(2): 7}
    (event,) = store.events("adopted")
    assert event.detail["removed"] == ["orders-1"]
    later = plan_of((orders(0), 10, 12), number=3, topic_id="made-again")
    plan_next(control, later, seed(orders(1), 0, topic_id="made-again"))
    commit(control, later)
    assert stored(control) == {orders(0): 12, orders(1): 0, orders(2): 7}


def test_a_partition_of_the_same_number_is_removed_of_its_own_topic_and_feed_alone(control: OperatorTables) -> None:
    refunds = TopicPartition("refunds", 1)
    plan_first(control, None, seed(orders(1), 40), seed(refunds, 5))
    plan_first(control, plan_of((orders(1), 3, 5), number=4, feed_id=OTHER_FEED, feed_name="copy"))
    adopt(control, adoption(FIRST_PLAN, removed=[orders(1), orders(7)]))

    assert stored(control) == {refunds: 5}
    assert stored(control, "copy") == {orders(1): 3}


def test_another_feeds_rows_gaps_and_batches_are_not_touched(control: OperatorTables) -> None:
    copy = plan_of((orders(0), 0, 10), number=4, feed_id=OTHER_FEED, feed_name="copy")
    plan_first(control, copy)
    control.file_gap(snapshot_of(control, "copy"), gap(orders(0), 100, 110), seed=None, actor="ops")
    before = snapshot_of(control, "copy")
    adopt(control, adoption(FIRST_PLAN, stored=[row(0, 100, by=FIRST_PLAN, topic_id="made-again")], gaps=[KEPT_GAP]))

    assert snapshot_of(control, "copy") == before


# ── A batch that is open ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN])
def test_an_open_batch_that_was_overtaken_is_abandoned_with_the_reason_and_named_in_the_journal(
    store: Store, state: BatchState
) -> None:
    control = store.connect()
    bring_to(control, state)
    overtaking = plan_of((orders(0), 0, 70), number=2)
    adopt(
        control,
        adoption(overtaking, stored=[row(0, 70, by=overtaking)], abandoned=FIRST_PLAN.batch_id),
    )

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.reason) == (BatchState.ABANDONED, "tables lost")
    (event,) = store.events("adopted")
    assert (event.detail["abandoned"], event.detail["batches"]) == (str(batch_id_of(1)), [str(batch_id_of(2))])
    assert snapshot_of(control).open_batch is None
    assert stored(control) == {orders(0): 70, orders(1): 40}
    later = plan_of((orders(0), 70, 80), (orders(1), 40, 50), number=3)
    plan_next(control, later)
    commit(control, later)
    assert stored(control) == {orders(0): 80, orders(1): 50}


def test_an_open_batch_that_was_not_overtaken_stays_open_beside_what_is_adopted(control: OperatorTables) -> None:
    plan_first(control, FIRST_PLAN, seed(orders(0), 0), seed(orders(1), 40), seed(orders(2), 7))
    elsewhere = plan_of((orders(2), 7, 9), number=2)
    adopt(control, adoption(elsewhere, stored=[row(2, 9, by=elsewhere)]))

    assert control.batch(elsewhere.batch_id).state is BatchState.COMMITTED
    assert snapshot_of(control).open_batch == control.batch(FIRST_PLAN.batch_id)
    commit(control, FIRST_PLAN)
    assert stored(control) == {orders(0): 100, orders(1): 50, orders(2): 9}


# ── All or nothing ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_shown_on_older_rows_is_refused_and_nothing_is_adopted(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    shown = snapshot_of(control)
    store.connect().open_attempt(attempt_of(FIRST_PLAN, 1))

    with refused(store, FeedChangedError, match="feed orders: another process wrote"):
        control.adopt(
            shown,
            adoption(SECOND_PLAN, stored=[row(0, 130)], gaps=[KEPT_GAP], ledger=[RESET], abandoned=batch_id_of(1)),
            reason="tables lost",
            actor="ops",
        )


@pytest.mark.postgresql_too
@pytest.mark.parametrize("is_known", [False, True])
def test_an_adoption_that_the_database_refuses_half_way_leaves_nothing(database: SqlStore, *, is_known: bool) -> None:
    control = database.connect()
    if is_known:
        plan_first(control)
    before = database.dump()
    by_nobody = row(0, 130, batch_id=batch_id_of(404))

    with pytest.raises((IntegrityError, KafkaIngestError)):
        adopt(control, adoption(SECOND_PLAN, stored=[by_nobody], gaps=[KEPT_GAP], ledger=[SEEDED, RESET]))

    assert database.dump() == before


# ── Continuing afterwards ─────────────────────────────────────────────────────────────────────────────────────────────


def at(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


@pytest.mark.parametrize("is_known", [False, True])
def test_after_adopting_the_next_batch_goes_its_way_and_carries_only_what_came_since(
    control: OperatorTables, *, is_known: bool
) -> None:
    if is_known:
        bring_to(control, BatchState.WRITTEN)
    adopted = adoption(
        FIRST_PLAN,
        stored=[row(0, 100, by=FIRST_PLAN), row(1, 50, by=FIRST_PLAN)],
        ledger=[SEEDED, RESET],
        gaps=[KEPT_GAP],
    )
    adopt(control, adopted)
    plan_next(control, SECOND_PLAN, seed(orders(2), 0))
    publish(control, SECOND_PLAN)
    carried = control.ledger(SECOND_PLAN.batch_id)
    control.complete_commit(SECOND_PLAN.batch_id, actor="committer")
    third = plan_of((orders(0), 130, 140), number=3)
    plan_next(control, third)
    publish(control, third)

    assert [event.detail["partitions"][0]["partition"] for event in carried] == [2]
    assert control.ledger(third.batch_id) == []
    control.complete_commit(third.batch_id, actor="committer")
    assert stored(control) == {orders(0): 140, orders(1): 50, orders(2): 0}


def test_a_commit_of_an_adopted_batch_is_not_made_again(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.COMMITTING)
    adopt(control, adoption(FIRST_PLAN, stored=[row(0, 100, by=FIRST_PLAN), row(1, 50, by=FIRST_PLAN)]))
    before = store.dump()

    control.begin_commit(FIRST_PLAN.batch_id, 1)
    assert control.complete_commit(FIRST_PLAN.batch_id, actor="late").committed_by == "ops"

    assert store.dump() == before


def test_what_is_adopted_later_does_not_hide_what_was_adopted_before(control: OperatorTables) -> None:
    adopt(control, adoption(FIRST_PLAN, stored=[row(0, 100, by=FIRST_PLAN)], ledger=[SEEDED]))
    adopt(control, adoption(SECOND_PLAN, stored=[row(0, 130, by=SECOND_PLAN)], ledger=[SEEDED, RESET]))

    assert [event.kind for event in control.ledger(FIRST_PLAN.batch_id)] == ["seeded"]
    assert [event.kind for event in control.ledger(SECOND_PLAN.batch_id)] == ["seeded", "reset"]
    third = plan_of((orders(0), 130, 140), number=3)
    plan_next(control, third)
    write(control, third)
    control.begin_commit(third.batch_id, 1)
    assert control.ledger(third.batch_id) == []
