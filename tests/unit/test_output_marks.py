"""Marks of an output topic are read once in a process, from where the last reading ended; without a broker."""

from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Message

from kafka_ingest.sinks.kafka_topic.cluster import Topic
from kafka_ingest.sinks.kafka_topic.marks import KafkaMarks
from kafka_ingest.sinks.kafka_topic.topic_rows import SeenMarks
from kafka_ingest.sinks.tables.table_format import Mark, Outcome

BATCHES = [UUID(int=number) for number in range(6)]
VALUE = b'{"version": 1, "outcome": "published", "plan_fingerprint": "f"}'


@pytest.fixture
def cluster() -> Any:
    """A cluster whose topic of marks has one at each offset."""
    found: Any = SimpleNamespace(seen_marks=defaultdict(SeenMarks), topic_id="first")
    found.topic = lambda name: Topic(name, found.topic_id, 1, 1, {}) if found.topic_id else None
    return found


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which readings began."""
    found: list[int] = []

    def messages(_: KafkaMarks, _end: int | None, start: int = 0) -> Iterator[Message]:
        found.append(start)
        for offset, batch_id in list(enumerate(BATCHES))[start:]:
            yield Message(key=str(batch_id).encode(), value=VALUE, offset=offset)

    monkeypatch.setattr(KafkaMarks, "_messages", messages)
    return found


def test_a_mark_is_looked_for_where_it_was_found_or_behind_what_was_read(cluster: Any, starts: list[int]) -> None:
    for batch_id in (BATCHES[2], BATCHES[4], BATCHES[1], BATCHES[5]):
        assert KafkaMarks(cluster, "orders_clean").seen(batch_id) == Mark(batch_id, Outcome.PUBLISHED, "f")
    assert KafkaMarks(cluster, "orders_clean").seen(UUID(int=99)) is None
    assert starts == [0, 3, 1, 5, 6]
    assert KafkaMarks(cluster, "another").before(6, BATCHES[0]) is not None
    assert starts[-1] == 0


@pytest.mark.parametrize("again", ["second", ""])
def test_of_a_topic_that_was_created_again_all_marks_are_read(cluster: Any, starts: list[int], again: str) -> None:
    marks = KafkaMarks(cluster, "orders_clean")
    assert marks.seen(BATCHES[5]) is not None
    cluster.topic_id = again
    assert (marks.seen(UUID(int=99)), cluster.seen_marks[marks.name].next_offset) == (None, 6 if again else 0)
    assert starts == ([0, 0] if again else [0])
