"""Whether an hour is complete: by the stored offsets and Kafka's answers, and nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import partition
from tests.unit.planning_inputs import known_feed, stored

from kafka_ingest.airflow_tasks.asset_events import extra_of, those_in
from kafka_ingest.model.completion import CompletionRules, Period, Unit
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import LogBounds, NewestRecord, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.planning.completion import PassingAnswers, Question, waited_for

FIVE = datetime(2026, 1, 31, 5, tzinfo=UTC)
RULES = CompletionRules(Unit.HOUR, delay=timedelta(minutes=10), idle_after=timedelta(hours=1))
FEED = known_feed(stored({0: 100, 1: 50}))
QUIET: dict[TopicPartition, Any] = {partition(0): None, partition(1): None}
BOUNDS: dict[TopicPartition, Any] = {partition(0): LogBounds(0, 100, 100), partition(1): LogBounds(0, 50, 50)}
TOPICS = {"orders": TopicDescription("orders", "topic-id-1", (0, 1))}


def at(hours: int, minutes: int) -> datetime:
    return FIVE.replace(hour=hours, minute=minutes)


def record(offset: int, time: datetime) -> NewestRecord:
    return NewestRecord(offset, round(time.timestamp() * 1000))


def waits(now: datetime, feed: Any = FEED, bounds: Any = None, topics: Any = None, **firsts: Any) -> list[str]:
    """Return what the hour from 5 to 6 waits for; ``p0``: the first record from 6:10 on of partition 0."""
    found = QUIET | {partition(int(name[1:])): first for name, first in firsts.items()}
    answers = PassingAnswers(TOPICS if topics is None else topics, BOUNDS | (bounds or {}), found)
    return [str(each) for each in waited_for(Question(feed, RULES, FIVE, now), answers)]


PASSED = {"p0": record(99, at(6, 10)), "p1": record(49, at(6, 30))}


def test_an_hour_is_complete_once_each_partition_has_read_a_record_of_its_end_and_the_delay() -> None:
    assert waits(at(6, 40), **PASSED) == []


def test_an_hour_is_never_complete_before_the_clock_says_so_whatever_the_records_say() -> None:
    assert waits(at(6, 9), **PASSED) == ["it is over at 2026-01-31 06:10:00 UTC, the delay included"]


def test_an_hour_waits_for_a_plan_that_has_asked_kafka_since_it_was_over() -> None:
    before, since = (replace(FEED, planned_at=at(6, minute)) for minute in (9, 10))

    assert waits(at(8, 40), before, **PASSED) == ["no plan has asked Kafka since it was over"]
    assert waits(at(8, 40), since, **PASSED) == []


def test_a_log_that_ends_below_what_was_read_passes_neither_by_its_records_nor_by_time() -> None:
    cut = {partition(0): LogBounds(0, 80, 80)}
    expected = ["orders-0: the log ends at 80, below what was read, 100"]

    assert waits(at(23, 59), bounds=cut, p0=record(79, at(6, 10)), p1=PASSED["p1"]) == expected
    assert waits(at(23, 59), bounds=cut, p1=PASSED["p1"]) == expected


def test_a_partition_whose_first_later_record_is_not_read_yet_has_not_passed() -> None:
    found = waits(at(6, 40), bounds={partition(0): LogBounds(0, 120, 120)}, **PASSED | {"p0": record(100, at(6, 10))})

    assert found == ["orders-0: 20 offsets from 100 on are to be read"]


def test_a_quiet_partition_that_is_read_to_its_end_passes_only_after_idle_after() -> None:
    early = waits(at(7, 9), p1=PASSED["p1"])

    assert early == ["orders-0: it has no record of 2026-01-31 06:10 or later; it is idle from 07:10 UTC on"]
    assert waits(at(7, 10), p1=PASSED["p1"]) == []


def test_a_quiet_partition_of_which_something_is_left_to_be_read_never_passes_by_time() -> None:
    found = waits(at(23, 59), bounds={partition(0): LogBounds(0, 101, 101)}, p1=PASSED["p1"])

    assert found == ["orders-0: 1 offset from 100 on is to be read"]


def test_an_open_transaction_holds_a_quiet_partition_back() -> None:
    found = waits(at(23, 59), bounds={partition(0): LogBounds(0, 100, 130)}, p1=PASSED["p1"])

    assert found == ["orders-0: an open transaction holds back 30 offsets from 100 on"]


def test_an_empty_partition_passes_as_an_idle_one() -> None:
    feed = known_feed(stored({0: 100, 1: 0}))

    assert waits(at(7, 9), feed, {partition(1): LogBounds(0, 0, 0)}, p0=PASSED["p0"]) != []
    assert waits(at(7, 10), feed, {partition(1): LogBounds(0, 0, 0)}, p0=PASSED["p0"]) == []


def test_a_record_of_a_wrong_clock_proves_nothing() -> None:
    ahead = PASSED | {"p0": record(7, datetime(2099, 1, 1, tzinfo=UTC))}

    assert waits(at(6, 40), bounds={partition(0): LogBounds(0, 120, 120)}, **ahead) == [
        "orders-0: 20 offsets from 100 on are to be read; the record at 7 proves nothing, it is of 2099-01-01"
    ]
    assert waits(at(7, 10), **ahead) == [], "it is read to its end, and the time is long past"


def test_a_time_in_microseconds_is_no_date_and_proves_nothing() -> None:
    [found] = waits(
        at(6, 40), bounds={partition(0): LogBounds(0, 120, 120)}, p0=NewestRecord(7, 2**50), p1=PASSED["p1"]
    )

    assert found.endswith("are to be read; the record at 7 proves nothing, it is of 1,125,899,906,842,624 ms")


def test_a_partition_that_no_plan_has_found_holds_the_hour_back() -> None:
    topics = {"orders": TopicDescription("orders", "topic-id-1", (0, 1, 2))}

    assert waits(at(7, 40), topics=topics, **PASSED) == ["orders-2: no plan has found out yet where it begins"]


def test_a_partition_whose_start_is_pending_holds_the_hour_back() -> None:
    feed = known_feed(stored({0: 100, 1: None}))

    assert waits(at(7, 40), feed, p0=PASSED["p0"]) == ["orders-1: no plan has found out yet where it begins"]


def test_a_partition_without_an_answer_holds_the_hour_back() -> None:
    silent = Unavailable("LEADER_NOT_AVAILABLE: no leader")
    expected = ["orders-0: Kafka does not answer for it: LEADER_NOT_AVAILABLE: no leader"]

    assert waits(at(7, 40), bounds={partition(0): silent}, p1=PASSED["p1"]) == expected
    assert waits(at(7, 40), p0=silent, p1=PASSED["p1"]) == expected


@pytest.mark.parametrize("cause", sorted(set(HoldCause) - {HoldCause.OPEN_TRANSACTION, HoldCause.NO_ANSWER}))
def test_what_is_held_does_not_pass_and_is_named_with_the_reason(cause: HoldCause) -> None:
    whole = cause in {HoldCause.TOPIC_MISSING, HoldCause.TOPIC_CHANGED}
    hold = Hold("orders", None if whole else 1, cause, "an operator decides", FIVE)

    found = waits(at(7, 40), replace(FEED, holds=(hold,)), **PASSED)

    assert found == ["orders: held: an operator decides" if whole else "orders-1: held: an operator decides"]


def test_an_open_transaction_above_what_is_read_holds_no_partition_that_has_passed() -> None:
    hold = Hold("orders", 1, HoldCause.OPEN_TRANSACTION, "a transaction is open", FIVE, 50)

    assert waits(at(6, 40), replace(FEED, holds=(hold,)), **PASSED) == []


def test_a_topic_that_is_gone_or_was_made_again_holds_the_hour_back() -> None:
    again = {"orders": TopicDescription("orders", "topic-id-2", (0, 1))}

    assert waits(at(7, 40), topics={}, **PASSED) == ["orders: it does not exist"]
    assert waits(at(7, 40), topics=again, **PASSED) == ["orders: it was deleted and created again"]


def test_a_topic_that_the_feed_reads_no_more_holds_nothing_back() -> None:
    feed = replace(FEED, stored={**FEED.stored, **stored({0: 3}, of="refunds")})

    assert waits(at(6, 40), feed, **PASSED) == []


def test_hours_and_days_begin_in_utc() -> None:
    late = datetime.fromisoformat("2026-01-31T23:59:59.999999-01:30")

    assert Unit.HOUR.start_of(late) == datetime(2026, 2, 1, 1, tzinfo=UTC)
    assert Unit.DAY.start_of(late) == datetime(2026, 2, 1, tzinfo=UTC)


def hour(late: int, announced: int, *, noted: datetime | None = FIVE) -> Period:
    """Return an hour that is complete, with late rows, of which some are announced."""
    return Period(FIVE, FIVE, "run 1", late, noted, announced, None, UUID(int=7))


@pytest.mark.parametrize(
    ("announced", "now", "is_known"),
    [
        (hour(0, 0, noted=None), hour(0, 0, noted=None), True),
        (hour(0, 0, noted=None), hour(4, 4, noted=None), True),
        (hour(0, 0, noted=None), hour(4, 3, noted=None), False),
        (hour(5, 0), hour(9, 4), True),
        (hour(5, 0), hour(10, 4), False),
        (hour(5, 0), hour(10, 5, noted=FIVE + timedelta(hours=2)), False),
    ],
    ids=[
        "nothing since",
        "rows set aside since",
        "a late row, too",
        "late rows, and some set aside since",
        "and one late row more",
        "noted, and as many late rows again",
    ],
)
def test_a_key_whose_announcement_was_not_noted_comes_again_only_with_late_rows_that_were_not_set_aside(
    announced: Period, now: Period, *, is_known: bool
) -> None:
    events = [("2026-01-31T04:00:00", {}), (announced.key, extra_of([announced]))]
    assert those_in(events, [now], late_too=True) == [now] * is_known
    assert those_in(events[:1], [now], late_too=False) == []


def test_an_event_of_an_earlier_version_says_how_many_late_rows_there_were() -> None:
    events = [(hour(0, 0).key, {"late_rows": {hour(0, 0).key: 5}})]
    assert those_in(events, [hour(5, 0, noted=None)], late_too=True) == [hour(5, 0, noted=None)]
    assert those_in(events, [hour(6, 0, noted=None)], late_too=True) == []
    assert those_in(events, [hour(6, 0, noted=None)], late_too=False) == [hour(6, 0, noted=None)]
