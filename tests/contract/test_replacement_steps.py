"""What the control tables say of rows that were replaced, and what a replacement may still do when it is committed.

The in-memory fake and SQLite alike, and PostgreSQL where it may differ.
"""

from dataclasses import replace

import pytest
from tests.contract.builders import (
    CLUSTER,
    ORDERS_FEED,
    OUTPUT,
    batch_id_of,
    commit,
    orders,
    plan_first,
    plan_next,
    plan_of,
    seed,
    snapshot_of,
    write,
)
from tests.outputs import parquet_at

from kafka_ingest.errors import OffsetsMovedError
from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.control_rows import BackfillRecord, HeldRange, StartOver
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.gap import RemovedRange
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.read_again import ReplacedRange, Replacement
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

ALL = [OffsetRange(orders(0), 0, 1_000), OffsetRange(orders(1), 0, 1_000)]


@pytest.fixture
def two(control: OperatorTables) -> OperatorTables:
    """A feed whose batch 1 committed orders-0[0, 50) and orders-1[0, 10), and whose batch 2 orders-0[50, 100)."""
    plan_first(control, None, seed(orders(0), 0), seed(orders(1), 0))
    for number, ranges in enumerate(([(orders(0), 0, 50), (orders(1), 0, 10)], [(orders(0), 50, 100)]), start=1):
        plan = plan_of(*ranges, number=number)
        plan_next(control, plan)
        commit(control, plan)
    return control


def held(number: int, start: int, end: int, *, of: int = 0, cut_off_at: int | None = None) -> HeldRange:
    return HeldRange(batch_id_of(number), OffsetRange(orders(of), start, end), parquet_at(OUTPUT), cut_off_at)


def replacing(number: int, *ranges: HeldRange) -> BatchPlan:
    """Return the plan of a batch that replaces whole ranges, one of a partition."""
    spans = [
        (each.offset_range.topic_partition, each.offset_range.start_offset, each.offset_range.end_offset)
        for each in ranges
    ]
    plan = plan_of(*spans, number=number)
    replaced = tuple(ReplacedRange(each.offset_range, each.batch_id) for each in ranges)
    return replace(plan, kind=BatchKind.REPLACE, replaces=replaced)


def claim(control: OperatorTables, plan: BatchPlan) -> None:
    control.record_backfill(snapshot_of(control), BackfillRecord([plan], (), {}), actor="operator")


def cut_off(control: OperatorTables, end: int) -> None:
    """Let the feed go back to where the log of partition 0 ended."""
    feed = snapshot_of(control)
    rows = [replace(row, next_offset=min(row.next_offset or 0, end)) for row in feed.stored.values()]
    topics = [StartOver("orders", feed.stored[orders(0)].topic_id, rows)]
    control.start_over(feed, CLUSTER, topics, reason="truncated", actor="ops")


def test_whole_ranges_are_held_by_the_batches_that_committed_them(two: OperatorTables) -> None:
    assert two.held_ranges(ORDERS_FEED, ALL) == [held(1, 0, 50), held(2, 50, 100), held(1, 0, 10, of=1)]
    assert two.held_ranges(ORDERS_FEED, [OffsetRange(orders(0), 49, 51)]) == [held(1, 0, 50), held(2, 50, 100)]
    assert two.held_ranges(ORDERS_FEED, [OffsetRange(orders(0), 100, 200)]) == []
    assert two.held_ranges(ORDERS_FEED, []) == []


def test_what_is_replaced_is_held_by_its_replacement_and_committed_as_before(two: OperatorTables) -> None:
    before = snapshot_of(two).stored
    plan = replacing(3, held(1, 0, 50))
    claim(two, plan)
    assert held(1, 0, 50) not in two.held_ranges(ORDERS_FEED, ALL)
    commit(two, plan)
    assert two.held_ranges(ORDERS_FEED, ALL) == [held(3, 0, 50), held(2, 50, 100), held(1, 0, 10, of=1)]
    rows = two.coverage("orders")
    assert rows is not None
    replaced = ReplacedRange(OffsetRange(orders(0), 0, 50), batch_id_of(1))
    assert list(rows.replacements) == [Replacement(replaced, batch_id_of(3), "orders-topic-id")]
    assert [partition.problems for partition in coverage_of(rows).values()] == [[], []]
    assert two.committed_within(ORDERS_FEED, ALL) == [OffsetRange(orders(0), 0, 100), OffsetRange(orders(1), 0, 10)]
    assert snapshot_of(two).stored == before


def test_an_abandoned_replacement_gives_the_rows_back(two: OperatorTables) -> None:
    plan = replacing(3, held(1, 0, 50))
    claim(two, plan)
    two.abandon(plan.batch_id, reason="not wanted", actor="ops")
    assert held(1, 0, 50) in two.held_ranges(ORDERS_FEED, ALL)


def test_of_a_log_that_was_cut_off_it_is_known_from_where_on_it_holds_other_records(two: OperatorTables) -> None:
    cut_off(two, 30)
    assert two.held_ranges(ORDERS_FEED, ALL) == [held(1, 0, 50, cut_off_at=30), held(1, 0, 10, of=1)]
    again = plan_of((orders(0), 30, 60), number=3)
    plan_next(two, again)
    commit(two, again)
    assert held(3, 30, 60) in two.held_ranges(ORDERS_FEED, ALL)


def test_rows_of_a_topic_that_was_made_again_are_not_held(two: OperatorTables) -> None:
    feed = snapshot_of(two)
    rows = [seed(topic_partition, 0, topic_id="second") for topic_partition in feed.stored]
    two.start_over(feed, CLUSTER, [StartOver("orders", "second", rows)], reason="made again", actor="ops")
    assert two.held_ranges(ORDERS_FEED, ALL) == []


def test_a_replacement_whose_log_was_cut_off_since_its_plan_is_not_committed(two: OperatorTables) -> None:
    plan = replacing(3, held(1, 0, 50))
    claim(two, plan)
    write(two, plan)
    cut_off(two, 30)
    with pytest.raises(OffsetsMovedError):
        two.begin_commit(plan.batch_id, 1)


def test_a_replacement_of_rows_that_have_expired_since_its_plan_is_not_committed(two: OperatorTables) -> None:
    plan = replacing(3, held(1, 0, 50))
    claim(two, plan)
    write(two, plan)
    gone = [RemovedRange(OffsetRange(orders(0), 10, 20), "orders-topic-id")]
    two.record_removed(ORDERS_FEED, [batch_id_of(1)], gone, reason="old", actor="ops")
    with pytest.raises(OffsetsMovedError):
        two.begin_commit(plan.batch_id, 1)


def test_what_has_expired_of_other_offsets_stops_no_replacement(two: OperatorTables) -> None:
    plan = replacing(3, held(1, 0, 50))
    claim(two, plan)
    gone = [RemovedRange(OffsetRange(orders(0), 50, 100), "orders-topic-id")]
    two.record_removed(ORDERS_FEED, [batch_id_of(2)], gone, reason="old", actor="ops")
    commit(two, plan)
    assert held(3, 0, 50) in two.held_ranges(ORDERS_FEED, ALL)


def removed_now(control: OperatorTables) -> list[RemovedRange]:
    rows = control.coverage("orders")
    assert rows is not None
    return list(rows.removed)


def expired_with(control: OperatorTables, *numbers: int, upto: int = 100) -> list[RemovedRange]:
    """Let batches expire as was decided before anything was replaced; return what is recorded."""
    gone = [RemovedRange(OffsetRange(orders(0), 0, upto), "orders-topic-id")]
    control.record_removed(ORDERS_FEED, [batch_id_of(each) for each in numbers], gone, reason="old", actor="ops")
    return removed_now(control)


@pytest.mark.parametrize("state", ["committing", "committed"])
def test_an_expiry_that_was_decided_before_a_replacement_does_not_record_what_that_holds_now(
    two: OperatorTables, state: str
) -> None:
    plan = replacing(3, held(1, 0, 50))
    claim(two, plan)
    write(two, plan)
    two.begin_commit(plan.batch_id, 1)
    if state == "committed":
        two.complete_commit(plan.batch_id, actor="operator")
    left = RemovedRange(OffsetRange(orders(0), 50, 100), "orders-topic-id")
    assert expired_with(two, 1, 2) == [left]
    coverage = coverage_of(two.coverage("orders"))
    assert [each.problems for each in coverage.values()] == [[], []]


def test_what_a_replacement_holds_expires_with_it_and_with_its_replacement_in_turn(two: OperatorTables) -> None:
    for plan in (replacing(3, held(1, 0, 50)), replacing(4, held(3, 0, 50))):
        claim(two, plan)
        commit(two, plan)
    assert expired_with(two, 1, 3, upto=50) == []
    whole = RemovedRange(OffsetRange(orders(0), 0, 50), "orders-topic-id")
    assert expired_with(two, 1, 4, upto=50) == [whole]


def test_what_is_only_planned_to_be_replaced_expires(two: OperatorTables) -> None:
    plan = replacing(3, held(1, 0, 50))
    claim(two, plan)
    write(two, plan)
    assert expired_with(two, 1, 2) == [RemovedRange(OffsetRange(orders(0), 0, 100), "orders-topic-id")]
