"""The consumer group follows the stored offsets, and nothing that happens to it ever holds up or moves the data."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.conftest import MoveGroup
from tests.kafka_faults import PATIENCE_S, forget_group, live_member, plain_records, produce
from tests.quick_project import Killed, QuickProject

from kafka_ingest.cluster import kafka_cluster


def committed(servers: str, group: str, topic: str, partitions: Sequence[int] = (0, 1, 2)) -> list[TopicPartition]:
    """Return what Kafka keeps of a group, with its metadata."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        return consumer.committed([TopicPartition(topic, partition) for partition in partitions], PATIENCE_S)
    finally:
        consumer.close()


def groups(servers: str, topic: str) -> list[str]:
    """Return the groups whose name begins with a topic's."""
    with AdminClient({"bootstrap.servers": servers, "log_level": 0}) as admin:
        found = admin.list_consumer_groups(request_timeout=PATIENCE_S).result(PATIENCE_S)
        return sorted(group.group_id for group in found.valid if group.group_id.startswith(topic))


def mirrored_feed(quick: QuickProject, orders: str) -> str:
    """Write a feed with a group of its own, and return the group's name."""
    group = f"{orders}-group"
    quick.write_feed(orders, kafka={"topics": [orders], "group": group})
    return group


def mirror_failures(quick: QuickProject) -> list[dict[str, str]]:
    """Return what the audit journal keeps of mirrors that failed."""
    with sqlite3.connect(quick.control_file) as connection:
        rows = connection.execute("SELECT detail FROM event WHERE kind = 'mirror_failed' ORDER BY event_id").fetchall()
    return [json.loads(detail) for (detail,) in rows]


# ── It follows ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_takes_the_group_along_and_names_its_batch(quick: QuickProject, servers: str, orders: str) -> None:
    group = mirrored_feed(quick, orders)
    [batch] = quick.run()
    found = committed(servers, group, orders)
    assert [tp.offset for tp in found] == [10, 5, 0]
    assert {tp.metadata for tp in found} == {f"kafka_ingest {batch['batch_id']}"}
    assert [entry["group_drift"] for entry in quick.status()["partitions"]] == [0, 0, 0]
    assert quick.answer("mirror", "orders")["drift"] == []


def test_a_feed_without_a_group_leaves_kafka_untouched(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders, kafka={"topics": [orders]})
    [batch] = quick.run()
    assert batch["mirror_failure"] is None
    assert groups(servers, orders) == []
    assert quick.partition(0)["group_offset"] is None
    exit_code, code, message = quick.refusal("mirror", "orders", "--repair")
    assert (exit_code, code) == (2, "WRONG_USE")
    assert "names no kafka.group" in message


# ── Another client moved it ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_that_another_client_moved_shows_as_drift_and_the_next_commit_brings_it_back(
    quick: QuickProject, servers: str, orders: str, move_group: MoveGroup
) -> None:
    group = mirrored_feed(quick, orders)
    quick.run()
    move_group(group, orders, {0: 3, 1: 9})
    assert [(entry["stored_offset"], entry["group_offset"]) for entry in quick.status()["partitions"]] == [
        (10, 3),
        (5, 9),
        (0, 0),
    ]
    assert [entry["group_drift"] for entry in quick.status()["partitions"]] == [-7, 4, 0]

    produce(servers, orders, 2, plain_records(2))
    [batch] = quick.run()
    assert batch["rows"] == 2, "nothing of the group's offsets was adopted"
    assert [tp.offset for tp in committed(servers, group, orders)] == [10, 5, 2]


@pytest.mark.usefixtures("servers")
def test_mirror_shows_the_drift_with_exit_code_1_and_repair_brings_it_back(
    quick: QuickProject, orders: str, move_group: MoveGroup
) -> None:
    group = mirrored_feed(quick, orders)
    quick.run()
    move_group(group, orders, {0: 3})
    shown = quick.kafka_ingest("mirror", "orders", "--json")
    assert shown.exit_code == 1
    assert shown.document["drift"] == [{"topic": orders, "partition": 0, "group_offset": 3, "stored_offset": 10}]
    assert quick.group_offsets()[0] == 3, "showing repairs nothing"
    assert quick.answer("mirror", "orders", "--repair")["drift"] == []
    assert quick.group_offsets() == {0: 10, 1: 5, 2: 0}


def test_offsets_that_expired_are_set_again_by_repair_or_by_the_next_commit(
    quick: QuickProject, servers: str, orders: str
) -> None:
    group = mirrored_feed(quick, orders)
    quick.run()
    forget_group(servers, group)
    assert quick.group_offsets() == {0: None, 1: None, 2: None}
    assert quick.kafka_ingest("mirror", "orders", "--json").exit_code == 1
    quick.answer("mirror", "orders", "--repair")
    assert quick.group_offsets() == {0: 10, 1: 5, 2: 0}

    forget_group(servers, group)
    produce(servers, orders, 0, plain_records(1))
    quick.run()
    assert quick.group_offsets() == {0: 11, 1: 5, 2: 0}


# ── It refuses ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_with_a_live_member_refuses_and_the_data_is_committed_all_the_same(
    quick: QuickProject, servers: str, orders: str
) -> None:
    group = mirrored_feed(quick, orders)
    with live_member(servers, group, orders):
        [batch] = quick.run()
        assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)
        assert "UNKNOWN_MEMBER_ID" in batch["mirror_failure"]
        assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}
        assert quick.group_offsets() == {0: None, 1: None, 2: None}
        refused = quick.kafka_ingest("mirror", "orders", "--repair", "--json")
        assert refused.exit_code == 1
        assert "UNKNOWN_MEMBER_ID" in refused.document["failure"]
    assert [failure["group"] for failure in mirror_failures(quick)] == [group, group]

    assert quick.answer("mirror", "orders", "--repair")["drift"] == []
    assert quick.group_offsets() == {0: 10, 1: 5, 2: 0}


def test_a_broker_that_is_down_at_the_commit_holds_up_the_group_and_not_the_data(
    quick: QuickProject, servers: str, orders: str
) -> None:
    group = mirrored_feed(quick, orders)
    with quick.stopping_before_the_commit(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    unreachable = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "1000"}
    connection = json.dumps({"conn_type": "kafka", "extra": unreachable})
    [batch] = quick.run(AIRFLOW_CONN_KAFKA_DEFAULT=connection)
    assert (batch["result"], batch["state"], batch["rows"]) == ("resumed", "COMMITTED", 15)
    assert "127.0.0.1:1" in batch["mirror_failure"]
    assert [tp.offset for tp in committed(servers, group, orders)] == [-1001, -1001, -1001]
    quick.answer("mirror", "orders", "--repair")
    assert [tp.offset for tp in committed(servers, group, orders)] == [10, 5, 0]


def test_a_jump_that_an_operator_makes_while_a_member_lives_says_that_the_group_stayed(
    quick: QuickProject, servers: str, orders: str
) -> None:
    group = mirrored_feed(quick, orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4")
    with live_member(servers, group, orders):
        answer = quick.answer("skip", "orders", orders, "0", "4-6", "--reason", "poisoned")
    assert "UNKNOWN_MEMBER_ID" in answer["mirror_failure"]
    assert (quick.partition(0)["stored_offset"], quick.partition(0)["group_offset"]) == (6, 4)


def test_more_partitions_than_one_request_carries_are_all_mirrored(
    quick: QuickProject, servers: str, orders: str
) -> None:
    group = mirrored_feed(quick, orders)
    with patch.object(kafka_cluster, "GROUP_COMMIT_PARTITIONS", 2):
        quick.run()
    assert [tp.offset for tp in committed(servers, group, orders)] == [10, 5, 0]
