"""Feeds whose output is a topic, by the command line: records that would go round are refused by the plan."""

import pytest
from tests.kafka_faults import create_topic
from tests.quick_project import QuickProject

HIDDEN = "connections kafka_default, kafka_other lead to one cluster"


@pytest.fixture
def by_two_connections(quick: QuickProject) -> QuickProject:
    """A project with a second connection to the broker."""
    quick.environment["AIRFLOW_CONN_KAFKA_OTHER"] = quick.environment["AIRFLOW_CONN_KAFKA_DEFAULT"]
    return quick


def write(quick: QuickProject, name: str, reads: dict[str, str], writes: dict[str, str]) -> None:
    """Write a feed from one topic to another, each with its connection."""
    kafka = {"conn_id": reads["conn_id"], "topics": [reads["topic"]]}
    quick.write_feed(reads["topic"], name=name, kafka=kafka, sink={"format": "kafka", "path": name, **writes})


def by(conn_id: str, topic: str) -> dict[str, str]:
    return {"conn_id": conn_id, "topic": topic}


def test_a_circle_is_refused_where_a_second_connection_to_the_cluster_hides_it(
    by_two_connections: QuickProject, servers: str, orders: str
) -> None:
    quick, back = by_two_connections, f"{orders}-back"
    create_topic(servers, back, 3)
    write(quick, "there", by("kafka_default", orders), by("kafka_default", back))
    [first] = quick.run("there")  # alone it is none
    write(quick, "back", by("kafka_other", back), by("kafka_other", orders))
    for name in ("there", "back"):
        for step in ("run", "plan"):
            exit_code, code, message = quick.refusal(step, name)
            assert (exit_code, code) == (2, "INVALID_FEED")
            assert HIDDEN in message
            assert "there.yaml" in message
            assert "back.yaml" in message
        assert HIDDEN in quick.kafka_ingest("doctor", name).stdout
    backfill = ("backfill", "there", "batch=" + first["batch_id"])
    assert HIDDEN in quick.refusal(*backfill)[2]


def test_the_topic_that_a_feed_reads_is_no_output_by_any_connection(
    by_two_connections: QuickProject, orders: str
) -> None:
    quick = by_two_connections
    write(quick, "itself", by("kafka_default", orders), by("kafka_other", orders))
    exit_code, _, message = quick.refusal("plan", "itself")
    assert exit_code == 2
    assert HIDDEN in message


def test_a_topic_of_the_same_name_is_an_output_where_it_is_perhaps_in_another_cluster(
    quick: QuickProject, orders: str
) -> None:
    quick.environment["AIRFLOW_CONN_KAFKA_OTHER"] = (
        '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "3000"}}'
    )
    write(quick, "itself", by("kafka_default", orders), by("kafka_other", orders))
    _, code, _ = quick.refusal("plan", "itself")
    assert code == "OUTPUT_UNAVAILABLE"
