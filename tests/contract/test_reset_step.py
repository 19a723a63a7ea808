"""Resetting stored offsets in the control tables: all or none, gaps with them, and never under an open batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    ORDERS_FEED,
    TOPIC_ID,
    at_once,
    batch_id_of,
    bring_to,
    commit,
    gap,
    jump,
    orders,
    plan_first,
    plan_next,
    plan_of,
    publish,
    refused,
    seed,
    snapshot_of,
    stored,
    write,
)
from tests.contract.conftest import SqlStore, Store

from kafka_ingest.errors import BatchStateError, FeedChangedError, OffsetsMovedError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, FeedSnapshot, ResetMove, StartOver
from kafka_ingest.model.gap import GapCause, Jump
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, union
from kafka_ingest.model.published_output import Adoption
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

OTHER_FEED = UUID("01890000-0000-7000-8000-00000000beef")
WHY = "the consumer downstream lost a day"


def back(partition: int, from_offset: int, to_offset: int) -> ResetMove:
    """Return a move back."""
    return ResetMove(orders(partition), from_offset, to_offset)


def forward(partition: int, from_offset: int, to_offset: int) -> ResetMove:
    """Return a move forward over one gap."""
    new = gap(orders(partition), from_offset, to_offset, GapCause.RESET, WHY)
    return ResetMove(orders(partition), from_offset, to_offset, Jump(orders(partition), from_offset, to_offset, (new,)))


def reset(control: OperatorTables, *moves: ResetMove, feed: FeedSnapshot | None = None) -> None:
    """Reset on the feed's rows as they are now, or as they were shown."""
    control.reset_offsets(feed or snapshot_of(control), moves, reason=WHY, actor="ops")


def committed_feed(control: OperatorTables) -> FeedSnapshot:
    """Commit orders-0[0, 100) and orders-1[40, 50), and return the feed's rows."""
    plan_first(control)
    commit(control, FIRST_PLAN)
    return snapshot_of(control)


def backfill(control: OperatorTables, plan: BatchPlan) -> BatchPlan:
    """Plan a backfill or copy."""
    record = BackfillRecord([plan], [], {"ranges": "all"})
    control.record_backfill(snapshot_of(control), record, actor="airflow:backfill")
    return plan


def spans(store: Store) -> list[tuple[int, int, int, str]]:
    """Return the feed's gaps: partition, start, end, state."""
    return [
        (each.offset_range.partition, each.offset_range.start_offset, each.offset_range.end_offset, each.state)
        for each in store.gaps()
    ]


# ── Back and forward ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stored_offset_goes_back_and_no_batch_is_said_to_have_moved_it(control: OperatorTables) -> None:
    before = committed_feed(control)
    reset(control, back(0, 100, 30))

    after = snapshot_of(control)
    row = after.stored[orders(0)]
    assert (row.first_offset, row.next_offset, row.batch_id) == (0, 30, None)
    assert (row.topic_id, row.seeded_by) == (TOPIC_ID, before.stored[orders(0)].seeded_by)
    assert row.updated_at != before.stored[orders(0)].updated_at
    assert after.stored[orders(1)] == before.stored[orders(1)]
    assert after.revision > before.revision


def test_back_below_where_the_feed_began_it_begins_there(control: OperatorTables) -> None:
    committed_feed(control)
    reset(control, back(1, 50, 10))

    row = snapshot_of(control).stored[orders(1)]
    assert (row.first_offset, row.next_offset) == (10, 10)


def test_a_stored_offset_goes_forward_and_what_it_passes_is_an_open_gap(store: Store) -> None:
    control = store.connect()
    committed_feed(control)
    reset(control, forward(0, 100, 130))

    row = snapshot_of(control).stored[orders(0)]
    assert (row.first_offset, row.next_offset, row.batch_id) == (0, 130, None)
    (filed,) = store.gaps()
    assert (filed.offset_range, filed.cause, filed.state) == (OffsetRange(orders(0), 100, 130), GapCause.RESET, "open")
    assert (filed.reason, filed.decided_by, filed.topic_id) == (WHY, "ops", TOPIC_ID)


def test_a_stored_offset_goes_forward_over_what_is_no_gap_too(store: Store) -> None:
    control = store.connect()
    committed_feed(control)
    reset(control, back(0, 100, 30))
    reset(control, ResetMove(orders(0), 30, 100))

    assert stored(control) == {orders(0): 100, orders(1): 50}
    assert store.gaps() == []
    assert store.events("gap") == []


@pytest.mark.postgresql_too
def test_a_gap_that_lies_ahead_is_passed_and_not_filed_a_second_time(store: Store) -> None:
    control = store.connect()
    committed_feed(control)
    ahead = control.file_gap(snapshot_of(control), gap(orders(0), 110, 120), seed=None, actor="ops")
    new = gap(orders(0), 100, 110, GapCause.RESET, WHY)
    reset(control, ResetMove(orders(0), 100, 120, Jump(orders(0), 100, 120, (new,), (ahead,))))

    assert spans(store) == [(0, 100, 110, "open"), (0, 110, 120, "open")]
    assert store.gaps()[1].gap_id == ahead.gap_id
    assert stored(control)[orders(0)] == 120


def test_several_partitions_move_both_ways_at_once(store: Store) -> None:
    control = store.connect()
    committed_feed(control)
    reset(control, back(0, 100, 0), forward(1, 50, 60))

    assert stored(control) == {orders(0): 0, orders(1): 60}
    assert spans(store) == [(1, 50, 60, "open")]


def test_the_same_partition_of_another_feed_stays_where_it_is_and_its_open_batch_is_not_in_the_way(
    control: OperatorTables,
) -> None:
    committed_feed(control)
    plan_first(control, plan_of((orders(0), 0, 100), number=2, feed_id=OTHER_FEED, feed_name="copy"))
    before = control.feed("copy")
    reset(control, back(0, 100, 30))

    assert (control.feed("copy"), stored(control)[orders(0)]) == (before, 30)


# ── Gaps that end ─────────────────────────────────────────────────────────────────────────────────────────────────────


def with_gaps(control: OperatorTables) -> None:
    """Pass orders-0[100, 110) and orders-0[120, 130) as gaps with a batch between, and file [200, 210) ahead."""
    committed_feed(control)
    control.file_gap(snapshot_of(control), gap(orders(0), 100, 110), seed=None, actor="ops")
    between = plan_of((orders(0), 110, 120), number=2)
    plan_next(control, between)
    commit(control, between)
    control.file_gap(snapshot_of(control), gap(orders(0), 120, 130), seed=None, actor="ops")
    control.file_gap(snapshot_of(control), gap(orders(0), 200, 210), seed=None, actor="ops")


@pytest.mark.parametrize(
    ("to_offset", "left"),
    [
        (130, [(0, 100, 110, "open"), (0, 120, 130, "open")]),
        (125, [(0, 100, 110, "open"), (0, 120, 125, "open")]),
        (120, [(0, 100, 110, "open")]),
        (101, [(0, 100, 101, "open")]),
        (100, []),
        (3, []),
    ],
)
def test_open_gaps_above_the_new_offset_end_and_one_that_it_cuts_keeps_what_lies_below(
    store: Store, to_offset: int, left: list[tuple[int, int, int, str]]
) -> None:
    control = store.connect()
    with_gaps(control)
    forward_first = forward(0, 130, 140)
    reset(control, forward_first)
    reset(control, back(0, 140, to_offset))

    assert spans(store) == [*left, (0, 200, 210, "ahead")]
    assert stored(control)[orders(0)] == to_offset


def test_a_gap_that_was_read_by_a_backfill_stays_closed(store: Store) -> None:
    control = store.connect()
    with_gaps(control)
    plan = backfill(control, plan_of((orders(0), 100, 110), number=3, kind=BatchKind.BACKFILL))
    commit(control, plan)
    reset(control, back(0, 130, 90))

    assert spans(store) == [(0, 100, 110, "closed"), (0, 200, 210, "ahead")]


def test_gaps_of_other_partitions_and_of_a_topic_that_is_gone_stay(store: Store) -> None:
    control = store.connect()
    with_gaps(control)
    control.file_gap(snapshot_of(control), gap(orders(1), 40, 60), seed=None, actor="ops")
    passed = [span for span in spans(store) if span[-1] == "open"]
    feed = snapshot_of(control)
    rows = [replace(row, topic_id="made-again") for row in feed.stored.values()]
    control.start_over(feed, CLUSTER, [StartOver("orders", "made-again", rows)], reason="-", actor="o")
    reset(control, back(0, 130, 0))

    assert spans(store) == passed != []


def test_gaps_of_the_same_records_under_another_topic_id_end_with_them(store: Store) -> None:
    control = store.connect()
    with_gaps(control)
    feed = snapshot_of(control)
    rows = [replace(row, topic_id="mirrored") for row in feed.stored.values()]
    control.start_over(feed, CLUSTER, [StartOver("orders", "mirrored", rows, same_records=True)], reason="-", actor="o")
    reset(control, back(0, 130, 105))

    assert spans(store) == [(0, 100, 105, "open"), (0, 200, 210, "ahead")]


@pytest.mark.postgresql_too
def test_a_log_that_is_rewound_to_its_end_ends_the_gaps_above_too(store: Store) -> None:
    control = store.connect()
    with_gaps(control)
    control.file_gap(snapshot_of(control), gap(orders(1), 60, 65), seed=None, actor="ops")
    feed = snapshot_of(control)
    rows = [replace(row, next_offset=105) if tp == orders(0) else row for tp, row in feed.stored.items()]
    control.start_over(
        feed, CLUSTER, [StartOver("orders", TOPIC_ID, rows, untouched=[orders(1)])], reason="-", actor="o"
    )

    assert spans(store) == [(0, 100, 105, "open"), (1, 60, 65, "ahead")]


def test_a_topic_that_was_made_again_keeps_the_gaps_of_the_one_before(store: Store) -> None:
    control = store.connect()
    with_gaps(control)
    rows = [seed(orders(0), 0, topic_id="made-again", rule="topic made again")]
    control.start_over(
        snapshot_of(control), CLUSTER, [StartOver("orders", "made-again", rows)], reason="-", actor="ops"
    )

    assert spans(store) == [(0, 100, 110, "open"), (0, 120, 130, "open")]


# ── The journal ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reset_is_in_the_journal_with_what_was_and_what_is_before_the_gaps_that_it_files(store: Store) -> None:
    control = store.connect()
    committed_feed(control)
    reset(control, back(0, 100, 30), forward(1, 50, 60))

    (moved,), (filed,) = store.events("reset"), store.events("gap")
    assert (moved.actor, moved.batch_id, moved.event_id < filed.event_id) == ("ops", None, True)
    row = {"topic": "orders", "topic_id": TOPIC_ID, "rule": "earliest"}
    assert moved.detail == {
        "reason": WHY,
        "cluster_id": {"was": CLUSTER, "is": CLUSTER},
        "same_records": ["orders"],
        "untouched": [],
        "removed": [
            row | {"partition": 0, "first_offset": 0, "next_offset": 100},
            row | {"partition": 1, "first_offset": 40, "next_offset": 50},
        ],
        "partitions": [
            row | {"partition": 0, "first_offset": 0, "next_offset": 30},
            row | {"partition": 1, "first_offset": 40, "next_offset": 60},
        ],
    }
    assert filed.detail == {"gaps": [each.as_document() for each in store.gaps()]}


@pytest.mark.postgresql_too
def test_the_next_published_batch_carries_the_reset_and_its_gaps(store: Store) -> None:
    control = store.connect()
    committed_feed(control)
    reset(control, back(0, 100, 30), forward(1, 50, 60))
    later = plan_of((orders(0), 30, 40), number=2)
    plan_next(control, later)
    publish(control, later)

    assert [event.kind for event in control.ledger(later.batch_id)] == ["reset", "gap"]


@pytest.mark.postgresql_too
def test_coverage_names_the_interval_that_is_read_again_and_none_for_what_is_skipped(control: OperatorTables) -> None:
    committed_feed(control)
    reset(control, back(0, 100, 30), forward(1, 50, 60))

    rows = control.coverage("orders")
    assert rows is not None
    (rewind,) = rows.rewinds
    assert (rewind.offset_range, rewind.actor, rewind.reason) == (OffsetRange(orders(0), 30, 100), "ops", WHY)


# ── Refused, and nothing is half done ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
def test_an_open_batch_of_the_feed_is_in_the_way_in_each_of_its_states(store: Store, state: BatchState) -> None:
    control = store.connect()
    bring_to(control, state)

    with refused(store, BatchStateError, match=f"live batch {FIRST_PLAN.batch_id} is {state}"):
        reset(control, forward(0, 0, 10))


@pytest.mark.postgresql_too
def test_an_open_backfill_is_in_the_way_until_it_is_committed(store: Store) -> None:
    control = store.connect()
    plan_first(control, None, seed(orders(0), 100))
    plan = backfill(control, plan_of((orders(0), 20, 30), kind=BatchKind.BACKFILL))

    with refused(store, BatchStateError, match=f"backfill batch {plan.batch_id} is PLANNED"):
        reset(control, back(0, 100, 10))

    commit(control, plan)
    reset(control, back(0, 100, 10))
    assert stored(control) == {orders(0): 10}


def test_an_open_copy_into_another_output_is_not_in_the_way(control: OperatorTables) -> None:
    committed_feed(control)
    copy = backfill(control, plan_of((orders(0), 20, 30), number=2, kind=BatchKind.COPY))
    reset(control, back(0, 100, 10))
    commit(control, copy)

    assert stored(control) == {orders(0): 10, orders(1): 50}


WRONG_MOVES: Mapping[str, Sequence[ResetMove]] = {
    "back from elsewhere": [forward(1, 50, 60), back(0, 99, 30)],
    "forward from elsewhere": [back(0, 100, 30), forward(1, 49, 60)],
    "a partition without a stored offset": [back(0, 100, 30), back(7, 5, 3)],
}


@pytest.mark.parametrize("wrong", WRONG_MOVES)
def test_where_one_stored_offset_is_not_where_its_move_begins_none_moves(store: Store, wrong: str) -> None:
    control = store.connect()
    committed_feed(control)

    with refused(store, OffsetsMovedError, match="None was moved"):
        reset(control, *WRONG_MOVES[wrong])


@pytest.mark.postgresql_too
def test_where_filing_a_gap_fails_nothing_has_moved(store: Store) -> None:
    control = store.connect()
    committed_feed(control)
    control.file_gap(snapshot_of(control), gap(orders(0), 100, 110), seed=None, actor="ops")
    elsewhere = ResetMove(orders(1), 50, 60, jump(orders(1), 49, 60))

    with refused(store, OffsetsMovedError, match="orders-1: expected 49, found 50"):
        reset(control, back(0, 110, 30), elsewhere)


def come_and_go(control: OperatorTables) -> None:
    """Plan a batch and abandon it."""
    plan_next(control, plan_of((orders(0), 100, 110), number=2))
    control.abandon(batch_id_of(2), reason="not wanted", actor="rival")


RIVALS: Mapping[str, Callable[[OperatorTables], object]] = {
    "a batch was planned": lambda control: plan_next(control, plan_of((orders(0), 100, 110), number=2)),
    "a batch came and went": come_and_go,
    "a gap was filed": lambda control: control.file_gap(
        snapshot_of(control), gap(orders(1), 50, 60), seed=None, actor="rival"
    ),
    "another process reset it": lambda control: reset(control, back(0, 100, 50)),
    "a backfill was planned": lambda control: backfill(
        control, plan_of((orders(1), 3, 9), number=2, kind=BatchKind.BACKFILL)
    ),
}


@pytest.mark.parametrize("rival", RIVALS)
def test_a_reset_that_was_shown_on_older_rows_is_refused_and_writes_nothing(store: Store, rival: str) -> None:
    control = store.connect()
    shown = committed_feed(control)
    RIVALS[rival](store.connect())

    with refused(store, FeedChangedError, match="another process wrote"):
        reset(control, back(0, 100, 30), feed=shown)


@pytest.mark.postgresql_too
def test_a_plan_decided_before_a_reset_is_refused(store: Store) -> None:
    control = store.connect()
    decided_on = committed_feed(control)
    reset(store.connect(), back(0, 100, 30))

    with refused(store, FeedChangedError, match="another process wrote"):
        plan_next(control, plan_of((orders(0), 100, 110), number=2), snapshot=decided_on)


@pytest.mark.postgresql_too
def test_of_a_plan_and_a_reset_at_once_one_wins_whole(database: SqlStore) -> None:
    control, task = database.connect(), database.connect()
    shown = committed_feed(control)
    plan = plan_of((orders(0), 100, 110), number=2)

    was_reset, was_planned = at_once(
        lambda: reset(control, back(0, 100, 30), forward(1, 50, 60), feed=shown),
        lambda: plan_next(task, plan, snapshot=shown),
    )

    if was_reset is None:
        assert isinstance(was_planned, FeedChangedError)
        assert stored(control) == {orders(0): 30, orders(1): 60}
        assert snapshot_of(control).open_batch is None
    else:
        assert isinstance(was_reset, FeedChangedError)
        assert was_planned is None
        assert stored(control) == {orders(0): 100, orders(1): 50}
        assert database.gaps() == []
        commit(control, plan)


# ── Where a batch began ───────────────────────────────────────────────────────────────────────────────────────────────


def three_batches(control: OperatorTables) -> None:
    """Commit orders-0[0, 100) with orders-1[40, 50), then orders-0[100, 110), then both again."""
    committed_feed(control)
    for plan in (
        plan_of((orders(0), 100, 110), number=2),
        plan_of((orders(0), 110, 120), (orders(1), 50, 60), number=3),
    ):
        plan_next(control, plan)
        commit(control, plan)


@pytest.mark.parametrize(
    ("number", "starts"),
    [
        (1, {orders(0): 0, orders(1): 40}),
        (2, {orders(0): 100, orders(1): 50}),
        (3, {orders(0): 110, orders(1): 50}),
    ],
)
def test_each_partition_began_with_a_batch_or_with_the_first_after_it_that_read_it(
    control: OperatorTables, number: int, starts: dict[TopicPartition, int]
) -> None:
    three_batches(control)

    assert control.starts_since(batch_id_of(number)) == starts


def test_only_committed_live_batches_of_the_feed_show_where_a_partition_began(control: OperatorTables) -> None:
    committed_feed(control)
    abandoned = plan_of((orders(1), 50, 60), number=2)
    plan_next(control, abandoned)
    control.abandon(abandoned.batch_id, reason="not wanted", actor="ops")
    other = plan_of((orders(1), 7, 9), number=4, feed_id=OTHER_FEED, feed_name="copy")
    plan_first(control, other)
    commit(control, other)
    last = plan_of((orders(0), 100, 110), number=5)
    plan_next(control, last)
    commit(control, last)
    commit(control, backfill(control, plan_of((orders(1), 3, 9), number=6, kind=BatchKind.BACKFILL)))
    still_open = plan_of((orders(1), 50, 60), number=7)
    plan_next(control, still_open)
    write(control, still_open)

    assert control.starts_since(batch_id_of(5)) == {orders(0): 100}


def test_batches_of_a_topic_that_was_made_again_since_show_nothing(control: OperatorTables) -> None:
    three_batches(control)
    rows = [seed(orders(0), 0, topic_id="made-again", rule="topic made again")]
    control.start_over(
        snapshot_of(control), CLUSTER, [StartOver("orders", "made-again", rows)], reason="-", actor="ops"
    )
    later = plan_of((orders(0), 0, 7), number=4, topic_id="made-again")
    plan_next(control, later)
    commit(control, later)

    assert control.starts_since(batch_id_of(2)) == {orders(0): 0}
    assert control.committed_ahead(ORDERS_FEED) == []


# ── What is committed above the stored offsets ────────────────────────────────────────────────────────────────────────


def test_after_going_back_what_batches_and_backfills_committed_lies_above(control: OperatorTables) -> None:
    committed_feed(control)
    control.file_gap(snapshot_of(control), gap(orders(0), 100, 120), seed=None, actor="ops")
    commit(control, backfill(control, plan_of((orders(0), 105, 110), number=2, kind=BatchKind.BACKFILL)))
    commit(control, backfill(control, plan_of((orders(0), 110, 115), number=3, kind=BatchKind.COPY)))
    reset(control, back(0, 120, 90))

    assert control.committed_ahead(ORDERS_FEED) == [OffsetRange(orders(0), 90, 100), OffsetRange(orders(0), 105, 110)]


# ── What is committed within intervals, whatever the stored offsets are now ───────────────────────────────────────────


@pytest.mark.postgresql_too
def test_what_batches_and_backfills_committed_of_an_interval_is_found_and_copies_are_not(
    control: OperatorTables,
) -> None:
    committed_feed(control)
    control.file_gap(snapshot_of(control), gap(orders(0), 100, 120), seed=None, actor="ops")
    commit(control, backfill(control, plan_of((orders(0), 105, 110), number=2, kind=BatchKind.BACKFILL)))
    commit(control, backfill(control, plan_of((orders(0), 110, 115), number=3, kind=BatchKind.COPY)))
    backfill(control, plan_of((orders(0), 115, 120), number=4, kind=BatchKind.BACKFILL))

    asked = [OffsetRange(orders(0), 90, 118), OffsetRange(orders(1), 45, 47)]
    assert control.committed_within(ORDERS_FEED, asked) == [
        OffsetRange(orders(0), 90, 100),
        OffsetRange(orders(0), 105, 110),
        OffsetRange(orders(1), 45, 47),
    ]
    assert control.committed_within(ORDERS_FEED, [OffsetRange(orders(0), 110, 118)]) == []
    assert control.committed_within(ORDERS_FEED, []) == []
    assert control.committed_within(OTHER_FEED, asked) == []


@pytest.mark.postgresql_too
@pytest.mark.parametrize("same_records", [True, False])
def test_batches_of_a_topic_that_got_another_id_count_where_an_operator_said_that_the_records_are_the_same(
    control: OperatorTables, *, same_records: bool
) -> None:
    three_batches(control)
    rows = [
        replace(row, topic_id="moved") if same_records else seed(tp, 0, topic_id="moved", rule="topic made again")
        for tp, row in snapshot_of(control).stored.items()
    ]
    topics = [StartOver("orders", "moved", rows, same_records=same_records)]
    control.start_over(snapshot_of(control), CLUSTER, topics, reason="moved", actor="ops")
    if same_records:
        reset(control, back(0, 120, 90))

    asked = OffsetRange(orders(0), 80, 105)
    assert control.starts_since(batch_id_of(2)) == ({orders(0): 100, orders(1): 50} if same_records else {})
    assert control.committed_within(ORDERS_FEED, [asked]) == ([asked] if same_records else [])
    assert union(control.committed_ahead(ORDERS_FEED)) == ([OffsetRange(orders(0), 90, 120)] if same_records else [])


# ── An older copy learns of a reset ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.postgresql_too
def test_gaps_of_an_older_copy_that_a_reset_ended_since_are_dropped_and_closed_ones_stay(store: Store) -> None:
    control = store.connect()
    with_gaps(control)
    plan = backfill(control, plan_of((orders(0), 120, 130), number=3, kind=BatchKind.BACKFILL))
    commit(control, plan)
    assert [state for *_, state in spans(store)] == ["open", "closed", "ahead"]
    (left, closed, _) = store.gaps()
    adopted = Adoption(CLUSTER, ["orders"], stored=[], batches=[], gaps=[left], ledger=[], reset=["orders"])
    control.adopt(snapshot_of(control), adopted, reason="restored", actor="ops")

    assert store.gaps() == [left, closed]
