"""Starting over under an open batch and with holds: the batch is abandoned with the offsets, or nothing happens."""

from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy.event import listen
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    TOPIC_ID,
    at_once,
    batch_id_of,
    bring_to,
    commit,
    gap,
    hold,
    orders,
    pin,
    plan_first,
    plan_next,
    plan_of,
    publish,
    record,
    refused,
    seed,
    snapshot_of,
    stored,
)
from tests.contract.conftest import SqlStore, Store

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import BatchStateError, FeedChangedError, UnknownBatchError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot, StartOver
from kafka_ingest.model.hold import OF_WHOLE_TOPICS, Hold, HoldCause
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import Adoption
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

OTHER_FEED = UUID("01890000-0000-7000-8000-00000000beef")
CAUSES_AT_AN_OFFSET = {
    HoldCause.OPEN_TRANSACTION,
    HoldCause.UNREADABLE,
    HoldCause.BEYOND_LOG,
    HoldCause.OFFSETS_LOST,
}
DECIDED_ON = {HoldCause.BEYOND_LOG, HoldCause.TOPIC_CHANGED, HoldCause.NEW_OR_OLDER}


def from_its_beginning(topic: str = "orders", partitions: int = 2) -> StartOver:
    """Return a topic that was made again."""
    rows = [
        seed(TopicPartition(topic, number), 0, topic_id="made-again", rule="topic made again")
        for number in range(partitions)
    ]
    return StartOver(topic, "made-again", rows)


def rewound_to(feed: FeedSnapshot, partition: int, offset: int) -> StartOver:
    """Return the topic ``orders`` with a partition whose log was seen to end at an offset."""
    rows = [
        replace(row, next_offset=offset) if tp == orders(partition) else row
        for tp, row in feed.stored.items()
        if tp.topic == "orders"
    ]
    return StartOver("orders", rows[0].topic_id, rows)


def with_the_same_records(feed: FeedSnapshot, topic: str = "orders") -> StartOver:
    """Return a topic that keeps its offsets."""
    rows = [row for tp, row in feed.stored.items() if tp.topic == topic]
    return StartOver(topic, rows[0].topic_id, rows, same_records=True)


def start_over(
    control: OperatorTables, *topics: StartOver, feed: FeedSnapshot | None = None, abandoned: UUID | None = None
) -> None:
    """Start over on the feed's rows as they are now, or as they were shown."""
    control.start_over(
        feed or snapshot_of(control), CLUSTER, topics, reason="made again", actor="ops", abandoned=abandoned
    )


# ── The batch that stands in the way ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.postgresql_too
def test_a_planned_batch_is_abandoned_in_the_step_that_starts_its_topic_over(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.PLANNED)
    start_over(control, from_its_beginning(), abandoned=FIRST_PLAN.batch_id)

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.reason) == (BatchState.ABANDONED, "made again")
    assert snapshot_of(control).open_batch is None
    assert stored(control) == {orders(0): 0, orders(1): 0}
    (abandoned,), (reset,) = store.events("abandoned"), store.events("reset")
    assert (abandoned.actor, abandoned.batch_id) == ("ops", FIRST_PLAN.batch_id)
    assert abandoned.detail == {"reason": "made again", "was": "PLANNED"}
    assert (reset.actor, reset.detail["reason"]) == ("ops", "made again")


def test_no_receipt_of_a_batch_that_was_abandoned_with_its_topic_is_pinned_later(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.PLANNED)
    start_over(control, from_its_beginning(), abandoned=FIRST_PLAN.batch_id)

    with refused(store, BatchStateError):
        pin(control, FIRST_PLAN, 1)


@pytest.mark.parametrize(
    "state", [BatchState.WRITTEN, BatchState.COMMITTING, BatchState.COMMITTED, BatchState.ABANDONED]
)
def test_a_batch_that_is_not_planned_is_not_abandoned_and_its_topic_does_not_start_over(
    store: Store, state: BatchState
) -> None:
    control = store.connect()
    bring_to(control, state)

    with refused(store, BatchStateError, match=str(FIRST_PLAN.batch_id)):
        start_over(control, from_its_beginning(), abandoned=FIRST_PLAN.batch_id)


def test_a_batch_that_was_written_since_the_operator_looked_is_kept_and_nothing_starts_over(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.PLANNED)
    shown = snapshot_of(control)
    pin(store.connect(), FIRST_PLAN, 1)

    with refused(store, (FeedChangedError, BatchStateError)):
        start_over(control, from_its_beginning(), feed=shown, abandoned=FIRST_PLAN.batch_id)

    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.WRITTEN


def test_of_a_receipt_and_an_operator_at_once_one_wins_whole(database: SqlStore) -> None:
    control, task = database.connect(), database.connect()
    bring_to(control, BatchState.PLANNED)
    shown = snapshot_of(control)

    abandoned, pinned = at_once(
        lambda: start_over(control, from_its_beginning(), feed=shown, abandoned=FIRST_PLAN.batch_id),
        lambda: pin(task, FIRST_PLAN, 1),
    )

    if abandoned is None:
        assert isinstance(pinned, BatchStateError)
        assert control.batch(FIRST_PLAN.batch_id).state is BatchState.ABANDONED
        assert stored(control) == {orders(0): 0, orders(1): 0}
    else:
        assert isinstance(abandoned, (FeedChangedError, BatchStateError))
        assert pinned is None
        assert control.batch(FIRST_PLAN.batch_id).state is BatchState.WRITTEN
        assert stored(control) == {orders(0): 0, orders(1): 40}
        assert database.events("reset") == []


def test_a_batch_that_nobody_knows_is_not_abandoned_and_nothing_starts_over(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 40))

    with refused(store, UnknownBatchError):
        start_over(control, from_its_beginning(), abandoned=batch_id_of(404))


# ── Holds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def held(cause: HoldCause, partition: int = 0, *, topic: str = "orders") -> Hold:
    """Return a hold of a cause on a partition, or on the whole topic where that is what such a hold says."""
    at_offset = 55 if cause in CAUSES_AT_AN_OFFSET else None
    whole_topic = {"partition": None} if cause in OF_WHOLE_TOPICS else {}
    return hold(partition, cause, at_offset, topic=topic, since=NOON, **whole_topic)


def held_feed(control: OperatorTables, *holds: Hold) -> FeedSnapshot:
    """Plan a feed of two topics with these holds, and return its rows."""
    plan_first(control, None, seed(orders(0), 100), seed(orders(1), 100), seed(TopicPartition("refunds", 0), 100))
    record(control, topics=["orders", "refunds"], holds=holds)
    return snapshot_of(control)


@pytest.mark.postgresql_too
@pytest.mark.parametrize("cause", HoldCause)
def test_every_hold_on_a_topic_that_starts_over_ends_and_those_on_other_topics_stay(
    control: OperatorTables, cause: HoldCause
) -> None:
    other = held(cause, topic="refunds")
    feed = held_feed(control, held(cause), other)
    assert len(feed.holds) == 2
    start_over(control, from_its_beginning())

    assert snapshot_of(control).holds == [other]


@pytest.mark.parametrize("cause", HoldCause)
def test_of_the_holds_on_a_topic_with_the_same_records_those_that_were_decided_on_end(
    control: OperatorTables, cause: HoldCause
) -> None:
    feed = held_feed(control, held(cause, 0), *([held(cause, 1)] if cause not in OF_WHOLE_TOPICS else []))
    start_over(control, with_the_same_records(feed))

    assert snapshot_of(control).holds == ([] if cause in DECIDED_ON else feed.holds)


def test_a_log_that_ended_below_its_stored_offset_is_decided_on_where_it_is_rewound(store: Store) -> None:
    control = store.connect()
    feed = held_feed(control, held(HoldCause.BEYOND_LOG, 0), held(HoldCause.UNREADABLE, 1))
    start_over(control, rewound_to(feed, 0, 55))

    after = snapshot_of(control)
    assert after.holds == []
    assert stored(control) == {orders(0): 55, orders(1): 100, TopicPartition("refunds", 0): 100}
    (event,) = store.events("reset")
    assert [entry["next_offset"] for entry in event.detail["removed"]] == [100, 100]
    assert [entry["next_offset"] for entry in event.detail["partitions"]] == [55, 100]


def test_a_hold_that_was_found_since_the_operator_looked_stands_in_the_way(store: Store) -> None:
    control = store.connect()
    shown = held_feed(control)
    store.connect().hold(ORDERS_FEED, held(HoldCause.BEYOND_LOG))

    with refused(store, FeedChangedError):
        start_over(control, from_its_beginning(), feed=shown)


def test_a_step_that_is_refused_ends_no_hold(store: Store) -> None:
    control = store.connect()
    bring_to(control, BatchState.WRITTEN)
    control.hold(ORDERS_FEED, held(HoldCause.BEYOND_LOG))

    with refused(store, BatchStateError):
        start_over(control, from_its_beginning(), abandoned=FIRST_PLAN.batch_id)

    assert snapshot_of(control).holds == [held(HoldCause.BEYOND_LOG)]


def test_the_holds_of_another_feed_on_the_same_topic_stay(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 40))
    plan_first(control, plan_of((orders(0), 3, 5), number=2, feed_id=OTHER_FEED, feed_name="copy"))
    control.hold(OTHER_FEED, held(HoldCause.BEYOND_LOG))
    start_over(control, from_its_beginning())

    assert snapshot_of(control, "copy").holds == [held(HoldCause.BEYOND_LOG)]


# ── A gap over the first offsets of a partition whose start is pending ────────────────────────────────────────────────


@pytest.mark.postgresql_too
def test_a_gap_over_a_pending_row_of_a_new_partition_resolves_it_and_moves_it(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 40), seed(orders(1), None, rule="new partition"))
    resolved = seed(orders(1), 0, rule="new partition")
    filed = control.file_gap(snapshot_of(control), gap(orders(1), 0, 12), seed=resolved, actor="ops")

    row = snapshot_of(control).stored[orders(1)]
    assert (row.first_offset, row.next_offset, row.seeded_by) == (0, 12, "new partition")
    assert stored(control) == {orders(0): 40, orders(1): 12}
    assert store.gaps() == [filed]
    assert filed.applied_at == filed.decided_at
    newest = store.events("seeded")[0]
    assert newest.actor == "ops"
    assert newest.detail == {
        "partitions": [
            {"topic": "orders", "partition": 1, "topic_id": "orders-topic-id", "offset": 0, "rule": "new partition"}
        ]
    }


def test_a_gap_ahead_of_a_pending_row_that_is_resolved_with_it_is_passed_later(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(1), None, rule="new partition"))
    resolved = seed(orders(1), 0, rule="new partition")
    filed = control.file_gap(snapshot_of(control), gap(orders(1), 5, 12), seed=resolved, actor="ops")

    assert stored(control) == {orders(1): 0}
    assert snapshot_of(control).gaps_ahead == [filed]


def test_a_gap_does_not_resolve_a_row_that_was_resolved_since_the_operator_looked(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(1), None, rule="new partition"))
    shown = snapshot_of(control)
    record(store.connect(), seeds=[seed(orders(1), 30)])

    with refused(store, FeedChangedError):
        control.file_gap(shown, gap(orders(1), 0, 12), seed=seed(orders(1), 0), actor="ops")


# ── How many rows each partition was given ────────────────────────────────────────────────────────────────────────────


def with_records_of_a_copy(feed: FeedSnapshot, topic_id: str) -> StartOver:
    """Return the topic ``orders`` with another id and the same records."""
    rows = [replace(row, topic_id=topic_id) for row in feed.stored.values()]
    return StartOver("orders", topic_id, rows, same_records=True)


def committed_rows(database: SqlStore) -> tuple[dict[TopicPartition, int], int]:
    """Return how many rows the feed's output was given of each partition as it is now, and in all."""
    control = database.connect()
    [summary] = control.feed_summaries()
    return control.rows_by_partition(ORDERS_FEED), summary.rows_committed


@pytest.mark.postgresql_too
def test_a_topic_with_the_same_records_keeps_its_rows_and_later_batches_and_backfills_add_theirs(
    database: SqlStore,
) -> None:
    control = database.connect()
    bring_to(control, BatchState.COMMITTED)
    of_before = plan_of((orders(0), 0, 5), number=2, kind=BatchKind.BACKFILL)
    plan_next(control, of_before)
    publish(control, of_before)
    start_over(control, with_records_of_a_copy(snapshot_of(control), "copied"))
    assert committed_rows(database) == ({orders(0): 100, orders(1): 10}, 110)

    control.complete_commit(of_before.batch_id, actor="committer")
    later = plan_of((orders(1), 50, 57), number=3, topic_id="copied")
    plan_next(control, later)
    commit(control, later)
    assert committed_rows(database) == ({orders(0): 105, orders(1): 17}, 122)

    adoption = Adoption(CLUSTER, ["orders"], [], [], [], [])
    control.adopt(snapshot_of(control), adoption, reason="tables lost", actor="ops")
    assert committed_rows(database) == ({orders(0): 105, orders(1): 17}, 122)


def test_a_topic_that_was_made_again_has_no_rows_yet_and_one_that_is_rewound_keeps_its_own(database: SqlStore) -> None:
    control = database.connect()
    bring_to(control, BatchState.COMMITTED)
    start_over(control, rewound_to(snapshot_of(control), 0, 30))
    assert committed_rows(database) == ({orders(0): 100, orders(1): 10}, 110)
    start_over(control, from_its_beginning())
    assert committed_rows(database) == ({}, 110)


@pytest.mark.postgresql_too
@pytest.mark.parametrize("same_records", [False, True])
def test_a_topic_that_came_back_with_an_id_that_it_had_before_has_the_rows_of_that_id_again(
    database: SqlStore, *, same_records: bool
) -> None:
    control = database.connect()
    bring_to(control, BatchState.COMMITTED)
    start_over(control, from_its_beginning())
    made_again = plan_of((orders(0), 0, 7), number=2, topic_id="made-again")
    plan_next(control, made_again)
    commit(control, made_again)
    assert committed_rows(database) == ({orders(0): 7}, 117)

    back = replace(with_records_of_a_copy(snapshot_of(control), TOPIC_ID), same_records=same_records)
    start_over(control, back)
    assert committed_rows(database) == ({orders(0): 107 if same_records else 100, orders(1): 10}, 117)


def test_starting_over_reads_no_batch_of_the_years_before(sqlite: SqlStore) -> None:
    bring_to(sqlite.connect(), BatchState.COMMITTED)
    engine, statements = sqlite.open(), []
    listen(engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    start_over(SqlControlTables(engine), from_its_beginning())
    assert [statement for statement in statements if "batch_range" in statement] == []
