"""What the tests on the real broker share: topics of their own, and a project whose commands run in this process."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.conftest import IDLE, PATIENT
from tests.kafka_faults import PATIENCE_S, create_topic, plain_records, produce
from tests.quick_project import QuickProject

from embedded_broker import EmbeddedBroker

MoveGroup = Callable[[str, str, Mapping[int, int]], None]


@pytest.fixture(scope="session")
def another_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A cluster of its own, which makes a topic for whoever asks in a way that lets it."""
    settings = PATIENT | IDLE | {"auto.create.topics.enable": "true"}
    with EmbeddedBroker(tmp_path_factory.mktemp("another"), extra=settings) as running:
        yield running


@pytest.fixture(scope="session")
def mortal_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that a test may stop or kill; it starts it again."""
    with EmbeddedBroker(tmp_path_factory.mktemp("mortal")) as running:
        yield running


@pytest.fixture
def servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def name() -> str:
    """The name of a topic that is not there yet."""
    return f"orders-{uuid4().hex[:8]}"


@pytest.fixture
def orders(request: pytest.FixtureRequest, name: str) -> str:
    """A topic of three partitions that hold ten, five and no records, a second apart from 2026-01-01 on."""
    if "begun" in request.fixturenames:
        return request.getfixturevalue("begun").topic  # type: ignore[no-any-return]
    return orders_in(request.getfixturevalue("servers"), name)


def orders_in(servers: str, name: str) -> str:
    create_topic(servers, name, 3)
    produce(servers, name, 0, plain_records(10))
    produce(servers, name, 1, plain_records(5))
    return name


@pytest.fixture
def quick(tmp_path: Path, servers: str) -> QuickProject:
    return quick_project(tmp_path / "quick", servers)


def quick_project(home: Path, servers: str) -> QuickProject:
    made = QuickProject(home, servers)
    made.make_control_tables()
    return made


class Begun:
    """A project as all tests of a file begin with it, and its topic: put back as it was for each."""

    def __init__(self, folder: Path, servers: str, begin: Callable[[QuickProject, str], object]) -> None:
        self.project = quick_project(folder / "begun", servers)
        self.topic = orders_in(servers, f"orders-{uuid4().hex[:8]}")
        begin(self.project, self.topic)
        self._kept = folder / "kept"
        shutil.copytree(self.project.home, self._kept, symlinks=True)

    def again(self) -> "Begun":
        shutil.rmtree(self.project.home)
        shutil.copytree(self._kept, self.project.home, symlinks=True)
        return self


@pytest.fixture(scope="module")
def begun_once(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Begun:
    return Begun(tmp_path_factory.mktemp("begun"), broker.bootstrap_servers, request.module.begin)


@pytest.fixture
def begun(request: pytest.FixtureRequest, tmp_path: Path) -> Begun:
    """What the file's ``begin`` makes. A test that asks for ``servers``, to change the topic, has one of its own."""
    if "servers" in request.fixturenames:
        return Begun(tmp_path, request.getfixturevalue("servers"), request.module.begin)
    return request.getfixturevalue("begun_once").again()  # type: ignore[no-any-return]


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
