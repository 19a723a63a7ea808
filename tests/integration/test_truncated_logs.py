"""A log that lost its newest records after they were read.

What comes next at those offsets is other records, not old ones.

The truncation is real: the broker comes back with a shorter log of the same topic, as after an unclean leader election.
"""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kafka_faults import (
    Record,
    create_topic,
    plain_records,
    produce,
    topic_id,
    truncate_logs,
)
from tests.quick_project import Killed, QuickProject, spans

from embedded_broker import EmbeddedBroker

WHY = ("--execute", "--reason", "an unclean leader election")


TruncatedFeed = tuple[QuickProject, str]
"""A project, and the topic of its feed."""
Before = Callable[[QuickProject, str], object]
"""What becomes of a feed before its log is truncated."""


def all_read(project: QuickProject, _topic: str) -> None:
    project.run()


def planned(project: QuickProject, _topic: str) -> None:
    assert spans(project.plan()) == {0: (0, 10), 1: (0, 5)}


def planned_beyond(project: QuickProject, topic: str) -> None:
    project.run()
    produce(project.bootstrap_servers, topic, 0, plain_records(3))
    assert spans(project.plan()) == {0: (10, 13)}


def given_up(project: QuickProject, topic: str) -> None:
    with project.stopping_before_the_commit(), pytest.raises(Killed):
        project.kafka_ingest("run", "orders")
    [batch] = project.batches()
    project.answer("abandon", batch["batch_id"], "--reason", "a mistake")
    project.answer("skip", "orders", topic, "0", "0-10", "--reason", "poisoned")
    project.run()


@pytest.fixture(scope="module")
def truncated_feeds(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mortal_broker: EmbeddedBroker
) -> dict[Before, list[TruncatedFeed]]:
    """Feeds of which the logs of partition 0 hold only the first four of ten records, by what was done before that.

    One stop of the broker serves all tests.
    """
    tests = [each for each in request.session.items if each.path == request.path and isinstance(each, pytest.Function)]
    marked = [each.callspec.params if hasattr(each, "callspec") else {} for each in tests]
    every: list[Before] = [parameters.get("before", all_read) for parameters in marked]
    feeds: dict[Before, list[TruncatedFeed]] = {before: [] for before in every}
    for before in every:
        project = new_project(tmp_path_factory.mktemp("truncated-feed") / "quick", mortal_broker)
        topic = new_feed(project, f"orders-{uuid4().hex[:8]}")
        before(project, topic)
        feeds[before].append((project, topic))
    topics = [topic for each in feeds.values() for _, topic in each]
    ids = [topic_id(mortal_broker.bootstrap_servers, topic) for topic in topics]
    truncate_logs(mortal_broker, {(topic, 0): 4 for topic in topics})
    assert [topic_id(mortal_broker.bootstrap_servers, topic) for topic in topics] == ids
    return feeds


def new_project(home: Path, broker: EmbeddedBroker) -> QuickProject:
    made = QuickProject(home, broker.bootstrap_servers)
    made.make_control_tables()
    return made


def new_feed(project: QuickProject, name: str) -> str:
    """Make a feed over two partitions of ten records, in batches of four and six, and of five. Return its topic."""
    servers = project.bootstrap_servers
    create_topic(servers, name, 2)
    produce(servers, name, 0, plain_records(4))
    produce(servers, name, 0, plain_records(6))
    produce(servers, name, 1, plain_records(5))
    project.write_feed(name)
    return name


@pytest.fixture
def before() -> Before:
    """Where a test does not say it."""
    return all_read


@pytest.fixture
def truncated_feed(truncated_feeds: dict[Before, list[TruncatedFeed]], before: Before) -> TruncatedFeed:
    return truncated_feeds[before].pop()


@pytest.fixture
def project(truncated_feed: TruncatedFeed) -> QuickProject:
    return truncated_feed[0]


@pytest.fixture
def truncated(truncated_feed: TruncatedFeed) -> str:
    """The topic of a feed whose log was truncated."""
    return truncated_feed[1]


def grow(broker: EmbeddedBroker, topic: str, count: int = 8) -> None:
    """Produce other records where the lost ones were, and beyond."""
    produce(broker.bootstrap_servers, topic, 0, [Record(f"after {n}".encode()) for n in range(count)])


def values(project: QuickProject, batch_id: str) -> list[tuple[int, int, bytes]]:
    """Return partition, offset and value of a batch's rows."""
    return [
        (row["kafka_partition"], row["kafka_offset"], row["value"])
        for row in project.rows()
        if row["kafka_batch"] == batch_id
    ]


# ── It stops, and stays stopped ───────────────────────────────────────────────────────────────────────────────────────


def test_a_log_that_ends_below_the_stored_offset_stops_the_feed_with_both_numbers(
    project: QuickProject, mortal_broker: EmbeddedBroker, truncated: str
) -> None:
    exit_code, code, message = project.refusal("run", "orders")
    assert (exit_code, code) == (3, "STORED_OFFSET_BEYOND_LOG")
    assert f"{truncated}-0: stored offset 10, log end 4" in message
    assert mortal_broker.cluster_id in message
    assert "`kafka-ingest topic-changed orders` shows what can be done" in message
    assert project.stored_offsets() == {0: 10, 1: 5}
    beyond = project.partition(0)["beyond_log"]
    assert beyond["at_offset"] == 4
    assert beyond["since"] is not None
    assert project.partition(1)["beyond_log"] is None


# ── The way out ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rewinding_goes_to_the_end_that_was_seen_and_reads_all_that_was_produced_after_it(
    project: QuickProject, mortal_broker: EmbeddedBroker, truncated: str
) -> None:
    project.refusal("run", "orders")
    grow(mortal_broker, truncated)
    shown = project.answer("topic-changed", "orders", "--choice", "rewind")
    [change] = shown["topics"]
    assert (change["topic"], change["log_ended_at"]) == (truncated, [{"partition": 0, "offset": 4}])
    assert [row["stored_offset"] for row in shown["after"]] == [4, 5]
    assert project.stored_offsets() == {0: 10, 1: 5}, "showing moves nothing"

    project.answer("topic-changed", "orders", "--choice", "rewind", *WHY)
    assert project.stored_offsets() == project.group_offsets() == {0: 4, 1: 5}
    assert project.partition(0)["beyond_log"] is None
    [batch] = project.run()
    assert values(project, batch["batch_id"]) == [(0, 4 + n, f"after {n}".encode()) for n in range(8)]
    assert project.stored_offsets() == {0: 12, 1: 5}
    assert project.run() == []
    assert project.answer("topic-changed", "orders")["topics"] == []


def test_the_same_records_keep_the_offset_once_the_log_has_grown_and_not_before(
    project: QuickProject, mortal_broker: EmbeddedBroker, truncated: str
) -> None:
    project.refusal("run", "orders")
    choice = ("topic-changed", "orders", "--choice", "same-records", *WHY)
    exit_code, code, message = project.refusal(*choice)
    assert (exit_code, code) == (2, "WRONG_USE")
    assert f"{truncated}-0: stored offset 10, log end 4" in message
    assert project.partition(0)["beyond_log"]["at_offset"] == 4

    grow(mortal_broker, truncated)
    project.answer(*choice)
    assert project.stored_offsets() == {0: 10, 1: 5}
    assert project.partition(0)["beyond_log"] is None
    [batch] = project.run()
    assert values(project, batch["batch_id"]) == [(0, 10, b"after 6"), (0, 11, b"after 7")]


# ── With a batch open ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("before", [planned_beyond])
def test_a_planned_batch_beyond_a_log_that_was_truncated_below_its_start_is_abandoned_and_the_feed_stops(
    project: QuickProject, mortal_broker: EmbeddedBroker, truncated: str
) -> None:
    _, code, message = project.refusal("run", "orders")
    assert code == "STORED_OFFSET_BEYOND_LOG"
    assert f"{truncated}-0: stored offset 10, log end 4" in message
    assert [batch["state"] for batch in project.batches()] == ["ABANDONED", "COMMITTED"]

    grow(mortal_broker, truncated, 2)
    project.answer("topic-changed", "orders", "--choice", "rewind", *WHY)
    [batch] = project.run()
    assert values(project, batch["batch_id"]) == [(0, 4, b"after 0"), (0, 5, b"after 1")]


# ── Grown again before a run looked ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def unseen(mortal_broker: EmbeddedBroker, truncated: str) -> str:
    """The log was cut off at 4 and had grown to 12 when the feed looked again: only leader epochs show it.

    Its topic.
    """
    grow(mortal_broker, truncated)
    return truncated


def test_a_log_that_was_cut_off_and_has_grown_again_between_two_plans_stops_the_feed_and_is_rewound(
    project: QuickProject, mortal_broker: EmbeddedBroker, unseen: str
) -> None:
    for command in (("plan", "orders", "--dry-run"), ("run", "orders")):
        exit_code, code, message = project.refusal(*command)
        assert (exit_code, code) == (3, "STORED_OFFSET_BEYOND_LOG")
        assert f"{unseen}-0: stored offset 10, log end 12, and 4 on " in message
    assert project.partition(0)["beyond_log"]["at_offset"] == 4

    project.answer("topic-changed", "orders", "--choice", "rewind", *WHY)
    [batch] = project.run()
    assert values(project, batch["batch_id"]) == [(0, 4 + n, f"after {n}".encode()) for n in range(8)]
    assert project.run() == []
    mortal_broker.stop()
    mortal_broker.start()
    assert project.run() == [], "another leader epoch alone is no truncation"
    produce(mortal_broker.bootstrap_servers, unseen, 0, plain_records(1))
    [batch] = project.run()
    assert batch["rows"] == 1


def test_what_no_plan_has_seen_yet_is_shown_by_topic_changed_and_refused_by_reset_and_backfill(
    project: QuickProject, unseen: str
) -> None:
    for command in (("reset", "orders", "--to", "earliest"), ("backfill", "orders", f"{unseen}:0=0-10")):
        exit_code, code, _ = project.refusal(*command)
        assert (exit_code, code) == (3, "STORED_OFFSET_BEYOND_LOG")
    [change] = project.answer("topic-changed", "orders", "--choice", "same-records", *WHY)["topics"]
    assert change["log_ended_at"] == [{"partition": 0, "offset": 4}]
    [batch] = project.run()
    assert values(project, batch["batch_id"]) == [(0, 10, b"after 6"), (0, 11, b"after 7")]
    assert project.run() == []


@pytest.mark.parametrize("before", [planned])
def test_a_planned_batch_whose_log_was_cut_off_and_has_grown_again_is_abandoned_before_it_is_read(
    project: QuickProject, mortal_broker: EmbeddedBroker, truncated: str
) -> None:
    [open_batch] = project.batches()
    grow(mortal_broker, truncated)
    [batch] = project.run()
    assert batch["rows"] == 17
    assert project.batches()[1]["state"] == "ABANDONED"
    assert open_batch["batch_id"] == project.batches()[1]["batch_id"]


@pytest.mark.parametrize("before", [given_up])
def test_what_the_log_has_lost_is_not_restored_where_other_records_lie_now(
    project: QuickProject, mortal_broker: EmbeddedBroker, truncated: str
) -> None:
    batch = project.batches()[-1]
    project.refusal("run", "orders")
    grow(mortal_broker, truncated)
    project.answer("topic-changed", "orders", "--choice", "rewind", *WHY)

    shown = project.answer("restore", batch["batch_id"])
    assert shown["live"] == []
    assert (spans({"ranges": shown["fill"]}), spans({"ranges": shown["cut_off"]})) == ({0: (0, 4)}, {0: (4, 10)})

    project.answer("skip", "orders", truncated, "0", "4-7", "--reason", "poisoned")
    project.run()
    shown = project.answer("restore", batch["batch_id"], *WHY)
    assert (spans({"ranges": shown["fill"]}), spans({"ranges": shown["cut_off"]})) == ({0: (0, 4)}, {0: (4, 10)})
    offsets = {row["kafka_offset"]: row["value"] for row in project.rows() if row["kafka_partition"] == 0}
    assert sorted(offsets) == [0, 1, 2, 3, 7, 8, 9, 10, 11]
    assert [offsets[each] for each in (7, 11)] == [b"after 3", b"after 7"]
    assert [gap[:5] for gap in project.gaps() if gap[4] == "open"] == [(0, 4, 7, "skipped", "open")]
