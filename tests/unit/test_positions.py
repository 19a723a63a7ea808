"""Where a partition stands after what is gone, what was filed ahead and what is too far behind.

And how far it is read.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import TOPIC_ID, log, partition, span
from tests.unit.planning_inputs import ahead

from kafka_ingest.errors import OffsetsLostError, StoredOffsetBeyondLogError
from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import LogBounds, OffsetRange, StoredOffset
from kafka_ingest.planning.positions import Position, check_not_beyond, check_nothing_lost, position_of


def at(
    offset: int,
    bounds: LogBounds,
    *filed: OffsetRange,
    end: int | None = None,
    behind: int | None = None,
    unreadable: int | None = None,
) -> Position:
    """Return where ``orders-0`` stands, with gaps filed ahead of it; it may be read to the log's end, or to ``end``."""
    readable = bounds.high_watermark if end is None else end
    return position_of(partition(0), offset, bounds, readable, ahead(*filed), behind, unreadable)


def read(position: Position) -> tuple[int, int]:
    """Return the offsets that a batch without limits reads."""
    return position.offset, position.offset + position.lag


def filed_gaps(position: Position) -> list[tuple[int, int, str]]:
    """Return the new gaps of a jump: from, to, and what decided it."""
    gaps = position.jump.gaps if position.jump is not None else ()
    return [(gap.offset_range.start_offset, gap.offset_range.end_offset, gap.cause.value) for gap in gaps]


def passed_gaps(position: Position) -> list[tuple[int, int]]:
    """Return the gaps that were filed ahead and are passed over now."""
    gaps = position.jump.passed if position.jump is not None else ()
    return [(gap.offset_range.start_offset, gap.offset_range.end_offset) for gap in gaps]


def jumped(position: Position) -> tuple[int, int] | None:
    """Return from where to where the stored offset moves without reading."""
    return (position.jump.from_offset, position.jump.to_offset) if position.jump is not None else None


# ── Nothing in the way ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_partition_is_read_from_its_offset_to_the_end() -> None:
    position = at(60, log(10, 100))
    assert (read(position), jumped(position)) == ((60, 100), None)
    assert (position.lag, position.headroom, position.cut_short) == (40, 50, False)


def test_a_partition_that_was_read_to_its_end_has_no_lag() -> None:
    assert at(100, log(10, 100)).lag == 0


def test_an_offset_behind_which_a_transaction_is_open_has_no_lag_rather_than_a_negative_one() -> None:
    assert at(90, log(10, 100), end=80).lag == 0


# ── What retention took ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_offset_below_the_log_start_jumps_there_over_a_gap_with_the_reason() -> None:
    position = at(60, log(75, 100))
    assert (jumped(position), filed_gaps(position)) == ((60, 75), [(60, 75, "retention")])
    assert (read(position), position.headroom) == ((75, 100), 0)
    assert position.jump is not None
    assert position.jump.gaps[0].reason == "the log starts at 75: Kafka deleted what lies before"


def test_an_offset_at_the_log_start_jumps_over_nothing() -> None:
    assert jumped(at(75, log(75, 100))) is None


def test_a_log_of_which_everything_is_deleted_is_passed_to_its_end() -> None:
    position = at(60, log(100, 100))
    assert (filed_gaps(position), position.lag) == ([(60, 100, "retention")], 0)


# ── Gaps that were filed ahead ────────────────────────────────────────────────────────────────────────────────────────


def test_a_range_ends_where_a_gap_lies_ahead_and_there_is_more_behind_it() -> None:
    position = at(10, log(0, 100), span(0, 50, 60))
    assert (read(position), jumped(position), position.cut_short) == ((10, 50), None, True)


def test_a_gap_that_begins_at_the_offset_is_passed_over() -> None:
    position = at(50, log(0, 100), span(0, 50, 60))
    assert (jumped(position), passed_gaps(position), filed_gaps(position)) == ((50, 60), [(50, 60)], [])
    assert (read(position), position.cut_short) == ((60, 100), False)


def test_an_offset_just_below_a_gap_reads_one_and_stops() -> None:
    assert read(at(49, log(0, 100), span(0, 50, 60))) == (49, 50)


def test_an_offset_inside_a_gap_jumps_to_its_end() -> None:
    assert jumped(at(55, log(0, 100), span(0, 50, 60))) == (55, 60)


def test_adjacent_gaps_are_passed_over_in_one_jump() -> None:
    position = at(50, log(0, 100), span(0, 50, 60), span(0, 60, 70))
    assert (jumped(position), passed_gaps(position)) == ((50, 70), [(50, 60), (60, 70)])
    assert read(position) == (70, 100)


def test_several_gaps_ahead_are_reached_one_by_one() -> None:
    position = at(50, log(0, 100), span(0, 50, 60), span(0, 80, 90))
    assert (jumped(position), read(position), position.cut_short) == ((50, 60), (60, 80), True)


def test_gaps_are_taken_in_the_order_of_their_offsets_and_not_of_their_filing() -> None:
    position = at(50, log(0, 100), span(0, 80, 90), span(0, 60, 70), span(0, 50, 60))
    assert (passed_gaps(position), read(position)) == ([(50, 60), (60, 70)], (70, 80))


def test_a_gap_that_reaches_to_the_end_leaves_nothing_behind_it() -> None:
    position = at(10, log(0, 100), span(0, 50, 100))
    assert (read(position), position.cut_short) == ((10, 50), False)


def test_a_gap_up_to_the_high_watermark_leaves_nothing_that_could_be_read_below_the_last_stable_offset() -> None:
    position = at(10, log(0, 100, lso=80), span(0, 50, 95), end=80)
    assert (read(position), position.cut_short) == ((10, 50), False)


def test_a_gap_at_or_above_the_end_changes_nothing() -> None:
    position = at(10, log(0, 100), span(0, 80, 90), end=80)
    assert (read(position), jumped(position), position.cut_short) == ((10, 80), None, False)


def test_a_gap_that_ends_at_the_log_end_leaves_no_lag_once_it_is_passed() -> None:
    position = at(50, log(0, 100), span(0, 50, 100))
    assert (jumped(position), position.lag) == ((50, 100), 0)


# ── Gaps ahead and retention ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("log_start", "filed", "passed", "lands_at"),
    [
        (30, [(10, 30, "retention")], [], 30),
        (40, [(10, 40, "retention")], [(40, 60)], 60),
        (50, [(10, 40, "retention")], [(40, 60)], 60),
        (60, [(10, 40, "retention")], [(40, 60)], 60),
        (70, [(10, 40, "retention"), (60, 70, "retention")], [(40, 60)], 70),
    ],
)
def test_what_retention_took_around_a_gap_that_was_filed_already_is_filed_without_overlap(
    log_start: int, filed: list[tuple[int, int, str]], passed: list[tuple[int, int]], lands_at: int
) -> None:
    position = at(10, log(log_start, 100), span(0, 40, 60))
    assert (filed_gaps(position), passed_gaps(position), jumped(position)) == (filed, passed, (10, lands_at))


def test_what_lay_between_two_gaps_and_is_deleted_is_a_gap_of_its_own() -> None:
    position = at(10, log(90, 100), span(0, 20, 30), span(0, 50, 60))
    expected = [(10, 20, "retention"), (30, 50, "retention"), (60, 90, "retention")]
    assert (filed_gaps(position), passed_gaps(position)) == (expected, [(20, 30), (50, 60)])


def test_a_gap_right_behind_what_retention_took_is_passed_in_the_same_jump() -> None:
    position = at(10, log(40, 100), span(0, 40, 60))
    assert read(position) == (60, 100)


def test_nothing_is_lost_where_retention_only_took_what_was_to_be_skipped() -> None:
    position = at(40, log(55, 100), span(0, 40, 60))
    assert (filed_gaps(position), jumped(position)) == ([], (40, 60))


# ── Too far behind ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_partition_that_is_too_far_behind_jumps_to_the_end_and_files_what_lies_between() -> None:
    position = at(10, log(0, 100), behind=89)
    assert (filed_gaps(position), jumped(position), position.lag) == ([(10, 100, "behind")], (10, 100), 0)
    assert position.jump is not None
    assert position.jump.gaps[0].reason == "90 behind, more than skip_to_latest_when_behind: 89"


def test_a_partition_that_is_exactly_as_far_behind_as_it_may_be_is_read() -> None:
    position = at(10, log(0, 100), behind=90)
    assert (read(position), jumped(position)) == ((10, 100), None)


def test_the_jump_goes_to_what_can_be_read_and_not_past_an_open_transaction() -> None:
    assert jumped(at(10, log(0, 100, lso=80), end=80, behind=5)) == (10, 80)


def test_what_lies_behind_an_open_transaction_does_not_count_as_behind() -> None:
    assert jumped(at(10, log(0, 1_000, lso=15), end=15, behind=5)) is None


def test_what_retention_took_is_distinguished_from_what_was_skipped_because_it_was_behind() -> None:
    position = at(10, log(30, 100), behind=5)
    assert filed_gaps(position) == [(10, 30, "retention"), (30, 100, "behind")]
    assert jumped(position) == (10, 100)


def test_what_retention_took_does_not_count_as_behind() -> None:
    position = at(10, log(30, 100), behind=70)
    assert (filed_gaps(position), read(position)) == ([(10, 30, "retention")], (30, 100))


def test_gaps_that_were_filed_keep_their_place_in_what_is_skipped() -> None:
    position = at(10, log(0, 100), span(0, 40, 60), behind=5)
    assert filed_gaps(position) == [(10, 40, "behind"), (60, 100, "behind")]
    assert passed_gaps(position) == [(40, 60)]


def test_a_gap_that_begins_where_the_jump_ends_is_passed_too() -> None:
    position = at(10, log(0, 100), span(0, 80, 90), end=80, behind=5)
    assert (jumped(position), position.lag) == ((10, 90), 0)


# ── Records that nobody can read ──────────────────────────────────────────────────────────────────────────────────────


def test_a_range_ends_before_an_unreadable_offset_and_nothing_behind_it_can_be_read_at_once() -> None:
    position = at(10, log(0, 100), unreadable=50)
    assert (read(position), position.cut_short) == ((10, 50), False)


def test_an_unreadable_offset_that_is_the_next_one_leaves_nothing_to_read() -> None:
    assert at(50, log(0, 100), unreadable=50).lag == 0


@pytest.mark.parametrize("unreadable", [49, 100])
def test_an_unreadable_offset_outside_what_is_to_be_read_changes_nothing(unreadable: int) -> None:
    assert read(at(50, log(0, 100), unreadable=unreadable)) == (50, 100)


def test_an_unreadable_offset_inside_a_gap_is_jumped_over_with_it() -> None:
    assert read(at(50, log(0, 100), span(0, 50, 60), unreadable=55)) == (60, 100)


def test_an_unreadable_offset_before_a_gap_ends_the_range_first() -> None:
    position = at(10, log(0, 100), span(0, 50, 60), unreadable=40)
    assert (read(position), position.cut_short) == ((10, 40), False)


def test_an_unreadable_offset_behind_a_gap_is_reached_by_a_later_plan() -> None:
    position = at(10, log(0, 100), span(0, 50, 60), unreadable=70)
    assert (read(position), position.cut_short) == ((10, 50), True)


def test_what_is_skipped_because_it_is_behind_takes_an_unreadable_offset_along() -> None:
    assert jumped(at(10, log(0, 100), behind=5, unreadable=50)) == (10, 100)


# ── Loss is an error where the feed wants it to be ────────────────────────────────────────────────────────────────────


def seeded_by(rule: str, number: int) -> StoredOffset:
    """Return a seed of this plan."""
    return StoredOffset(partition(number), TOPIC_ID, 0, 0, rule)


def lost(*positions: Position, seeded: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return what is said of lost records."""
    with pytest.raises(OffsetsLostError) as error:
        check_nothing_lost(
            positions, [seeded_by(rule, number) for number, rule in seeded.items()], "orders", "cluster-A"
        )
    assert error.value.exit_code == 3
    return str(error.value)


def test_lost_records_are_named_with_both_numbers_the_count_and_the_cluster() -> None:
    message = lost(at(1_000, log(1_234, 5_000)))
    assert "feed orders: records were deleted by retention before they were read (cluster cluster-A)" in message
    assert "orders-0: stored offset 1,000, log start 1,234 (234 offsets gone)" in message


def test_the_ways_out_of_a_loss_are_the_setting_and_a_command_that_can_be_copied() -> None:
    message = lost(at(1_000, log(1_234, 5_000)))
    assert "on_data_loss: record_gap in the feed file" in message
    assert "`kafka-ingest skip orders orders 0 1000-1234 --reason …`" in message


def test_where_a_start_rule_decides_there_is_no_row_yet_that_a_command_could_move() -> None:
    message = lost(at(0, log(12, 30)), seeded={0: "group reports"})
    assert "record_gap" in message
    assert "kafka-ingest skip" not in message


def test_a_new_partition_can_be_skipped_from_its_beginning() -> None:
    assert "`kafka-ingest skip orders orders 0 0-12 --reason …`" in lost(
        at(0, log(12, 30)), seeded={0: "new partition"}
    )


def test_an_offset_that_was_seen_above_the_log_end_stays_refused_when_the_log_has_grown_past_it() -> None:
    since = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    seen = Hold("orders", 0, HoldCause.BEYOND_LOG, "the log ended", since, 60)
    message = "orders-0: stored offset 100, log end 150, and 60 on 2026-01-31 12:30 UTC"
    with pytest.raises(StoredOffsetBeyondLogError, match=message):
        check_not_beyond([at(100, log(0, 150))], {partition(0): seen}, "cluster-A", "orders")


def test_the_command_names_the_first_partition_that_has_a_row() -> None:
    first = at(0, log(12, 30))
    second = position_of(partition(1), 5, log(8, 30), 30, (), None, None)
    assert "`kafka-ingest skip orders orders 1 5-8 --reason …`" in lost(first, second, seeded={0: "group reports"})


def test_of_many_lost_partitions_a_few_are_named_and_the_others_counted() -> None:
    positions = [position_of(partition(number), 0, log(9, 30), 30, (), None, None) for number in range(8)]
    message = lost(*positions)
    assert "orders-4: stored offset 0" in message
    assert "orders-5" not in message
    assert "and 3 more" in message


def test_loss_on_both_sides_of_a_gap_is_said_twice() -> None:
    message = lost(at(10, log(70, 100), span(0, 40, 60)))
    assert "orders-0: stored offset 10, log start 70 (30 offsets gone)" in message
    assert "orders-0: stored offset 60, log start 70 (10 offsets gone)" in message


@pytest.mark.parametrize(
    "position",
    [
        at(10, log(10, 100)),
        at(10, log(0, 100), behind=5),
        at(40, log(0, 100), span(0, 40, 60)),
        at(40, log(55, 100), span(0, 40, 60)),
    ],
)
def test_what_an_operator_decided_to_pass_over_is_not_lost(position: Position) -> None:
    check_nothing_lost([position], (), "orders", "cluster-A")


# ── An offset above the end of its log ────────────────────────────────────────────────────────────────────────────────


def test_an_offset_above_the_log_end_is_refused_with_both_numbers_and_the_cluster() -> None:
    message = (
        r"\(cluster cluster-A\): orders-0: stored offset 5,001, log end 5,000.*`kafka-ingest topic-changed orders`"
    )
    with pytest.raises(StoredOffsetBeyondLogError, match=message) as error:
        check_not_beyond([at(5_001, log(0, 5_000))], {}, "cluster-A", "orders")
    assert error.value.exit_code == 3


@pytest.mark.parametrize("position", [at(100, log(0, 100)), at(95, log(0, 100, lso=80), end=80)])
def test_an_offset_up_to_the_high_watermark_is_not_beyond_its_log(position: Position) -> None:
    check_not_beyond([position], {}, "cluster-A", "orders")


# ── Whatever the numbers ──────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def situations(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an offset, its log, and gaps ahead of it that do not overlap and do not reach past the high watermark."""
    log_start, offset = draw(st.integers(0, 60)), draw(st.integers(0, 100))
    end = max(log_start, offset) + draw(st.integers(0, 60))
    filed: list[OffsetRange] = []
    reached = offset
    while len(filed) < draw(st.integers(0, 4)):
        start = reached + draw(st.integers(0, 20))
        reached = start + draw(st.integers(1, 20))
        if reached > end:
            break
        filed.append(span(0, start, reached))
    return {
        "offset": offset,
        "bounds": log(log_start, end),
        "filed": draw(st.permutations(filed)),
        "end": draw(st.integers(log_start, end)),
        "behind": draw(st.none() | st.integers(1, 80)),
        "unreadable": draw(st.none() | st.integers(0, end)),
    }


@given(situations())
def test_a_jump_is_exactly_its_gaps_one_after_the_other(found: dict[str, Any]) -> None:
    position = at(
        found["offset"],
        found["bounds"],
        *found["filed"],
        end=found["end"],
        behind=found["behind"],
        unreadable=found["unreadable"],
    )
    pieces = sorted((start, end) for start, end, _ in filed_gaps(position)) + passed_gaps(position)
    reached = found["offset"]
    for start, end in sorted(pieces):
        assert start == reached
        reached = end
    assert reached == position.offset
    assert jumped(position) == ((found["offset"], reached) if pieces else None)


@given(situations())
def test_what_is_read_begins_inside_the_log_and_holds_nothing_that_was_to_be_passed_over(found: dict[str, Any]) -> None:
    filed: list[Gap] = ahead(*found["filed"])
    position = position_of(
        partition(0), found["offset"], found["bounds"], found["end"], filed, found["behind"], found["unreadable"]
    )
    start, end = read(position)
    assert found["bounds"].log_start_offset <= start <= found["bounds"].high_watermark
    if position.lag:
        assert end <= found["end"]
        assert all(gap.offset_range.end_offset <= start or gap.offset_range.start_offset >= end for gap in filed)
        assert found["unreadable"] is None or not start <= found["unreadable"] < end
        assert all(cause != GapCause.BEHIND for *_, cause in filed_gaps(position))
