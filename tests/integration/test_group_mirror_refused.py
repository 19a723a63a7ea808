"""A consumer group that may not be written to, or whose coordinator is down while the brokers are up."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.conftest import PATIENT
from tests.integration.test_group_mirror import committed, mirror_failures, mirrored_feed
from tests.kafka_faults import PATIENCE_S, create_topic, plain_records, produce
from tests.quick_project import QuickProject

from embedded_broker import EmbeddedBroker

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:nobody",
}
IMPATIENT = {"socket.timeout.ms": "1000"}


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that asks who may do what."""
    with EmbeddedBroker(tmp_path_factory.mktemp("strict"), extra=AUTHORIZER | PATIENT) as running:
        yield running


def feed_with_a_group(tmp_path: Path, servers: str, topic: str) -> tuple[QuickProject, str]:
    """Return a project with a feed over ten, five and no records, and the name of its group."""
    project = QuickProject(tmp_path / "quick", servers)
    project.make_control_tables()
    return project, mirrored_feed(project, topic)


def fill(servers: str, topic: str) -> None:
    """Produce ten records into partition 0 and five into partition 1."""
    produce(servers, topic, 0, plain_records(10))
    produce(servers, topic, 1, plain_records(5))


@contextmanager
def denied(servers: str, group: str, operation: AclOperation) -> Iterator[None]:
    """Deny all users an operation on a group."""
    where = (ResourceType.GROUP, group, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    with AdminClient({"bootstrap.servers": servers, "log_level": 0}) as admin:
        [made] = admin.create_acls([AclBinding(*where, operation, AclPermissionType.DENY)]).values()
        made.result(PATIENCE_S)
        try:
            yield
        finally:
            [gone] = admin.delete_acls([AclBindingFilter(*where, operation, AclPermissionType.DENY)]).values()
            gone.result(PATIENCE_S)


# ── Not authorised ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.ALL])
def test_a_group_that_may_not_be_written_to_holds_up_no_data_and_is_repaired_once_it_may(
    tmp_path: Path, strict_broker: EmbeddedBroker, name: str, operation: AclOperation
) -> None:
    servers = strict_broker.bootstrap_servers
    create_topic(servers, name, 3)
    fill(servers, name)
    project, group = feed_with_a_group(tmp_path, servers, name)
    with denied(servers, group, operation):
        [batch] = project.run()
        assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)
        assert "GROUP_AUTHORIZATION_FAILED" in batch["mirror_failure"]
        [failure] = mirror_failures(project)
        assert failure["group"] == group
        assert "GROUP_AUTHORIZATION_FAILED" in failure["reason"]
        assert project.positions() == [(0, n) for n in range(10)] + [(1, n) for n in range(5)]

    assert project.stored_offsets() == {0: 10, 1: 5, 2: 0}
    assert project.group_offsets() == {0: None, 1: None, 2: None}
    assert project.kafka_ingest("mirror", "orders", "--json").exit_code == 1
    assert project.answer("mirror", "orders", "--repair")["drift"] == []
    assert [tp.offset for tp in committed(servers, group, name)] == [10, 5, 0]


# ── No coordinator ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_coordinator_that_is_down_holds_up_the_group_and_not_the_data(tmp_path: Path, name: str) -> None:
    with EmbeddedBroker(tmp_path / "first") as broker:
        node = EmbeddedBroker(tmp_path / "second", joins=broker)
        servers = broker.bootstrap_servers
        node.start()
        try:
            # The one partition that groups live in is the second node's; the records are the first one's.
            compacted = {"cleanup.policy": "compact", "compression.type": "producer"}
            create_topic(servers, "__consumer_offsets", nodes=[node.node_id], config=compacted)
            create_topic(servers, name, nodes=[broker.node_id] * 3)
            fill(servers, name)
            project, group = feed_with_a_group(tmp_path, servers, name)
            node.stop()
            connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": servers} | IMPATIENT}
            impatient = {"AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(connection)}
            [batch] = project.run(**impatient)
            assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)
            assert f"when asked for setting the offsets of consumer group '{group}'" in batch["mirror_failure"]
            assert [failure["reason"] for failure in mirror_failures(project)] == [batch["mirror_failure"]]
            assert project.positions() == [(0, n) for n in range(10)] + [(1, n) for n in range(5)]

            node.start()
            assert project.answer("mirror", "orders", "--repair")["drift"] == []
            assert [tp.offset for tp in committed(servers, group, name)] == [10, 5, 0]
        finally:
            node.stop()


def test_a_repair_that_is_denied_says_so(tmp_path: Path, strict_broker: EmbeddedBroker, name: str) -> None:
    servers = strict_broker.bootstrap_servers
    create_topic(servers, name, 3)
    fill(servers, name)
    project, group = feed_with_a_group(tmp_path, servers, name)
    with denied(servers, group, AclOperation.READ):
        project.run()
        refused = project.kafka_ingest("mirror", "orders", "--repair", "--json")
    assert refused.exit_code == 2
    assert "GROUP_AUTHORIZATION_FAILED" in refused.stdout


def test_a_start_at_a_group_that_may_not_be_read_is_access_denied(
    tmp_path: Path, strict_broker: EmbeddedBroker, name: str
) -> None:
    servers = strict_broker.bootstrap_servers
    create_topic(servers, name, 3)
    fill(servers, name)
    project = QuickProject(tmp_path / "quick", servers)
    project.make_control_tables()
    project.write_feed(name, kafka={"topics": [name]}, start={"group": f"{name}-old", "otherwise": "earliest"})
    with denied(servers, f"{name}-old", AclOperation.READ):
        assert project.refusal("plan", "orders", "--dry-run")[:2] == (2, "KAFKA_ACCESS_DENIED")
