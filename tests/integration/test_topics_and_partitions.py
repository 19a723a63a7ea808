"""Which topics and partitions a feed reads: lists, patterns, what is new since the last plan, and what is not there."""

from datetime import UTC, datetime
from typing import Any

from tests.kafka_faults import (
    create_topic,
    delete_topic,
    plain_records,
    produce,
)
from tests.quick_project import QuickProject, seeds


def one_partition(servers: str, topic: str, count: int) -> str:
    """Create a topic of one partition with some records."""
    create_topic(servers, topic)
    produce(servers, topic, 0, plain_records(count))
    return topic


def ranges(document: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    """Return a plan's ranges as topic, partition, start offset and end offset."""
    return [
        (entry["topic"], entry["partition"], entry["start_offset"], entry["end_offset"]) for entry in document["ranges"]
    ]


# ── Several topics ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pattern_reads_what_it_matches_as_a_whole_and_never_kafka_s_own_topics(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}.refunds", 3)
    one_partition(servers, f"{orders}-other", 3)
    one_partition(servers, f"old-{orders}", 3)
    # A client committed to a group, so __consumer_offsets is there.
    quick.write_feed(orders)
    quick.run()
    quick.write_feed(orders, name="all", kafka={"topic_pattern": rf"__.*|{orders}(\.refunds)?"})
    assert ranges(quick.dry_run(name="all")) == [(orders, 0, 0, 10), (orders, 1, 0, 5), (refunds, 0, 0, 3)]


def test_a_pattern_that_matches_nothing_is_refused_and_matches_once_there_is_a_topic(
    quick: QuickProject, servers: str, name: str
) -> None:
    quick.write_feed(name, kafka={"topic_pattern": f"{name}-.*"})
    exit_code, code, message = quick.refusal("plan", "orders")
    assert (exit_code, code) == (2, "UNKNOWN_TOPIC")
    assert f"'{name}-.*'" in message
    one_partition(servers, f"{name}-first", 2)
    assert ranges(quick.dry_run()) == [(f"{name}-first", 0, 0, 2)]


# ── New since the last plan ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_that_an_unchanged_pattern_newly_matches_is_read_from_offset_0(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, start="latest", kafka={"topic_pattern": f"{orders}.*"})
    quick.plan()
    refunds = f"{orders}-refunds"
    create_topic(servers, refunds)
    produce(servers, refunds, 0, plain_records(3, round(datetime.now(UTC).timestamp() * 1000)))
    found = quick.plan()
    assert ranges(found) == [(refunds, 0, 0, 3)]
    assert seeds(found) == {0: (0, "new partition")}


def test_a_topic_that_may_be_older_than_the_last_plan_is_held_until_an_operator_decides(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, start="latest", kafka={"topic_pattern": f"{orders}.*"})
    quick.plan()
    refunds = one_partition(servers, f"{orders}-refunds", 3)  # its records are dated before the plan, by their producer
    produce(servers, orders, 2, plain_records(1))
    assert ranges(quick.plan()) == [(orders, 2, 0, 1)]
    [hold] = quick.status()["holds"]
    assert (hold["topic"], hold["partition"], hold["cause"]) == (refunds, 0, "new_or_older")
    assert f"kafka-ingest topic-changed orders --topic {refunds}" in hold["reason"]

    decision = ("topic-changed", "orders", "--topic", refunds, "--choice", "start-rule")
    quick.answer(*decision, "--execute", "--reason", "it is an old one")
    assert quick.status()["holds"] == []
    quick.run()  # the open batch
    assert quick.plan()["ranges"] == []
    assert quick.partition(0, topic=refunds)["stored_offset"] == 3
    assert quick.partition(0, topic=refunds)["seeded_by"] == "latest"


# ── Gone ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_that_is_gone_stops_the_feed_and_taking_it_out_of_the_file_lets_it_continue(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    quick.write_feed(orders, kafka={"topics": [orders, refunds]})
    quick.run()
    delete_topic(servers, refunds)
    produce(servers, orders, 2, plain_records(1))

    exit_code, code, message = quick.refusal("plan", "orders")
    assert (exit_code, code) == (3, "TOPIC_GONE")
    assert f"{refunds!r} has stored offsets for 1 partition, but cluster" in message
    assert "on_missing_topic: hold" in message

    quick.edit_feed(kafka={"topics": [orders]})
    assert ranges(quick.plan()) == [(orders, 2, 0, 1)]


def test_with_hold_the_other_topics_continue_and_status_says_since_when_one_is_gone(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    quick.write_feed(orders, on_missing_topic="hold", kafka={"topics": [orders, refunds]})
    quick.run()
    delete_topic(servers, refunds)
    produce(servers, orders, 2, plain_records(1))

    found = quick.plan()
    assert ranges(found) == [(orders, 2, 0, 1)]
    [hold] = found["holds"]
    assert (hold["topic"], hold["partition"], hold["cause"]) == (refunds, None, "topic_missing")
    [problem] = quick.status()["topics"]
    assert (problem["topic"], problem["since"]) == (refunds, hold["since"])
    entry = quick.partition(0, topic=refunds)
    assert (entry["stored_offset"], entry["high_watermark"], entry["lag"]) == (3, None, None)
    assert entry["unavailable"]["reason"] == "TOPIC_GONE: see its topic"
