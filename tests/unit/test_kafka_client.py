"""A client that several feeds share, where its cluster lets nobody in."""

import contextlib
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kafka_ingest.cluster import kafka_client
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.cluster.log_questions import LogQuestions
from kafka_ingest.errors import KafkaIngestError, KafkaLoginRefusedError, KafkaUnavailableError
from kafka_ingest.foundation.tried import each_tried, tried
from kafka_ingest.model.offsets import TopicPartition, Unavailable


class Client(contextlib.AbstractContextManager["Client"]):
    """Is closed, and polled for what librdkafka reports."""

    def __exit__(self, *_: object) -> None:
        pass

    def poll(self, _timeout: float) -> None:
        pass


class Cluster:
    """Counts how often a client tries to get in, and refuses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: KafkaIngestError | None) -> None:
        self.tries, self.error, self.now = 0, error, 1_000.0
        monkeypatch.setattr(kafka_client, "AdminClient", lambda _: Client())
        monkeypatch.setattr(kafka_client, "shake_hands", self.shake_hands)
        monkeypatch.setattr("kafka_ingest.cluster.kafka_client.time.monotonic", lambda: self.now)
        self.client = KafkaClient(lambda: KafkaClientSettings("its_id", {"bootstrap.servers": "kafka:9092"}))

    def shake_hands(self, *_: Any) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error

    def ask(self, *_: object) -> Any:
        return self.client.connected_admin()


def test_a_cluster_that_is_away_is_tried_once_for_all_who_ask_together_and_again_some_seconds_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, KafkaUnavailableError("no answer"))
    found = each_tried(cluster.ask, range(20))
    assert {f"{type(each.error).__name__}: {each.error}" for each in found} == {"KafkaUnavailableError: no answer"}
    assert cluster.tries == 1
    cluster.now, cluster.error = 1_006.0, None
    assert isinstance(cluster.ask(), Client)


def test_a_cluster_that_goes_away_costs_those_who_ask_later_one_look_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, None)
    asked: list[int] = []

    def question(number: int) -> None:
        with cluster.client.time_limited("its topics"):
            cluster.ask()
            asked.append(number)
            if number:
                raise TimeoutError

    question(0)
    cluster.error = KafkaUnavailableError("not there")
    found = [str(tried(question, number).error) for number in range(1, 20)]
    assert "when asked for its topics: no answer" in found[0]
    assert found[1:] == ["not there"] * 18
    assert (asked, cluster.tries) == ([0, 1], 2)


def test_a_question_without_an_answer_does_not_hinder_others_of_a_cluster_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, None)

    def question() -> None:
        with cluster.client.time_limited("the offsets of a group"):
            cluster.ask()
            raise TimeoutError

    with pytest.raises(KafkaUnavailableError, match="the offsets of a group"):
        question()
    assert len({cluster.ask() for _ in range(3)}) == 1
    assert cluster.tries == 2


def test_a_refused_password_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, KafkaLoginRefusedError("wrong password"))
    for _ in range(3):
        cluster.now += 3_600
        with pytest.raises(KafkaLoginRefusedError, match="wrong password"):
            cluster.ask()
    assert cluster.tries == 1


def test_a_topic_that_does_not_say_its_leaders_is_asked_once_for_all_bounds_of_its_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def describe(topics: Iterable[str]) -> dict[str, KafkaError]:
        asked.extend(topics)
        return {topic: KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) for topic in topics}

    client = Cluster(monkeypatch, None).client
    monkeypatch.setattr(client, "describe_topics", describe)
    partitions = [TopicPartition("orders", number) for number in range(3)]
    found = LogQuestions(client).log_bounds(partitions)
    assert asked == ["orders"]
    assert {type(each) for each in found.values()} == {Unavailable}
