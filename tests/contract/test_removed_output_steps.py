"""The steps that write down what expired and what was lost, the same in memory and in a database."""

import pytest
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    ORDERS_FEED,
    TOPIC_ID,
    commit,
    orders,
    plan_first,
    plan_next,
    plan_of,
    refused,
    snapshot_of,
    stored,
)
from tests.contract.conftest import Store

from kafka_ingest.errors import FeedChangedError, RangesTakenError
from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.control_rows import BackfillRecord
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.gap import GapCause, LostRange, NewGap, RemovedRange
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.published_output import Adoption
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough


def span(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(orders(partition), start, end)


def lost_file(start: int, end: int, plan=FIRST_PLAN, file: str = "part-00000.parquet") -> LostRange:
    return LostRange(plan.batch_id, file, span(start, end), TOPIC_ID, end - start)


@pytest.fixture
def control(store: Store) -> OperatorTables:
    """Control tables with a committed batch of orders-0[0, 100) and orders-1[40, 50)."""
    made = store.connect()
    plan_first(made)
    commit(made, FIRST_PLAN)
    return made


def lose(control: OperatorTables, lost: LostRange) -> None:
    gaps = [NewGap(lost.offset_range, GapCause.OUTPUT_LOST, "a disk died")]
    control.record_lost(snapshot_of(control), [lost], gaps, reason="a disk died", actor="ops")


def fill(control: OperatorTables, start: int, end: int, number: int) -> None:
    """Read an interval by a backfill, and commit it."""
    plan = plan_of((orders(0), start, end), number=number, kind=BatchKind.BACKFILL)
    control.record_backfill(snapshot_of(control), BackfillRecord([plan], [], {}), actor="ops")
    commit(control, plan)


def partition(control: OperatorTables):
    rows = control.coverage("orders")
    assert rows is not None
    return coverage_of(rows)[orders(0)]


def test_what_was_lost_is_an_open_gap_and_no_stored_offset_moves(control: OperatorTables, store: Store) -> None:
    before = stored(control)
    lose(control, lost_file(10, 20))

    assert stored(control) == before
    [gap] = store.gaps()
    assert (gap.offset_range, gap.cause, gap.state) == (span(10, 20), GapCause.OUTPUT_LOST, "open")
    found = partition(control)
    assert (found.live, found.problems) == ([span(0, 10), span(20, 100)], [])
    [event] = store.events("gap")
    assert [entry["file"] for entry in event.detail["lost"]] == ["part-00000.parquet"]


def test_a_loss_that_was_decided_on_an_older_look_is_refused_and_changes_nothing(
    control: OperatorTables, store: Store
) -> None:
    older = snapshot_of(control)
    plan_next(control, None)
    with refused(store, FeedChangedError):
        control.record_lost(older, [lost_file(10, 20)], [], reason="a disk died", actor="ops")


def test_what_a_backfill_read_and_lost_can_be_read_by_another_one(control: OperatorTables, store: Store) -> None:
    lose(control, lost_file(10, 20))
    fill(control, 10, 20, number=2)
    with pytest.raises(RangesTakenError):
        fill(control, 12, 15, number=3)
    again = plan_of((orders(0), 10, 20), number=2, kind=BatchKind.BACKFILL)
    lose(control, lost_file(12, 15, again))
    found = partition(control)
    assert (found.backfilled, found.problems) == ([span(10, 12), span(15, 20)], [])

    fill(control, 12, 15, number=4)
    assert [(gap.offset_range, gap.state) for gap in store.gaps()] == [
        (span(10, 20), "closed"),
        (span(12, 15), "closed"),
    ]
    found = partition(control)
    assert (found.committed, found.problems) == ([span(0, 100)], [])


def test_what_was_lost_is_held_by_no_batch(control: OperatorTables) -> None:
    lose(control, lost_file(10, 20))
    assert control.committed_within(ORDERS_FEED, [span(5, 25)]) == [span(5, 10), span(20, 25)]
    assert control.committed_within(ORDERS_FEED, [span(5, 25)], apart_from=FIRST_PLAN.batch_id) == []
    assert span(0, 10) in control.committed_ranges(FIRST_PLAN.batch_id)


def test_what_expired_stays_committed_and_neighbours_are_one_range(control: OperatorTables, store: Store) -> None:
    for start in (20, 0, 10):
        ranges = [RemovedRange(span(start, start + 10), TOPIC_ID)]
        control.record_removed(ORDERS_FEED, [FIRST_PLAN.batch_id], ranges, reason="a year", actor="ops")
    rows = control.coverage("orders")
    assert rows is not None
    assert list(rows.removed) == [RemovedRange(span(0, 30), TOPIC_ID)]
    found = partition(control)
    assert (found.expired, found.committed, found.problems) == ([span(0, 30)], [span(0, 100)], [])
    assert len(store.events("expired")) == 3


@pytest.mark.postgresql_too
def test_what_expired_of_a_topic_that_was_made_again_says_nothing_of_the_new_one(control: OperatorTables) -> None:
    ranges = [RemovedRange(span(0, 30), "another-topic-id")]
    control.record_removed(ORDERS_FEED, [FIRST_PLAN.batch_id], ranges, reason="a year", actor="ops")
    assert partition(control).expired == []


def test_what_expired_and_is_found_to_be_lost_is_not_said_to_be_removed_on_purpose(control: OperatorTables) -> None:
    removed = [RemovedRange(span(0, 100), TOPIC_ID), RemovedRange(span(0, 100), "made-before")]
    control.record_removed(ORDERS_FEED, [FIRST_PLAN.batch_id], removed, reason="older than a year", actor="ops")
    lose(control, lost_file(10, 20))

    rows = control.coverage("orders")
    assert rows is not None
    left = [RemovedRange(span(0, 10), TOPIC_ID), RemovedRange(span(20, 100), TOPIC_ID), removed[1]]
    assert set(rows.removed) == set(left)
    assert len(rows.removed) == len(left)


def test_what_is_there_again_or_was_lost_is_expired_no_more(control: OperatorTables) -> None:
    ranges = [RemovedRange(span(0, 100), TOPIC_ID)]
    control.record_removed(ORDERS_FEED, [FIRST_PLAN.batch_id], ranges, reason="found gone", actor="ops")
    back = [RemovedRange(span(0, 30), TOPIC_ID), RemovedRange(span(40, 50), "another-topic-id")]
    known = Adoption(CLUSTER, ["orders"], [], [], [], [], back=back)
    control.adopt(snapshot_of(control), known, reason="restored", actor="ops")
    assert partition(control).expired == [span(30, 100)]
    lose(control, lost_file(90, 100))
    assert partition(control).expired == [span(30, 90)]
