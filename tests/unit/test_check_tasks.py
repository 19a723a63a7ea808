"""The questions of one check: one for each cluster, whatever becomes of the others."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import CLUSTER, TOPIC_ID, FakeKafkaCluster, log, topic

from kafka_ingest.airflow_tasks.dags import checking_dag
from kafka_ingest.airflow_tasks.dags.checking_dag import ask_all
from kafka_ingest.errors import MissingConnectionError
from kafka_ingest.model.alert import AlertRules
from kafka_ingest.model.offsets import StoredOffset, TopicPartition
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.alert_rules import ClusterAnswers, WatchedFeed
from kafka_ingest.settings.connections import ConnectionFields

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def feed(name: str, conn_id: str, rules: AlertRules = AlertRules(lag=1)) -> WatchedFeed:  # noqa: B008 - frozen
    partition = TopicPartition(name, 0)
    stored = {partition: StoredOffset(partition, TOPIC_ID, 0, 5, "earliest")}
    overview = FeedOverview(UUID(int=len(name)), name, CLUSTER, (name,), stored, 5)
    return WatchedFeed(overview, rules, conn_id=conn_id)


def find(conn_id: str) -> ConnectionFields:
    if conn_id == "missing":
        raise MissingConnectionError("connection 'missing' is not defined")
    return ConnectionFields(conn_id, "kafka", extra={"bootstrap.servers": "localhost:9092"})


def test_each_cluster_is_asked_once_and_one_that_is_down_or_not_defined_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = {name: FakeKafkaCluster({n: topic(log(0, 9)) for n in ("a", "bb")}) for name in ("up", "down")}
    clusters["down"].is_down = True

    def connect(settings: Callable[[], Any], **_: object) -> FakeKafkaCluster:
        return clusters[settings().conn_id]

    monkeypatch.setattr(checking_dag, "ConfluentKafkaCluster", connect)
    down, held = feed("ccc", "down"), feed("dddd", "never asked", AlertRules(held=True))
    feeds = [feed("a", "up"), feed("bb", "up"), down, feed("eeeee", "missing"), held]
    unusable = replace(feed("ffffff", ""), error="its file cannot be used")

    answers = ask_all([*feeds, unusable], find, NOW)

    assert answers.keys() == {"up", "down", "missing"}
    assert isinstance(answers["up"], ClusterAnswers)
    assert clusters["up"].questions.count("log_bounds") == 1
    assert str(answers["down"]).startswith("KAFKA_UNAVAILABLE: ")
    assert str(answers["missing"]).startswith("MISSING_CONNECTION: ")

    def breaks(_: object) -> None:
        raise ZeroDivisionError

    clusters["down"].describe_topics = breaks  # type: ignore[method-assign, assignment]
    answers = ask_all(feeds, find, NOW)
    assert isinstance(answers["up"], ClusterAnswers)
    assert "unexpected error" in str(answers["down"])
