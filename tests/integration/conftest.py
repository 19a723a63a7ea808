"""What the tests on the real broker share: topics of their own, and a project whose commands run in this process."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka_faults import PATIENCE_S, create_topic, plain_records, produce
from tests.quick_project import QuickProject

from embedded_broker import EmbeddedBroker

MoveGroup = Callable[[str, str, Mapping[int, int]], None]


@pytest.fixture
def servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    """The name of a topic that is not there yet."""
    return f"orders-{uuid4().hex[:8]}"


@pytest.fixture
def orders(servers: str, name: str) -> str:
    """A topic of three partitions that hold ten, five and no records, a second apart from 2026-01-01 on."""
    create_topic(servers, name, 3)
    produce(servers, name, 0, plain_records(10))
    produce(servers, name, 1, plain_records(5))
    return name


@pytest.fixture
def quick(tmp_path: Path, servers: str) -> QuickProject:
    made = QuickProject(tmp_path / "quick", servers)
    made.make_control_tables()
    return made


def commit_to_group(servers: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets to a consumer group, as a consumer does."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    try:
        # Waits for a coordinator that is only being made, which a commit does not.
        consumer.committed(wanted, PATIENCE_S)
        answer = consumer.commit(offsets=wanted, asynchronous=False)
    finally:
        consumer.close()
    assert [found.error for found in answer] == [None] * len(wanted)


@pytest.fixture
def move_group(servers: str) -> MoveGroup:
    """Commit offsets to a consumer group: group, topic, offsets by partition."""
    return partial(commit_to_group, servers)
