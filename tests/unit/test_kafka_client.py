"""A client that several feeds share, where its cluster lets nobody in."""

import contextlib
from typing import Any

import pytest

from kafka_ingest.cluster import kafka_client
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.errors import KafkaIngestError, KafkaLoginRefusedError, KafkaUnavailableError
from kafka_ingest.foundation.tried import each_tried


class Cluster:
    """Counts how often a client tries to get in, and refuses it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: KafkaIngestError | None) -> None:
        self.tries, self.error, self.now = 0, error, 1_000.0
        monkeypatch.setattr(kafka_client, "AdminClient", lambda _: contextlib.nullcontext("a client"))
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
    assert cluster.ask() == "a client"


def test_a_refused_password_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, KafkaLoginRefusedError("wrong password"))
    for _ in range(3):
        cluster.now += 3_600
        with pytest.raises(KafkaLoginRefusedError, match="wrong password"):
            cluster.ask()
    assert cluster.tries == 1
