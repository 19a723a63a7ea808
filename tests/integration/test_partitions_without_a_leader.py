"""A partition that no broker leads is left out, visibly and with since when, and does not hold up the others.

Nor does a consumer group whose coordinator is down. The second node of a cluster, where all groups are, is stopped
once, and started once, for all cases.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from tests.integration.test_group_mirror import committed, mirror_failures, mirrored_feed
from tests.kafka_faults import create_topic, plain_records, produce, stop_leader
from tests.quick_project import QuickProject, seeds, spans

from embedded_broker import EmbeddedBroker

Case = Iterator[None]
"""It goes on once the second node is stopped, and once it is back."""


def it_is_pending_in_the_first_plan_and_begins_as_the_feed_file_says_once_it_has_a_leader(
    project: QuickProject, topic: str
) -> Case:
    for partition in range(2):
        produce(project.bootstrap_servers, topic, partition, plain_records(5))
    yield
    project.write_feed(topic, kafka={"topics": [topic]}, start={"offsets": {topic: {1: 2}}, "otherwise": "earliest"})
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
    project.edit_feed(start={"offsets": {topic: {1: 3}}, "otherwise": "latest"})
    assert seeds(project.plan()) == {1: (None, "offset 3")}
    assert project.partition(1)["unavailable"]["since"] == entry["unavailable"]["since"]
    yield
    wait_for_its_leader(project)
    assert spans(project.plan()) == {1: (3, 5)}
    assert project.partition(1)["unavailable"] is None


def an_open_batch_that_reads_it_is_abandoned_for_the_others_and_nothing_is_lost(
    project: QuickProject, topic: str
) -> Case:
    for partition in range(2):
        produce(project.bootstrap_servers, topic, partition, plain_records(5))
    project.write_feed(topic, kafka={"topics": [topic]})
    planned = project.plan()
    assert spans(planned) == {0: (0, 5), 1: (0, 5)}
    yield
    [batch] = project.run()
    assert batch["rows"] == 5
    assert project.batches()[1]["batch_id"] == planned["batch_id"]
    assert "LEADER_NOT_AVAILABLE" in project.batches()[1]["reason"]
    assert [left_out["partition"] for left_out in batch["left_out"]] == [1]
    yield
    wait_for_its_leader(project)
    [batch] = project.run()
    assert batch["rows"] == 5
    assert project.positions() == [(partition, n) for partition in range(2) for n in range(5)]


def an_open_batch_that_reads_it_alone_gives_way_to_new_records_of_another_partition(
    project: QuickProject, topic: str
) -> Case:
    produce(project.bootstrap_servers, topic, 1, plain_records(5))
    project.write_feed(topic, kafka={"topics": [topic]})
    planned = project.plan()
    assert spans(planned) == {1: (0, 5)}
    produce(project.bootstrap_servers, topic, 0, plain_records(3))
    yield
    project.run()
    newest, abandoned = project.batches()
    assert (newest["state"], spans(newest)) == ("COMMITTED", {0: (0, 3)})
    assert (abandoned["batch_id"], abandoned["state"]) == (planned["batch_id"], "ABANDONED")
    assert f"its ranges can no longer be read: {topic}-1: " in abandoned["reason"]
    assert project.stored_offsets() == {0: 3, 1: 0}
    yield
    wait_for_its_leader(project)
    project.run()
    assert project.positions() == [(0, n) for n in range(3)] + [(1, n) for n in range(5)]


def an_open_batch_that_reads_all_of_its_feed_waits_where_no_partition_has_a_leader(
    project: QuickProject, topic: str
) -> Case:
    produce(project.bootstrap_servers, topic, 0, plain_records(5))
    project.write_feed(topic, kafka={"topics": [topic]})
    planned = project.plan()
    yield
    exit_code, code, _ = project.refusal("run", "orders")
    assert (exit_code, code) == (1, "KAFKA_UNAVAILABLE")
    yield
    open_batch = project.status()["open_batch"]
    assert (open_batch["batch_id"], open_batch["state"]) == (planned["batch_id"], "PLANNED")


def where_no_partition_has_a_leader_it_is_an_error_and_not_nothing_new(project: QuickProject, topic: str) -> Case:
    yield
    project.write_feed(topic, kafka={"topics": [topic]})
    exit_code, code, message = project.refusal("run", "orders")
    assert (exit_code, code) == (1, "KAFKA_UNAVAILABLE")
    assert f"{topic}-0" in message
    yield


def a_coordinator_that_is_down_holds_up_the_group_and_not_the_data(project: QuickProject, topic: str) -> Case:
    servers = project.bootstrap_servers
    for partition, count in enumerate((10, 5)):
        produce(servers, topic, partition, plain_records(count))
    group = mirrored_feed(project, topic)
    yield
    impatient = {"bootstrap.servers": servers, "socket.timeout.ms": "1000"}
    [batch] = project.run(AIRFLOW_CONN_KAFKA_DEFAULT=json.dumps({"conn_type": "kafka", "extra": impatient}))
    assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)
    assert f"when asked for setting the offsets of consumer group '{group}'" in batch["mirror_failure"]
    assert [failure["reason"] for failure in mirror_failures(project)] == [batch["mirror_failure"]]
    assert project.positions() == [(0, n) for n in range(10)] + [(1, n) for n in range(5)]
    yield
    assert project.answer("mirror", "orders", "--repair")["drift"] == []
    assert [tp.offset for tp in committed(servers, group, topic, [0, 1])] == [10, 5]


FIRST, SECOND = 1, 2
CASES: dict[Callable[[QuickProject, str], Case], list[int]] = {
    it_is_pending_in_the_first_plan_and_begins_as_the_feed_file_says_once_it_has_a_leader: [FIRST, SECOND],
    an_open_batch_that_reads_it_is_abandoned_for_the_others_and_nothing_is_lost: [FIRST, SECOND],
    an_open_batch_that_reads_it_alone_gives_way_to_new_records_of_another_partition: [FIRST, SECOND],
    an_open_batch_that_reads_all_of_its_feed_waits_where_no_partition_has_a_leader: [SECOND],
    where_no_partition_has_a_leader_it_is_an_error_and_not_nothing_new: [SECOND],
    a_coordinator_that_is_down_holds_up_the_group_and_not_the_data: [FIRST, FIRST],
}
"""Each, and the node that leads each partition of its topic."""


def test_a_partition_or_a_group_whose_node_is_down_holds_up_no_other_and_is_brought_up_to_date_once_it_is_back(
    tmp_path: Path,
) -> None:
    # A cluster that no other test uses: topics of others must not land on the node that is stopped.
    with EmbeddedBroker(tmp_path / "first") as broker, EmbeddedBroker(tmp_path / "second", joins=broker) as node:
        servers = broker.bootstrap_servers
        of_groups = {"cleanup.policy": "compact", "compression.type": "producer"}
        create_topic(servers, "__consumer_offsets", nodes=[SECOND], config=of_groups)
        begun: list[tuple[Case, str, list[int]]] = []
        for case, nodes in CASES.items():
            topic = f"orders-{uuid4().hex[:8]}"
            create_topic(servers, topic, nodes=nodes)
            project = QuickProject(tmp_path / topic, servers)
            project.make_control_tables()
            begun.append((case(project, topic), topic, nodes))
            next(begun[-1][0])
        for _, topic, nodes in begun:
            if nodes[-1] == SECOND:
                stop_leader(broker, node, topic, len(nodes) - 1)
        for running, _, _ in begun:
            next(running)
        node.start()
        for running, _, _ in begun:
            assert next(running, "ended") == "ended"


def wait_for_its_leader(project: QuickProject) -> None:
    """Return once partition 1 answers: a node that started leads its partitions some moments later."""
    for _ in range(100):
        if not project.dry_run()["left_out"]:
            return
    raise AssertionError("expected partition 1 to have a leader again")
