"""Real parts for the tests: one broker a session, and a project folder of its own for each test."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.project import Project, empty_control_tables

from embedded_broker import EmbeddedBroker
from order_events import PARTITIONS, create_topic

PATIENT = {"broker.session.timeout.ms": "9000"}
"""Kafka's own time limit: a machine that stands still for some seconds is no broker that died."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("kafka"), extra=PATIENT) as running:
        yield running


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Control tables without a row, to copy."""
    file = tmp_path_factory.mktemp("control") / "empty.db"
    file.write_bytes(empty_control_tables())
    return file


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"orders-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, name, PARTITIONS)
    return name


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedBroker) -> Project:
    made = Project(tmp_path / "project", broker.bootstrap_servers)
    made.make_control_tables()
    return made
