"""Gaps: how they are split when some of them is read after all, or when the stored offset goes back into them."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import SOME_DAY, TOPIC_ID, partition, span

from kafka_ingest.model.gap import Gap, GapCause, NewGap
from kafka_ingest.model.offsets import OffsetRange, intersect, subtract, union

GAP = Gap(
    gap_id=UUID(int=1),
    offset_range=span(0, 20, 60),
    topic_id=TOPIC_ID,
    cause=GapCause.SKIPPED,
    reason="poisoned",
    decided_by="ops",
    decided_at=SOME_DAY,
    applied_at=datetime(2026, 1, 3, tzinfo=UTC),
)
BY, THEN_BY = UUID(int=0xB1), UUID(int=0xB2)

Piece = tuple[int, int, UUID | None]


def pieces_of(gaps: list[Gap]) -> list[Piece]:
    return [(each.offset_range.start_offset, each.offset_range.end_offset, each.closed_by_batch) for each in gaps]


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    """Return ranges of partition 0 that share no offset, in and around the gap."""
    marks = sorted(draw(st.sets(st.integers(10, 70), max_size=10)))
    return [span(0, *pair) for pair in zip(marks[::2], marks[1::2], strict=False)]


# ── As it is decided ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gap_holds_an_offset_at_least_and_says_why() -> None:
    with pytest.raises(ValueError, match=r"found orders-0\[5, 5\)"):
        NewGap(span(0, 5, 5), GapCause.SKIPPED, "poisoned")
    with pytest.raises(ValueError, match="a gap needs a reason"):
        NewGap(span(0, 5, 6), GapCause.SKIPPED, "  ")


@pytest.mark.parametrize(
    ("gap", "state"),
    [(replace(GAP, applied_at=None), "ahead"), (GAP, "open"), (replace(GAP, closed_by_batch=BY), "closed")],
)
def test_a_gap_lies_ahead_is_open_or_closed(gap: Gap, state: str) -> None:
    assert gap.state == state
    assert gap.is_open == (state == "open")


@pytest.mark.parametrize("gap", [GAP, replace(GAP, applied_at=None, topic_id=None), replace(GAP, closed_by_batch=BY)])
def test_a_gap_is_read_back_from_the_journal_as_it_was(gap: Gap) -> None:
    assert Gap.from_document(gap.as_document()) == gap


# ── Read after all ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "read",
    [[], [span(0, 0, 20)], [span(0, 60, 99)], [span(1, 20, 60)], [span(0, 20, 60, "refunds")], [span(0, 30, 30)]],
)
def test_a_gap_of_which_nothing_was_read_stays_as_it_is(read: list[OffsetRange]) -> None:
    assert GAP.read_by(BY, read) == [GAP]


@pytest.mark.parametrize(
    "read", [[span(0, 20, 60)], [span(0, 0, 99)], [span(0, 20, 40), span(0, 40, 60)], [span(0, 30, 60), span(0, 0, 35)]]
)
def test_a_gap_that_was_read_whole_is_closed_under_its_own_id(read: list[OffsetRange]) -> None:
    assert GAP.read_by(BY, read) == [replace(GAP, closed_by_batch=BY)]


@pytest.mark.parametrize(
    ("read", "pieces"),
    [
        ([span(0, 20, 30)], [(20, 30, BY), (30, 60, None)]),
        ([span(0, 59, 60)], [(20, 59, None), (59, 60, BY)]),
        ([span(0, 30, 40)], [(20, 30, None), (30, 40, BY), (40, 60, None)]),
        ([span(0, 0, 25), span(0, 55, 99)], [(20, 25, BY), (25, 55, None), (55, 60, BY)]),
        (
            [span(0, 30, 40), span(0, 50, 55)],
            [(20, 30, None), (30, 40, BY), (40, 50, None), (50, 55, BY), (55, 60, None)],
        ),
        ([span(0, 30, 40), span(1, 20, 60)], [(20, 30, None), (30, 40, BY), (40, 60, None)]),
    ],
)
def test_a_gap_of_which_some_was_read_is_split_in_the_order_of_its_offsets(
    read: list[OffsetRange], pieces: list[Piece]
) -> None:
    assert pieces_of(GAP.read_by(BY, read)) == pieces


def test_pieces_say_of_themselves_what_the_gap_said_and_have_ids_of_their_own() -> None:
    pieces = GAP.read_by(BY, [span(0, 30, 40)])
    for piece in pieces:
        same = replace(piece, gap_id=GAP.gap_id, offset_range=GAP.offset_range, closed_by_batch=None)
        assert same == GAP
    assert len({GAP.gap_id, *(piece.gap_id for piece in pieces)}) == 4


def test_the_same_split_gives_the_same_pieces_in_every_process() -> None:
    pieces = GAP.read_by(BY, [span(0, 30, 40), span(0, 0, 25)])
    again = Gap.from_document(GAP.as_document()).read_by(BY, [span(0, 0, 25), span(0, 30, 40)])
    assert again == pieces
    assert [piece.gap_id for piece in GAP.read_by(THEN_BY, [span(0, 30, 40), span(0, 0, 25)])] == [
        piece.gap_id for piece in pieces
    ]


def test_the_same_split_of_another_gap_gives_other_ids() -> None:
    other = replace(GAP, gap_id=UUID(int=2))
    read = [span(0, 30, 40)]
    ids = [piece.gap_id for gap in (GAP, other) for piece in gap.read_by(BY, read)]
    assert len(set(ids)) == 6


@given(read=ranges())
def test_whatever_was_read_the_pieces_are_the_gap_and_what_was_read_of_it_is_closed(read: list[OffsetRange]) -> None:
    pieces = GAP.read_by(BY, read)

    spans = [piece.offset_range for piece in pieces]
    assert union(spans) == [GAP.offset_range]
    assert all(earlier.end_offset == later.start_offset for earlier, later in pairwise(spans))
    assert [each.offset_range for each in pieces if not each.is_open] == intersect([GAP.offset_range], read)
    assert [each.offset_range for each in pieces if each.is_open] == subtract([GAP.offset_range], read)
    assert len({piece.gap_id for piece in pieces}) == len(pieces)


@given(read=ranges(), order=st.permutations(range(5)))
def test_in_whatever_order_chunks_are_committed_the_same_offsets_are_closed_by_the_same_chunks(
    read: list[OffsetRange], order: list[int]
) -> None:
    chunks = {UUID(int=number): chunk for number, chunk in enumerate(read)}
    in_order = [UUID(int=number) for number in order if number < len(read)]

    assert closed_in_order(chunks, list(chunks)) == closed_in_order(chunks, in_order)


def closed_in_order(chunks: dict[UUID, OffsetRange], order: list[UUID]) -> dict[UUID | None, list[OffsetRange]]:
    """Return which offsets each chunk closed, and under None what is open, where they are committed in this order."""
    gaps = [GAP]
    for batch_id in order:
        split = [gap.read_by(batch_id, [chunks[batch_id]]) if gap.is_open else [gap] for gap in gaps]
        gaps = [piece for pieces in split for piece in pieces]
    closed: dict[UUID | None, list[OffsetRange]] = {}
    for gap in gaps:
        closed.setdefault(gap.closed_by_batch, []).append(gap.offset_range)
    return {batch_id: union(spans) for batch_id, spans in closed.items()}


# ── The stored offset goes back ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offset", [60, 61, 1_000])
def test_a_gap_below_the_stored_offset_stays_as_it_is(offset: int) -> None:
    assert GAP.below(offset) is GAP


@pytest.mark.parametrize("offset", [20, 19, 0])
def test_nothing_stays_of_a_gap_that_lies_at_or_above_the_stored_offset(offset: int) -> None:
    assert GAP.below(offset) is None


@pytest.mark.parametrize("offset", [21, 40, 59])
def test_what_lies_below_the_stored_offset_stays_of_a_gap_under_an_id_that_follows_from_it(offset: int) -> None:
    left = GAP.below(offset)
    assert left is not None
    assert left.offset_range == OffsetRange(partition(0), 20, offset)
    assert replace(left, gap_id=GAP.gap_id, offset_range=GAP.offset_range) == GAP
    assert left.gap_id != GAP.gap_id
    assert GAP.below(offset) == left


def test_a_gap_that_is_read_up_to_an_offset_and_one_that_went_back_to_it_have_the_same_lower_piece() -> None:
    [lower, _] = GAP.read_by(BY, [span(0, 40, 60)])
    assert GAP.below(40) == lower
