"""Sets of offsets: held against plain sets of numbers."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import partition, span

from kafka_ingest.model.offsets import OffsetRange, TopicPartition, by_partition, intersect, span_of, subtract, union

PLACES = [partition(0), partition(1), partition(0, "refunds")]
Position = tuple[TopicPartition, int]


@st.composite
def a_range(draw: st.DrawFn) -> OffsetRange:
    """Return a range of one of a few partitions, which may be empty."""
    start = draw(st.integers(0, 15))
    return OffsetRange(draw(st.sampled_from(PLACES)), start, start + draw(st.integers(0, 6)))


RANGES = st.lists(a_range(), max_size=8)


def positions(ranges: Iterable[OffsetRange]) -> set[Position]:
    """Return the offsets that ranges hold, one by one."""
    return {(each.topic_partition, at) for each in ranges for at in range(each.start_offset, each.end_offset)}


# ── One set out of many ranges ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([span(0, 5, 5)], []),
        ([span(0, 0, 5), span(0, 5, 9)], [span(0, 0, 9)]),
        ([span(0, 0, 5), span(0, 6, 9)], [span(0, 0, 5), span(0, 6, 9)]),
        ([span(0, 4, 9), span(0, 0, 5)], [span(0, 0, 9)]),
        ([span(0, 0, 9), span(0, 3, 4)], [span(0, 0, 9)]),
        ([span(0, 0, 9), span(0, 3, 4), span(0, 8, 12)], [span(0, 0, 12)]),
        ([span(0, 0, 5), span(1, 5, 9)], [span(0, 0, 5), span(1, 5, 9)]),
        ([span(0, 0, 5), span(0, 5, 9, "refunds")], [span(0, 0, 5), span(0, 5, 9, "refunds")]),
    ],
)
def test_ranges_that_touch_or_overlap_become_one(ranges: list[OffsetRange], expected: list[OffsetRange]) -> None:
    assert union(ranges) == expected


@given(ranges=RANGES)
def test_merging_keeps_every_offset_and_adds_none_in_as_few_ranges_as_can_be(ranges: list[OffsetRange]) -> None:
    found = union(ranges)

    assert positions(found) == positions(ranges)
    assert found == sorted(found)
    assert all(each.span for each in found)
    for earlier, later in pairwise(found):
        assert earlier.topic_partition != later.topic_partition or earlier.end_offset < later.start_offset
    assert union(found) == found


# ── What is left, and what is shared ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("covered", "expected"),
    [
        ([], [span(0, 10, 20)]),
        ([span(0, 10, 20)], []),
        ([span(0, 0, 30)], []),
        ([span(0, 0, 10), span(0, 20, 30)], [span(0, 10, 20)]),
        ([span(0, 12, 14)], [span(0, 10, 12), span(0, 14, 20)]),
        ([span(0, 5, 12), span(0, 18, 25)], [span(0, 12, 18)]),
        ([span(0, 12, 14), span(0, 13, 16), span(0, 16, 17)], [span(0, 10, 12), span(0, 17, 20)]),
        ([span(0, 14, 14)], [span(0, 10, 20)]),
        ([span(1, 10, 20), span(0, 10, 20, "refunds")], [span(0, 10, 20)]),
    ],
)
def test_what_is_covered_is_taken_out(covered: list[OffsetRange], expected: list[OffsetRange]) -> None:
    assert subtract([span(0, 10, 20)], covered) == expected


@given(ranges=RANGES, covered=RANGES)
def test_what_is_left_and_what_is_shared_are_together_what_there_was(
    ranges: list[OffsetRange], covered: list[OffsetRange]
) -> None:
    left, shared = subtract(ranges, covered), intersect(ranges, covered)

    assert positions(left) == positions(ranges) - positions(covered)
    assert positions(shared) == positions(ranges) & positions(covered)
    assert span_of(left) + span_of(shared) == span_of(ranges)
    for found in (left, shared):
        assert found == sorted(found)
        assert all(each.span for each in found)


@given(ranges=RANGES, covered=RANGES)
def test_no_range_that_is_left_or_shared_reaches_beyond_the_one_it_came_from(
    ranges: list[OffsetRange], covered: list[OffsetRange]
) -> None:
    for found in [*subtract(ranges, covered), *intersect(ranges, covered)]:
        assert any(
            of.topic_partition == found.topic_partition
            and of.start_offset <= found.start_offset
            and found.end_offset <= of.end_offset
            for of in ranges
        )


def test_the_arguments_may_be_read_once_only() -> None:
    assert subtract(iter([span(0, 0, 9)]), iter([span(0, 3, 4)])) == [span(0, 0, 3), span(0, 4, 9)]
    assert intersect(iter([span(0, 0, 9)]), iter([span(0, 3, 4)])) == [span(0, 3, 4)]
    assert union(iter([span(0, 3, 4)])) == [span(0, 3, 4)]


# ── Counting and sorting ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_offset_that_comes_twice_counts_twice() -> None:
    assert span_of([span(0, 0, 5), span(0, 3, 6), span(1, 7, 7)]) == 8


def test_ranges_of_a_partition_stay_in_their_order() -> None:
    found = by_partition([span(1, 5, 6), span(0, 9, 10), span(1, 0, 1)])
    assert found == {partition(1): [span(1, 5, 6), span(1, 0, 1)], partition(0): [span(0, 9, 10)]}
