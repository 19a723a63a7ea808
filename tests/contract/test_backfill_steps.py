"""What backfills do to the control tables, and what those say of offsets.

The in-memory fake and SQLite alike, and PostgreSQL where it may differ.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select, update
from tests.contract.builders import (
    CLUSTER,
    ORDERS_FEED,
    OUTPUT,
    as_adopted,
    at_once,
    attempt_of,
    batch_id_of,
    commit,
    gap,
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
    write,
)
from tests.contract.conftest import SqlStore, Store
from tests.outputs import parquet_at

from kafka_ingest.control import schema
from kafka_ingest.errors import FeedChangedError, KafkaIngestError, OffsetsMovedError, RangesTakenError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, FeedSnapshot, PublishedBatch, ResetMove, StartOver
from kafka_ingest.model.coverage import BackfillRange, CoverageRows, DeadLetters, PartitionCoverage, coverage_of
from kafka_ingest.model.gap import GapCause, Jump, NewGap
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, union
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import Adoption
from kafka_ingest.ports.control import ControlTables, OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

ASKED = {"open_gaps": True}
COPIES = Path("/data/orders-again")
OPEN = [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING]

Span = tuple[TopicPartition, int, int]


def holes_in(control: ControlTables) -> None:
    """Record a feed that began at orders-0@20 and orders-1@0.

    orders-0[20, 60) and orders-1[0, 10) are open gaps, orders-0[60, 100) is committed by live batch 1.
    """
    plan_first(control, None, seed(orders(0), 20), seed(orders(1), 0))
    skipped = [
        Jump(orders(0), 20, 60, gaps=(gap(orders(0), 20, 60),)),
        Jump(orders(1), 0, 10, gaps=(gap(orders(1), 0, 10),)),
    ]
    live = plan_of((orders(0), 60, 100))
    record(control, jumps=skipped)
    plan_next(control, live)
    commit(control, live)


@pytest.fixture
def holes(control: OperatorTables) -> OperatorTables:
    """A client of control tables of every kind, which hold a feed with holes."""
    holes_in(control)
    return control


@pytest.fixture
def with_holes(store: Store) -> Store:
    """Control tables of every kind, which hold a feed with holes."""
    holes_in(store.connect())
    return store


@pytest.fixture
def database_with_holes(database: SqlStore) -> SqlStore:
    """Control tables in a database, which hold a feed with holes."""
    holes_in(database.connect())
    return database


def chunk(number: int, *ranges: Span, topic_id: str | None = "orders-topic-id") -> BatchPlan:
    """Return a chunk of a backfill."""
    return plan_of(*ranges, number=number, kind=BatchKind.BACKFILL, topic_id=topic_id)


def copy_of(number: int, *ranges: Span, output: Path = COPIES, topic_id: str | None = "orders-topic-id") -> BatchPlan:
    """Return a chunk of a copy."""
    return plan_of(*ranges, number=number, kind=BatchKind.COPY, output=output, topic_id=topic_id)


def claim(
    control: ControlTables,
    *chunks: BatchPlan,
    gaps: Sequence[NewGap] = (),
    snapshot: FeedSnapshot | None = None,
    actor: str = "operator",
) -> None:
    """Record a backfill."""
    control.record_backfill(snapshot or snapshot_of(control), BackfillRecord(chunks, gaps, ASKED), actor=actor)


def lost(topic_partition: TopicPartition, start: int, end: int) -> NewGap:
    """Return the gap of what a backfill found deleted."""
    return gap(topic_partition, start, end, GapCause.RETENTION, "the log starts later")


def filled(control: ControlTables, *ranges: Span, number: int = 2) -> BatchPlan:
    """Claim and commit one chunk."""
    plan = chunk(number, *ranges)
    claim(control, plan)
    commit(control, plan)
    return plan


def brought_to(control: ControlTables, state: BatchState, plan: BatchPlan) -> None:
    """Bring a chunk that is claimed to a state."""
    steps: dict[BatchState, Callable[[], object]] = {
        BatchState.PLANNED: lambda: None,
        BatchState.WRITTEN: lambda: write(control, plan),
        BatchState.COMMITTING: lambda: publish(control, plan),
        BatchState.COMMITTED: lambda: commit(control, plan),
        BatchState.ABANDONED: lambda: control.abandon(plan.batch_id, reason="not wanted", actor="ops"),
    }
    steps[state]()


def coverage(control: ControlTables) -> CoverageRows:
    """Return what the control rows say of which offset is where; the feed is known."""
    found = control.coverage("orders")
    assert found is not None
    return found


def gap_spans(store: Store) -> list[tuple[str, int, int, str]]:
    """Return partition, start, end and state of each gap."""
    return [
        (str(g.offset_range.topic_partition), g.offset_range.start_offset, g.offset_range.end_offset, g.state)
        for g in store.gaps()
    ]


UNTOUCHED = [("orders-0", 20, 60, "open"), ("orders-1", 0, 10, "open")]


# ── Recording a backfill: all or none ─────────────────────────────────────────────────────────────────────────────────


def test_a_backfill_is_recorded_with_all_its_chunks(holes: OperatorTables):
    chunks = [chunk(2, (orders(0), 20, 40), (orders(1), 0, 10)), chunk(3, (orders(0), 40, 60))]
    claim(holes, *chunks)

    assert [holes.batch(each.batch_id).plan for each in chunks] == chunks
    assert [holes.batch(each.batch_id).state for each in chunks] == [BatchState.PLANNED] * 2
    assert {holes.batch(each.batch_id).planned_by for each in chunks} == {"operator"}


def test_a_chunk_keeps_the_leader_epochs_it_was_planned_in_and_its_commit_notes_none(holes: OperatorTables):
    before = {tp: row.leader_epoch for tp, row in snapshot_of(holes).stored.items()}
    plan = replace(chunk(2, (orders(0), 20, 60), (orders(1), 0, 10)), leader_epochs={orders(0): 7})
    claim(holes, plan)
    found = holes.batch(plan.batch_id).plan
    assert (found.leader_epochs, found.fingerprint) == ({orders(0): 7}, plan.fingerprint)

    commit(holes, plan)
    assert {tp: row.leader_epoch for tp, row in snapshot_of(holes).stored.items()} == before


def test_a_backfill_moves_no_stored_offset_and_is_no_open_live_batch(holes: OperatorTables):
    before = snapshot_of(holes)
    claim(holes, chunk(2, (orders(0), 20, 60)))
    after = snapshot_of(holes)

    assert after.stored == before.stored
    assert after.open_batch is None
    assert (after.revision, after.newest_batch) == (before.revision + 1, batch_id_of(2))
    assert (after.topics, after.waiting_since) == (before.topics, before.waiting_since)


def test_a_backfill_is_recorded_in_the_journal_once_with_what_was_asked_for(with_holes: Store):
    claim(with_holes.connect(), chunk(2, (orders(0), 20, 40)), chunk(3, (orders(0), 40, 60)))

    [event] = with_holes.events("backfill_planned")
    assert (event.actor, event.batch_id) == ("operator", None)
    chunks = [str(batch_id_of(2)), str(batch_id_of(3))]
    assert event.detail == {"request": ASKED, "kind": "backfill", "chunks": chunks}


def test_a_backfill_may_be_open_beside_a_live_batch_and_beside_another_backfill(holes: OperatorTables):
    live = plan_of((orders(0), 100, 110), number=2)
    plan_next(holes, live)
    claim(holes, chunk(3, (orders(0), 20, 40)))
    claim(holes, chunk(4, (orders(0), 40, 60)))

    assert snapshot_of(holes).open_batch == holes.batch(live.batch_id)
    assert [batch.batch_id for batch in holes.open_backfills(ORDERS_FEED)] == [batch_id_of(3), batch_id_of(4)]


def test_a_backfill_decided_on_older_rows_is_refused_and_nothing_of_it_is_written(with_holes: Store):
    control = with_holes.connect()
    old = snapshot_of(control)
    plan_next(with_holes.connect(), plan_of((orders(0), 100, 110), number=2))

    with refused(with_holes, FeedChangedError, match="feed orders: another process wrote"):
        claim(control, chunk(3, (orders(0), 20, 40)), gaps=[lost(orders(0), 0, 5)], snapshot=old)


def test_a_decision_made_before_a_backfill_was_recorded_has_to_be_made_again(with_holes: Store):
    control = with_holes.connect()
    old = snapshot_of(control)
    claim(with_holes.connect(), chunk(2, (orders(0), 20, 40)))

    with pytest.raises(FeedChangedError):
        plan_next(control, plan_of((orders(0), 100, 110), number=3), snapshot=old)
    with pytest.raises(FeedChangedError):
        claim(control, chunk(4, (orders(1), 0, 10)), snapshot=old)


@pytest.mark.parametrize(
    ("first", "second"),
    [((20, 40), (39, 60)), ((20, 60), (30, 40)), ((30, 40), (20, 60)), ((20, 40), (20, 40)), ((20, 40), (20, 21))],
)
def test_two_chunks_of_a_backfill_that_share_an_offset_are_refused_and_none_is_written(
    with_holes: Store, first: tuple[int, int], second: tuple[int, int]
):
    before = with_holes.dump()
    control = with_holes.connect()

    with pytest.raises(RangesTakenError, match=r"no other backfill of the feed reads, found orders-0\["):
        claim(control, chunk(2, (orders(1), 0, 10), (orders(0), *first)), chunk(3, (orders(0), *second)))

    assert with_holes.dump() == before


@pytest.mark.postgresql_too
def test_ranges_that_only_touch_share_no_offset(holes: OperatorTables):
    claim(holes, chunk(2, (orders(0), 20, 40)), chunk(3, (orders(0), 40, 60)))
    claim(holes, chunk(4, (orders(0), 0, 20)))

    assert len(holes.open_backfills(ORDERS_FEED)) == 3


def test_the_same_offsets_of_another_partition_are_others(holes: OperatorTables):
    claim(holes, chunk(2, (orders(0), 20, 30)), chunk(3, (orders(1), 0, 10)), chunk(4, (orders(0), 0, 10)))

    assert len(holes.open_backfills(ORDERS_FEED)) == 3


@pytest.mark.parametrize("state", [*OPEN, BatchState.COMMITTED])
def test_what_another_backfill_holds_is_refused_and_nothing_is_written(with_holes: Store, state: BatchState):
    control = with_holes.connect()
    first = chunk(2, (orders(0), 30, 40))
    claim(control, first)
    brought_to(control, state, first)
    before = with_holes.dump()

    for wanted in ((20, 60), (30, 31), (0, 31), (39, 60)):
        with pytest.raises(RangesTakenError, match=r"no other backfill of the feed reads, found orders-0\["):
            claim(control, chunk(3, (orders(0), *wanted)), gaps=[lost(orders(0), 0, 5)])

    assert with_holes.dump() == before


def test_a_long_range_is_held_against_all_that_begin_before_it_ends(with_holes: Store):
    control = with_holes.connect()
    claim(control, chunk(2, (orders(0), 0, 60)))

    for number, start in enumerate((1, 20, 59), start=3):
        with pytest.raises(RangesTakenError):
            claim(control, chunk(number, (orders(0), start, start + 1)))

    assert [batch.batch_id for batch in control.open_backfills(ORDERS_FEED)] == [batch_id_of(2)]


def test_only_offsets_of_the_new_chunks_are_named_as_taken(with_holes: Store):
    control = with_holes.connect()
    claim(control, chunk(2, (orders(0), 20, 40)))

    with pytest.raises(RangesTakenError, match=r"found orders-0\[30, 60\)(\.|$)"):
        claim(control, chunk(3, (orders(0), 30, 60), (orders(1), 0, 10)))


def test_backfills_that_share_offsets_already_are_not_in_the_way_of_others(holes: OperatorTables):
    """In control tables that were restored and adopted, two of the past may read the same."""
    one = plan_of((orders(0), 20, 40), number=2, kind=BatchKind.BACKFILL)
    claim(holes, one)
    both = plan_of((orders(0), 30, 50), number=3, kind=BatchKind.BACKFILL)
    adopted = Adoption(CLUSTER, ["orders"], [], [as_adopted(both)], [], [])
    holes.adopt(snapshot_of(holes), adopted, reason="restored", actor="ops")

    claim(holes, chunk(4, (orders(0), 50, 60)))
    with pytest.raises(RangesTakenError, match=r"orders-0\[30, 31\)"):
        claim(holes, chunk(5, (orders(0), 30, 31)))

    assert [batch.batch_id for batch in holes.open_backfills(ORDERS_FEED)] == [batch_id_of(2), batch_id_of(4)]


def test_an_abandoned_chunk_frees_its_ranges_and_no_others(holes: OperatorTables):
    claim(holes, chunk(2, (orders(0), 20, 40)), chunk(3, (orders(0), 40, 60)))
    holes.abandon(batch_id_of(2), reason="not wanted", actor="ops")

    claim(holes, chunk(4, (orders(0), 20, 40)))
    with pytest.raises(RangesTakenError):
        claim(holes, chunk(5, (orders(0), 59, 60)))

    assert [batch.batch_id for batch in holes.open_backfills(ORDERS_FEED)] == [batch_id_of(3), batch_id_of(4)]


def test_what_a_copy_holds_is_free_to_a_backfill_and_to_another_copy(holes: OperatorTables):
    claim(holes, copy_of(2, (orders(0), 20, 60)))
    claim(holes, copy_of(3, (orders(0), 20, 60), output=Path("/data/elsewhere")))
    claim(holes, chunk(4, (orders(0), 20, 60)))

    assert len(holes.open_backfills(ORDERS_FEED)) == 3


def test_a_copy_may_read_what_the_feed_has_read_or_will_read(holes: OperatorTables):
    plan = copy_of(2, (orders(0), 0, 1_000))
    claim(holes, plan)
    commit(holes, plan)

    assert holes.batch(plan.batch_id).state is BatchState.COMMITTED
    assert stored(holes) == {orders(0): 100, orders(1): 10}


@pytest.mark.parametrize("span", [(90, 101), (100, 101), (500, 600)])
def test_offsets_at_or_beyond_the_stored_offset_are_refused_and_nothing_is_written(
    with_holes: Store, span: tuple[int, int]
):

    with refused(with_holes, OffsetsMovedError, match=rf"orders-0\[{span[0]}, {span[1]}\), stored offset 100"):
        claim(with_holes.connect(), chunk(2, (orders(1), 0, 10)), chunk(3, (orders(0), *span)))


def test_a_backfill_of_a_partition_whose_start_is_pending_is_refused(store: Store):
    control = store.connect()
    plan_first(control, None, seed(orders(0), None))

    with refused(store, OffsetsMovedError):
        claim(control, chunk(2, (orders(0), 0, 10)))


def test_two_feeds_may_backfill_the_same_offsets_of_a_topic(holes: OperatorTables):
    other = replace(chunk(12, (orders(0), 20, 60)), feed_id=batch_id_of(77), feed_name="refunds")
    plan_first(
        holes, replace(other, kind=BatchKind.LIVE, batch_id=batch_id_of(11), ranges=(OffsetRange(orders(0), 0, 100),))
    )
    commit(holes, holes.batch(batch_id_of(11)).plan)
    claim(holes, chunk(2, (orders(0), 20, 60)))
    claim(holes, other, snapshot=snapshot_of(holes, "refunds"))

    assert len(holes.open_backfills(ORDERS_FEED)) == len(holes.open_backfills(batch_id_of(77))) == 1


# ── The gaps of what is gone ──────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_gone_becomes_an_open_gap_behind_the_stored_offset(with_holes: Store):
    control = with_holes.connect()
    before = stored(control)
    claim(control, chunk(2, (orders(0), 10, 20)), gaps=[lost(orders(0), 0, 10)])

    [new] = [
        found
        for found in with_holes.gaps()
        if found.offset_range.start_offset == 0 and found.offset_range.partition == 0
    ]
    assert (new.offset_range, new.state, new.cause) == (OffsetRange(orders(0), 0, 10), "open", GapCause.RETENTION)
    assert (new.decided_by, new.reason, new.topic_id) == ("operator", "the log starts later", "orders-topic-id")
    assert stored(control) == before
    assert with_holes.events("gap")[0].detail == {"gaps": [new.as_document()]}


def test_where_all_is_gone_only_gaps_are_recorded(with_holes: Store):
    control = with_holes.connect()
    claim(control, gaps=[lost(orders(0), 0, 10), lost(orders(0), 12, 14)])

    assert gap_spans(with_holes) == [("orders-0", 0, 10, "open"), ("orders-0", 12, 14, "open"), *UNTOUCHED]
    assert control.open_backfills(ORDERS_FEED) == []
    [event] = with_holes.events("backfill_planned")
    assert event.detail == {"request": ASKED, "kind": None, "chunks": []}


def test_a_backfill_that_misses_nothing_records_no_gap(with_holes: Store):
    before = with_holes.events("gap")
    claim(with_holes.connect(), chunk(2, (orders(0), 20, 60)))

    assert with_holes.events("gap") == before


def test_a_gap_that_a_backfill_left_is_carried_by_the_next_live_receipt(with_holes: Store):
    control = with_holes.connect()
    claim(control, gaps=[lost(orders(0), 0, 10)])
    live = plan_of((orders(0), 100, 110), number=2)
    plan_next(control, live)
    publish(control, live)

    assert [event.kind for event in control.ledger(live.batch_id)] == ["gap"]


# ── Closing gaps ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gap_that_is_read_whole_is_closed_by_the_batch_that_read_it(with_holes: Store):
    control = with_holes.connect()
    [before, other] = with_holes.gaps()
    plan = filled(control, (orders(0), 20, 60))

    assert with_holes.gaps() == [replace(before, closed_by_batch=plan.batch_id), other]
    [event] = with_holes.events("gap_closed")
    assert (event.actor, event.batch_id) == ("committer", plan.batch_id)
    assert event.detail == {"gaps": [replace(before, closed_by_batch=plan.batch_id).as_document()]}


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ((20, 40), [(20, 40, "closed"), (40, 60, "open")]),
        ((40, 60), [(20, 40, "open"), (40, 60, "closed")]),
        ((30, 40), [(20, 30, "open"), (30, 40, "closed"), (40, 60, "open")]),
        ((10, 30), [(20, 30, "closed"), (30, 60, "open")]),
        ((20, 21), [(20, 21, "closed"), (21, 60, "open")]),
        ((0, 20), [(20, 60, "open")]),
        ((0, 60), [(20, 60, "closed")]),
    ],
)
def test_a_gap_of_which_some_is_read_is_split_and_nothing_of_it_is_lost(
    with_holes: Store, read: tuple[int, int], left: list[tuple[int, int, str]]
):
    was = with_holes.gaps()[0]
    filled(with_holes.connect(), (orders(0), *read))

    assert gap_spans(with_holes) == [*(("orders-0", *piece) for piece in left), UNTOUCHED[1]]
    for piece in with_holes.gaps()[:-1]:
        assert (piece.cause, piece.reason, piece.decided_by) == (was.cause, was.reason, was.decided_by)
        assert (piece.decided_at, piece.applied_at, piece.topic_id) == (was.decided_at, was.applied_at, was.topic_id)
        assert piece.closed_by_batch == (batch_id_of(2) if piece.state == "closed" else None)
    assert bool(with_holes.events("gap_closed")) == any(state == "closed" for *_, state in left)


def test_gaps_are_closed_across_partitions_by_one_chunk(with_holes: Store):
    filled(with_holes.connect(), (orders(0), 20, 60), (orders(1), 0, 10))

    assert {state for *_, state in gap_spans(with_holes)} == {"closed"}
    [event] = with_holes.events("gap_closed")
    assert [each["partition"] for each in event.detail["gaps"]] == [0, 1]


def test_chunk_after_chunk_closes_a_gap_piece_by_piece(with_holes: Store):
    control = with_holes.connect()
    chunks = [chunk(2, (orders(0), 40, 60)), chunk(3, (orders(0), 20, 30)), chunk(4, (orders(0), 30, 40))]
    claim(control, *chunks)
    for each in chunks:
        commit(control, each)

    closed = [
        (g.offset_range.start_offset, g.offset_range.end_offset, g.closed_by_batch) for g in with_holes.gaps()[:-1]
    ]
    assert closed == [(20, 30, batch_id_of(3)), (30, 40, batch_id_of(4)), (40, 60, batch_id_of(2))]
    assert [event.batch_id for event in with_holes.events("gap_closed")] == [
        batch_id_of(4),
        batch_id_of(3),
        batch_id_of(2),
    ]


def test_a_copy_closes_no_gap(with_holes: Store):
    control = with_holes.connect()
    plan = copy_of(2, (orders(0), 0, 100), (orders(1), 0, 10))
    claim(control, plan)
    commit(control, plan)

    assert gap_spans(with_holes) == UNTOUCHED
    assert with_holes.events("gap_closed") == []


def test_a_gap_is_closed_when_the_chunk_is_committed_and_not_before(with_holes: Store):
    control = with_holes.connect()
    plan = chunk(2, (orders(0), 20, 60))
    claim(control, plan)
    publish(control, plan)
    assert gap_spans(with_holes) == UNTOUCHED

    control.complete_commit(plan.batch_id, actor="committer")
    assert gap_spans(with_holes)[0] == ("orders-0", 20, 60, "closed")


def test_a_commit_that_landed_closes_its_gaps_once(with_holes: Store):
    control = with_holes.connect()
    filled(control, (orders(0), 30, 40))
    before = with_holes.dump()

    control.complete_commit(batch_id_of(2), actor="rival")

    assert with_holes.dump() == before


def test_a_gap_that_lies_ahead_or_is_of_an_earlier_topic_of_the_name_is_not_closed(with_holes: Store):
    control = with_holes.connect()
    ahead = control.file_gap(snapshot_of(control), gap(orders(0), 150, 160), seed=None, actor="ops")
    with_holes.recreate_by_hand(orders(0), "made-again")
    filled_again = chunk(3, (orders(0), 30, 40), topic_id="made-again")
    claim(control, filled_again)
    commit(control, filled_again)

    assert gap_spans(with_holes) == [UNTOUCHED[0], ("orders-0", 150, 160, "ahead"), UNTOUCHED[1]]
    assert ahead in with_holes.gaps()


def test_no_gap_of_another_feed_is_closed(with_holes: Store):
    control = with_holes.connect()
    record_other = replace(plan_of((orders(0), 60, 100), number=21), feed_id=batch_id_of(77), feed_name="refunds")
    plan_first(control, record_other, seed(orders(0), 60))
    commit(control, record_other)
    other = replace(chunk(22, (orders(0), 20, 60)), feed_id=batch_id_of(77), feed_name="refunds")
    claim(control, other, snapshot=snapshot_of(control, "refunds"))
    commit(control, other)

    assert gap_spans(with_holes) == UNTOUCHED


def test_an_abandoned_chunk_leaves_its_gap_open(with_holes: Store):
    control = with_holes.connect()
    plan = chunk(2, (orders(0), 20, 60))
    claim(control, plan)
    write(control, plan)
    control.abandon(plan.batch_id, reason="not wanted", actor="ops")

    assert gap_spans(with_holes) == UNTOUCHED


# ── Committing: stored offsets, revision, ledger ──────────────────────────────────────────────────────────────────────


def test_a_committed_backfill_moves_no_stored_offset_and_changes_the_revision(holes: OperatorTables):
    plan = chunk(2, (orders(0), 20, 60))
    claim(holes, plan)
    publish(holes, plan)
    before = snapshot_of(holes)
    batch = holes.complete_commit(plan.batch_id, actor="committer")

    after = snapshot_of(holes)
    assert (batch.state, batch.committed_by) == (BatchState.COMMITTED, "committer")
    assert after.stored == before.stored
    assert after.revision > before.revision
    assert after.published_to == before.published_to == parquet_at(OUTPUT)


def test_the_newest_batch_of_each_kind_is_returned_with_its_output_once_it_is_committed(holes: OperatorTables):
    assert holes.newest_of_kinds(ORDERS_FEED).keys() == {BatchKind.LIVE}
    for number, start in ((2, 20), (3, 30)):
        filled(holes, (orders(0), start, start + 10), number=number)
    copy = copy_of(4, (orders(0), 20, 60))
    claim(holes, copy, chunk(5, (orders(0), 40, 50)))
    commit(holes, copy)

    assert holes.newest_of_kinds(ORDERS_FEED) == {
        BatchKind.LIVE: PublishedBatch(batch_id_of(1), parquet_at(OUTPUT)),
        BatchKind.BACKFILL: PublishedBatch(batch_id_of(3), parquet_at(OUTPUT)),
        BatchKind.COPY: PublishedBatch(copy.batch_id, parquet_at(COPIES)),
    }
    assert holes.newest_published(ORDERS_FEED) == PublishedBatch(batch_id_of(1), parquet_at(OUTPUT))


def test_a_backfill_commits_while_a_live_batch_is_open_and_the_other_way_round(holes: OperatorTables):
    live, fill = plan_of((orders(0), 100, 110), number=2), chunk(3, (orders(0), 20, 60))
    plan_next(holes, live)
    claim(holes, fill)
    publish(holes, live)
    commit(holes, fill)
    holes.complete_commit(live.batch_id, actor="committer")

    assert stored(holes) == {orders(0): 110, orders(1): 10}
    assert {holes.batch(plan.batch_id).state for plan in (live, fill)} == {BatchState.COMMITTED}


def test_the_receipt_of_a_backfill_carries_what_it_was_planned_on_since_the_newest_live_batch(holes: OperatorTables):
    skipped(holes, 100, 110)
    plan = chunk(2, (orders(0), 100, 105))
    claim(holes, plan, gaps=[lost(orders(0), 5, 10)])
    skipped(holes, 110, 120)
    publish(holes, plan)

    assert carried(holes, plan) == [100, 5]
    assert {event.kind for event in holes.ledger(plan.batch_id)} == {"gap"}


def test_every_chunk_of_a_backfill_carries_the_same(holes: OperatorTables):
    skipped(holes, 100, 110)
    chunks = [chunk(2, (orders(0), 100, 105)), chunk(3, (orders(0), 105, 110))]
    claim(holes, *chunks)
    for plan in chunks:
        commit(holes, plan)

    assert [carried(holes, plan) for plan in chunks] == [[100], [100]]


def test_a_backfill_carries_a_reset_that_no_live_receipt_records_yet(holes: OperatorTables):
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 100, 70)], reason="bad deploy", actor="ops")
    plan = chunk(2, (orders(0), 20, 60))
    claim(holes, plan)
    publish(holes, plan)

    assert [event.kind for event in holes.ledger(plan.batch_id)] == ["reset"]


def test_a_backfill_carries_nothing_where_the_newest_live_batch_has_recorded_all(holes: OperatorTables):
    plan = chunk(2, (orders(0), 20, 60))
    claim(holes, plan)
    skipped(holes, 100, 120)
    publish(holes, plan)

    assert holes.ledger(plan.batch_id) == []


def test_what_a_live_batch_recorded_between_plan_and_commit_of_a_backfill_is_carried_by_both(holes: OperatorTables):
    skipped(holes, 100, 110)
    fill, live = chunk(2, (orders(0), 100, 110)), plan_of((orders(0), 110, 130), number=3)
    claim(holes, fill)
    plan_next(holes, live)
    commit(holes, live)
    publish(holes, fill)

    assert (carried(holes, live), carried(holes, fill)) == ([100], [100])


def test_a_chunk_that_is_committed_by_its_second_attempt_carries_the_same(holes: OperatorTables):
    skipped(holes, 100, 110)
    plan = chunk(2, (orders(0), 100, 110))
    claim(holes, plan)
    write(holes, plan)
    holes.discard_written(plan.batch_id, 1, reason="damaged", actor="committer")
    skipped(holes, 110, 120)
    holes.open_attempt(attempt_of(plan, 2))
    pin(holes, plan, 2)
    holes.begin_commit(plan.batch_id, 2)

    assert carried(holes, plan) == [100]


@pytest.mark.parametrize(("kind", "kinds"), [(BatchKind.BACKFILL, ["seeded", "gap"]), (BatchKind.COPY, [])])
def test_a_backfill_before_any_live_batch_carries_all_there_is_and_a_copy_nothing(
    control: OperatorTables, kind: BatchKind, kinds: list[str]
):
    plan_first(control, None, seed(orders(0), 20))
    skipped(control, 20, 60)
    plan = plan_of((orders(0), 20, 60), number=2, kind=kind)
    claim(control, plan)
    publish(control, plan)

    assert [event.kind for event in control.ledger(plan.batch_id)] == kinds


@pytest.mark.parametrize(
    "plan",
    [
        plan_of((orders(0), 20, 60), number=2, kind=BatchKind.COPY, output=COPIES),
        plan_of((orders(0), 20, 60), number=2, kind=BatchKind.BACKFILL, output=Path("/data/orders-moved")),
    ],
    ids=["copy", "backfill"],
)
def test_what_is_published_in_another_output_carries_no_ledger(holes: OperatorTables, plan: BatchPlan):
    skipped(holes, 100, 110)
    claim(holes, plan)
    publish(holes, plan)

    assert holes.ledger(plan.batch_id) == []


def skipped(control: ControlTables, start: int, end: int) -> None:
    """Let the stored offset of orders-0 pass what becomes an open gap."""
    record(control, jumps=[Jump(orders(0), start, end, gaps=(gap(orders(0), start, end),))])


def carried(control: ControlTables, plan: BatchPlan) -> list[int]:
    """Return where the gaps begin that a batch's receipt carries."""
    return [each["start_offset"] for event in control.ledger(plan.batch_id) for each in event.detail["gaps"]]


def test_what_happens_around_a_backfill_goes_to_the_next_live_receipt_as_if_there_were_none(holes: OperatorTables):
    fill, live = chunk(2, (orders(0), 20, 60)), plan_of((orders(0), 120, 130), number=3)
    record(holes, jumps=[Jump(orders(0), 100, 110, gaps=(gap(orders(0), 100, 110),))])
    claim(holes, fill)
    publish(holes, fill)
    record(holes, jumps=[Jump(orders(0), 110, 120, gaps=(gap(orders(0), 110, 120),))])
    holes.complete_commit(fill.batch_id, actor="committer")
    plan_next(holes, live)
    publish(holes, live)

    carried = [event.detail["gaps"][0]["start_offset"] for event in holes.ledger(live.batch_id)]
    assert carried == [100, 110]


def test_a_backfill_whose_stored_offset_was_moved_below_it_does_not_begin_to_commit(with_holes: Store):
    control = with_holes.connect()
    plan = chunk(2, (orders(0), 20, 60))
    claim(control, plan)
    write(control, plan)
    with_holes.reset_by_hand(orders(0), 59)

    with refused(with_holes, OffsetsMovedError, match=r"orders-0\[20, 60\), stored offset 59.*abandon"):
        control.begin_commit(plan.batch_id, 1)


def test_a_discarded_chunk_keeps_its_claim(holes: OperatorTables):
    plan = chunk(2, (orders(0), 20, 60))
    claim(holes, plan)
    write(holes, plan)
    holes.discard_written(plan.batch_id, 1, reason="damaged", actor="committer")

    with pytest.raises(RangesTakenError):
        claim(holes, chunk(3, (orders(0), 30, 40)))
    holes.open_attempt(attempt_of(plan, 2))
    pin(holes, plan, 2)
    holes.begin_commit(plan.batch_id, 2)
    holes.complete_commit(plan.batch_id, actor="committer")
    assert holes.batch(plan.batch_id).pinned_attempt == 2


# ── What the control tables say: coverage ─────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_was_never_planned_has_no_coverage(control: ControlTables):
    assert control.coverage("orders") is None


def test_coverage_is_the_feed_with_its_gaps_and_backfills(with_holes: Store):
    control = with_holes.connect()
    done, claimed = chunk(2, (orders(0), 30, 40)), chunk(3, (orders(0), 0, 20), (orders(1), 0, 5))
    claim(control, done, claimed, chunk(4, (orders(0), 50, 55)))
    commit(control, done)
    control.abandon(batch_id_of(4), reason="not wanted", actor="ops")

    found = coverage(control)
    assert found.feed == snapshot_of(control)
    assert list(found.gaps) == with_holes.gaps()
    assert list(found.backfills) == [
        BackfillRange(claimed.batch_id, BatchState.PLANNED, OffsetRange(orders(0), 0, 20), "orders-topic-id"),
        BackfillRange(done.batch_id, BatchState.COMMITTED, OffsetRange(orders(0), 30, 40), "orders-topic-id"),
        BackfillRange(claimed.batch_id, BatchState.PLANNED, OffsetRange(orders(1), 0, 5), "orders-topic-id"),
    ]
    assert (list(found.rewinds), list(found.dead_letters)) == ([], [])


def test_copies_mean_nothing_to_coverage(with_holes: Store):
    control = with_holes.connect()
    before = coverage(control)
    plan = copy_of(2, (orders(0), 0, 100))
    claim(control, plan)
    commit(control, plan)

    after = coverage(control)
    assert (after.gaps, after.backfills, after.feed.stored) == (before.gaps, before.backfills, before.feed.stored)


def test_every_offset_is_accounted_for_whatever_backfills_did(holes: OperatorTables):
    filled(holes, (orders(0), 0, 30), (orders(1), 2, 4))
    claim(holes, chunk(3, (orders(0), 40, 50)))

    partitions = coverage_of(coverage(holes))
    assert {tp: partition.problems for tp, partition in partitions.items()} == {orders(0): [], orders(1): []}
    first = partitions[orders(0)]
    assert first.live == [OffsetRange(orders(0), 60, 100)]
    assert first.before_first == [OffsetRange(orders(0), 0, 20)]
    assert first.claimed == [OffsetRange(orders(0), 40, 50)]
    assert [each.offset_range for each in first.open_gaps] == [OffsetRange(orders(0), 30, 60)]


def test_an_interval_that_an_operator_let_the_feed_read_again_is_a_rewind(holes: OperatorTables):
    moves = [ResetMove(orders(0), 100, 70), ResetMove(orders(1), 10, 3)]
    holes.reset_offsets(snapshot_of(holes), moves, reason="bad deploy", actor="ops")

    found = coverage(holes).rewinds
    assert [each.offset_range for each in found] == [OffsetRange(orders(0), 70, 100), OffsetRange(orders(1), 3, 10)]
    assert {(each.actor, each.reason, each.topic_id) for each in found} == {("ops", "bad deploy", "orders-topic-id")}


def test_a_reset_goes_back_over_the_same_records_and_a_log_that_was_cut_off_holds_others(holes: OperatorTables):
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 100, 70)], reason="bad deploy", actor="ops")
    rows = [replace(snapshot_of(holes).stored[orders(0)], next_offset=65)]
    holes.start_over(
        snapshot_of(holes), CLUSTER, [StartOver("orders", rows[0].topic_id, rows)], reason="-", actor="ops"
    )

    rewinds = [(each.offset_range.start_offset, each.same_records) for each in coverage(holes).rewinds]
    assert rewinds == [(70, True), (65, False)]
    assert coverage_of(coverage(holes))[orders(0)].rewound == []


def test_what_was_committed_before_a_reset_back_lies_ahead_and_counts_as_committed(holes: OperatorTables):
    filled(holes, (orders(0), 20, 30))
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 100, 70)], reason="bad deploy", actor="ops")

    assert list(coverage(holes).committed_ahead) == [OffsetRange(orders(0), 70, 100)]
    found = coverage_of(coverage(holes))[orders(0)]
    assert found.rewound == [OffsetRange(orders(0), 70, 100)]
    assert found.committed == [OffsetRange(orders(0), 20, 30), OffsetRange(orders(0), 60, 100)]
    assert found.live == [OffsetRange(orders(0), 60, 70)]


def test_what_a_backfill_read_above_an_offset_that_went_back_is_not_before_the_first(holes: OperatorTables):
    filled(holes, (orders(0), 10, 30))
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 100, 25)], reason="bad deploy", actor="ops")

    assert coverage_of(coverage(holes))[orders(0)].before_first == [OffsetRange(orders(0), 10, 20)]


def cut_off(control: OperatorTables, topic_partition: TopicPartition, end: int) -> None:
    """Decide that a log was cut off, and let the feed continue where it ended."""
    row = replace(snapshot_of(control).stored[topic_partition], next_offset=end)
    rows = [row if tp == topic_partition else each for tp, each in snapshot_of(control).stored.items()]
    control.start_over(
        snapshot_of(control), CLUSTER, [StartOver("orders", row.topic_id, rows)], reason="-", actor="ops"
    )


def planned_now(number: int, *ranges: Span) -> BatchPlan:
    """Return a chunk of a backfill that is planned now, after all that was decided."""
    return plan_of(*ranges, number=number, kind=BatchKind.BACKFILL, planned_at=datetime.now(UTC))


def test_what_a_backfill_read_of_a_log_before_it_was_cut_off_is_not_in_the_way_of_the_records_that_lie_there_now(
    holes: OperatorTables,
):
    claim(holes, planned := planned_now(2, (orders(0), 20, 60)))
    commit(holes, planned)
    cut_off(holes, orders(0), 40)
    record(holes, jumps=[Jump(orders(0), 40, 60, gaps=(gap(orders(0), 40, 60),))])
    partition = coverage_of(coverage(holes))[orders(0)]
    assert (partition.backfilled, partition.problems) == ([OffsetRange(orders(0), 20, 40)], [])

    with pytest.raises(RangesTakenError, match=r"orders-0\[39, 60\)"):
        claim(holes, planned_now(3, (orders(0), 39, 60)))
    claim(holes, again := planned_now(3, (orders(0), 40, 60)))
    commit(holes, again)

    partition = coverage_of(coverage(holes))[orders(0)]
    assert (partition.backfilled, partition.problems) == ([OffsetRange(orders(0), 20, 60)], [])
    with pytest.raises(RangesTakenError, match=r"orders-0\[40, 60\)"):
        claim(holes, planned_now(4, (orders(0), 40, 60)))


@pytest.mark.postgresql_too
def test_a_copy_says_what_it_read_of_a_log_before_it_was_cut_off(holes: OperatorTables):
    before = [copy_of(2, (orders(0), 0, 50), (orders(1), 0, 10)), copy_of(3, (orders(0), 70, 90))]
    for plan in before:
        claim(holes, plan)
    cut_off(holes, orders(0), 40)
    claim(holes, replace(copy_of(4, (orders(0), 40, 45)), planned_at=datetime.now(UTC)))

    held = [(str(each.offset_range), each.held) for each in holes.copied_ranges(ORDERS_FEED, parquet_at(COPIES))]
    assert held == [
        ("orders-0[0, 50)", [OffsetRange(orders(0), 0, 40)]),
        ("orders-0[40, 45)", [OffsetRange(orders(0), 40, 45)]),
        ("orders-0[70, 90)", []),
        ("orders-1[0, 10)", [OffsetRange(orders(1), 0, 10)]),
    ]


@pytest.mark.postgresql_too
@pytest.mark.parametrize("minutes", [-10, 10])
def test_whether_a_backfill_was_planned_before_a_log_was_cut_off_does_not_depend_on_its_machines_clock(
    holes: OperatorTables, minutes: int
):
    elsewhere = timedelta(minutes=minutes)
    now = datetime.now(UTC)
    claim(holes, first := replace(chunk(2, (orders(0), 30, 60)), planned_at=now + elsewhere))
    commit(holes, first)
    assert holes.cut_off(first.batch_id) == {}
    cut_off(holes, orders(0), 40)
    claim(holes, replace(copy_of(4, (orders(0), 30, 60)), planned_at=now + elsewhere))

    assert holes.cut_off(first.batch_id) == {orders(0): 40}
    [held] = coverage(holes).backfills
    assert held.held == [OffsetRange(orders(0), 30, 40)]
    [copied] = holes.copied_ranges(ORDERS_FEED, parquet_at(COPIES))
    assert (copied.held, holes.cut_off(copied.batch_id)) == ([OffsetRange(orders(0), 30, 60)], {})


def test_what_was_read_before_an_operator_went_back_over_the_same_records_is_still_held(holes: OperatorTables):
    claim(holes, copy_of(2, (orders(0), 0, 50)))
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 100, 30)], reason="bad deploy", actor="ops")

    [copied] = holes.copied_ranges(ORDERS_FEED, parquet_at(COPIES))
    assert copied.held == [OffsetRange(orders(0), 0, 50)]


def test_a_reset_forward_and_a_topic_that_starts_over_are_no_rewinds(holes: OperatorTables):
    over_gap = Jump(orders(0), 100, 120, gaps=(gap(orders(0), 100, 120, GapCause.RESET),))
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 100, 120, over_gap)], reason="skip", actor="ops")
    starts_over = StartOver("orders", "made-again", [seed(orders(0), 0, topic_id="made-again")])
    holes.start_over(snapshot_of(holes), CLUSTER, [starts_over], reason="made again", actor="ops")

    assert list(coverage(holes).rewinds) == []


def test_two_resets_are_two_rewinds_oldest_first(holes: OperatorTables):
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 100, 90)], reason="first", actor="ops")
    holes.reset_offsets(snapshot_of(holes), [ResetMove(orders(0), 90, 70)], reason="second", actor="ops")

    assert [(each.offset_range.start_offset, each.reason) for each in coverage(holes).rewinds] == [
        (90, "first"),
        (70, "second"),
    ]


def made_again(control: OperatorTables, topic_id: str, *, same_records: bool) -> None:
    """Let an operator say what becomes of a topic that has another id.

    Where the records are others it starts at 0 again.
    """
    rows = [
        replace(row, topic_id=topic_id) if same_records else seed(tp, 0, topic_id=topic_id)
        for tp, row in snapshot_of(control).stored.items()
    ]
    topics = [StartOver("orders", topic_id, rows, same_records=same_records)]
    control.start_over(snapshot_of(control), CLUSTER, topics, reason="made again", actor="ops")


@pytest.mark.postgresql_too
def test_gaps_and_backfills_go_along_where_the_records_of_a_topic_are_the_same_under_another_id(with_holes: Store):
    control = with_holes.connect()
    filled(control, (orders(0), 30, 40))
    before = {tp: (each.live, each.backfilled, gap_ranges(each)) for tp, each in coverage_of(coverage(control)).items()}
    made_again(control, "second", same_records=True)
    made_again(control, "third", same_records=True)

    after = coverage_of(coverage(control))
    assert {tp: (each.live, each.backfilled, gap_ranges(each)) for tp, each in after.items()} == before
    assert [each.problems for each in after.values()] == [[], []]
    plan = chunk(3, (orders(0), 40, 60), topic_id="third")
    claim(control, plan)
    commit(control, plan)
    assert [each.problems for each in coverage_of(coverage(control)).values()] == [[], []]
    assert gap_ranges(coverage_of(coverage(control))[orders(0)]) == [OffsetRange(orders(0), 20, 30)]


@pytest.mark.postgresql_too
def test_a_backfill_that_was_written_before_its_topic_got_another_id_closes_the_gap_of_the_same_records(
    with_holes: Store,
):
    control = with_holes.connect()
    plan = chunk(2, (orders(0), 20, 60))
    claim(control, plan)
    write(control, plan)
    made_again(control, "second", same_records=True)
    control.begin_commit(plan.batch_id, 1)
    control.complete_commit(plan.batch_id, actor="committer")

    assert gap_spans(with_holes) == [("orders-0", 20, 60, "closed"), UNTOUCHED[1]]
    assert [each.problems for each in coverage_of(coverage(control)).values()] == [[], []]


def test_a_backfill_that_was_written_before_its_topic_was_made_again_closes_no_gap_of_the_new_one(with_holes: Store):
    control = with_holes.connect()
    plan = chunk(2, (orders(0), 20, 60))
    claim(control, plan)
    write(control, plan)
    made_again(control, "second", same_records=False)
    new_gap = Jump(orders(0), 0, 70, gaps=(gap(orders(0), 0, 70),))
    record(control, jumps=[new_gap])
    control.begin_commit(plan.batch_id, 1)
    control.complete_commit(plan.batch_id, actor="committer")

    [new] = [each for each in with_holes.gaps() if each.topic_id == "second"]
    assert (new.offset_range, new.state) == (OffsetRange(orders(0), 0, 70), "open")
    assert [each.problems for each in coverage_of(coverage(control)).values()] == [[], []]


def gap_ranges(partition: PartitionCoverage) -> list[OffsetRange]:
    """Return the open gaps of a partition."""
    return [each.offset_range for each in partition.open_gaps]


def test_gaps_and_backfills_of_other_records_stay_behind_forever(with_holes: Store):
    control = with_holes.connect()
    filled(control, (orders(0), 30, 40))
    made_again(control, "second", same_records=False)
    made_again(control, "third", same_records=True)

    assert {gap.topic_id for gap in with_holes.gaps()} == {"orders-topic-id"}
    for partition in coverage_of(coverage(control)).values():
        assert (partition.gaps, partition.backfills, partition.problems) == ((), (), [])


def test_coverage_says_the_same_without_the_ranges_of_live_batches(database_with_holes: SqlStore):
    control = database_with_holes.connect()
    filled(control, (orders(0), 20, 40))
    later = plan_of((orders(0), 100, 110), (orders(1), 10, 20), number=3)
    plan_next(control, later)
    commit(control, later)
    before = coverage(control)

    with database_with_holes.by_hand() as connection:
        live = select(schema.batch.c.batch_id).where(schema.batch.c.kind == "live")
        deleted = connection.execute(delete(schema.batch_range).where(schema.batch_range.c.batch_id.in_(live))).rowcount
    assert deleted == 3

    assert coverage(control) == before
    assert coverage_of(coverage(control)) == coverage_of(before)


def test_records_that_could_not_be_decoded_are_named_with_their_batch(database_with_holes: SqlStore):
    control = database_with_holes.connect()
    filled(control, (orders(0), 20, 40))
    copied, claimed = copy_of(3, (orders(0), 20, 40)), chunk(4, (orders(0), 40, 50))
    claim(control, copied)
    claim(control, claimed)
    commit(control, copied)
    write(control, claimed)

    with database_with_holes.by_hand() as connection:
        table = schema.batch_range
        connection.execute(update(table).values(rows=table.c["rows"] - 3, dead_letters=3))

    assert list(coverage(control).dead_letters) == [
        DeadLetters(batch_id_of(2), OffsetRange(orders(0), 20, 40), "orders-topic-id", 3),
        DeadLetters(batch_id_of(1), OffsetRange(orders(0), 60, 100), "orders-topic-id", 3),
    ]


# ── What the control tables say: copies, and whose batches ────────────────────────────────────────────────────────────


def test_copied_ranges_are_those_of_one_output_apart_from_abandoned_ones(holes: OperatorTables):
    plans = [
        copy_of(2, (orders(0), 0, 50), (orders(1), 0, 10)),
        copy_of(3, (orders(0), 50, 90)),
        copy_of(4, (orders(0), 90, 95)),
        copy_of(5, (orders(0), 0, 10), output=Path("/data/orders-again-too")),
        chunk(6, (orders(0), 20, 60)),
    ]
    for plan in plans:
        claim(holes, plan)
    commit(holes, plans[0])
    holes.abandon(plans[2].batch_id, reason="not wanted", actor="ops")

    assert holes.copied_ranges(ORDERS_FEED, parquet_at(COPIES)) == [
        BackfillRange(batch_id_of(2), BatchState.COMMITTED, OffsetRange(orders(0), 0, 50), "orders-topic-id"),
        BackfillRange(batch_id_of(3), BatchState.PLANNED, OffsetRange(orders(0), 50, 90), "orders-topic-id"),
        BackfillRange(batch_id_of(2), BatchState.COMMITTED, OffsetRange(orders(1), 0, 10), "orders-topic-id"),
    ]
    assert holes.copied_ranges(ORDERS_FEED, OutputLocation.local("iceberg", COPIES)) == []
    assert holes.copied_ranges(ORDERS_FEED, parquet_at(OUTPUT)) == []
    assert holes.copied_ranges(batch_id_of(77), parquet_at(COPIES)) == []


def test_a_path_with_characters_of_json_and_sql_is_found_again(holes: OperatorTables):
    strange = Path('/data/it\'s "100%" \\ über_alles')
    claim(holes, copy_of(2, (orders(0), 0, 50), output=strange))

    assert len(holes.copied_ranges(ORDERS_FEED, parquet_at(strange))) == 1
    assert holes.copied_ranges(ORDERS_FEED, parquet_at(Path('/data/it\'s "100x" \\ über_alles'))) == []


@pytest.mark.postgresql_too
def test_the_chunks_that_an_actor_planned_are_found_whatever_became_of_them(holes: OperatorTables):
    mine = [chunk(2, (orders(0), 20, 30)), chunk(3, (orders(0), 30, 40)), chunk(4, (orders(0), 40, 50))]
    claim(holes, *mine, actor="airflow:backfill_offsets/manual__1")
    claim(holes, copy_of(5, (orders(0), 0, 50)), actor="airflow:backfill_offsets/manual__1")
    claim(holes, chunk(6, (orders(0), 50, 60)), actor="airflow:backfill_offsets/manual__10")
    live = plan_of((orders(0), 100, 110), number=7)
    record(holes, plan=live, actor="airflow:backfill_offsets/manual__1")
    commit(holes, mine[0])
    holes.abandon(mine[1].batch_id, reason="not wanted", actor="ops")

    found = holes.backfill_of(ORDERS_FEED, "airflow:backfill_offsets/manual__1")
    assert [batch.batch_id for batch in found] == [batch_id_of(number) for number in (2, 3, 4, 5)]
    assert holes.backfill_of(ORDERS_FEED, "nobody") == []
    assert holes.backfill_of(batch_id_of(77), "airflow:backfill_offsets/manual__1") == []


@pytest.mark.parametrize("state", BatchState)
def test_open_backfills_are_those_that_are_not_over(holes: OperatorTables, state: BatchState):
    plans = [chunk(2, (orders(0), 20, 30)), copy_of(3, (orders(0), 20, 30))]
    for plan in plans:
        claim(holes, plan)
        brought_to(holes, state, plan)
    plan_next(holes, plan_of((orders(0), 100, 110), number=4))

    found = [batch.batch_id for batch in holes.open_backfills(ORDERS_FEED)]
    assert found == ([plan.batch_id for plan in plans] if state.is_open else [])


RUN = "manual__2026-01-01T00:00:00+00:00"


def test_the_batches_of_a_run_are_those_that_it_planned_or_committed_oldest_first(holes: OperatorTables):
    run, other = f"airflow:ingest_orders/{RUN}", "airflow:ingest_orders/manual__2026-01-02T00:00:00+00:00"
    planned, taken_over, elsewhere = (
        chunk(3, (orders(0), 20, 30)),
        chunk(2, (orders(0), 30, 40)),
        chunk(4, (orders(0), 40, 50)),
    )
    claim(holes, planned, actor=run)
    claim(holes, taken_over, elsewhere, actor=other)
    commit(holes, taken_over, actor=run)
    commit(holes, planned, actor=other)

    assert [batch.plan for batch in holes.batches_of_run(ORDERS_FEED, RUN)] == [taken_over, planned]
    assert holes.batches_of_run(batch_id_of(77), RUN) == []
    assert holes.batches_of_run(ORDERS_FEED, "never") == []


@pytest.mark.parametrize(
    ("run", "other"),
    [
        ("nightly_1", "nightlyX1"),
        ("100%", "100 times"),
        ("%", "anything"),
        ("a\\b", "a\\\\b"),
        ("Nightly", "nightly"),
        ("1", "11"),
        ("1", "2/1"),
        ("it's", "its"),
    ],
)
def test_a_run_is_found_by_its_whole_id_and_no_pattern(holes: OperatorTables, run: str, other: str):
    claim(holes, chunk(2, (orders(0), 20, 30)), actor=f"airflow:backfill_offsets/{run}")
    claim(holes, chunk(3, (orders(0), 30, 40)), actor=f"airflow:backfill_offsets/{other}")

    assert [batch.batch_id for batch in holes.batches_of_run(ORDERS_FEED, run)] == [batch_id_of(2)]
    assert [batch.batch_id for batch in holes.batches_of_run(ORDERS_FEED, other)] == [batch_id_of(3)]


@pytest.mark.postgresql_too
def test_what_an_operator_did_is_of_no_run(holes: OperatorTables):
    claim(holes, chunk(2, (orders(0), 20, 30)), actor=f"cli:another/{RUN}")

    assert holes.batches_of_run(ORDERS_FEED, RUN) == []


def test_committed_batches_are_listed_oldest_first_with_the_counts_of_each_range(holes: OperatorTables):
    fill, copied, written = (
        chunk(3, (orders(0), 20, 30), (orders(1), 0, 4)),
        copy_of(4, (orders(0), 0, 9)),
        chunk(5, (orders(0), 30, 40)),
    )
    live = plan_of((orders(0), 100, 110), number=2)
    plan_next(holes, live)
    for plan in (fill, copied, written):
        claim(holes, plan)
    holes.open_attempt(attempt_of(fill, 1))
    pin(holes, fill, 1, rows={orders(0): 7, orders(1): 0})
    holes.begin_commit(fill.batch_id, 1)
    holes.complete_commit(fill.batch_id, actor="committer")
    commit(holes, copied)
    write(holes, written)
    commit(holes, live)

    found = list(holes.committed_batches(ORDERS_FEED))
    assert [(each.batch_id, each.kind) for each in found] == [
        (batch_id_of(1), BatchKind.LIVE),
        (batch_id_of(2), BatchKind.LIVE),
        (batch_id_of(3), BatchKind.BACKFILL),
    ]
    assert {each.output for each in found} == {parquet_at(OUTPUT)}
    counts = sorted((each.count for each in found[-1].ranges), key=lambda count: count.offset_range)
    assert [(str(c.offset_range), c.rows, c.smallest_offset, c.largest_offset) for c in counts] == [
        ("orders-0[20, 30)", 7, 20, 26),
        ("orders-1[0, 4)", 0, None, None),
    ]
    assert {each.topic_id for batch in found for each in batch.ranges} == {"orders-topic-id"}


def test_committed_batches_are_all_found_when_there_are_more_than_are_looked_at_at_once(database: SqlStore):
    control = database.connect()
    plan_first(control, None, seed(orders(0), 0))
    record(control, jumps=[Jump(orders(0), 0, 1_000, gaps=(gap(orders(0), 0, 1_000),))])
    chunks = [chunk(number, (orders(0), number, number + 1)) for number in range(1, 252)]
    claim(control, *chunks)
    with database.by_hand() as connection:
        connection.execute(update(schema.batch_range).values(rows=1, filtered=0, dead_letters=0, invisible=0))
        values = {"state": "COMMITTED", "committed_at": func.now(), "pinned_attempt": 1, "rows": 1}
        for each in chunks:
            connection.execute(schema.attempt.insert().values(**attempt_row(each)))
        connection.execute(
            update(schema.batch).values(**values, size_bytes=1, committed_by="x", ledger_after=0, ledger_upto=0)
        )

    found = [each.batch_id for each in control.committed_batches(ORDERS_FEED)]
    assert found == [each.batch_id for each in chunks]


def attempt_row(plan: BatchPlan) -> dict[str, Any]:
    """Return the row of a chunk's pinned attempt."""
    attempt = attempt_of(plan, 1)
    return {
        "batch_id": plan.batch_id,
        "attempt": 1,
        "state": "PINNED",
        "directory": str(attempt.directory),
        "document_sha256": attempt.document_sha256,
        "opened_at": attempt.opened_at,
        "opened_by": attempt.opened_by,
        "receipt_sha256": "ab" * 32,
    }


# ── Several at the same moment ────────────────────────────────────────────────────────────────────────────────────────


def until_nobody_is_between(step: Callable[[], None]) -> None:
    """Do what planning does where another process wrote to the feed between its reading and its writing: start over."""
    while True:
        with suppress(FeedChangedError):
            return step()


@pytest.mark.postgresql_too
def test_of_eight_runs_that_claim_one_hole_on_the_same_rows_one_gets_it(database_with_holes: SqlStore):
    snapshot = snapshot_of(database_with_holes.connect())

    def claim_it(number: int) -> Callable[[], object]:
        control = database_with_holes.connect()
        return lambda: claim(control, chunk(number, (orders(0), 20, 60)), snapshot=snapshot)

    outcomes = at_once(*(claim_it(number) for number in range(2, 10)))

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["FeedChangedError"] * 7 + ["NoneType"]
    [winner] = database_with_holes.connect().open_backfills(ORDERS_FEED)
    assert winner.batch_id == batch_id_of(outcomes.index(None) + 2)


@pytest.mark.postgresql_too
def test_of_eight_runs_that_claim_one_hole_until_they_get_it_one_does_and_the_others_learn_that_it_is_taken(
    database_with_holes: SqlStore,
):
    def claim_it(number: int) -> Callable[[], object]:
        control = database_with_holes.connect()
        # Each wants another part of it, and all of them share offset 40.
        plan = chunk(number, (orders(0), 30 + number, 41 + number))
        return lambda: until_nobody_is_between(lambda: claim(control, plan))

    outcomes = at_once(*(claim_it(number) for number in range(2, 10)))

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType"] + ["RangesTakenError"] * 7
    assert len(database_with_holes.connect().open_backfills(ORDERS_FEED)) == 1


@pytest.mark.postgresql_too
def test_eight_runs_that_claim_holes_of_their_own_all_get_them(database_with_holes: SqlStore):
    def claim_it(number: int) -> Callable[[], object]:
        control = database_with_holes.connect()
        plan = chunk(number, (orders(0), 5 * number, 5 * number + 5))
        return lambda: until_nobody_is_between(lambda: claim(control, plan))

    assert at_once(*(claim_it(number) for number in range(2, 10))) == [None] * 8
    claimed = [each.offset_range for each in coverage(database_with_holes.connect()).backfills]
    assert union(claimed) == [OffsetRange(orders(0), 10, 50)]
    assert all(one.end_offset == next_one.start_offset for one, next_one in pairwise(claimed))


@pytest.mark.postgresql_too
def test_chunks_of_one_gap_that_are_committed_at_once_close_all_of_it(database_with_holes: SqlStore):
    control = database_with_holes.connect()
    chunks = [chunk(number, (orders(0), 10 * number, 10 * number + 10)) for number in range(2, 6)]
    claim(control, *chunks)
    for each in chunks:
        publish(control, each)

    def complete(plan: BatchPlan) -> Callable[[], object]:
        rival = database_with_holes.connect()
        return lambda: rival.complete_commit(plan.batch_id, actor="committer").state

    assert at_once(*(complete(each) for each in chunks)) == [BatchState.COMMITTED] * 4
    read = [
        (g.offset_range.start_offset, g.offset_range.end_offset, g.closed_by_batch)
        for g in database_with_holes.gaps()[:-1]
    ]
    assert read == [(10 * number, 10 * number + 10, batch_id_of(number)) for number in range(2, 6)]
    assert len(database_with_holes.events("gap_closed")) == 4


@pytest.mark.postgresql_too
def test_a_live_commit_and_a_claim_at_once_come_one_after_the_other(database_with_holes: SqlStore):
    control = database_with_holes.connect()
    live = plan_of((orders(0), 100, 110), number=2)
    plan_next(control, live)
    publish(control, live)
    snapshot, rival = snapshot_of(control), database_with_holes.connect()

    committed, claimed = at_once(
        lambda: control.complete_commit(live.batch_id, actor="committer").state,
        lambda: claim(rival, chunk(3, (orders(0), 20, 60)), snapshot=snapshot),
    )

    assert committed is BatchState.COMMITTED
    assert claimed is None or isinstance(claimed, KafkaIngestError)
    assert (claimed is None) == (len(control.open_backfills(ORDERS_FEED)) == 1)
    assert stored(control)[orders(0)] == 110
