"""Old ranges become chains: exact sums of whole ranges, in which nothing is counted twice."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest
import uuid6
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import partition, span
from tests.outputs import parquet_at

from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.control_rows import CommittedBatch, CommittedRange
from kafka_ingest.model.folded import Chains, Foldable, FoldedFeed, FoldedRange, kept_of_folded
from kafka_ingest.model.offsets import OffsetRange, union
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.observing.offset_sums import FoldedProof
from kafka_ingest.verbs.database import Fold

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ONE, TWO = UUID(int=1), UUID(int=2)


def folded(start: int, end: int, *, at: int = 0, topic_id: str | None = "id", rows: int | None = None) -> FoldedRange:
    count, when = end - start if rows is None else rows, NOON + timedelta(minutes=at)
    return FoldedRange(span(0, start, end), topic_id, count, 0, 0, end - start - count, 1, when, when)


def chained(*ranges: FoldedRange) -> list[FoldedRange]:
    chains = Chains({})
    for each in ranges:
        chains.add(each)
    return sorted(chains.new, key=lambda each: (each.offset_range, each.oldest))


def test_ranges_that_follow_each_other_are_one_with_the_sums_of_both():
    assert chained(folded(0, 10, rows=7), folded(10, 30, at=5, rows=12)) == [
        FoldedRange(span(0, 0, 30), "id", 19, 0, 0, 11, 2, NOON, NOON + timedelta(minutes=5))
    ]


def test_a_range_between_two_chains_makes_one_of_them():
    (found,) = chained(folded(0, 10), folded(20, 30, at=2), folded(10, 20, at=1))

    assert (found.offset_range, found.batches) == (span(0, 0, 30), 3)


def test_a_hole_stays_a_hole():
    assert [each.offset_range for each in chained(folded(0, 10), folded(11, 20))] == [span(0, 0, 10), span(0, 11, 20)]


def test_ranges_of_a_topic_that_was_made_again_are_others():
    found = chained(folded(0, 10), folded(10, 20, topic_id="made-again"), folded(10, 20, topic_id=None))

    assert [each.batches for each in found] == [1, 1, 1]


def test_what_is_read_again_is_a_chain_of_its_own_which_later_ranges_follow():
    found = chained(folded(0, 10), folded(4, 8), folded(8, 10), folded(10, 12))

    assert [(each.offset_range, each.batches) for each in found] == [(span(0, 0, 10), 1), (span(0, 4, 12), 3)]


def test_ranges_are_added_to_chains_that_are_known_and_those_are_gone_then():
    chains = Chains({ONE: folded(0, 10), TWO: folded(50, 60)})
    chains.add(folded(10, 20))

    assert chains.gone == [ONE]
    assert [each.offset_range for each in chains.new] == [span(0, 0, 20)]


@pytest.mark.parametrize(
    ("counts", "batches", "newest"),
    [
        ((9, 0, 0, 0), 1, NOON),
        ((11, 0, 0, -1), 1, NOON),
        ((10, 0, 0, 0), 0, NOON),
        ((10, 0, 0, 0), 1, NOON - timedelta(1)),
    ],
)
def test_sums_that_do_not_account_for_every_offset_are_refused(
    counts: tuple[int, int, int, int], batches: int, newest: datetime
):
    with pytest.raises(ValueError, match="expected"):
        FoldedRange(span(0, 0, 10), "id", *counts, batches, NOON, newest)


@pytest.mark.parametrize("other", [folded(11, 20), folded(10, 20, topic_id="another")])
def test_only_a_range_that_begins_where_another_ends_is_joined(other: FoldedRange):
    with pytest.raises(ValueError, match="expected a range that begins where"):
        folded(0, 10).joined(other)


STEPS = st.lists(st.tuples(st.integers(-6, 3), st.integers(1, 4)), min_size=1, max_size=30)
"""A live feed: how far an operator moves the stored offset before a batch, and how much that reads."""


def history(steps: Sequence[tuple[int, int]]) -> list[FoldedRange]:
    ranges: list[FoldedRange] = []
    stored = 0
    for number, (moved, read) in enumerate(steps):
        start = max(0, stored + min(moved, 0) if moved < -2 else stored + max(moved, 0))
        ranges.append(folded(start, start + read, at=number))
        stored = start + read
    return ranges


def depth(ranges: Sequence[OffsetRange]) -> dict[int, int]:
    """Return how often each offset is held."""
    found: dict[int, int] = {}
    for each in ranges:
        for offset in range(each.start_offset, each.end_offset):
            found[offset] = found.get(offset, 0) + 1
    return found


@given(STEPS)
def test_every_offset_is_held_as_often_as_before_and_the_sums_are_the_same(steps: list[tuple[int, int]]):
    ranges = history(steps)
    found = chained(*ranges)

    assert depth([each.offset_range for each in found]) == depth([each.offset_range for each in ranges])
    assert sum(each.rows for each in found) == sum(each.rows for each in ranges)
    assert sum(each.batches for each in found) == len(ranges)


@given(STEPS, st.lists(st.integers(0, 30), max_size=3))
def test_a_few_at_a_time_come_to_the_same_chains_as_all_at_once(steps: list[tuple[int, int]], cuts: list[int]):
    ranges = history(steps)
    known: dict[UUID, FoldedRange] = {}
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(ranges)], strict=True):
        chains = Chains(known)
        for each in ranges[first:last]:
            chains.add(each)
        known = {key: each for key, each in known.items() if key not in chains.gone}
        known |= {uuid6.uuid7(): each for each in chains.new}

    assert sorted(known.values(), key=lambda each: (each.offset_range, each.oldest)) == chained(*ranges)


@given(STEPS, st.data())
def test_what_batches_lost_is_still_held_where_another_has_read_it_too(
    steps: list[tuple[int, int]], data: st.DataObject
):
    ranges = history(steps)
    lost = data.draw(st.sets(st.integers(0, len(ranges) - 1)))
    left = [each.offset_range for number, each in enumerate(ranges) if number not in lost]

    found = kept_of_folded(
        [each.offset_range for each in chained(*ranges)],
        {UUID(int=number): [ranges[number].offset_range] for number in lost},
    )

    assert depth(found) == depth(left)
    assert union(found) == union(left)
    assert {each.topic_partition for each in found} <= {partition(0)}


def test_what_was_filtered_is_in_the_sums_that_receipts_prove():
    counts = [RangeCount(span(0, 0, 10), 6, 0, 9, filtered=3), RangeCount(span(0, 10, 15), 1, 12, 12, filtered=4)]
    chain = FoldedRange(span(0, 0, 15), "id", 7, 7, 0, 1, 2, NOON, NOON)

    def differences(*found: RangeCount) -> list[str]:
        proof = FoldedProof(FoldedFeed(frozenset([ONE, TWO]), [chain]))
        for batch_id, count in zip((ONE, TWO), found, strict=True):
            output = parquet_at(Path("/data/orders"))
            proof.add(CommittedBatch(batch_id, BatchKind.LIVE, output, [CommittedRange(count, "id")], "fingerprint"))
        return [str(each) for each in proof.differences()]

    assert differences(*counts) == []
    [difference] = differences(counts[0], RangeCount(span(0, 10, 15), 1, 12, 12))
    assert "7 rows, 3 other records, found 15 offsets of 2 batches, 7 rows, 7 other records" in difference


@pytest.mark.parametrize(("there", "is_something"), [((0, 5), True), ((2, 0), True), ((0, 0), False)])
def test_lines_of_the_journal_alone_are_something_to_fold(there: tuple[int, int], *, is_something: bool) -> None:
    parts = Mock(**{"control.foldable.return_value": Foldable(*there)})
    parts.feed.name, parts.feed.control_retention = "orders", timedelta(days=400)
    assert Fold().answer(Mock(parts=parts, decided=None)).only_shown is is_something
