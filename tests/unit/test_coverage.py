"""Which offset of a partition is where, from the control rows, and what contradicts that each is somewhere."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import CLUSTER, FEED_ID, SOME_DAY, TOPIC_ID, a_plan, partition, span

from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.coverage import (
    BackfillRange,
    CoverageRows,
    DeadLetters,
    PartitionCoverage,
    Rewind,
    coverage_of,
    dead_letters_in,
)
from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, shared, union

A, B = UUID(int=0xA), UUID(int=0xB)
STORED = StoredOffset(partition(0), TOPIC_ID, 20, 100, "latest")


def gap(start: int, end: int, closed_by: UUID | None = None, **changes: Any) -> Gap:
    """Return a gap of partition 0 that the stored offset has passed."""
    made = Gap(
        gap_id=UUID(int=start + 1),
        offset_range=span(0, start, end),
        topic_id=TOPIC_ID,
        cause=GapCause.SKIPPED,
        reason="poisoned",
        decided_by="ops",
        decided_at=SOME_DAY,
        applied_at=SOME_DAY,
        closed_by_batch=closed_by,
    )
    return replace(made, **changes)


def backfill(
    start: int, end: int, batch_id: UUID = A, state: BatchState = BatchState.COMMITTED, **changes: Any
) -> BackfillRange:
    """Return a range of a backfill of partition 0."""
    return replace(BackfillRange(batch_id, state, span(0, start, end), TOPIC_ID), **changes)


def rewind(start: int, end: int) -> Rewind:
    """Return an interval of partition 0 that an operator let the feed read again."""
    return Rewind(span(0, start, end), TOPIC_ID, SOME_DAY, "ops", "bad deploy")


def covered(*gaps: Gap, stored: StoredOffset = STORED, **rows: Any) -> PartitionCoverage:
    """Return the coverage of partition 0."""
    return PartitionCoverage(stored, gaps=gaps, **rows)


# ── Where offsets are ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_partition_that_live_runs_read_without_a_hole_is_all_live() -> None:
    partition_0 = covered()

    assert partition_0.topic_partition == partition(0)
    assert partition_0.read_through == partition_0.live == partition_0.committed == [span(0, 20, 100)]
    assert partition_0.backfilled == partition_0.before_first == partition_0.claimed == partition_0.open_gaps == []
    assert partition_0.is_accounted


@pytest.mark.parametrize(("first", "stored"), [(None, None), (0, 0), (20, 20)])
def test_a_partition_of_which_nothing_was_read_has_nothing(first: int | None, stored: int | None) -> None:
    nothing = covered(stored=replace(STORED, first_offset=first, next_offset=stored))

    assert nothing.read_through == nothing.live == nothing.committed == []
    assert nothing.is_accounted


def test_gaps_that_were_passed_are_not_live_whether_they_are_open_or_closed() -> None:
    found = covered(gap(30, 40), gap(50, 60, A), backfills=[backfill(50, 60)])

    assert found.read_through == [span(0, 20, 100)]
    assert found.live == [span(0, 20, 30), span(0, 40, 50), span(0, 60, 100)]
    assert found.backfilled == [span(0, 50, 60)]
    assert found.committed == [span(0, 20, 30), span(0, 40, 100)]
    assert [each.offset_range for each in found.open_gaps] == [span(0, 30, 40)]
    assert found.problems == []


def test_a_gap_that_lies_ahead_takes_nothing_away() -> None:
    ahead = covered(gap(120, 130, applied_at=None), gap(90, 95, applied_at=None))

    assert ahead.live == [span(0, 20, 100)]
    assert ahead.open_gaps == []
    assert ahead.is_accounted


def test_what_backfills_committed_before_the_first_offset_is_listed_apart() -> None:
    found = covered(gap(30, 40, A), backfills=[backfill(5, 15), backfill(15, 20, B), backfill(30, 40)])

    assert found.before_first == [span(0, 5, 20)]
    assert found.backfilled == [span(0, 5, 20), span(0, 30, 40)]
    assert found.committed == [span(0, 5, 100)]
    assert found.is_accounted


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
def test_open_backfills_claim_what_they_read_and_have_committed_none_of_it(state: BatchState) -> None:
    found = covered(gap(30, 40), backfills=[backfill(30, 40, state=state), backfill(0, 10, B, state)])

    assert found.claimed == [span(0, 0, 10), span(0, 30, 40)]
    assert (found.backfilled, found.before_first) == ([], [])
    assert [each.offset_range for each in found.open_gaps] == [span(0, 30, 40)]
    assert found.is_accounted


def test_what_is_gone_before_the_first_offset_is_an_open_gap_and_no_hole() -> None:
    found = covered(gap(0, 10))
    assert (found.live, len(found.open_gaps), found.problems) == ([span(0, 20, 100)], 1, [])


def test_what_backfills_committed_above_a_stored_offset_that_went_back_is_not_before_the_first() -> None:
    back = replace(STORED, next_offset=40)
    backfills = [backfill(5, 10), backfill(50, 60, B)]
    assert covered(stored=back, backfills=backfills).before_first == [span(0, 5, 10)]
    assert covered(stored=replace(STORED, first_offset=None, next_offset=None), backfills=backfills).before_first == []


def test_what_was_committed_ahead_of_a_stored_offset_that_went_back_is_committed_and_not_live() -> None:
    back = replace(STORED, next_offset=40)
    found = coverage_of(rows_of(back, committed_ahead=[span(0, 40, 70), span(0, 80, 100), span(1, 0, 9)]))[partition(0)]

    assert found.committed_ahead == [span(0, 40, 70), span(0, 80, 100)]
    assert (found.live, found.committed) == ([span(0, 20, 40)], [span(0, 20, 70), span(0, 80, 100)])
    assert found.is_accounted


# ── What contradicts that every offset is somewhere, once ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("partition_0", "problems"),
    [
        (covered(backfills=[backfill(10, 30)]), ["orders-0[20, 30) is committed twice"]),
        (
            covered(backfills=[backfill(0, 10), backfill(5, 15, B)]),
            ["orders-0[5, 10) is committed twice"],
        ),
        (
            covered(gap(30, 40, A), gap(50, 60), backfills=[backfill(30, 40), backfill(55, 65, B)]),
            ["orders-0[60, 65) is committed twice", "orders-0[55, 60) is committed and in an open gap"],
        ),
        (covered(gap(5, 10), backfills=[backfill(0, 6)]), ["orders-0[5, 6) is committed and in an open gap"]),
        (covered(gap(30, 40, A)), [f"gap orders-0[30, 40) is closed by batch {A}, which lacks orders-0[30, 40)"]),
        (
            covered(gap(30, 40, A), backfills=[backfill(32, 38)]),
            [f"gap orders-0[30, 40) is closed by batch {A}, which lacks orders-0[30, 32), orders-0[38, 40)"],
        ),
        (
            covered(gap(30, 40, A), backfills=[backfill(30, 40, B)]),
            [f"gap orders-0[30, 40) is closed by batch {A}, which lacks orders-0[30, 40)"],
        ),
        (
            covered(gap(30, 40, A), backfills=[backfill(30, 40, state=BatchState.COMMITTING)]),
            [f"gap orders-0[30, 40) is closed by batch {A}, which lacks orders-0[30, 40)"],
        ),
        (
            covered(backfills=[backfill(95, 105)]),
            ["orders-0[95, 100) is committed twice", "orders-0[100, 105) is beyond the stored offset 100"],
        ),
        (covered(gap(90, 110)), ["orders-0[100, 110) is beyond the stored offset 100"]),
        (
            covered(gap(0, 5), stored=replace(STORED, first_offset=None, next_offset=None)),
            ["orders-0[0, 5) is beyond the stored offset 0"],
        ),
    ],
)
def test_every_contradiction_is_named_by_its_offsets(partition_0: PartitionCoverage, problems: list[str]) -> None:
    assert partition_0.problems == problems
    assert not partition_0.is_accounted


def test_an_open_backfill_that_overlaps_anything_is_no_contradiction_yet() -> None:
    found = covered(gap(30, 40, A), backfills=[backfill(30, 40), backfill(25, 200, B, BatchState.PLANNED)])
    assert found.is_accounted


# ── Intervals that were read again ────────────────────────────────────────────────────────────────────────────────────


def test_what_was_read_again_may_be_committed_twice_and_nothing_beside_it() -> None:
    found = covered(backfills=[backfill(10, 60)], rewinds=[rewind(30, 50)])
    assert found.problems == ["orders-0[20, 30) is committed twice", "orders-0[50, 60) is committed twice"]
    assert covered(backfills=[backfill(10, 60)], rewinds=[rewind(20, 40), rewind(35, 80)]).problems == []


def test_a_backfill_in_an_interval_that_was_read_again_may_lie_in_a_gap_that_was_made_since() -> None:
    found = covered(gap(30, 40), backfills=[backfill(35, 38)], rewinds=[rewind(20, 100)])
    assert found.problems == []


def test_after_a_stored_offset_went_back_what_lies_above_it_is_no_contradiction_where_that_was_read_again() -> None:
    back = replace(STORED, next_offset=40)
    found = covered(gap(50, 60, A), stored=back, backfills=[backfill(50, 60)], rewinds=[rewind(40, 100)])

    assert found.live == [span(0, 20, 40)]
    assert found.problems == []
    assert covered(gap(50, 60, A), stored=back, backfills=[backfill(50, 60)]).problems == [
        "orders-0[50, 60) is beyond the stored offset 40"
    ]


def test_what_was_rewound_is_what_was_read_again_of_the_records_that_are_there_now() -> None:
    cut_off = replace(rewind(45, 90), same_records=False)

    assert covered().rewound == []
    assert covered(rewinds=[rewind(30, 50), rewind(70, 80)]).rewound == [span(0, 30, 50), span(0, 70, 80)]
    assert covered(rewinds=[rewind(30, 50), cut_off, rewind(70, 80)]).rewound == [span(0, 30, 45)]
    assert covered(rewinds=[cut_off]).rewound == []


def test_a_gap_that_was_closed_without_its_records_is_one_however_often_it_was_read_again() -> None:
    assert covered(gap(30, 40, A), rewinds=[rewind(20, 100)]).problems != []


# ── From the control rows ─────────────────────────────────────────────────────────────────────────────────────────────


def rows_of(*stored: StoredOffset, open_batch: Batch | None = None, **rows: Any) -> CoverageRows:
    """Return what the control rows of a feed say."""
    known = {row.topic_partition: row for row in stored}
    feed = FeedSnapshot(FEED_ID, "orders", CLUSTER, 1, ["orders"], known, open_batch)
    return CoverageRows(feed, **rows)


def test_every_partition_with_a_stored_offset_has_its_own_coverage_in_order() -> None:
    pending = StoredOffset(partition(2), TOPIC_ID, None, None, "latest")
    one = replace(STORED, topic_partition=partition(1), next_offset=30)
    letters = DeadLetters(A, span(1, 20, 30), TOPIC_ID, 3)
    found = coverage_of(
        rows_of(
            STORED,
            one,
            pending,
            gaps=[gap(30, 40), gap(25, 26, offset_range=span(1, 25, 26))],
            backfills=[backfill(0, 5), BackfillRange(B, BatchState.PLANNED, span(1, 0, 5), TOPIC_ID)],
            rewinds=[Rewind(span(1, 22, 24), TOPIC_ID, SOME_DAY, "ops", "why")],
            dead_letters=[letters],
        )
    )

    assert list(found) == [partition(0), partition(1), partition(2)]
    assert [each.live for each in found.values()] == [
        [span(0, 20, 30), span(0, 40, 100)],
        [span(1, 20, 25), span(1, 26, 30)],
        [],
    ]
    assert [each.backfilled for each in found.values()] == [[span(0, 0, 5)], [], []]
    assert [each.claimed for each in found.values()] == [[], [span(1, 0, 5)], []]
    assert [len(each.rewinds) for each in found.values()] == [0, 1, 0]
    assert [dead_letters_in(each) for each in found.values()] == [0, 3, 0]
    assert all(each.is_accounted for each in found.values())


def test_the_open_live_batch_is_pending() -> None:
    plan = a_plan(span(0, 100, 130), span(1, 0, 5))
    batch = Batch("orders", plan, BatchState.WRITTEN, "run 1", SOME_DAY + timedelta(hours=1))
    one = replace(STORED, topic_partition=partition(1), first_offset=0, next_offset=0)
    found = coverage_of(rows_of(STORED, one, open_batch=batch))

    assert [each.pending_live for each in found.values()] == [[span(0, 100, 130)], [span(1, 0, 5)]]
    assert [each.committed for each in found.values()] == [[span(0, 20, 100)], []]


@pytest.mark.parametrize(("now", "then"), [(TOPIC_ID, "another"), (TOPIC_ID, None), (None, TOPIC_ID)])
def test_what_was_counted_in_an_earlier_topic_of_the_name_takes_no_part(now: str | None, then: str | None) -> None:
    row = replace(STORED, topic_id=now)
    old = {
        "gaps": [gap(30, 40, topic_id=then), gap(50, 60, A, topic_id=then)],
        "backfills": [backfill(0, 200, topic_id=then)],
        "rewinds": [replace(rewind(0, 200), topic_id=then)],
        "dead_letters": [DeadLetters(A, span(0, 0, 200), then, 9)],
    }

    assert coverage_of(rows_of(row, **old)) == {partition(0): PartitionCoverage(row)}


def test_a_topic_whose_id_nobody_knows_is_the_same_topic() -> None:
    row = replace(STORED, topic_id=None)
    found = coverage_of(rows_of(row, gaps=[gap(30, 40, topic_id=None)]))
    assert len(found[partition(0)].open_gaps) == 1


def test_what_is_known_of_a_partition_without_a_stored_offset_takes_no_part() -> None:
    assert coverage_of(rows_of(gaps=[gap(30, 40)], backfills=[backfill(0, 5)])) == {}


# ── Counting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ranges", "twice"),
    [
        ([], []),
        ([span(0, 0, 9), span(0, 9, 20)], []),
        ([span(0, 0, 9), span(0, 8, 20)], [span(0, 8, 9)]),
        ([span(0, 0, 50), span(0, 5, 6), span(0, 10, 20)], [span(0, 5, 6), span(0, 10, 20)]),
        ([span(0, 0, 50), span(0, 5, 60), span(0, 55, 70)], [span(0, 5, 50), span(0, 55, 60)]),
        ([span(0, 0, 9), span(1, 0, 9), span(0, 0, 9, "refunds")], []),
        ([span(0, 3, 5), span(0, 3, 5), span(0, 3, 5)], [span(0, 3, 5)]),
    ],
)
def test_what_lies_in_more_than_one_range_is_found(ranges: list[OffsetRange], twice: list[OffsetRange]) -> None:
    assert shared(ranges) == twice
    assert shared(reversed(ranges)) == twice


@given(
    st.lists(
        st.builds(lambda start, width: span(0, start, start + width), st.integers(0, 20), st.integers(0, 9)), max_size=7
    )
)
def test_overlaps_are_the_offsets_that_come_more_than_once(ranges: list[OffsetRange]) -> None:
    every = [offset for each in ranges for offset in range(each.start_offset, each.end_offset)]
    twice = {offset for offset in every if every.count(offset) > 1}
    found = shared(ranges)

    assert {offset for each in found for offset in range(each.start_offset, each.end_offset)} == twice
    assert found == union(found)
