"""When a feed is due by the records that wait, and what is asked to know it."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import CLUSTER, TOPIC_ID, FakeKafkaCluster, log, topic

from kafka_ingest.airflow_tasks import start_checks, start_trigger
from kafka_ingest.airflow_tasks.asset_events import starts_by_what_waits
from kafka_ingest.airflow_tasks.start_checks import StartCheck
from kafka_ingest.airflow_tasks.start_trigger import RecordsWaitTrigger
from kafka_ingest.errors import InvalidFeedError, KafkaUnavailableError
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.model.waiting import AwaitedFeed, Due, Standing, StartWhen, is_due, position_of
from kafka_ingest.observing.due_feeds import DeniedTopics, due_feeds
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULE = StartWhen(records=10, or_older_than=timedelta(minutes=5))
QUIET = Standing("here")


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (replace(QUIET, waiting=10), Due(is_due=True, why="10 offsets can be read, from 10 on a run starts")),
        (replace(QUIET, waiting=9), Due(is_due=False, why="9 offsets can be read")),
        (
            replace(QUIET, waiting=1, has_older=True),
            Due(is_due=True, why="1 offset can be read, of which one is older than 300 s"),
        ),
        (QUIET, Due(is_due=False, why="0 offsets can be read")),
        (
            replace(QUIET, waiting=99, has_open_batch=True),
            Due(is_due=False, why="a batch is open: its next run resumes it"),
        ),
        (replace(QUIET, waiting=99, stop="lost"), Due(is_due=False, why="lost")),
        (
            replace(QUIET, waiting=99, asked_position="here", asked_at=NOW - timedelta(minutes=9)),
            Due(
                is_due=False,
                why="a start was asked for at 2026-03-01T11:51:00+00:00, and no stored offset has moved since",
            ),
        ),
        (
            replace(QUIET, waiting=10, asked_position="here", asked_at=NOW - timedelta(minutes=10)),
            Due(is_due=True, why="10 offsets can be read, from 10 on a run starts"),
        ),
        (
            replace(QUIET, waiting=10, asked_position="elsewhere", asked_at=NOW),
            Due(is_due=True, why="10 offsets can be read, from 10 on a run starts"),
        ),
    ],
)
def test_a_feed_is_due_by_what_waits_once_for_the_same_stored_offsets(standing: Standing, expected: Due) -> None:
    assert is_due(RULE, standing, NOW) == expected


@given(
    records=st.none() | st.integers(1, 20),
    minutes=st.none() | st.integers(1, 20),
    waiting=st.integers(0, 40),
    has_older=st.booleans(),
    has_open_batch=st.booleans(),
)
def test_nothing_that_waits_is_never_due_and_more_records_never_make_a_due_feed_wait(
    records: int | None, minutes: int | None, waiting: int, *, has_older: bool, has_open_batch: bool
) -> None:
    rule = StartWhen(records, timedelta(minutes=minutes) if minutes else None)
    standing = Standing("here", waiting=waiting, has_older=has_older, has_open_batch=has_open_batch)
    found = is_due(rule, standing, NOW).is_due
    assert not is_due(rule, replace(standing, waiting=0), NOW).is_due
    assert not (found and has_open_batch)
    assert not found or is_due(rule, replace(standing, waiting=waiting + 1), NOW).is_due
    assert not is_due(rule, replace(standing, asked_position="here", asked_at=NOW), NOW).is_due


def overview(name: str, *offsets: int) -> FeedOverview:
    partitions = {TopicPartition(name, number): offset for number, offset in enumerate(offsets)}
    stored = {tp: StoredOffset(tp, TOPIC_ID, 0, offset, "earliest") for tp, offset in partitions.items()}
    return FeedOverview(UUID(int=sum(name.encode())), name, CLUSTER, (name,), stored, 0)


def why(kafka: FakeKafkaCluster, *overviews: FeedOverview) -> dict[str, str]:
    found = due_feeds(kafka, {AwaitedFeed(each.name, each.name, RULE): each for each in overviews}, NOW)
    return {feed.name: ("due: " if each.is_due else "") + each.why for feed, each in found.items()}


def test_all_feeds_of_a_connection_are_looked_at_by_the_same_few_questions() -> None:
    kafka = FakeKafkaCluster({name: topic(log(0, 20)) for name in ("many", "few", "old", "none")})
    old, few = TopicPartition("old", 0), TopicPartition("few", 0)
    kafka.times = {old: {17: NOW - timedelta(minutes=6)}, few: {17: NOW - timedelta(minutes=4)}}
    assert why(kafka, overview("many", 0), overview("few", 17), overview("old", 17), overview("none", 20)) == {
        "many": "due: 20 offsets can be read, from 10 on a run starts",
        "few": "3 offsets can be read",
        "old": "due: 3 offsets can be read, of which one is older than 300 s",
        "none": "0 offsets can be read",
    }
    assert (kafka.questions.count("log_bounds"), kafka.questions.count("offsets_at")) == (1, 1)


def test_kafka_is_not_asked_about_feeds_that_cannot_be_due() -> None:
    kafka = FakeKafkaCluster({"a": topic(log(0, 20))})
    stored = overview("a", 0)
    asked = replace(stored, start_position=position_of(stored.stored.values()), start_asked_at=NOW)
    assert list(why(kafka, replace(stored, open_batch=UUID(int=1))).values()) == [
        "a batch is open: its next run resumes it"
    ]
    assert "a start was asked for" in why(kafka, asked)["a"]
    never = due_feeds(kafka, {AwaitedFeed("a", "a", RULE): None}, NOW)
    assert [each.why for each in never.values()] == [
        "it was never planned: its schedule, or a run by hand, starts it first"
    ]
    assert kafka.questions == []


def test_what_a_plan_has_to_decide_first_waits_for_the_schedule_and_what_is_held_counts_for_nothing() -> None:
    logs = {"lost": topic(log(5, 20)), "short": topic(log(0, 20)), "half": topic(log(0, 20), log(0, 30))}
    kafka = FakeKafkaCluster(logs)
    held = Hold("half", 1, HoldCause.UNREADABLE, "damaged", NOW, 0)
    ended = replace(held, cause=HoldCause.NO_ANSWER)
    half, others = overview("half", 15, 0), (overview("lost", 4), overview("short", 21), overview("gone", 0))
    assert why(kafka, *others, replace(half, holds=(held,))) == {
        "lost": "lost-0: its stored offset 4 is outside the log",
        "short": "short-0: its stored offset 21 is outside the log",
        "gone": "0 offsets can be read",
        "half": "due: 5 offsets can be read, of which one is older than 300 s",
    }
    assert why(kafka, replace(half, holds=(ended,)))["half"].startswith("due: 35 offsets")
    stopped = f"its connection leads to cluster {CLUSTER}, and its stored offsets belong to another"
    assert why(kafka, replace(half, cluster_id="another"))["half"] == stopped


def test_topics_are_described_for_feeds_alone_that_are_due() -> None:
    kafka = FakeKafkaCluster({"due": topic(log(0, 20)), "again": topic(log(0, 20), topic_id="another")})
    kafka.topics |= {"idle": topic(log(0, 3)), "there": topic(log(0, 20))}
    kafka.times = {TopicPartition("idle", 0): {0: NOW}}
    assert "due" not in why(kafka, overview("idle", 0))["idle"]
    assert kafka.questions == ["log_bounds", "offsets_at"]
    both = overview("gone", 0).stored | overview("there", 0).stored
    half_gone = replace(overview("gone", 0), topics=("gone", "there"), stored=both)
    other = "is gone, or is another one than its stored offsets belong to"
    assert why(kafka, overview("due", 0), overview("again", 0), half_gone) == {
        "due": "due: 20 offsets can be read, from 10 on a run starts",
        "again": f"topic again {other}",
        "gone": f"topic gone {other}",
    }


def test_a_topic_that_may_not_be_seen_keeps_no_other_feed_waiting() -> None:
    kafka = FakeKafkaCluster({"due": topic(log(0, 20)), "secret": topic(log(0, 20))})
    kafka.denied = {"secret"}
    assert why(kafka, overview("due", 0), overview("secret", 0)) == {
        "due": "due: 20 offsets can be read, from 10 on a run starts",
        "secret": "0 offsets can be read",
    }


def test_a_topic_that_may_not_be_seen_is_asked_about_again_after_some_minutes_since_all_are_described_for_it() -> None:
    kafka = FakeKafkaCluster({"idle": topic(log(0, 0)), "secret": topic(log(0, 20))})
    kafka.denied = {"secret"}
    known = {AwaitedFeed(name, name, RULE): overview(name, 0) for name in ("idle", "secret")}
    denied = DeniedTopics()
    described = []
    for minutes in (0, 5, 9, 10):
        del kafka.questions[:]
        due_feeds(kafka, known, NOW + timedelta(minutes=minutes), denied)
        described.append("describe_topics" in kafka.questions)
    assert described == [True, False, False, True]
    kafka.denied = set()
    found = due_feeds(kafka, known, NOW + timedelta(minutes=20), denied)
    assert [feed.name for feed, each in found.items() if each.is_due] == ["secret"]


def test_brokers_that_are_all_forgotten_are_an_error_though_each_partition_has_an_answer() -> None:
    kafka = FakeKafkaCluster({"a": topic(Unavailable("_NOENT: No leaders found")), "b": topic(log(0, 20))})
    assert why(kafka, overview("a", 0), overview("b", 0))["a"] == "0 offsets can be read"
    del kafka.questions[:]
    kafka.interleaved = lambda: setattr(kafka, "is_down", True)  # after log_bounds
    with pytest.raises(KafkaUnavailableError):
        why(kafka, overview("a", 0))
    assert kafka.questions[0] == "log_bounds"


class FakeStarts:
    """Control tables that know some feeds, and give each start to the first that claims it."""

    def __init__(self, *overviews: FeedOverview) -> None:
        self.overviews = overviews
        self.claimed: set[tuple[UUID, str]] = set()

    def feed_standings(self) -> tuple[FeedOverview, ...]:
        return self.overviews

    def claim_starts(self, positions: dict[UUID, str], _now: datetime) -> set[UUID]:
        new = positions.items() - self.claimed
        self.claimed |= new
        return {feed_id for feed_id, _ in new}


def test_a_fleet_is_started_once_for_all_of_its_feeds_that_are_due_and_not_while_it_has_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = FakeKafkaCluster({name: topic(log(0, 20)) for name in ("a", "b", "c")})
    control = FakeStarts(*(overview(name, 0) for name in ("a", "b", "c")))
    feeds = [AwaitedFeed("a", "shop", RULE), AwaitedFeed("b", "shop", RULE), AwaitedFeed("c", "c", RULE)]
    busy = {"c"}
    monkeypatch.setattr(start_checks, "has_active_run", busy.__contains__)

    def starts() -> list[str]:
        check = StartCheck("kafka_default")
        check.__dict__.update(_control=control, _kafka=kafka)
        return list(check.starts(feeds, NOW))

    assert [starts(), starts()] == [["shop"], []]
    busy.clear()
    assert [starts(), starts()] == [["c"], []]


def trigger_of(dag_id: str, *feeds: AwaitedFeed, has_feeds_of_topics: bool = False) -> RecordsWaitTrigger:
    listed = [start_trigger.listed(each) for each in feeds]
    return RecordsWaitTrigger(
        dag_id=dag_id, conn_id="kafka_default", feeds=listed, has_feeds_of_topics=has_feeds_of_topics
    )


def test_triggers_of_a_connection_share_one_look_and_a_failure_ends_none_of_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    feeds = {name: AwaitedFeed(name, dag, RULE) for name, dag in (("a", "shop"), ("b", "shop"), ("c", "c"))}
    shop = trigger_of("shop", feeds["a"], feeds["b"], has_feeds_of_topics=True)
    triggers = [shop, trigger_of("c", feeds["c"])]
    for trigger in triggers:
        path, arguments = trigger.serialize()
        assert path == "kafka_ingest.airflow_tasks.start_trigger.RecordsWaitTrigger"
        assert RecordsWaitTrigger(**json.loads(json.dumps(arguments))).feeds == trigger.feeds
    assert len({trigger.shared_stream_key() for trigger in triggers}) == 1
    looks: list[set[str]] = []
    closed: list[int] = []

    class Check:
        def feeds_of_topics(self, dag_ids: set[str], _now: datetime) -> list[AwaitedFeed]:
            return [AwaitedFeed("of a topic", dag_id, RULE) for dag_id in dag_ids]

        def close(self) -> None:
            closed.append(len(looks))

        def starts(self, awaited: list[AwaitedFeed], _now: datetime) -> dict[str, str]:
            looks.append({each.name for each in awaited})
            assert not gc.isenabled(), "a collection of all objects keeps the event loop waiting"
            if len(looks) <= 2:
                raise KafkaUnavailableError("no broker")
            return {"shop": "10 offsets can be read"}

    monkeypatch.setattr(start_trigger, "new_check", lambda _: Check())
    monkeypatch.setattr(start_trigger, "PAUSE_S", 0)
    monkeypatch.setattr(start_trigger, "PAUSE_AFTER_FAILURE_S", 0)

    async def first_event() -> object:
        stream = RecordsWaitTrigger.open_shared_stream({"conn_id": "kafka_default"})

        async def silent() -> AsyncIterator[Any]:
            await asyncio.sleep(3600)
            yield

        other = asyncio.ensure_future(anext(triggers[1].filter_shared_stream(silent())))
        await asyncio.sleep(0)
        event = await anext(shop.filter_shared_stream(stream))
        other.cancel()
        return event.payload

    assert asyncio.run(first_event()) == {"why": "10 offsets can be read"}
    assert gc.isenabled()
    assert looks == [{"a", "b", "c", "of a topic"}] * 3
    assert closed[:2] == [1, 2], "a client that failed would go on logging in"
    said = [record.getMessage() for record in caplog.records if "kafka_default" in record.getMessage()]
    assert said == [
        "schedules alone start the feeds of connection kafka_default for now: KAFKA_UNAVAILABLE: no broker",
        "what waits starts the feeds of connection kafka_default again",
    ]


def feed_of(name: str, fleet: str | None, conn_id: str = "kafka_default", **rule: Any) -> Feed:
    what = {"name": name, "fleet": fleet, "kafka": {"topics": [name], "conn_id": conn_id}}
    return Feed.model_validate({**what, "sink": {"format": "parquet", "path": name}, "start_when": rule or None})


def test_a_dag_has_one_trigger_for_each_connection_whatever_the_number_of_its_feeds() -> None:
    feeds = [
        feed_of("a", "shop", records=10),
        feed_of("b", "shop", or_older_than="5m"),
        feed_of("never", "shop"),
        feed_of("c", "shop", "other", records=1),
    ]
    [asset] = starts_by_what_waits("shop", None, feeds, [feed_of("each", "shop", "third", records=3)])["schedule"]
    found = {each.name: each.trigger for each in asset.watchers}
    assert {name: [(each.name, each.rule) for each in trigger.feeds] for name, trigger in found.items()} == {
        "kafka_default": [("a", StartWhen(10)), ("b", StartWhen(None, timedelta(minutes=5)))],
        "other": [("c", StartWhen(1))],
        "third": [],
    }
    assert [name for name, trigger in found.items() if trigger.has_feeds_of_topics] == ["third"]


def test_feeds_of_topics_are_what_plans_found_and_files_that_cannot_be_read_leave_them_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        FeedFile(Path(f"{name}.yaml"), feed_of(name, fleet, conn_id, records=10), topic=topic)
        for name, fleet, topic, conn_id in (
            ("a", "shop", "a", "kafka_default"),
            ("b", "shop", None, "kafka_default"),
            ("c", "lake", "c", "kafka_default"),
            ("d", "shop", "d", "other"),
        )
    ]
    asked: list[bool] = []

    def feed_files(_find: object) -> list[FeedFile]:
        asked.append(True)
        if len(asked) == 2:
            raise InvalidFeedError("no folder")
        return found if len(asked) == 1 else []

    monkeypatch.setattr(start_checks, "feed_files", feed_files)
    check = StartCheck("kafka_default")

    def feeds(minutes: int) -> list[str]:
        return [each.name for each in check.feeds_of_topics({"shop"}, NOW + timedelta(minutes=minutes))]

    assert (check.feeds_of_topics(set(), NOW), asked) == ([], [])
    assert [feeds(0), feeds(4), len(asked)] == [["a"], ["a"], 1]
    assert [feeds(5), feeds(10), len(asked)] == [["a"], [], 3]
