"""What is the case with a feed, by the rules of its file."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import CLUSTER, TOPIC_ID, FakeKafkaCluster, FakeTopic, log, topic

from kafka_ingest.model.alert import NEED_KAFKA, AlertKind, AlertRules, Stops
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import Retention, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.summaries import FeedOverview, GapDecision, NotRows, ReadCounts
from kafka_ingest.observing.alert_rules import Look, WatchedFeed, ask_cluster, look, spoken

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FEED_ID, BATCH_ID = UUID(int=1), UUID(int=2)
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
HOUR = timedelta(hours=1)


def overview(**known: Any) -> FeedOverview:
    """Return a feed that has read partition 0 up to 100 and partition 1 up to 50."""
    stored = {tp: StoredOffset(tp, TOPIC_ID, 0, offset, "earliest") for tp, offset in ((FIRST, 100), (SECOND, 50))}
    return FeedOverview(FEED_ID, "orders", CLUSTER, ("orders",), stored, 150, **known)


def kafka_of(first: Any, second: Any = log(0, 50), **changed: Any) -> FakeKafkaCluster:  # noqa: B008 - frozen
    return FakeKafkaCluster({"orders": topic(first, second, **changed)})


def seen(kafka: FakeKafkaCluster | str | None, rules: AlertRules, gaps: Any = (), **known: Any) -> Look:
    feed = WatchedFeed(overview(**known), rules, conn_id="kafka_default")
    answers = ask_cluster(kafka, [feed], NOW) if isinstance(kafka, FakeKafkaCluster) else kafka
    return look(feed, answers, gaps, NOW)


def said(found: Look) -> dict[AlertKind, str]:
    return {each.kind: each.text for each in found.found}


def records(kafka: FakeKafkaCluster, partition: TopicPartition, **ages: float) -> None:
    """Put records of so many minutes at offsets, which are named ``at_5``."""
    kafka.times[partition] = {int(at[3:]): NOW - timedelta(minutes=minutes) for at, minutes in ages.items()}


def test_a_lag_above_the_limit_is_found_and_one_at_the_limit_is_not() -> None:
    kafka = kafka_of(log(0, 160))
    assert said(seen(kafka, AlertRules(lag=59))) == {AlertKind.LAG: "60 offsets can be read, more than 59"}
    assert seen(kafka, AlertRules(lag=60)) == Look([], frozenset(), [])


def test_dead_letters_that_are_left_are_found_above_the_limit() -> None:
    left = NotRows(dead_letters=12)
    assert said(seen(None, AlertRules(dead_letters=11), not_rows=left)) == {
        AlertKind.DEAD_LETTERS: "12 dead letters neither replayed nor given up, more than 11"
    }
    assert seen(None, AlertRules(dead_letters=12), not_rows=left).found == []


def test_what_the_newest_batch_filtered_is_found_above_the_limit_and_of_few_records_not_known() -> None:
    def of_newest(rows: int, filtered: int) -> Look:
        counts = ReadCounts(rows, filtered, dead_letters=1)
        return seen(None, AlertRules(filtered_percent=90), not_rows=NotRows(filtered=5_000, newest=counts))

    assert said(of_newest(9, 91)) == {
        AlertKind.FILTERED_PERCENT: "91 of the 101 records of the newest batch were filtered, more than 90 %"
    }
    for rows, filtered, is_known in ((10, 90, True), (0, 19, True), (0, 18, False)):
        found = of_newest(rows, filtered)
        assert (bool(found.found), AlertKind.FILTERED_PERCENT not in found.unknown) == (filtered == 19, is_known)


def test_a_lag_that_is_only_partly_known_is_found_above_the_limit_and_not_denied_below_it() -> None:
    kafka = kafka_of(log(0, 160), Unavailable("no leader"))
    assert said(seen(kafka, AlertRules(lag=59))).keys() == {AlertKind.LAG}
    below = seen(kafka, AlertRules(lag=60))
    assert (below.found, AlertKind.LAG in below.unknown) == ([], True)


def test_a_feed_that_is_stopped_by_lost_records_is_not_said_to_continue_while_their_partition_has_no_leader() -> None:
    rules = AlertRules(stopped=True)
    assert said(seen(kafka_of(log(120, 160)), rules)).keys() == {AlertKind.STOPPED}
    silent = seen(kafka_of(Unavailable("no leader")), rules)
    assert (silent.found, AlertKind.STOPPED in silent.unknown) == ([], True)


def test_a_feed_is_behind_where_the_next_record_of_a_partition_is_older_than_the_limit() -> None:
    kafka = kafka_of(log(0, 160), log(0, 90))
    records(kafka, FIRST, at_99=200, at_100=70)
    records(kafka, SECOND, at_50=180)
    found = seen(kafka, AlertRules(behind=HOUR))
    assert said(found) == {
        AlertKind.BEHIND: "records wait that are older than 1h, such as the next of orders-0 (70m old)"
    }
    assert seen(kafka, AlertRules(behind=5 * HOUR)) == Look([], frozenset(), [])


def test_a_quiet_topic_of_which_all_is_read_is_not_behind_however_old_it_is() -> None:
    kafka = kafka_of(log(0, 100))
    records(kafka, FIRST, at_99=100_000)
    assert seen(kafka, AlertRules(behind=HOUR)) == Look([], frozenset(), [])
    assert "first_records" not in kafka.questions


def test_whether_records_without_a_time_are_behind_is_not_known() -> None:
    kafka = kafka_of(log(0, 160))
    kafka.times[FIRST] = {100: datetime.fromtimestamp(0, UTC)}
    assert seen(kafka, AlertRules(behind=HOUR)).unknown == {AlertKind.BEHIND}


def test_headroom_is_what_retention_leaves_of_the_age_of_the_next_record() -> None:
    kafka = kafka_of(log(0, 160))
    kafka.kept["orders"] = Retention(7 * timedelta(days=1), by_size=False)
    records(kafka, FIRST, at_100=(7 * 24 - 5) * 60)
    [found] = seen(kafka, AlertRules(headroom=6 * HOUR)).found
    assert found.kind is AlertKind.HEADROOM
    assert "orders-0: Kafka keeps records for 7d, and the next to be read is 7d old" in found.text
    assert seen(kafka, AlertRules(headroom=4 * HOUR)) == Look([], frozenset(), [])


@pytest.mark.parametrize("kept", [Retention(None, by_size=True), Unavailable("TOPIC_AUTHORIZATION_FAILED")])
def test_where_retention_is_by_size_or_not_known_the_oldest_tenth_of_the_log_counts(kept: Any) -> None:
    kafka = kafka_of(log(95, 1_000))
    kafka.kept["orders"] = kept
    found = seen(kafka, AlertRules(headroom=6 * HOUR))
    assert "the stored offset 100 is 5 above the log start 95" in said(found)[AlertKind.HEADROOM]
    assert len(found.notes) == isinstance(kept, Unavailable)


def test_records_that_were_deleted_unread_are_no_headroom_at_all_and_stop_a_feed_that_says_so() -> None:
    kafka = kafka_of(log(130, 200))
    kafka.kept["orders"] = Retention(None, by_size=False)
    found = said(seen(kafka, AlertRules(headroom=HOUR, stopped=True)))
    assert "30 offsets from the stored offset 100 on were deleted" in found[AlertKind.HEADROOM]
    assert "30 offsets were deleted by Kafka before they were read" in found[AlertKind.STOPPED]
    assert seen(kafka, AlertRules(stopped=True, stops=Stops(on_loss=False))).found == []


@pytest.mark.parametrize(
    ("topics", "goes_on", "text"),
    [
        ({"orders": topic(log(0, 9), log(0, 9), topic_id="again")}, Stops(on_changed_topic=False), "created again"),
        ({}, Stops(on_missing_topic=False), "no such topic any more"),
    ],
)
def test_a_topic_that_is_gone_or_another_one_stops_a_feed_that_says_so_and_its_numbers_are_not_known(
    topics: dict[str, FakeTopic], goes_on: Stops, text: str
) -> None:
    kafka = FakeKafkaCluster(topics)
    found = seen(kafka, AlertRules(lag=1, behind=HOUR, headroom=HOUR, stopped=True))
    assert text in said(found)[AlertKind.STOPPED]
    assert found.unknown == {AlertKind.LAG, AlertKind.BEHIND, AlertKind.HEADROOM}
    assert seen(kafka, AlertRules(stopped=True, stops=goes_on)).found == []


def test_a_topic_that_may_not_be_seen_is_not_said_to_be_gone_and_only_its_own_feed_is_unreachable() -> None:
    kafka = kafka_of(log(0, 160))
    kafka.denied = {"secret"}
    secret = TopicPartition("secret", 0)
    other = FeedOverview(UUID(int=3), "secret", CLUSTER, ("secret",), {secret: StoredOffset(secret, "id", 0, 1, "")}, 0)
    rules = AlertRules(lag=1, stopped=True)
    feeds = [WatchedFeed(overview(), rules), WatchedFeed(other, rules)]
    answers = ask_cluster(kafka, feeds, NOW)
    seen_feed, hidden = (look(feed, answers, (), NOW) for feed in feeds)
    assert said(seen_feed).keys() == {AlertKind.LAG}
    assert said(hidden) == {AlertKind.UNREACHABLE: "refused access to topic secret"}
    assert hidden.unknown >= {AlertKind.LAG, AlertKind.STOPPED}


def test_another_cluster_stops_the_feed_and_nothing_else_is_said_of_it() -> None:
    kafka = kafka_of(log(0, 9_999))
    kafka.id = "cluster-B"
    found = seen(kafka, AlertRules(lag=1, behind=HOUR, stopped=True))
    assert said(found).keys() == {AlertKind.STOPPED}
    assert found.unknown == {AlertKind.LAG, AlertKind.BEHIND, AlertKind.HEADROOM}


def test_an_unreachable_cluster_is_itself_found_and_what_needs_it_is_not_known() -> None:
    found = seen("no answer within 10 s", AlertRules(lag=1, held=True))
    assert said(found) == {AlertKind.UNREACHABLE: "no answer within 10 s"}
    assert found.unknown == NEED_KAFKA
    assert seen("no answer within 10 s", AlertRules(held=True)).found == []


def test_what_the_control_tables_hold_is_found_without_kafka() -> None:
    holds = [Hold("orders", number, HoldCause.NO_ANSWER, "no leader", NOW) for number in range(2)] + [
        Hold("orders", 1, HoldCause.OPEN_TRANSACTION, "open", NOW, 7)
    ]
    since = {"open_batch": BATCH_ID, "open_batch_state": BatchState.WRITTEN, "open_since": NOW - 3 * HOUR}
    gaps = [GapDecision(GapCause.RETENTION, NOW, "run 1", "deleted", 2, 120)]
    rules = AlertRules(open_batch=2 * HOUR, held=True, gap=True)
    found = seen(None, rules, gaps, holds=tuple(holds), **since)
    assert [(each.kind, each.subject) for each in found.found] == [
        (AlertKind.OPEN_BATCH, str(BATCH_ID)),
        (AlertKind.HELD, "orders no_answer"),
        (AlertKind.GAP, f"retention {NOW.isoformat()} run 1"),
    ]
    by = "\N{GRINNING FACE}" * 2_000
    [of_long_name] = seen(None, rules, [GapDecision(GapCause.RETENTION, NOW, by, "deleted", 2, 120)]).found
    assert len(of_long_name.subject.encode()) < 2_600, "PostgreSQL's index takes no more"
    texts = said(found)
    assert f"batch {BATCH_ID} has been WRITTEN for 3h, longer than 2h" in texts[AlertKind.OPEN_BATCH]
    assert texts[AlertKind.HELD] == "held, no_answer: orders-0: no leader, orders-1: no leader"
    assert "120 offsets in 2 partitions were passed over (retention), decided by run 1" in texts[AlertKind.GAP]
    assert seen(None, AlertRules(lag=5), gaps, holds=tuple(holds), **since).found == []


def test_a_topic_that_the_feed_does_not_read_any_more_counts_for_nothing() -> None:
    feed = overview()
    stored = {TopicPartition("old", 0): StoredOffset(TopicPartition("old", 0), "old id", 0, 1, "earliest")}
    watched = WatchedFeed(
        FeedOverview(FEED_ID, "orders", CLUSTER, ("orders",), {**feed.stored, **stored}, 0),
        AlertRules(lag=1, behind=HOUR, stopped=True),
    )
    kafka = kafka_of(log(0, 100))
    kafka.topics["old"] = topic(log(0, 9_999), topic_id="old id")
    assert look(watched, ask_cluster(kafka, [watched], NOW), (), NOW) == Look([], frozenset(), [])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (90, "90s"), (120, "2m"), (3_600, "1h"), (5_400, "90m"), (86_400 * 30, "30d")]
)
def test_durations_are_spoken_as_feed_files_write_them(seconds: int, text: str) -> None:
    assert spoken(timedelta(seconds=seconds)) == text
