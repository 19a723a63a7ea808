"""A topic that appears under an unchanged pattern: new, older than the last plan, or for an operator to decide."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.fakes import FakeTopic, FeedInMemory, feed_settings, log, partition, topic

from kafka_ingest.errors import InvalidRangeError, OffsetsLostError, StartUndecidedError, WrongUseError
from kafka_ingest.model.offsets import FirstRecord, LogBounds, OffsetRange, StoredOffset, Unavailable
from kafka_ingest.planning.settings import (
    AtTimestamp,
    Earliest,
    FromGroup,
    Latest,
    NewOrOlder,
    OnDataLoss,
    OnMissingTopic,
    StartRule,
)
from kafka_ingest.planning.topics import Age, age_of
from kafka_ingest.verbs.skip import decide_skip
from kafka_ingest.verbs.topic_changes import Choice, apply_choice, changes_of, choices_of, rows_after

LAST_PLAN = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NINE_MILLION = 9_000_000


def dated(at: datetime, *, by_broker: bool) -> FirstRecord:
    return FirstRecord(round(at.timestamp() * 1000), by_broker=by_broker)


def by_broker(at: datetime) -> FirstRecord:
    return dated(at, by_broker=True)


def by_producer(at: datetime) -> FirstRecord:
    return dated(at, by_broker=False)


# ── What logs and first records say ───────────────────────────────────────────────────────────────────────────────────


def age(*logs: tuple[LogBounds | Unavailable, FirstRecord | Unavailable | None]) -> Age:
    """Return the age of a topic whose partitions have these logs and first records."""
    bounds = {partition(number): bound for number, (bound, _) in enumerate(logs)}
    firsts = {partition(number): first for number, (_, first) in enumerate(logs)}
    return age_of(bounds, firsts, LAST_PLAN).age


@pytest.mark.parametrize("bounds", [log(0, 5), log(3, 5)])
def test_a_record_that_a_broker_wrote_before_the_last_plan_proves_the_topic_older(bounds: LogBounds) -> None:
    assert age((bounds, by_broker(LAST_PLAN - DAY))) is Age.OLDER


def test_one_partition_proves_it_for_all() -> None:
    assert age((log(0, 5), by_broker(LAST_PLAN + DAY)), (log(0, 5), by_broker(LAST_PLAN - DAY))) is Age.OLDER
    assert age((Unavailable("no leader"), None), (log(0, 5), by_broker(LAST_PLAN - DAY))) is Age.OLDER


def test_a_broker_s_clock_that_may_only_be_behind_proves_nothing() -> None:
    assert age((log(0, 5), by_broker(LAST_PLAN - timedelta(minutes=59)))) is Age.UNDECIDED
    assert age((log(0, 5), by_broker(LAST_PLAN - timedelta(minutes=61)))) is Age.OLDER


def test_a_producer_s_word_proves_nothing_however_old() -> None:
    assert age((log(0, 5), by_producer(LAST_PLAN - 300 * DAY))) is Age.UNDECIDED
    assert age((log(0, 5), FirstRecord(-(2**60), by_broker=False))) is Age.UNDECIDED


@pytest.mark.parametrize("first", [by_broker(LAST_PLAN + DAY), by_producer(LAST_PLAN + DAY)])
def test_a_log_from_0_whose_first_record_is_dated_since_the_last_plan_is_new(first: FirstRecord) -> None:
    assert age((log(0, 5), first), (log(0, 0), None)) is Age.NEW


def test_a_time_that_no_date_can_hold_is_since_the_last_plan() -> None:
    assert age((log(0, 5), FirstRecord(2**62, by_broker=False))) is Age.NEW


@pytest.mark.parametrize(
    ("bounds", "first"),
    [
        (log(3, 5), by_broker(LAST_PLAN + DAY)),
        (log(5, 5), None),
        (log(0, 5), None),
        (log(0, 5), FirstRecord(None, by_broker=False)),
        (log(0, 5), Unavailable("it did not come")),
        (Unavailable("no leader"), None),
    ],
)
def test_a_log_that_was_trimmed_or_that_cannot_be_looked_at_leaves_it_undecided(
    bounds: LogBounds | Unavailable, first: FirstRecord | Unavailable | None
) -> None:
    assert age((bounds, first), (log(0, 5), by_broker(LAST_PLAN + DAY))) is Age.UNDECIDED


def test_what_a_pending_start_is_noted_with_keeps_the_plan_it_was_compared_with() -> None:
    assert NewOrOlder.noted(str(NewOrOlder(LAST_PLAN, "trimmed"))) == NewOrOlder(LAST_PLAN)
    assert NewOrOlder.noted("latest") is None


# ── What a plan makes of it ───────────────────────────────────────────────────────────────────────────────────────────


def by_pattern(start: StartRule) -> FeedInMemory:
    """A feed of all topics orders.*, which was planned while only ``orders`` could be seen, and committed it."""
    feed = FeedInMemory(settings=feed_settings(start_rules={}, topic_pattern="orders.*", pattern_start=Earliest()))
    feed.committed()
    feed.settings = replace(feed.settings, pattern_start=start)
    return feed


def appears(feed: FeedInMemory, found: FakeTopic, first: FirstRecord | Unavailable | None = None) -> None:
    """Let orders-old be seen from now on."""
    feed.kafka.topics["orders-old"] = found
    for number in found.logs:
        feed.kafka.firsts[partition(number, "orders-old")] = first


def row_of(feed: FeedInMemory) -> StoredOffset:
    found: StoredOffset = feed.control.feed("orders").stored[partition(0, "orders-old")]
    return found


def planned_ranges(feed: FeedInMemory) -> list[str]:
    batch = feed.plan().batch
    return [str(planned) for planned in batch.ranges] if batch is not None else []


def decide(feed: FeedInMemory, choice: Choice) -> None:
    found = changes_of("orders", [], feed.settings, feed.control, feed.kafka)
    after = rows_after(found, choice, feed.settings)
    apply_choice(found, after, feed.control, discard_batch=False, reason="it is an old one", actor="operator")


YESTERDAY = datetime.now(UTC) - DAY


def test_an_old_topic_that_becomes_visible_gets_the_start_rule_and_its_row_says_why() -> None:
    feed = by_pattern(Latest())
    appears(feed, topic(log(0, NINE_MILLION)), by_broker(YESTERDAY))
    assert planned_ranges(feed) == []
    assert row_of(feed).next_offset == NINE_MILLION
    assert row_of(feed).seeded_by == "latest: the topic is older than the last plan"


def test_an_old_topic_that_was_trimmed_stops_nothing() -> None:
    feed = by_pattern(Earliest())
    appears(feed, topic(log(400, 500)), by_broker(YESTERDAY))
    assert planned_ranges(feed) == ["orders-old-0[400, 500)"]


@pytest.mark.parametrize("start", [Earliest(), Latest(), AtTimestamp(LAST_PLAN), FromGroup("old", Latest())])
def test_a_topic_made_since_the_last_plan_is_read_from_0_whatever_the_start_rule(start: StartRule) -> None:
    feed = by_pattern(start)
    appears(feed, topic(log(0, 7)), by_broker(datetime.now(UTC) + DAY))
    assert planned_ranges(feed) == ["orders-old-0[0, 7)"]
    assert row_of(feed).seeded_by == "new partition"


@pytest.mark.parametrize(("start", "found"), [(Earliest(), log(0, 7)), (Latest(), log(0, 0))])
def test_where_both_begin_at_0_no_record_is_read_for_it(start: StartRule, found: LogBounds) -> None:
    feed = by_pattern(start)
    appears(feed, topic(found), by_producer(YESTERDAY))
    feed.plan()
    assert "first_records" not in feed.kafka.questions
    assert row_of(feed).first_offset == 0


def test_a_topic_of_unknown_age_is_held_and_the_others_continue() -> None:
    feed = by_pattern(Latest())
    appears(feed, topic(log(0, NINE_MILLION)), by_producer(YESTERDAY))
    feed.kafka.topics["orders"] = topic(log(0, 110), log(0, 50))
    assert planned_ranges(feed) == ["orders-0[100, 110)"]
    assert row_of(feed).is_pending
    [hold] = feed.control.feed("orders").holds
    assert (hold.topic_partition, hold.cause.value) == (partition(0, "orders-old"), "new_or_older")
    assert "its first record is dated" in hold.reason
    assert "kafka-ingest topic-changed orders --topic orders-old" in hold.reason


def test_it_stays_compared_with_the_plan_before_it_appeared() -> None:
    feed = by_pattern(Latest())
    appears(feed, topic(log(0, 7)), Unavailable("its first record did not come"))
    feed.kafka.topics["orders"] = topic(log(0, 110), log(0, 50))
    feed.committed()
    assert row_of(feed).is_pending
    # Plans continue for days, while the topic is held; its first record is from after the plan that it is compared
    # with.
    feed.control.state.touch(feed.control.feed("orders").feed_id, planned_at=datetime.now(UTC) + 9 * DAY)
    appears(feed, topic(log(0, 7)), by_broker(datetime.now(UTC) + DAY))
    assert planned_ranges(feed) == ["orders-old-0[0, 7)"]


@pytest.mark.parametrize(
    ("choice", "first_offset", "rule"),
    [(Choice.START_OVER, 0, "new partition"), (Choice.START_RULE, 500, "latest")],
)
def test_an_operator_decides_where_it_begins(choice: Choice, first_offset: int, rule: str) -> None:
    feed = by_pattern(Latest())
    appears(feed, topic(log(0, 500)), by_producer(YESTERDAY))
    feed.plan()
    [change] = changes_of("orders", [], feed.settings, feed.control, feed.kafka).topics
    found = changes_of("orders", [], feed.settings, feed.control, feed.kafka)
    assert choices_of(change, found, feed.settings) == [Choice.START_OVER, Choice.START_RULE]
    decide(feed, choice)
    assert list(feed.control.feed("orders").holds) == []
    feed.plan()
    assert (row_of(feed).first_offset, row_of(feed).seeded_by) == (first_offset, rule)


def test_a_trimmed_topic_that_an_operator_calls_new_is_loss() -> None:
    feed = by_pattern(Earliest())
    appears(feed, topic(log(400, 500)), by_producer(datetime.now(UTC) + DAY))
    feed.kafka.topics["orders"] = topic(log(0, 110), log(0, 50))
    feed.committed()
    assert row_of(feed).is_pending
    decide(feed, Choice.START_OVER)
    with pytest.raises(OffsetsLostError, match=r"orders-old-0: begins at 0 \(new partition\), log start 400"):
        feed.plan()


def test_under_record_gap_an_earliest_feed_reads_a_trimmed_topic_and_files_what_may_be_lost() -> None:
    feed = by_pattern(Earliest())
    feed.settings = replace(feed.settings, on_data_loss=OnDataLoss.RECORD_GAP)
    appears(feed, topic(log(400, 500)), by_producer(YESTERDAY))
    assert planned_ranges(feed) == ["orders-old-0[400, 500)"]
    [gap] = feed.control.gaps(feed.control.feed("orders").feed_id)
    assert str(gap.offset_range) == "orders-old-0[0, 400)"


def test_under_record_gap_a_topic_that_is_proven_older_has_lost_nothing() -> None:
    feed = by_pattern(Earliest())
    feed.settings = replace(feed.settings, on_data_loss=OnDataLoss.RECORD_GAP)
    appears(feed, topic(log(400, 500)), by_broker(YESTERDAY))
    assert planned_ranges(feed) == ["orders-old-0[400, 500)"]
    assert feed.control.gaps(feed.control.feed("orders").feed_id) == []


def test_a_partition_that_a_held_topic_gains_is_new_and_the_others_stay_held() -> None:
    feed = by_pattern(Latest())
    appears(feed, topic(log(0, 500)), by_producer(YESTERDAY))
    feed.plan()
    appears(feed, topic(log(0, 500), log(0, 3)), by_producer(YESTERDAY))
    assert planned_ranges(feed) == ["orders-old-1[0, 3)"]
    assert row_of(feed).is_pending


def test_a_topic_whose_start_was_decided_does_not_begin_by_the_start_rule_again() -> None:
    feed = by_pattern(Latest())
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50), topic_id="made-again")
    with pytest.raises(WrongUseError, match="the choice start-rule is for a topic that appeared"):
        decide(feed, Choice.START_RULE)


def test_a_feed_that_has_nothing_else_to_read_stops_with_the_decision_it_waits_for() -> None:
    feed = FeedInMemory(settings=feed_settings(start_rules={}, topic_pattern="orders.*", pattern_start=Latest()))
    feed.plan()
    appears(feed, topic(log(0, 500)), by_producer(YESTERDAY))
    feed.settings = replace(feed.settings, topic_pattern="orders-.*")
    feed.control.state.touch(feed.control.feed("orders").feed_id, topic_pattern="orders-.*")
    with pytest.raises(
        StartUndecidedError, match="nothing else of the feed can be read: orders-old-0: the topic was not there"
    ):
        feed.plan()


def test_a_listed_topic_that_was_missing_at_the_last_plan_was_made_since_and_nothing_is_asked() -> None:
    both = feed_settings(
        start_rules={"orders": Earliest(), "orders-old": Latest()}, on_missing_topic=OnMissingTopic.HOLD
    )
    feed = FeedInMemory(settings=both)
    feed.committed()
    appears(feed, topic(log(0, 7)), by_producer(YESTERDAY))
    assert planned_ranges(feed) == ["orders-old-0[0, 7)"]
    assert "first_records" not in feed.kafka.questions


def test_without_a_last_plan_nothing_is_passed_over() -> None:
    feed = by_pattern(Latest())
    feed.control.state.touch(feed.control.feed("orders").feed_id, planned_at=None)
    appears(feed, topic(log(0, 7)), by_broker(YESTERDAY))
    assert planned_ranges(feed) == ["orders-old-0[0, 7)"]


def test_a_skip_in_a_held_topic_is_refused_with_the_command_that_decides() -> None:
    feed = by_pattern(Latest())
    appears(feed, topic(log(0, 500)), by_producer(YESTERDAY))
    feed.plan()
    skipped = OffsetRange(partition(0, "orders-old"), 0, 5)
    with pytest.raises(InvalidRangeError, match=r"topic-changed orders --topic orders-old` decides it"):
        decide_skip("orders", skipped, "poisoned", feed.control, feed.kafka)
