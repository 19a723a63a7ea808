"""The steps that only an operator takes: a gap that is filed, topics that start over, a feed that is renamed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from uuid import UUID

import pytest
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    ORDERS_FEED,
    batch_id_of,
    bring_to,
    commit,
    gap,
    orders,
    plan_first,
    plan_next,
    plan_of,
    publish,
    record,
    refused,
    seed,
    snapshot_of,
    stored,
    write,
)
from tests.contract.conftest import Store

from kafka_ingest.errors import FeedChangedError, OffsetsMovedError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import FeedSnapshot, StartOver
from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

OTHER_FEED = UUID("01890000-0000-7000-8000-00000000beef")
MADE_AGAIN = "topic made again"


def refunds(partition: int) -> TopicPartition:
    return TopicPartition("refunds", partition)


# ── A gap at the stored offset ────────────────────────────────────────────────────────────────────────────────────────


def test_a_gap_that_begins_at_the_stored_offset_moves_it_at_once(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 100), seed(orders(1), 100))
    filed = control.file_gap(snapshot_of(control), gap(orders(0), 100, 130), seed=None, actor="ops")

    assert stored(control) == {orders(0): 130, orders(1): 100}
    assert snapshot_of(control).stored[orders(0)].first_offset == 100
    assert store.gaps() == [filed]
    assert filed.offset_range == OffsetRange(orders(0), 100, 130)
    assert (filed.cause, filed.reason, filed.decided_by) == (GapCause.SKIPPED, "poisoned", "ops")
    assert (filed.topic_id, filed.state, filed.applied_at) == ("orders-topic-id", "open", filed.decided_at)
    assert snapshot_of(control).gaps_ahead == []


# ── A gap ahead ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gap_ahead_of_the_stored_offset_moves_nothing_yet(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 100), seed(orders(1), 100))
    before = snapshot_of(control)
    filed = control.file_gap(before, gap(orders(0), 101, 130), seed=None, actor="ops")

    after = snapshot_of(control)
    assert (filed.state, filed.applied_at) == ("ahead", None)
    assert store.gaps() == [filed]
    assert after.gaps_ahead == [filed]
    assert after.stored == before.stored
    assert after.revision > before.revision


@pytest.mark.parametrize("start", [100, 101])
def test_a_filed_gap_is_in_the_journal_and_carried_by_the_next_published_batch(store: Store, start: int) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    filed = control.file_gap(snapshot_of(control), gap(orders(0), start, 130), seed=None, actor="ops")
    later = plan_of((orders(1), 50, 60), number=2)
    plan_next(control, later)
    publish(control, later)

    (event,) = store.events("gap")
    assert (event.actor, event.batch_id) == ("ops", None)
    assert [Gap.from_document(document) for document in event.detail["gaps"]] == [filed]
    assert control.ledger(later.batch_id) == [event]


def test_a_gap_is_filed_ahead_of_an_open_batch_which_commits_all_the_same(control: OperatorTables) -> None:
    plan_first(control)
    filed = control.file_gap(snapshot_of(control), gap(orders(0), 100, 130), seed=None, actor="ops")
    commit(control, FIRST_PLAN)

    assert stored(control) == {orders(0): 100, orders(1): 50}
    assert snapshot_of(control).gaps_ahead == [filed]


# ── A gap in a partition that no plan could seed ──────────────────────────────────────────────────────────────────────


def test_a_gap_from_the_beginning_of_a_new_partition_writes_its_row_and_moves_it(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 100))
    new = seed(orders(1), 0, rule="new partition")
    filed = control.file_gap(
        snapshot_of(control), gap(orders(1), 0, 40, GapCause.RETENTION, "never read"), seed=new, actor="ops"
    )

    row = snapshot_of(control).stored[orders(1)]
    assert (row.first_offset, row.next_offset, row.seeded_by) == (0, 40, "new partition")
    assert stored(control) == {orders(0): 100, orders(1): 40}
    assert (filed.state, filed.cause) == ("open", GapCause.RETENTION)
    seeded = store.events("seeded")[0]
    assert seeded.actor == "ops"
    assert seeded.detail["partitions"] == [
        {"topic": "orders", "partition": 1, "topic_id": "orders-topic-id", "offset": 0, "rule": "new partition"}
    ]
    assert store.events("gap")[0].event_id > seeded.event_id


# ── A gap decided on older rows ───────────────────────────────────────────────────────────────────────────────────────

RIVALS: Mapping[str, Callable[[OperatorTables], object]] = {
    "a batch was planned": lambda control: plan_next(control, plan_of((orders(0), 0, 10))),
    "another gap was filed": lambda control: control.file_gap(
        snapshot_of(control), gap(orders(0), 0, 40), seed=None, actor="rival"
    ),
    "the topic started over": lambda control: control.start_over(
        snapshot_of(control), CLUSTER, [over("made-again", 0)], reason="made again", actor="rival"
    ),
    "the feed was renamed": lambda control: control.rename_feed(
        snapshot_of(control), "sales", reason="better name", actor="rival"
    ),
}

OPERATOR_STEPS: Mapping[str, Callable[[OperatorTables, FeedSnapshot], object]] = {
    "file_gap": lambda control, feed: control.file_gap(feed, gap(orders(0), 0, 10), seed=None, actor="ops"),
    "file_gap of a new partition": lambda control, feed: control.file_gap(
        feed, gap(orders(1), 0, 10), seed=seed(orders(1), 0), actor="ops"
    ),
    "start_over": lambda control, feed: control.start_over(
        feed, CLUSTER, [over("made-again", 0)], reason="made again", actor="ops"
    ),
    "rename_feed": lambda control, feed: control.rename_feed(feed, "shop", reason="better name", actor="ops"),
}


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("step", OPERATOR_STEPS)
def test_a_step_that_was_shown_on_older_rows_is_refused_and_writes_nothing(store: Store, step: str, rival: str) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    shown = snapshot_of(control)
    RIVALS[rival](store.connect())

    with refused(store, FeedChangedError, match="feed orders: another process wrote"):
        OPERATOR_STEPS[step](control, shown)


@pytest.mark.parametrize("step", OPERATOR_STEPS)
def test_a_plan_decided_before_an_operators_step_is_refused(store: Store, step: str) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0))
    decided_on = snapshot_of(control)
    OPERATOR_STEPS[step](store.connect(), decided_on)

    with refused(store, FeedChangedError, match="another process wrote"):
        plan_next(control, plan_of((orders(0), 0, 10)), snapshot=decided_on)


# ── Starting over ─────────────────────────────────────────────────────────────────────────────────────────────────────


def over(topic_id: str, *offsets: int | None, rule: str = MADE_AGAIN) -> StartOver:
    """Return what becomes of the topic ``orders``: rows at these offsets, by partition number."""
    rows = [seed(orders(number), at, topic_id=topic_id, rule=rule) for number, at in enumerate(offsets)]
    return StartOver("orders", topic_id, rows)


def same_records(feed: FeedSnapshot, topic_id: str, topic: str = "orders") -> StartOver:
    """Return what becomes of a topic that holds the same records under another id."""
    rows = [replace(row, topic_id=topic_id) for tp, row in feed.stored.items() if tp.topic == topic]
    return StartOver(topic, topic_id, rows, same_records=True)


def two_topics(control: OperatorTables) -> FeedSnapshot:
    """Plan and commit a feed of ``orders`` (partitions 0 and 1) and ``refunds``, and return its rows."""
    plan = plan_of((orders(0), 0, 100), (orders(1), 40, 50), (refunds(0), 7, 9))
    plan_first(control, plan, *(seed(r.topic_partition, r.start_offset) for r in plan.ranges))
    commit(control, plan)
    return snapshot_of(control)


def test_a_topic_that_starts_over_has_the_new_rows_and_none_of_the_old(control: OperatorTables) -> None:
    feed = two_topics(control)
    control.start_over(feed, CLUSTER, [over("made-again", 0)], reason="made again", actor="ops")

    after = snapshot_of(control)
    row = after.stored[orders(0)]
    assert set(after.stored) == {orders(0), refunds(0)}
    assert (row.topic_id, row.first_offset, row.next_offset) == ("made-again", 0, 0)
    assert (row.seeded_by, row.batch_id, row.leader_epoch) == (MADE_AGAIN, None, None)
    assert after.revision > feed.revision


def test_a_topic_that_starts_over_leaves_the_other_topics_as_they_are(control: OperatorTables) -> None:
    feed = two_topics(control)
    control.start_over(feed, CLUSTER, [over("made-again", 0, 0, 0)], reason="made again", actor="ops")

    after = snapshot_of(control)
    assert after.stored[refunds(0)] == feed.stored[refunds(0)]
    assert (after.topics, after.cluster_id) == (feed.topics, CLUSTER)
    assert stored(control) == {orders(0): 0, orders(1): 0, orders(2): 0, refunds(0): 9}


def test_a_feed_that_starts_over_leaves_the_same_topic_of_other_feeds_as_it_is(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 40))
    plan_first(control, plan_of((orders(0), 3, 5), number=2, feed_id=OTHER_FEED, feed_name="copy"))
    control.file_gap(snapshot_of(control, "copy"), gap(orders(0), 90, 95), seed=None, actor="ops")
    before = control.feed("copy")
    control.start_over(snapshot_of(control), CLUSTER, [over("made-again", 0)], reason="made again", actor="ops")

    assert control.feed("copy") == before


def test_a_topic_that_is_gone_for_good_has_no_rows_any_more(control: OperatorTables) -> None:
    feed = two_topics(control)
    control.start_over(feed, CLUSTER, [StartOver("orders", None, [])], reason="gone", actor="ops")

    assert stored(control) == {refunds(0): 9}
    assert control.batch(batch_id_of(1)).state is BatchState.COMMITTED


@pytest.mark.postgresql_too
def test_after_a_change_of_cluster_all_topics_have_pending_rows_and_the_feed_its_new_cluster(
    control: OperatorTables,
) -> None:
    feed = two_topics(control)
    pending = StoredOffset(refunds(0), "refunds-there", None, None, "latest")
    changed = [over("orders-there", None, None, rule="earliest"), StartOver("refunds", "refunds-there", [pending])]
    control.start_over(feed, "cluster-b", changed, reason="moved", actor="ops")

    after = snapshot_of(control)
    assert after.cluster_id == "cluster-b"
    assert stored(control) == {orders(0): None, orders(1): None, refunds(0): None}
    assert [row.seeded_by for row in after.stored.values()] == ["earliest", "earliest", "latest"]
    record(control, cluster_id="cluster-b", seeds=[seed(orders(0), 12, topic_id="orders-there")])
    assert stored(control) == {orders(0): 12, orders(1): None, refunds(0): None}


def test_the_same_records_under_another_id_keep_their_offsets(control: OperatorTables) -> None:
    feed = two_topics(control)
    control.start_over(feed, CLUSTER, [same_records(feed, "mirrored")], reason="mirrored", actor="ops")

    after = snapshot_of(control)
    for number in (0, 1):
        known = feed.stored[orders(number)]
        row = after.stored[orders(number)]
        assert row == replace(known, topic_id="mirrored", updated_at=row.updated_at)
    later = plan_of((orders(0), 100, 110), number=2, topic_id="mirrored")
    plan_next(control, later)
    commit(control, later)
    assert stored(control) == {orders(0): 110, orders(1): 50, refunds(0): 9}


def test_starting_over_is_recorded_in_the_journal_with_what_was_and_what_is(store: Store) -> None:
    control = store.connect()
    feed = two_topics(control)
    control.start_over(feed, "cluster-b", [over("made-again", 0)], reason="made again", actor="ops")

    (event,) = store.events("reset")
    assert (event.actor, event.batch_id) == ("ops", None)
    assert event.detail["reason"] == "made again"
    assert event.detail["cluster_id"] == {"was": CLUSTER, "is": "cluster-b"}
    orders_0 = {"topic": "orders", "partition": 0}
    assert event.detail["removed"] == [
        orders_0 | {"topic_id": "orders-topic-id", "first_offset": 0, "next_offset": 100, "rule": "earliest"},
        {"topic": "orders", "partition": 1}
        | {"topic_id": "orders-topic-id", "first_offset": 40, "next_offset": 50, "rule": "earliest"},
    ]
    assert event.detail["partitions"] == [
        orders_0 | {"topic_id": "made-again", "first_offset": 0, "next_offset": 0, "rule": MADE_AGAIN}
    ]


def test_the_next_published_batch_carries_that_its_topic_started_over(store: Store) -> None:
    control = store.connect()
    feed = two_topics(control)
    control.start_over(feed, CLUSTER, [over("made-again", 0)], reason="made again", actor="ops")
    later = plan_of((orders(0), 0, 10), number=2, topic_id="made-again")
    plan_next(control, later)
    commit(control, later)

    assert control.ledger(later.batch_id) == store.events("reset")
    assert stored(control) == {orders(0): 10, refunds(0): 9}


# ── Starting over with gaps ───────────────────────────────────────────────────────────────────────────────────────────


def test_gaps_ahead_of_a_topic_that_starts_over_are_dropped_and_passed_ones_stay(store: Store) -> None:
    control = store.connect()
    two_topics(control)
    passed = control.file_gap(snapshot_of(control), gap(orders(0), 100, 110), seed=None, actor="ops")
    control.file_gap(snapshot_of(control), gap(orders(0), 200, 210), seed=None, actor="ops")
    other = control.file_gap(snapshot_of(control), gap(refunds(0), 20, 30), seed=None, actor="ops")
    control.start_over(snapshot_of(control), CLUSTER, [over("made-again", 0, 0)], reason="made again", actor="ops")

    assert store.gaps() == [passed, other]
    assert snapshot_of(control).gaps_ahead == [other]


def test_gaps_ahead_of_a_topic_that_was_never_read_are_dropped_too_when_it_starts_over(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0))
    control.file_gap(snapshot_of(control), gap(orders(0), 20, 30), seed=None, actor="ops")
    control.start_over(snapshot_of(control), CLUSTER, [over("made-again", 0, 0)], reason="made again", actor="ops")

    assert store.gaps() == []


def test_gaps_ahead_of_a_topic_that_is_gone_are_dropped(store: Store) -> None:
    control = store.connect()
    two_topics(control)
    control.file_gap(snapshot_of(control), gap(orders(0), 200, 210), seed=None, actor="ops")
    control.start_over(snapshot_of(control), CLUSTER, [StartOver("orders", None, [])], reason="gone", actor="ops")

    assert store.gaps() == []


def test_gaps_of_the_same_records_are_kept_under_the_new_topic_id(store: Store) -> None:
    control = store.connect()
    two_topics(control)
    passed = control.file_gap(snapshot_of(control), gap(orders(0), 100, 110), seed=None, actor="ops")
    ahead = control.file_gap(snapshot_of(control), gap(orders(0), 200, 210), seed=None, actor="ops")
    feed = snapshot_of(control)
    control.start_over(feed, CLUSTER, [same_records(feed, "mirrored")], reason="mirrored", actor="ops")

    assert passed.topic_id == "orders-topic-id"
    assert store.gaps() == [replace(passed, topic_id="mirrored"), replace(ahead, topic_id="mirrored")]
    assert snapshot_of(control).gaps_ahead == [replace(ahead, topic_id="mirrored")]


# ── Starting over under an open batch ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keeps_offsets", [False, True])
def test_a_batch_of_the_old_topic_does_not_begin_to_commit(store: Store, *, keeps_offsets: bool) -> None:
    control = store.connect()
    plan_first(control)
    write(control, FIRST_PLAN)
    feed = snapshot_of(control)
    changed = same_records(feed, "made-again") if keeps_offsets else over("made-again", 0, 0)
    control.start_over(feed, CLUSTER, [changed], reason="made again", actor="ops")

    with refused(store, OffsetsMovedError, match="orders-1"):
        control.begin_commit(FIRST_PLAN.batch_id, 1)


@pytest.mark.parametrize("keeps_offsets", [False, True])
def test_a_batch_of_the_old_topic_that_is_published_moves_no_offset_of_the_new_one(
    store: Store, *, keeps_offsets: bool
) -> None:
    control = store.connect()
    plan_first(control)
    publish(control, FIRST_PLAN)
    feed = snapshot_of(control)
    changed = same_records(feed, "made-again") if keeps_offsets else over("made-again", 0, 0)
    control.start_over(feed, CLUSTER, [changed], reason="made again", actor="ops")

    with refused(store, OffsetsMovedError, match="orders-0"):
        control.complete_commit(FIRST_PLAN.batch_id, actor="committer")

    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.COMMITTING


def test_a_batch_of_another_topic_commits_while_one_starts_over(control: OperatorTables) -> None:
    plan = plan_of((refunds(0), 7, 9))
    plan_first(control, plan, seed(refunds(0), 7), seed(orders(0), 40))
    control.start_over(snapshot_of(control), CLUSTER, [over("made-again", 0)], reason="made again", actor="ops")
    commit(control, plan)

    assert stored(control) == {orders(0): 0, refunds(0): 9}


# ── Another name ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_renamed_feed_keeps_its_rows_batches_and_journal_under_the_new_name(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.WRITTEN)
    control.file_gap(snapshot_of(control), gap(orders(0), 200, 210), seed=None, actor="ops")
    before = snapshot_of(control)
    control.rename_feed(before, "sales", reason="better name", actor="ops")

    after = snapshot_of(control, "sales")
    assert control.feed("orders") is None
    assert before.open_batch is not None
    open_batch = replace(before.open_batch, feed_name="sales")
    assert after == replace(before, name="sales", revision=after.revision, open_batch=open_batch)
    assert after.revision > before.revision
    assert control.feed_of_id(ORDERS_FEED) == after
    assert control.batch_states(ORDERS_FEED) == {FIRST_PLAN.batch_id: BatchState.WRITTEN}
    assert len(store.events("gap")) == len(store.events("seeded")) == 1


def test_a_renamed_feed_finishes_its_open_batch_with_the_frozen_plan(control: OperatorTables) -> None:
    bring_to(control, BatchState.WRITTEN)
    control.rename_feed(snapshot_of(control), "sales", reason="better name", actor="ops")
    control.begin_commit(FIRST_PLAN.batch_id, 1)
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    later = plan_of((orders(0), 100, 110), number=2, feed_name="sales")
    plan_next(control, later)
    commit(control, later)

    assert control.batch(FIRST_PLAN.batch_id).plan.feed_name == "orders"
    assert stored(control, "sales") == {orders(0): 110, orders(1): 50}


def test_renaming_is_recorded_in_the_journal_and_is_no_part_of_the_ledger(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    control.rename_feed(snapshot_of(control), "sales", reason="better name", actor="ops")
    publish(control, FIRST_PLAN)

    (event,) = store.events("renamed")
    assert (event.actor, event.batch_id) == ("ops", None)
    assert event.detail == {"reason": "better name", "was": "orders", "is": "sales"}
    assert [event.kind for event in control.ledger(FIRST_PLAN.batch_id)] == ["seeded"]


@pytest.mark.postgresql_too
def test_a_name_that_another_feed_has_is_refused_and_nothing_is_written(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    plan_first(control, plan_of((refunds(0), 5, 6), number=2, feed_id=OTHER_FEED, feed_name="refunds"))

    with refused(store, FeedChangedError, match="'refunds'"):
        control.rename_feed(snapshot_of(control), "refunds", reason="better name", actor="ops")


def test_the_old_name_of_a_renamed_feed_is_free_for_another(control: OperatorTables) -> None:
    plan_first(control)
    control.rename_feed(snapshot_of(control), "sales", reason="better name", actor="ops")
    plan_first(control, plan_of((orders(0), 3, 5), number=2, feed_id=OTHER_FEED))

    assert snapshot_of(control, "orders").feed_id == OTHER_FEED
    assert snapshot_of(control, "sales").feed_id == ORDERS_FEED
