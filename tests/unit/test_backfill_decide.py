"""What a backfill reads of what it is asked for: a decision on ranges alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import BATCH_ID, SOME_DAY, TOPIC_ID, log, partition, span
from tests.outputs import parquet_at

from kafka_ingest.batches import decide_backfill as deciding
from kafka_ingest.batches.backfill_request import (
    BackfillRequest,
    Mode,
    OffsetRanges,
    OnMissing,
    OnOverlap,
    OpenGaps,
)
from kafka_ingest.batches.decide_backfill import BackfillDecision, decide, taken_in_copy, taken_in_feed
from kafka_ingest.errors import InvalidBackfillError, KafkaIngestError, RangesTakenError, RecordsDeletedError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.coverage import BackfillRange, PartitionCoverage
from kafka_ingest.model.gap import Gap, GapCause, NewGap
from kafka_ingest.model.offsets import (
    Isolation,
    LogBounds,
    OffsetRange,
    StoredOffset,
    TopicPartition,
    intersect,
    span_of,
    subtract,
    union,
)

CHUNK_A, CHUNK_B = UUID(int=0xA), UUID(int=0xB)
ELSEWHERE = parquet_at(Path("/data/copies"))
COPY: dict[str, Any] = {"mode": Mode.COPY, "output": ELSEWHERE}
ONLY_GAPS: dict[str, Any] = {"selection": OpenGaps()}
RECORD: dict[str, Any] = {"on_missing": OnMissing.RECORD_GAP}
REFUSE: dict[str, Any] = {"on_overlap": OnOverlap.REFUSE}


def a_gap(offset_range: OffsetRange, cause: GapCause = GapCause.SKIPPED, closed_by: UUID | None = None) -> Gap:
    """Return a gap that the stored offset has passed."""
    return Gap(
        UUID(int=offset_range.start_offset + 1),
        offset_range,
        TOPIC_ID,
        cause,
        "why",
        "ops",
        SOME_DAY,
        SOME_DAY,
        closed_by,
    )


def held(offset_range: OffsetRange, state: BatchState, batch_id: UUID = CHUNK_A) -> BackfillRange:
    """Return a range of a backfill."""
    return BackfillRange(batch_id, state, offset_range, TOPIC_ID)


class Feed:
    """Partition 0 was read from offset 20 to 100 apart from its gaps.

    Its log holds [0, 120), of which 110 can be read.
    """

    def __init__(self, *gaps: Gap, backfills: Sequence[BackfillRange] = (), bounds: LogBounds | None = None) -> None:
        row = StoredOffset(partition(0), TOPIC_ID, 20, 100, "latest")
        self.coverage = {partition(0): PartitionCoverage(row, gaps=gaps, backfills=backfills)}
        self.bounds = {partition(0): bounds or log(0, 120, lso=110)}

    def decide(
        self, *wanted: OffsetRange, isolation: Isolation = Isolation.READ_COMMITTED, taken: Any = None, **request: Any
    ) -> BackfillDecision:
        asked = BackfillRequest(request.pop("selection", OffsetRanges(wanted)), asked={}, **request)
        if taken is None:
            is_copy = asked.mode is Mode.COPY
            taken = taken_in_copy([], {}) if is_copy else taken_in_feed(self.coverage)
        return decide(asked, wanted, taken, self.coverage, self.bounds, isolation)

    def refused(self, error: type[KafkaIngestError], *wanted: OffsetRange, **request: Any) -> str:
        with pytest.raises(error) as found:
            self.decide(*wanted, **request)
        assert "Nothing was planned." in str(found.value)
        return str(found.value)


def read(decision: BackfillDecision) -> list[OffsetRange]:
    """Return the offsets of all chunks."""
    return union(planned for chunk in decision.chunks for planned in chunk)


# ── Filling: what is there already is left out ────────────────────────────────────────────────────────────────────────


def test_what_live_runs_have_committed_is_left_out() -> None:
    decision = Feed(a_gap(span(0, 40, 60))).decide(span(0, 0, 100))

    assert list(decision.chunks) == [(span(0, 0, 20),), (span(0, 40, 60),)]
    assert (decision.committed, decision.claimed) == ([span(0, 20, 40), span(0, 60, 100)], [])
    assert list(decision.for_later) == []
    assert decision.records_at_most == 40


def test_what_was_committed_before_an_operator_went_back_is_left_out_of_a_gap_that_lies_over_it() -> None:
    feed = Feed(a_gap(span(0, 40, 60)))
    taken = taken_in_feed(feed.coverage, [span(0, 45, 50), span(0, 90, 95)])
    decision = feed.decide(span(0, 30, 60), taken=taken)

    assert read(decision) == [span(0, 40, 45), span(0, 50, 60)]
    assert (decision.committed, decision.claimed) == ([span(0, 30, 40), span(0, 45, 50)], [])


def test_an_overlap_with_what_was_committed_before_an_operator_went_back_is_refused() -> None:
    feed = Feed(a_gap(span(0, 40, 60)))
    taken = taken_in_feed(feed.coverage, [span(0, 45, 50)])
    message = feed.refused(RangesTakenError, span(0, 40, 60), taken=taken, **REFUSE)
    assert "found committed already: orders-0[45, 50)." in message


def test_what_backfills_have_committed_or_claimed_is_left_out_each_by_its_name() -> None:
    backfills = [
        held(span(0, 40, 45), BatchState.COMMITTED),
        held(span(0, 50, 55), BatchState.WRITTEN, CHUNK_B),
        held(span(0, 0, 10), BatchState.COMMITTED),
    ]
    gaps = [a_gap(span(0, 40, 45), closed_by=CHUNK_A), a_gap(span(0, 45, 60))]
    decision = Feed(*gaps, backfills=backfills).decide(span(0, 0, 60))

    assert read(decision) == [span(0, 10, 20), span(0, 45, 50), span(0, 55, 60)]
    assert decision.committed == [span(0, 0, 10), span(0, 20, 45)]
    assert decision.claimed == [span(0, 50, 55)]


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
def test_a_backfill_claims_its_ranges_as_long_as_it_is_open(state: BatchState) -> None:
    feed = Feed(a_gap(span(0, 40, 60)), backfills=[held(span(0, 40, 50), state)])
    decision = feed.decide(span(0, 40, 60))

    assert (list(decision.chunks), decision.claimed) == ([(span(0, 50, 60),)], [span(0, 40, 50)])


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
@pytest.mark.parametrize("overlap", OnOverlap)
def test_what_others_are_about_to_bring_is_never_taken_for_done(state: BatchState, overlap: OnOverlap) -> None:
    feed = Feed(a_gap(span(0, 40, 60)), backfills=[held(span(0, 40, 60), state)])
    message = feed.refused(RangesTakenError, span(0, 40, 60), on_overlap=overlap)
    assert f"found claimed by open backfills, {CHUNK_A}: orders-0[40, 60)." in message
    assert "`kafka-ingest backfill FEED open`, or the form's open chunks; or end one: `abandon`" in message


def test_where_others_bring_all_that_is_not_there_both_are_named() -> None:
    feed = Feed(a_gap(span(0, 40, 60)), backfills=[held(span(0, 40, 60), BatchState.PLANNED)])
    message = feed.refused(RangesTakenError, span(0, 30, 60))
    assert (
        f"found committed already: orders-0[30, 40); claimed by open backfills, {CHUNK_A}: orders-0[40, 60)." in message
    )


def test_where_others_bring_all_that_is_not_deleted_it_is_not_done_either() -> None:
    feed = Feed(backfills=[held(span(0, 10, 20), BatchState.PLANNED)], bounds=log(10, 120))
    message = feed.refused(RangesTakenError, span(0, 0, 20), **RECORD)
    assert f"found claimed by open backfills, {CHUNK_A}: orders-0[10, 20)." in message


def test_a_copy_that_others_are_about_to_bring_is_never_taken_for_done() -> None:
    there = taken_in_copy([held(span(0, 0, 50), BatchState.PLANNED)], {"orders": TOPIC_ID})
    message = Feed().refused(RangesTakenError, span(0, 0, 50), taken=there, **COPY)
    assert f"found claimed by open backfills, {CHUNK_A}: orders-0[0, 50)." in message


def test_a_copy_reads_what_took_the_place_of_records_that_were_cut_off_after_they_were_copied() -> None:
    before, above = held(span(0, 0, 50), BatchState.COMMITTED), held(span(0, 50, 60), BatchState.COMMITTED)
    there = taken_in_copy([replace(before, cut_off_at=30), replace(above, cut_off_at=30)], {"orders": TOPIC_ID})
    assert read(Feed().decide(span(0, 0, 70), taken=there, **COPY, on_overlap=OnOverlap.CUT)) == [span(0, 30, 70)]


def test_nothing_is_left_of_what_is_all_committed() -> None:
    decision = Feed().decide(span(0, 30, 90))

    assert (list(decision.chunks), decision.committed, decision.records_at_most) == ([], [span(0, 30, 90)], 0)


def test_a_gap_that_lies_ahead_is_no_hole() -> None:
    ahead = replace(a_gap(span(0, 100, 110)), applied_at=None)
    assert "stored offset 100" in Feed(ahead).refused(InvalidBackfillError, span(0, 90, 110))


# ── Filling: an overlap is refused where that was asked for ───────────────────────────────────────────────────────────


def test_an_overlap_with_what_is_committed_is_refused_by_its_offsets() -> None:
    message = Feed(a_gap(span(0, 40, 60))).refused(RangesTakenError, span(0, 39, 61), **REFUSE)
    assert "found committed already: orders-0[39, 40), orders-0[60, 61)." in message
    assert "claimed" not in message


def test_an_overlap_with_open_backfills_is_refused_by_their_ids() -> None:
    backfills = [
        held(span(0, 40, 45), BatchState.PLANNED, CHUNK_B),
        held(span(0, 45, 50), BatchState.WRITTEN, CHUNK_A),
        held(span(0, 55, 60), BatchState.PLANNED, BATCH_ID),
    ]
    message = Feed(a_gap(span(0, 40, 60)), backfills=backfills).refused(RangesTakenError, span(0, 42, 52), **REFUSE)
    assert f"found claimed by open backfills, {CHUNK_A}, {CHUNK_B}: orders-0[42, 50)." in message
    assert str(BATCH_ID) not in message
    assert "committed already" not in message


def test_what_overlaps_nothing_is_read_where_overlaps_are_refused() -> None:
    feed = Feed(a_gap(span(0, 40, 60)), backfills=[held(span(0, 50, 60), BatchState.PLANNED)])
    assert read(feed.decide(span(0, 0, 20), span(0, 40, 50), **REFUSE)) == [span(0, 0, 20), span(0, 40, 50)]


# ── Filling: below the stored offset and within the log ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wanted", [span(0, 90, 101), span(0, 100, 105), span(0, 0, 110)])
def test_offsets_at_or_beyond_the_stored_one_are_the_live_runs(wanted: OffsetRange) -> None:
    assert f"{wanted}, stored offset 100" in Feed().refused(InvalidBackfillError, wanted)


def test_a_range_may_end_at_the_stored_offset() -> None:
    assert read(Feed(a_gap(span(0, 90, 100))).decide(span(0, 90, 100))) == [span(0, 90, 100)]


def test_offsets_that_no_consumer_of_the_feeds_isolation_sees_are_refused() -> None:
    feed = Feed(a_gap(span(0, 40, 60)), bounds=log(0, 120, lso=50))
    assert "orders-0[40, 60), readable up to 50" in feed.refused(InvalidBackfillError, span(0, 40, 60))
    decision = feed.decide(span(0, 40, 60), isolation=Isolation.READ_UNCOMMITTED)
    assert read(decision) == [span(0, 40, 60)]


def test_a_copy_reads_beyond_the_stored_offset_and_not_beyond_what_can_be_read() -> None:
    assert read(Feed().decide(span(0, 0, 110), **COPY)) == [span(0, 0, 110)]
    assert "orders-0[0, 111), readable up to 110" in Feed().refused(InvalidBackfillError, span(0, 0, 111), **COPY)


# ── What retention has deleted ────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_deleted_is_refused_by_its_offsets_and_how_many_they_are() -> None:
    feed = Feed(bounds=log(8, 120))
    message = feed.refused(RecordsDeletedError, span(0, 0, 4), span(0, 5, 20))
    assert "deleted orders-0[0, 4), orders-0[5, 8) (7 offsets)" in message
    assert "with what is missing as a gap on record: missing `record_gap`" in message


def test_what_is_deleted_is_a_gap_of_retention_where_that_was_asked_for() -> None:
    decision = Feed(bounds=log(8, 120)).decide(span(0, 0, 20), **RECORD)

    assert list(decision.chunks) == [(span(0, 8, 20),)]
    assert decision.deleted == [span(0, 0, 8)]
    reason = "the log starts at 8: a backfill found the records below deleted"
    assert list(decision.gaps) == [NewGap(span(0, 0, 8), GapCause.RETENTION, reason)]


def test_what_is_gone_and_in_an_open_gap_already_is_no_second_gap() -> None:
    gaps = [a_gap(span(0, 2, 4)), a_gap(span(0, 40, 60))]
    decision = Feed(*gaps, bounds=log(50, 120)).decide(span(0, 0, 60), **RECORD)

    assert [new.offset_range for new in decision.gaps] == [span(0, 0, 2), span(0, 4, 20)]
    assert decision.deleted == [span(0, 0, 20), span(0, 40, 50)]
    assert read(decision) == [span(0, 50, 60)]


def test_what_is_deleted_and_was_committed_before_is_neither_missing_nor_a_gap() -> None:
    decision = Feed(bounds=log(100, 120)).decide(span(0, 20, 100))
    assert (list(decision.chunks), decision.deleted, list(decision.gaps)) == ([], [], [])


def test_what_is_deleted_and_claimed_is_the_other_backfills_worry() -> None:
    feed = Feed(backfills=[held(span(0, 0, 10), BatchState.PLANNED)], bounds=log(10, 120))
    assert read(feed.decide(span(0, 0, 20))) == [span(0, 10, 20)]


def test_open_gaps_of_retention_are_left_out_of_open_gaps_without_a_word() -> None:
    gaps = [a_gap(span(0, 20, 30), GapCause.RETENTION), a_gap(span(0, 40, 60))]
    feed = Feed(*gaps, bounds=log(30, 120))
    decision = feed.decide(span(0, 20, 30), span(0, 40, 60), **ONLY_GAPS)

    assert read(decision) == [span(0, 40, 60)]
    assert (decision.deleted, list(decision.gaps)) == ([span(0, 20, 30)], [])
    assert "orders-0[20, 30)" in feed.refused(RecordsDeletedError, span(0, 20, 30), span(0, 40, 60))


def test_open_gaps_of_another_cause_whose_records_are_gone_by_then_are_refused() -> None:
    gaps = [a_gap(span(0, 20, 30), GapCause.RETENTION), a_gap(span(0, 40, 60))]
    message = Feed(*gaps, bounds=log(50, 120)).refused(
        RecordsDeletedError, span(0, 20, 30), span(0, 40, 60), **ONLY_GAPS
    )
    assert "deleted orders-0[40, 50) (10 offsets)" in message


def test_a_gap_of_retention_whose_records_are_still_there_is_read() -> None:
    feed = Feed(a_gap(span(0, 20, 30), GapCause.RETENTION), bounds=log(25, 120))
    decision = feed.decide(span(0, 20, 30), **ONLY_GAPS)
    assert (read(decision), decision.deleted) == ([span(0, 25, 30)], [span(0, 20, 25)])


def test_what_is_gone_of_a_copy_is_refused_or_left_out_and_never_a_gap() -> None:
    feed = Feed(bounds=log(8, 120))
    message = feed.refused(RecordsDeletedError, span(0, 0, 20), **COPY)
    assert "To read the rest: missing `record_gap`" in message
    decision = feed.decide(span(0, 0, 20), **COPY, **RECORD)
    assert (read(decision), decision.deleted, list(decision.gaps)) == ([span(0, 8, 20)], [span(0, 0, 8)], [])


# ── Copies ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_copy_leaves_out_what_its_own_output_holds_and_not_what_the_feeds_does() -> None:
    there = taken_in_copy(
        [held(span(0, 0, 10), BatchState.COMMITTED), held(span(0, 30, 40), BatchState.PLANNED)], {"orders": TOPIC_ID}
    )
    decision = Feed().decide(span(0, 0, 50), taken=there, **COPY)

    assert (decision.committed, decision.claimed) == ([span(0, 0, 10)], [span(0, 30, 40)])
    assert read(decision) == [span(0, 10, 30), span(0, 40, 50)]


def test_what_was_copied_of_an_earlier_topic_of_the_name_is_not_there() -> None:
    found = taken_in_copy([held(span(0, 0, 10), BatchState.COMMITTED)], {"orders": "another"})
    assert (found.committed, found.claimed, found.by) == ([], [], [])


# ── Chunks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_chunks_hold_at_most_what_was_asked_for() -> None:
    decision = Feed(a_gap(span(0, 20, 60))).decide(span(0, 20, 60), max_records=15)
    assert list(decision.chunks) == [(span(0, 20, 35),), (span(0, 35, 50),), (span(0, 50, 60),)]


def test_what_more_chunks_than_airflow_can_expand_hold_is_left_for_the_next_plan() -> None:
    most = deciding.MOST_CHUNKS
    wide = OffsetRange(partition(0), 0, most)
    feed = Feed(bounds=log(0, most + 1))

    all_of_it = feed.decide(wide, max_records=1, **COPY)
    assert (len(all_of_it.chunks), list(all_of_it.for_later)) == (most, []) == (1_000, [])
    decision = feed.decide(replace(wide, end_offset=most + 1), max_records=1, **COPY)
    assert decision.chunks == all_of_it.chunks
    assert list(decision.for_later) == [span(0, most, most + 1)]
    assert decision.records_at_most == most


def test_a_request_names_an_output_only_where_it_is_a_copy() -> None:
    wrong: list[dict[str, Any]] = [{"mode": Mode.COPY}, {"output": ELSEWHERE}]
    for each in wrong:
        with pytest.raises(ValueError, match="a copy names its output, and nothing else does"):
            BackfillRequest(OpenGaps(), asked={}, **each)


# ── Whatever is asked for ─────────────────────────────────────────────────────────────────────────────────────────────

BOUNDS = st.integers(0, 40)


@st.composite
def ranges(draw: st.DrawFn, end: int = 40) -> list[OffsetRange]:
    """Return ranges of partition 0 that share no offset."""
    marks = sorted(draw(st.sets(st.integers(0, end), max_size=8)))
    return [span(0, *pair) for pair in zip(marks[::2], marks[1::2], strict=False)]


def offsets(found: Sequence[OffsetRange]) -> set[int]:
    return {offset for each in found for offset in range(each.start_offset, each.end_offset)}


@given(
    wanted=ranges(),
    holes=ranges(),
    started=BOUNDS,
    log_start=BOUNDS,
    max_records=st.integers(1, 9),
    is_open=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_every_offset_that_is_wanted_is_read_once_or_left_out_for_one_reason(
    wanted: list[OffsetRange],
    holes: list[OffsetRange],
    started: int,
    log_start: int,
    max_records: int,
    is_open: list[bool],
) -> None:
    row = StoredOffset(partition(0), TOPIC_ID, started, 40, "earliest")
    in_live = intersect(holes, [span(0, started, 40)])
    states = [BatchState.PLANNED if each else BatchState.COMMITTED for each in is_open]
    backfills = [
        held(each, state, UUID(int=n)) for n, (each, state) in enumerate(zip(in_live[::2], states, strict=False))
    ]
    gaps = [
        a_gap(
            each,
            closed_by=next((b.batch_id for b in backfills if b.offset_range == each and not b.state.is_open), None),
        )
        for each in in_live
    ]
    feed = Feed()
    coverage: dict[TopicPartition, PartitionCoverage] = {partition(0): PartitionCoverage(row, gaps, backfills)}
    assert coverage[partition(0)].is_accounted
    feed.coverage, feed.bounds = coverage, {partition(0): log(log_start, 50)}

    others_bring = intersect(wanted, coverage[partition(0)].claimed)
    not_there = subtract(wanted, [*coverage[partition(0)].committed, *others_bring])
    if others_bring and not intersect(not_there, [span(0, log_start, 40)]):
        assert "claimed by open backfills, " in feed.refused(
            RangesTakenError, *wanted, max_records=max_records, **RECORD
        )
        return
    decision = feed.decide(*wanted, max_records=max_records, **RECORD)

    assert list(decision.for_later) == []
    parts = [read(decision), list(decision.committed), list(decision.claimed), list(decision.deleted)]
    assert sum(span_of(part) for part in parts) == span_of(wanted)
    assert set.union(*map(offsets, parts)) == offsets(wanted)
    assert not intersect(read(decision), [span(0, 0, log_start)])
    assert not intersect(read(decision), coverage[partition(0)].committed)
    new = [each.offset_range for each in decision.gaps]
    on_record = [each.offset_range for each in coverage[partition(0)].open_gaps]
    assert union(new) == union(subtract(decision.deleted, on_record))
    assert span_of(new) == span_of(union(new))
    assert all(span_of(chunk) <= max_records for chunk in decision.chunks)
