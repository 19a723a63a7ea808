"""What the page draws: offset bars to scale, and columns with their axes."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.offsets import Isolation, LogBounds, OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.observing.feed_status import PartitionStatus
from kafka_ingest.page.drawings import THINNEST, Column, offset_bar, plot

TP = TopicPartition("orders", 0)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def gap(start: int, end: int) -> Gap:
    return Gap(UUID(int=start), OffsetRange(TP, start, end), None, GapCause.SKIPPED, "why", "ops", NOW, NOW)


def status(
    stored: int | None,
    bounds: LogBounds | None,
    *gaps: Gap,
    isolation: Isolation = Isolation.READ_COMMITTED,
    first: int | None = None,
) -> PartitionStatus:
    begin = first if first is not None or stored is None else 0
    row = StoredOffset(TP, None, begin, stored, "earliest")
    return PartitionStatus(row, 0, bounds, None, None, isolation, gaps=gaps)


def drawn(found: PartitionStatus, pending: OffsetRange | None = None) -> dict[str, tuple[float, float]]:
    bar = offset_bar(found, pending)
    assert bar is not None
    return {segment.kind: (segment.x, segment.width) for segment in bar.segments}


def test_a_bar_goes_from_log_start_to_log_end_and_everything_on_it_is_to_scale() -> None:
    found = status(600, LogBounds(100, 900, 1_100), gap(200, 300))
    assert drawn(found, OffsetRange(TP, 600, 700)) == {
        "committed": (0, 500),
        "gap": (100, 100),
        "open": (500, 100),
        "unread": (500, 300),
        "transaction": (800, 200),
    }
    bar = offset_bar(found, None)
    assert bar is not None
    assert bar.stored_x == 500
    assert bar.text.startswith("orders-0: 100 to 600 committed; 600 to 900 to be read; 900 to 1,100 behind an open")


def test_offsets_that_kafka_deleted_unread_begin_the_bar() -> None:
    assert drawn(status(100, LogBounds(200, 300, 300))) == {"lost": (0, 500), "unread": (500, 500)}


def test_behind_an_open_transaction_nothing_waits_where_uncommitted_records_are_read() -> None:
    found = status(100, LogBounds(0, 150, 200), isolation=Isolation.READ_UNCOMMITTED)
    assert drawn(found) == {"committed": (0, 500), "unread": (500, 500)}


def test_a_gap_of_one_offset_among_millions_is_seen_and_stays_on_the_bar() -> None:
    found = status(10**9, LogBounds(0, 10**9, 10**9), gap(10**9 - 1, 10**9), gap(7, 8))
    assert drawn(found)["gap"] == (0, THINNEST)
    bar = offset_bar(found, None)
    assert bar is not None
    assert [(each.x, each.width) for each in bar.segments if each.kind == "gap"] == [(997, THINNEST), (0, THINNEST)]


def test_a_gap_below_the_log_start_is_not_on_the_bar_and_one_across_it_is_cut() -> None:
    found = status(600, LogBounds(100, 1_100, 1_100), gap(0, 50), gap(90, 200))
    assert drawn(found)["gap"] == (0, 100)
    bar = offset_bar(found, None)
    assert bar is not None
    assert sum(each.kind == "gap" for each in bar.segments) == 1


def test_without_kafkas_answer_the_bar_goes_from_the_first_to_the_stored_offset() -> None:
    assert drawn(status(600, None, gap(300, 450), first=0)) == {"committed": (0, 1_000), "gap": (500, 250)}


@pytest.mark.parametrize("found", [status(0, LogBounds(0, 0, 0)), status(None, None), status(5, None, first=5)])
def test_what_has_no_length_has_no_bar(found: PartitionStatus) -> None:
    assert offset_bar(found, None) is None


def test_a_partition_whose_start_is_pending_shows_what_there_is_to_read() -> None:
    bar = offset_bar(status(None, LogBounds(10, 20, 20)), None)
    assert bar is not None
    assert (bar.stored_x, [each.kind for each in bar.segments]) == (None, ["unread"])


def test_columns_stand_on_zero_the_newest_at_the_right_and_the_scale_ends_at_a_round_number() -> None:
    made = plot([Column(0, "none"), Column(150, "150"), Column(75, "75")], width=240, height=100)
    assert made is not None
    assert made.top == 200
    assert [(each.height, each.y + each.height) for each in made.columns] == [(0, 100), (75, 100), (37.5, 100)]
    assert made.columns[-1].x + made.columns[-1].width == pytest.approx(238)


def test_the_smallest_value_is_seen_and_no_value_is_no_column() -> None:
    made = plot([Column(10**12, "all"), Column(1, "one"), Column(0, "none")], height=100)
    assert made is not None
    assert [each.height for each in made.columns] == [100, 1, 0]
    assert plot([]) is None
    empty = plot([Column(0, "none")])
    assert empty is not None
    assert (empty.top, empty.columns[0].height) == (1, 0)


def test_a_plots_axis_has_the_times_of_its_oldest_its_middle_and_its_newest_column() -> None:
    made = plot([Column(1, "one", at=NOW + timedelta(hours=number)) for number in range(20)])
    assert made is not None
    assert [(each.percent, each.anchor, each.at) for each in made.times] == [
        (2.5, "start", NOW),
        (52.5, "middle", NOW + timedelta(hours=10)),
        (97.5, "end", NOW + timedelta(hours=19)),
    ]


def test_of_a_few_columns_only_the_newest_has_its_time_and_without_a_time_none() -> None:
    made = plot([Column(1, "one", at=NOW), Column(1, "one", at=NOW + timedelta(hours=1))])
    assert made is not None
    assert [each.at for each in made.times] == [NOW + timedelta(hours=1)]
    without = plot([Column(1, "one")])
    assert without is not None
    assert without.times == ()
