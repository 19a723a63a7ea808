"""Several batches by one Spark: what an attempt does fails that one alone, and its driver's death no other one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, InMemorySink, feed_settings, log, topic
from tests.outputs import parquet_at

from kafka_ingest import write_step
from kafka_ingest.assembly import FeedParts
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.errors import BatchStateError, OutputUnavailableError, SparkFailedError, UnsafeSparkMasterError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.planning.settings import Earliest
from kafka_ingest.settings.feed import Feed
from kafka_ingest.write_step import Opened, Work, write_batches


def feed_of(name: str, like: FeedInMemory) -> FeedInMemory:
    """Return a feed with the same control tables and Kafka, and an output of its own."""
    output = parquet_at(Path("/data") / name)
    settings = feed_settings(name=name, start_rules={name: Earliest()}, output=output)
    return replace(like, settings=settings, sink=InMemorySink(output.path))


class Fleet:
    """Feeds that share control tables, and a Spark that does what is said of each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        first = FeedInMemory(kafka=FakeKafkaCluster({name: topic(log(0, 100)) for name in names}))
        self.feeds = {name: feed_of(name, first) for name in names}
        self.works = {name: Work(self.parts(name), feed.planned().batch_id) for name, feed in self.feeds.items()}
        self.applications: list[list[str]] = []
        self.kills: set[str] = set()
        self.fails: dict[str, str] = {}
        self.fails_beside_others: set[str] = set()
        self.unlike: dict[str, object] = {}
        self.begins = 2
        monkeypatch.setattr(write_step, "installation", lambda: None)
        monkeypatch.setattr(write_step, "alike_of", self.alike_of)

    def parts(self, name: str) -> FeedParts:
        document = {"name": name, "kafka": {"topics": [name]}, "sink": {"format": "parquet", "path": f"/data/{name}"}}
        feed = self.feeds[name]
        parts = FeedParts(Feed.model_validate(document), feed.control, lambda _: None, {})  # type: ignore[arg-type, return-value]
        schemas = SimpleNamespace(frozen=None, columns=lambda _: None)
        vars(parts).update(kafka=feed.kafka, sinks=feed.sinks, master=None, schemas=schemas)
        login = {"bootstrap.servers": "kafka:9092", "sasl.password": f"hush-{name}"}
        vars(parts).update(_find_kafka=lambda: KafkaClientSettings("kafka_default", login))
        return parts

    def alike_of(self, opened: Opened, _: object) -> object:
        found = self.unlike.get(opened.plan.feed_name)
        if isinstance(found, Exception):
            raise found
        return found

    def submit(self, opened: Sequence[Opened]) -> None:
        """Write what is left to write; the driver begins a few at a time, and may die of one of them."""
        names = [each.plan.feed_name for each in opened]
        self.applications.append(names)
        for place, each in enumerate(opened):
            at_work = names[place : place + self.begins]
            if deadly := self.kills.intersection(at_work):
                error = SparkFailedError(f"Spark died of {min(deadly)}")
                error.begun = frozenset(range(place + len(at_work)))
                raise error
            feed, name = self.feeds[names[place]], names[place]
            if name in self.fails and not (len(names) == 1 and name in self.fails_beside_others):
                feed.sink.failures[each.attempt.directory] = self.fails[name]
            else:
                feed.spark_writes(each.attempt)
        if self.fails.keys() & set(names) and names not in [[each] for each in self.fails_beside_others]:
            error = SparkFailedError("Spark ended with exit code 1; its end: of another feed")
            error.begun, error.log = frozenset(range(len(names))), "/tmp/kafka-ingest-1/spark.log"
            raise error

    def write(self) -> dict[str, str | None]:
        """Write all, and return why each failed."""
        names = {work.batch_id: name for name, work in self.works.items()}
        found: dict[str, str | None] = {}
        for written in write_batches(list(self.works.values()), self.submit, actor="run 1"):
            assert not found.keys() & {names[each] for each in written}, "each batch is spoken of once"
            for batch_id, error in written.items():
                found[names[batch_id]] = None if error is None else f"{type(error).__name__}: {error}"
        return found

    def state(self, name: str) -> BatchState:
        return self.feeds[name].control.batch(self.works[name].batch_id).state


def test_an_attempt_that_fails_fails_alone_with_its_own_reason_and_the_others_are_pinned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c")
    fleet.fails["b"] = "java.io.IOException: no space left"
    found = fleet.write()
    assert (found["a"], found["c"]) == (None, None)
    assert "no space left" in (found["b"] or "")
    assert "of another feed" not in (found["b"] or "")
    assert [fleet.state(name) for name in "abc"] == [BatchState.WRITTEN, BatchState.PLANNED, BatchState.WRITTEN]
    assert fleet.applications == [["a", "b", "c"]]


def test_where_the_driver_dies_the_others_are_written_and_those_that_were_at_work_have_one_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c", "d", "e")
    fleet.kills.add("c")
    found = fleet.write()
    assert found.pop("c") == "SparkFailedError: Spark died of c"
    assert found == dict.fromkeys("abde")
    assert fleet.applications == [["a", "b", "c", "d", "e"], ["d", "e"], ["b"], ["c"]]
    assert fleet.feeds["a"].control.attempts(fleet.works["a"].batch_id)[0].attempt == 1


@pytest.mark.parametrize(
    "said",
    [
        "java.lang.OutOfMemoryError: Java heap space",
        "Lost task 0.3: ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
        "Reason: Command exited with code 52",
    ],
)
def test_one_that_may_have_failed_by_what_another_one_did_is_tried_again_alone(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c")
    fleet.fails, fleet.fails_beside_others = {"b": said, "c": "no such field"}, {"b"}
    found = fleet.write()
    assert (found["a"], found["b"]) == (None, None)
    assert "no such field" in (found["c"] or "")
    assert fleet.applications == [["a", "b", "c"], ["b"]]


def test_what_the_job_said_of_one_of_several_shows_no_secret_and_says_where_the_log_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, "a", "b")
    fleet.fails["b"] = "ValueError: cannot log in with hush-b"
    said = fleet.write()["b"] or ""
    assert "cannot log in with" in said
    assert "hush" not in said
    assert "/tmp/kafka-ingest-1/spark.log" in said


def test_an_output_that_cannot_be_asked_fails_its_own_feed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c")
    fleet.fails["c"] = "no such field"

    def read_receipt(_: Path) -> bytes | None:
        raise OutputUnavailableError("the disk is away")

    monkeypatch.setattr(fleet.feeds["a"].sink, "read_receipt", read_receipt)
    found = fleet.write()
    assert found["a"] == "OutputUnavailableError: the disk is away"
    assert found["b"] is None
    assert "no such field" in (found["c"] or "")


def test_an_application_that_cannot_be_prepared_is_the_error_of_its_own_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c")
    fleet.unlike["c"] = "another Spark"
    submit = fleet.submit

    def refused(opened: Sequence[Opened]) -> None:
        if opened[0].plan.feed_name == "c":
            raise PermissionError("spark.log")
        submit(opened)

    monkeypatch.setattr(fleet, "submit", refused)
    assert fleet.write() == {"a": None, "b": None, "c": "PermissionError: spark.log"}


def test_a_driver_that_dies_before_it_begins_any_is_not_started_again_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c")

    def submit(opened: Sequence[Opened]) -> None:
        fleet.applications.append([each.plan.feed_name for each in opened])
        raise SparkFailedError("the master refused")

    monkeypatch.setattr(fleet, "submit", submit)
    assert set(fleet.write().values()) == {"SparkFailedError: the master refused"}
    assert len(fleet.applications) == 1


def test_feeds_with_another_spark_have_an_application_of_their_own_and_one_whose_spark_is_refused_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c", "d")
    fleet.unlike = {"b": "spark.driver.memory: 4g", "d": UnsafeSparkMasterError("it would show a secret")}
    found = fleet.write()
    assert found.pop("d") == "UnsafeSparkMasterError: it would show a secret"
    assert found == dict.fromkeys("abc")
    assert sorted(fleet.applications) == [["a", "c"], ["b"]]


def test_the_smallest_application_is_the_first_and_what_is_written_is_passed_on_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, "large", "a", "b")
    fleet.unlike["large"] = "another Java"
    rounds = [sorted(written) for written in write_batches(list(fleet.works.values()), fleet.submit, actor="x")]
    assert fleet.applications == [["large"], ["a", "b"]]
    assert [len(each) for each in rounds if each] == [1, 2]


def test_more_attempts_than_were_measured_have_several_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, "a", "b", "c", "d", "e")
    monkeypatch.setattr(write_step, "MOST_TOGETHER", 2)
    assert fleet.write() == dict.fromkeys("abcde")
    assert sorted(map(len, fleet.applications)) == [1, 2, 2]


def test_a_batch_that_is_abandoned_meanwhile_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, "a", "b")
    batch_id = fleet.works["a"].batch_id
    monkeypatch.setattr(write_step, "open_attempt", abandoning(batch_id))
    found = fleet.write()
    assert found["a"] is not None
    assert found["a"].startswith(BatchStateError.__name__)
    assert found["b"] is None


def abandoning(batch_id: Any) -> Any:
    """Return what opens attempts, of one batch only after it is abandoned."""
    opened = write_step.open_attempt

    def instead(wanted: Any, parts: Any, **options: Any) -> Any:
        if wanted == batch_id:
            raise BatchStateError("it was abandoned")
        return opened(wanted, parts, **options)

    return instead


def test_one_that_gets_an_application_of_its_own_keeps_its_limit_since_others_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, "a", "b")
    fleet.unlike = {"a": "one Spark", "b": "another"}
    limited: list[bool] = []
    monkeypatch.setattr(fleet, "submit", lambda opened: limited.append(opened[0].alike is not None))
    list(write_batches(list(fleet.works.values()), fleet.submit, actor="x"))
    list(write_batches([fleet.works["a"]], fleet.submit, actor="x"))
    assert limited == [True, True, False]
