"""Chunks: the same offsets, in pieces of a size that one Spark run handles."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import partition, span

from kafka_ingest.batches.decide_backfill import cut_into_chunks, share
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, by_partition, span_of, subtract, union

PLACES = [partition(0), partition(1), partition(2), partition(0, "refunds")]


@st.composite
def a_range(draw: st.DrawFn) -> OffsetRange:
    start = draw(st.integers(0, 60))
    return OffsetRange(draw(st.sampled_from(PLACES)), start, start + draw(st.integers(0, 20)))


RANGES = st.lists(a_range(), max_size=10)


def chunks_of(max_records: int, *ranges: OffsetRange) -> list[list[OffsetRange]]:
    """Return the chunks of ranges where there may be as many as it takes."""
    chunks, left = cut_into_chunks(ranges, max_records, most=100_000)
    assert left == []
    return [list(chunk) for chunk in chunks]


# ── One partition ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_no_chunk() -> None:
    assert chunks_of(5) == chunks_of(5, span(0, 7, 7)) == []


@pytest.mark.parametrize("max_records", [10, 11, 1_000])
def test_what_fits_is_one_chunk(max_records: int) -> None:
    assert chunks_of(max_records, span(0, 0, 10)) == [[span(0, 0, 10)]]


def test_what_does_not_fit_is_read_from_its_lowest_offset_on() -> None:
    assert chunks_of(4, span(0, 0, 10)) == [[span(0, 0, 4)], [span(0, 4, 8)], [span(0, 8, 10)]]


def test_two_holes_of_a_partition_are_two_chunks_since_a_batch_takes_one_range_of_it() -> None:
    assert chunks_of(100, span(0, 20, 25), span(0, 0, 5)) == [[span(0, 0, 5)], [span(0, 20, 25)]]


def test_ranges_that_touch_are_one_hole_and_an_offset_that_comes_twice_is_read_once() -> None:
    assert chunks_of(100, span(0, 5, 9), span(0, 0, 5), span(0, 3, 6)) == [[span(0, 0, 9)]]


# ── Several partitions ────────────────────────────────────────────────────────────────────────────────────────────────


def test_partitions_are_read_side_by_side() -> None:
    assert chunks_of(6, span(0, 0, 6), span(1, 0, 6)) == [
        [span(0, 0, 3), span(1, 0, 3)],
        [span(0, 3, 6), span(1, 3, 6)],
    ]


def test_what_small_partitions_leave_goes_to_large_ones() -> None:
    assert chunks_of(10, span(0, 0, 100), span(1, 0, 2), span(2, 0, 3))[0] == [
        span(0, 0, 5),
        span(1, 0, 2),
        span(2, 0, 3),
    ]


def test_where_there_are_more_partitions_than_records_each_takes_its_turn() -> None:
    assert chunks_of(2, span(0, 0, 1), span(1, 0, 1), span(2, 0, 2)) == [
        [span(0, 0, 1), span(1, 0, 1)],
        [span(2, 0, 2)],
    ]


def test_the_ranges_of_a_chunk_come_in_the_order_of_their_partitions() -> None:
    ranges = (span(10, 0, 9), span(9, 0, 1), span(0, 5, 6, "apples"))
    assert chunks_of(100, *ranges) == [[span(0, 5, 6, "apples"), span(9, 0, 1), span(10, 0, 9)]]


# ── No more than so many ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_comes_after_the_last_chunk_there_may_be_is_left_in_order() -> None:
    ranges = [span(1, 0, 8), span(0, 20, 30), span(0, 0, 4), span(0, 40, 50)]
    assert cut_into_chunks(ranges, 6, most=2) == (
        [(span(0, 0, 3), span(1, 0, 3)), (span(0, 3, 4), span(1, 3, 8))],
        [span(0, 20, 30), span(0, 40, 50)],
    )
    assert cut_into_chunks(ranges, 6, most=1)[1] == [span(0, 3, 4), span(0, 20, 30), span(0, 40, 50), span(1, 3, 8)]


@pytest.mark.parametrize(("most", "left"), [(1, [span(0, 4, 10)]), (2, [span(0, 8, 10)]), (3, []), (4, [])])
def test_nothing_is_left_where_there_are_as_many_chunks_as_there_may_be(most: int, left: list[OffsetRange]) -> None:
    chunks, found = cut_into_chunks([span(0, 0, 10)], 4, most)
    assert (len(chunks), found) == (min(most, 3), left)


# ── Whatever is read ──────────────────────────────────────────────────────────────────────────────────────────────────


@given(ranges=RANGES, max_records=st.integers(1, 40))
def test_chunks_hold_every_offset_once_and_no_other(ranges: list[OffsetRange], max_records: int) -> None:
    read = [planned for chunk in chunks_of(max_records, *ranges) for planned in chunk]

    assert union(read) == union(ranges)
    assert span_of(read) == span_of(union(ranges))
    assert all(planned.span for planned in read)


@given(ranges=RANGES, max_records=st.integers(1, 40))
def test_a_chunk_is_never_empty_never_too_large_and_has_one_range_a_partition(
    ranges: list[OffsetRange], max_records: int
) -> None:
    for chunk in chunks_of(max_records, *ranges):
        assert 1 <= span_of(chunk) <= max_records
        assert [planned.topic_partition for planned in chunk] == sorted({planned.topic_partition for planned in chunk})


@given(ranges=RANGES, max_records=st.integers(1, 40))
def test_each_partition_is_read_in_the_order_of_its_offsets(ranges: list[OffsetRange], max_records: int) -> None:
    read_to: dict[TopicPartition, int] = {}
    for chunk in chunks_of(max_records, *ranges):
        for planned in chunk:
            assert planned.start_offset >= read_to.get(planned.topic_partition, 0)
            read_to[planned.topic_partition] = planned.end_offset


@given(ranges=RANGES, max_records=st.integers(1, 40))
def test_a_chunk_that_is_not_full_takes_all_that_its_partitions_have_in_one_piece(
    ranges: list[OffsetRange], max_records: int
) -> None:
    left = by_partition(union(ranges))
    for chunk in chunks_of(max_records, *ranges):
        if span_of(chunk) < max_records:
            heads = {tp: pieces[0].end_offset for tp, pieces in left.items() if pieces}
            assert {planned.topic_partition: planned.end_offset for planned in chunk} == heads
        for planned in chunk:
            pieces = left[planned.topic_partition]
            if pieces[0].end_offset == planned.end_offset:
                pieces.pop(0)


@given(ranges=RANGES, max_records=st.integers(1, 40), most=st.integers(1, 6))
def test_the_first_chunks_are_the_same_however_many_there_may_be_and_what_they_lack_is_left(
    ranges: list[OffsetRange], max_records: int, most: int
) -> None:
    chunks, left = cut_into_chunks(ranges, max_records, most)

    assert [list(chunk) for chunk in chunks] == chunks_of(max_records, *ranges)[:most]
    assert left == subtract(ranges_once := union(ranges), [planned for chunk in chunks for planned in chunk])
    assert span_of(left) + sum(map(span_of, chunks)) == span_of(ranges_once)


@given(spans=st.dictionaries(st.sampled_from(PLACES), st.integers(1, 30), min_size=1), budget=st.integers(1, 60))
def test_a_budget_is_shared_evenly_and_used_up_where_there_is_enough_to_read(
    spans: dict[TopicPartition, int], budget: int
) -> None:
    shares = share(spans, budget)

    assert sum(shares.values()) == min(budget, sum(spans.values()))
    assert all(1 <= taken <= spans[tp] for tp, taken in shares.items())
    cut = [taken for tp, taken in shares.items() if taken < spans[tp]]
    # Those that have more than their share differ by one record at most, and no chunk has more than they do.
    assert not cut or max(shares.values()) - min(cut) <= 1


def test_a_hundred_chunks_of_a_hundred_partitions_are_of_one_size() -> None:
    ranges = [span(number, 0, 100) for number in range(100)]
    sizes = Counter(span_of(chunk) for chunk in chunks_of(100, *ranges))
    assert sizes == {100: 100}
