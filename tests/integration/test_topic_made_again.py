"""A topic that is deleted and created again, under a feed in each of its states, and another cluster in its place."""

import json
from collections import Counter
from contextlib import suppress

import pytest
from tests.kafka_faults import (
    create_topic,
    delete_topic,
    plain_records,
    produce,
    recreate_topic,
    topic_id,
)
from tests.quick_project import Killed, QuickProject

from embedded_broker import EmbeddedBroker

WHY = ("--execute", "--reason", "the producer's team made it again")


def made_again(servers: str, topic: str, count: int = 20) -> str:
    """Make the topic again so that every number of the old one looks valid in the new one; return the new id."""
    found = recreate_topic(servers, topic, 3)
    for partition in range(3):
        produce(servers, topic, partition, plain_records(count))
    return found


# ── Found by the plan ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_made_again_stops_the_plan_also_where_the_numbers_look_valid(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run()
    before = topic_id(servers, orders)
    after = made_again(servers, orders)

    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "TOPIC_RECREATED")
    assert f"expected topic id {before}, found {after}" in message
    assert "`kafka-ingest topic-changed orders`" in message
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}
    [change] = quick.answer("topic-changed", "orders")["topics"]
    assert change["choices"] == ["start-over", "same-records"]
    assert "--choice start-over" in quick.kafka_ingest("topic-changed", "orders").stdout


def test_hold_holds_the_topic_made_again_until_it_starts_over_and_the_others_continue(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = f"{orders}-refunds"
    create_topic(servers, refunds)
    quick.write_feed(orders, kafka={"topics": [orders, refunds], "group": "orders-ingest"}, on_topic_changed="hold")
    quick.run()
    planned = quick.plan()
    assert planned["result"] == "nothing_new"
    produce(servers, refunds, 0, plain_records(3))
    produce(servers, orders, 2, plain_records(1))
    planned = quick.plan()
    made_again(servers, orders)

    [batch] = quick.run()
    assert (batch["rows"], batch["mirror_failure"]) == (3, None)
    assert {each["batch_id"]: each["state"] for each in quick.batches()}[planned["batch_id"]] == "ABANDONED"
    [hold] = quick.status()["holds"]
    assert (hold["topic"], hold["partition"], hold["cause"]) == (orders, None, "topic_changed")
    assert "Held since" in quick.kafka_ingest("status", "orders").stdout

    quick.answer("topic-changed", "orders", "--choice", "start-over", *WHY)
    [batch] = quick.run()
    assert batch["rows"] == 60
    assert quick.status()["holds"] == []


def test_status_shows_no_numbers_of_a_topic_that_is_another_one(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    made_again(servers, orders)
    [problem] = quick.status()["topics"]
    assert problem["topic"] == orders
    assert "was deleted and created again" in problem["reason"]
    entry = quick.partition(0)
    assert (entry["stored_offset"], entry["high_watermark"], entry["lag"]) == (10, None, None)
    assert entry["unavailable"]["reason"] == "TOPIC_RECREATED: see its topic"


# ── The way out ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_of_the_old_and_the_new_topic_at_the_same_offset_are_distinguished_by_the_topic_id(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run()
    before = topic_id(servers, orders)
    after = made_again(servers, orders)
    quick.answer("topic-changed", "orders", "--choice", "start-over", *WHY)
    quick.run()

    of_topic = Counter(row["kafka_topic_id"] for row in quick.rows())
    assert of_topic == {before: 15, after: 60}
    assert max(Counter(quick.positions()).values()) == 2, "the position alone is there twice"
    identified = Counter((row["kafka_topic_id"], row["kafka_partition"], row["kafka_offset"]) for row in quick.rows())
    assert set(identified.values()) == {1}


UNFIT: list[tuple[tuple[str, ...], str]] = [
    (("--choice", "forget"), "WRONG_USE"),
    (("--topic", "elsewhere", "--choice", "start-over"), "WRONG_USE"),
    (("--execute", "--reason", "because"), "WRONG_USE"),
    (("--choice", "start-over", "--execute"), "WRONG_USE"),
]


def test_a_choice_that_does_not_fit_is_refused(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    made_again(servers, orders)
    for arguments, code in UNFIT:
        exit_code, found, _ = quick.refusal("topic-changed", "orders", *arguments)
        assert (exit_code, found) == (2, code), arguments
        assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}, arguments


# ── With a batch open ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def read_and_not_pinned(quick: QuickProject, servers: str, orders: str) -> str:
    """Spark finished, its receipt was not pinned, and then the topic was made again. The batch's id."""
    quick.write_feed(orders)
    with quick.stopping_before_the_pin(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    made_again(servers, orders)
    open_batch = quick.status()["open_batch"]
    assert open_batch["state"] == "PLANNED"
    return str(open_batch["batch_id"])


@pytest.mark.usefixtures("orders")
def test_accepting_what_was_read_commits_it_and_the_new_topic_is_started_over_after_that(
    quick: QuickProject, read_and_not_pinned: str
) -> None:
    quick.answer("topic-changed", "orders", "--batch", "accept", *WHY)
    [batch] = quick.run()
    assert (batch["batch_id"], batch["rows"]) == (read_and_not_pinned, 15)
    assert quick.refusal("run", "orders")[:2] == (3, "TOPIC_RECREATED")
    quick.answer("topic-changed", "orders", "--choice", "start-over", *WHY)
    [batch] = quick.run()
    assert batch["rows"] == 60


def test_a_batch_that_is_written_commits_although_its_topic_is_gone(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    with quick.stopping_before_the_commit(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    delete_topic(servers, orders)
    [batch] = quick.run()
    assert (batch["rows"], batch["state"]) == (15, "COMMITTED")


def test_a_feed_that_was_renamed_since_its_batch_was_planned_is_named_as_it_is_called_now(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    planned = quick.plan()
    (quick.feeds / "orders.yaml").unlink()
    quick.write_feed(orders, name="sales", sink={"format": "parquet", "path": "orders"})
    quick.answer("rename-feed", "orders", "sales", "--reason", "a better name")
    made_again(servers, orders)

    exit_code, code, message = quick.refusal("run", "sales")
    assert (exit_code, code) == (3, "TOPIC_RECREATED")
    assert "`kafka-ingest topic-changed sales`" in message
    assert "topic-changed orders`" not in message
    quick.answer("topic-changed", "sales", "--choice", "start-over", "--batch", "discard", *WHY)
    assert [(batch["batch_id"], batch["state"]) for batch in quick.batches("sales")] == [
        (planned["batch_id"], "ABANDONED")
    ]
    [batch] = quick.run("sales")
    assert batch["rows"] == 60


def test_a_receipt_that_is_found_under_a_new_name_names_it_too(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    with quick.stopping_before_the_pin(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    (quick.feeds / "orders.yaml").unlink()
    quick.write_feed(orders, name="sales", sink={"format": "parquet", "path": "orders"})
    quick.answer("rename-feed", "orders", "sales", "--reason", "a better name")
    delete_topic(servers, orders)

    _, code, message = quick.refusal("run", "sales")
    assert code == "TOPIC_GONE"
    assert "`kafka-ingest topic-changed sales`" in message


# ── Another cluster ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def there(another_broker: EmbeddedBroker, orders: str) -> dict[str, str]:
    """The connection leads to another cluster, which has a topic of the same name with more records."""
    servers = another_broker.bootstrap_servers
    create_topic(servers, orders, 3)
    for partition in range(3):
        produce(servers, orders, partition, plain_records(20))
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": servers}}
    return {"AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(connection)}


def test_another_cluster_stops_the_feed_with_both_ids(
    quick: QuickProject, broker: EmbeddedBroker, another_broker: EmbeddedBroker, orders: str, there: dict[str, str]
) -> None:
    quick.write_feed(orders)
    quick.run()
    exit_code, code, message = quick.refusal("run", "orders", **there)
    assert (exit_code, code) == (3, "WRONG_CLUSTER")
    assert f"belong to Kafka cluster {broker.cluster_id}" in message
    assert f"leads to cluster {another_broker.cluster_id}" in message
    assert "point the connection back" in message
    assert quick.run() == [], "pointed back, all is as it was"


def test_status_on_another_cluster_shows_no_numbers_of_it(
    quick: QuickProject, orders: str, there: dict[str, str]
) -> None:
    quick.write_feed(orders)
    quick.run()
    found = quick.kafka_ingest("status", "orders", "--json", **there)
    assert found.exit_code == 1
    assert "leads to cluster" in found.document["kafka"]["error"]
    assert {(entry["high_watermark"], entry["group_offset"]) for entry in found.document["partitions"]} == {
        (None, None)
    }


@pytest.mark.usefixtures("another_broker")
def test_a_written_batch_commits_on_another_cluster_and_leaves_its_group_alone(
    quick: QuickProject, orders: str, there: dict[str, str]
) -> None:
    quick.write_feed(orders, kafka={"topics": [orders], "group": f"{orders}-group"})
    with quick.stopping_before_the_commit(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    [batch] = quick.answer("run", "orders", **there)["batches"]
    assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)
    assert "Offsets of one cluster mean nothing in another" in batch["mirror_failure"]
    quick.write_feed(orders, name="look", start={"group": f"{orders}-group", "otherwise": "latest"})
    assert "has no offset" in quick.answer("plan", "look", "--dry-run", **there)["seeds"][0]["rule"]


def test_going_over_to_another_cluster_begins_there_by_the_start_rule(
    quick: QuickProject, another_broker: EmbeddedBroker, orders: str, there: dict[str, str]
) -> None:
    quick.write_feed(orders)
    quick.run()
    quick.edit_feed(start={"offsets": {orders: {0: 15}}, "otherwise": "latest"})
    quick.answer("topic-changed", "orders", "--choice", "start-over", *WHY, **there)
    [batch] = quick.answer("run", "orders", **there)["batches"]
    assert batch["rows"] == 5
    found = quick.answer("status", "orders", **there)
    assert found["cluster_id"] == another_broker.cluster_id
    assert [entry["stored_offset"] for entry in found["partitions"]] == [20, 20, 20]
    assert quick.refusal("run", "orders")[:2] == (3, "WRONG_CLUSTER"), "the old one is the other one now"


@pytest.fixture
def refunds_taken_out(quick: QuickProject, servers: str, orders: str) -> str:
    """The feed read one record of another topic, has a gap ahead there, and names it no more. That topic's name."""
    refunds = f"{orders}-refunds"
    create_topic(servers, refunds)
    produce(servers, refunds, 0, plain_records(4))
    quick.write_feed(orders, kafka={"topics": [orders, refunds]})
    quick.run("orders", "--end-offset", f"{refunds}:0=1")
    quick.answer("skip", "orders", refunds, "0", "2-3", "--reason", "poisoned")
    quick.run("orders", "--end-offset", f"{orders}:0=10", "--end-offset", f"{orders}:1=5")
    quick.edit_feed(kafka={"topics": [orders]})
    return refunds


@pytest.mark.parametrize("exists_there", [False, True])
def test_of_a_topic_that_was_taken_out_of_the_file_nothing_remains_on_another_cluster(
    quick: QuickProject,
    another_broker: EmbeddedBroker,
    orders: str,
    refunds_taken_out: str,
    there: dict[str, str],
    *,
    exists_there: bool,
) -> None:
    if exists_there:
        create_topic(another_broker.bootstrap_servers, refunds_taken_out)
    shown = quick.answer("topic-changed", "orders", "--choice", "start-over", **there)
    assert [change["topic"] for change in shown["topics"]] == [orders, refunds_taken_out]
    assert {row["topic"] for row in shown["after"]} == {orders}

    quick.answer("topic-changed", "orders", "--choice", "start-over", *WHY, **there)
    [batch] = quick.answer("run", "orders", **there)["batches"]
    assert batch["rows"] == 60
    found = quick.answer("status", "orders", **there)
    assert {entry["topic"] for entry in found["partitions"]} == {orders}
    assert found["topics"] == []
    assert quick.gaps() == []
    assert quick.answer("topic-changed", "orders", **there)["topics"] == []


def test_an_open_batch_over_a_topic_that_was_taken_out_is_discarded_with_the_cluster(
    quick: QuickProject, servers: str, orders: str, there: dict[str, str]
) -> None:
    refunds = f"{orders}-refunds"
    create_topic(servers, refunds)
    produce(servers, refunds, 0, plain_records(4))
    quick.write_feed(orders, kafka={"topics": [orders, refunds]})
    planned = quick.plan("--end-offset", f"{refunds}:0=4")
    quick.edit_feed(kafka={"topics": [orders]})
    choice = ("topic-changed", "orders", "--choice", "start-over")
    assert quick.refusal(*choice, *WHY, **there)[:2] == (2, "BATCH_STATE")
    quick.answer(*choice, "--batch", "discard", *WHY, **there)
    assert [(batch["batch_id"], batch["state"]) for batch in quick.batches()] == [(planned["batch_id"], "ABANDONED")]
    [batch] = quick.answer("run", "orders", **there)["batches"]
    assert batch["rows"] == 60
