"""A partition that no broker leads is left out, visibly and with since when, and does not hold up the others."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.kafka_faults import create_topic, plain_records, produce, second_node, stop_leader
from tests.quick_project import QuickProject, seeds, spans

from embedded_broker import EmbeddedBroker


@pytest.fixture(scope="module")
def cluster_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    """Two nodes of a cluster that no other test uses: topics of others must not land on the one that is stopped."""
    with (
        EmbeddedBroker(tmp_path_factory.mktemp("first")) as broker,
        second_node(broker, tmp_path_factory.mktemp("second")) as node,
    ):
        yield broker, node


@pytest.fixture
def project(tmp_path: Path, cluster_of_two: tuple[EmbeddedBroker, EmbeddedBroker]) -> QuickProject:
    made = QuickProject(tmp_path / "quick", cluster_of_two[0].bootstrap_servers)
    made.make_control_tables()
    return made


@pytest.fixture
def half(cluster_of_two: tuple[EmbeddedBroker, EmbeddedBroker]) -> Iterator[str]:
    """A topic with five records in each of two partitions, of which the second has no leader."""
    broker, node = cluster_of_two
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, nodes=[broker.node_id, node.node_id])
    for partition in range(2):
        produce(broker.bootstrap_servers, topic, partition, plain_records(5))
    stop_leader(broker, node, topic, 1)
    yield topic
    node.start()


def test_it_is_pending_in_the_first_plan_and_begins_as_the_feed_file_says_once_it_has_a_leader(
    project: QuickProject, cluster_of_two: tuple[EmbeddedBroker, EmbeddedBroker], half: str
) -> None:
    project.write_feed(half, start={"offsets": {half: {1: 2}}, "otherwise": "earliest"})
    found = project.plan()
    assert spans(found) == {0: (0, 5)}
    assert seeds(found) == {0: (0, "earliest"), 1: (None, "offset 2")}
    [left_out] = found["left_out"]
    assert left_out["partition"] == 1
    assert "LEADER_NOT_AVAILABLE" in left_out["reason"]
    project.run()

    entry = project.partition(1)
    assert (entry["stored_offset"], entry["high_watermark"], entry["lag"], entry["headroom"]) == (None,) * 4
    assert "LEADER_NOT_AVAILABLE" in entry["unavailable"]["reason"]
    assert entry["unavailable"]["since"] == found["holds"][0]["since"]
    assert project.partition(0)["unavailable"] is None

    # No run can have read it yet: an edited start counts until it is resolved.
    project.edit_feed(start={"offsets": {half: {1: 3}}, "otherwise": "latest"})
    assert seeds(project.plan()) == {1: (None, "offset 3")}
    assert project.partition(1)["unavailable"]["since"] == entry["unavailable"]["since"]
    cluster_of_two[1].start()
    wait_for_its_leader(project)
    assert spans(project.plan()) == {1: (3, 5)}
    assert project.partition(1)["unavailable"] is None
    cluster_of_two[1].stop()


def test_an_open_batch_that_reads_it_is_abandoned_for_the_others_and_nothing_is_lost(
    project: QuickProject, cluster_of_two: tuple[EmbeddedBroker, EmbeddedBroker]
) -> None:
    broker, node = cluster_of_two
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, nodes=[broker.node_id, node.node_id])
    for partition in range(2):
        produce(broker.bootstrap_servers, topic, partition, plain_records(5))
    project.write_feed(topic)
    planned = project.plan()
    assert spans(planned) == {0: (0, 5), 1: (0, 5)}
    stop_leader(broker, node, topic, 1)

    [batch] = project.run()
    assert batch["rows"] == 5
    assert project.batches()[1]["batch_id"] == planned["batch_id"]
    assert "LEADER_NOT_AVAILABLE" in project.batches()[1]["reason"]
    assert [left_out["partition"] for left_out in batch["left_out"]] == [1]

    node.start()
    wait_for_its_leader(project)
    [batch] = project.run()
    assert batch["rows"] == 5
    assert project.positions() == [(partition, n) for partition in range(2) for n in range(5)]


def test_an_open_batch_that_reads_it_alone_gives_way_to_new_records_of_another_partition(
    project: QuickProject, cluster_of_two: tuple[EmbeddedBroker, EmbeddedBroker]
) -> None:
    broker, node = cluster_of_two
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, nodes=[broker.node_id, node.node_id])
    produce(broker.bootstrap_servers, topic, 1, plain_records(5))
    project.write_feed(topic)
    planned = project.plan()
    assert spans(planned) == {1: (0, 5)}
    produce(broker.bootstrap_servers, topic, 0, plain_records(3))
    stop_leader(broker, node, topic, 1)

    project.run()
    newest, abandoned = project.batches()
    assert (newest["state"], spans(newest)) == ("COMMITTED", {0: (0, 3)})
    assert (abandoned["batch_id"], abandoned["state"]) == (planned["batch_id"], "ABANDONED")
    assert f"its ranges can no longer be read: {topic}-1: " in abandoned["reason"]
    assert project.stored_offsets() == {0: 3, 1: 0}

    node.start()
    wait_for_its_leader(project)
    project.run()
    assert project.positions() == [(0, n) for n in range(3)] + [(1, n) for n in range(5)]


def test_an_open_batch_that_reads_all_of_its_feed_waits_where_no_partition_has_a_leader(
    project: QuickProject, cluster_of_two: tuple[EmbeddedBroker, EmbeddedBroker]
) -> None:
    broker, node = cluster_of_two
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, nodes=[node.node_id])
    produce(broker.bootstrap_servers, topic, 0, plain_records(5))
    project.write_feed(topic)
    planned = project.plan()
    stop_leader(broker, node, topic, 0)
    try:
        exit_code, code, _ = project.refusal("run", "orders")
    finally:
        node.start()
    assert (exit_code, code) == (1, "KAFKA_UNAVAILABLE")
    open_batch = project.status()["open_batch"]
    assert (open_batch["batch_id"], open_batch["state"]) == (planned["batch_id"], "PLANNED")


def test_where_no_partition_has_a_leader_it_is_an_error_and_not_nothing_new(
    project: QuickProject, cluster_of_two: tuple[EmbeddedBroker, EmbeddedBroker]
) -> None:
    broker, node = cluster_of_two
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, nodes=[node.node_id])
    stop_leader(broker, node, topic, 0)
    project.write_feed(topic)
    try:
        exit_code, code, message = project.refusal("run", "orders")
    finally:
        node.start()
    assert (exit_code, code) == (1, "KAFKA_UNAVAILABLE")
    assert f"{topic}-0" in message


def wait_for_its_leader(project: QuickProject) -> None:
    """Return once partition 1 answers: a node that started leads its partitions some moments later."""
    for _ in range(100):
        if not project.dry_run()["left_out"]:
            return
    raise AssertionError("expected partition 1 to have a leader again")
