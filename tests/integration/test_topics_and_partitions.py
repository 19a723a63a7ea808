"""Which topics and partitions a feed reads: lists, patterns, what is new since the last plan, and what is not there."""

from datetime import UTC, datetime
from typing import Any

from tests.kafka_faults import (
    add_partitions,
    create_topic,
    delete_records,
    delete_topic,
    plain_records,
    produce,
    recreate_topic,
)
from tests.quick_project import QuickProject, seeds, spans


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


def test_one_batch_reads_all_topics_of_a_list(quick: QuickProject, servers: str, orders: str) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    quick.write_feed(orders, kafka={"topics": [orders, refunds]})
    [batch] = quick.run()
    assert batch["rows"] == 18
    assert {(row["kafka_topic"], row["kafka_partition"]) for row in quick.rows()} == {
        (orders, 0),
        (orders, 1),
        (refunds, 0),
    }


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


def test_a_partition_that_a_known_topic_gains_is_read_from_offset_0_whatever_the_start_rule(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, start="latest")
    quick.plan()
    add_partitions(servers, orders, 4)
    produce(servers, orders, 3, plain_records(6))
    found = quick.plan()
    assert spans(found) == {3: (0, 6)}
    assert seeds(found) == {3: (0, "new partition")}


def test_a_new_partition_whose_first_records_are_gone_stops_the_feed(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run()
    add_partitions(servers, orders, 4)
    produce(servers, orders, 3, plain_records(6))
    delete_records(servers, orders, 3, 2)

    exit_code, code, message = quick.refusal("plan", "orders")
    assert (exit_code, code) == (3, "OFFSETS_LOST")
    assert f"{orders}-3: begins at 0 (new partition), log start 2 (2 offsets gone)" in message
    assert 3 not in quick.stored_offsets()

    quick.edit_feed(on_data_loss="record_gap")
    assert spans(quick.plan()) == {3: (2, 6)}
    assert quick.gaps() == [(3, 0, 2, "retention", "open")]
    assert (quick.partition(3)["first_offset"], quick.partition(3)["stored_offset"]) == (0, 2)


def test_skipping_what_a_new_partition_lost_is_the_other_way_on(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    add_partitions(servers, orders, 4)
    produce(servers, orders, 3, plain_records(6))
    delete_records(servers, orders, 3, 2)
    quick.answer("skip", "orders", orders, "3", "0-2", "--reason", "retention was quicker")
    assert spans(quick.plan()) == {3: (2, 6)}
    assert quick.gaps() == [(3, 0, 2, "skipped", "open")]


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


def test_a_topic_that_is_newly_matched_with_its_first_records_gone_is_held_and_loss_if_it_is_new(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, kafka={"topic_pattern": f"{orders}.*"})
    quick.run()
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    delete_records(servers, refunds, 0, 1)
    assert quick.plan()["ranges"] == []
    assert "the log starts at 1" in quick.status()["holds"][0]["reason"]

    decision = ("topic-changed", "orders", "--topic", refunds, "--choice", "start-over")
    quick.answer(*decision, "--execute", "--reason", "it was made today")
    exit_code, code, message = quick.refusal("plan", "orders")
    assert (exit_code, code) == (3, "OFFSETS_LOST")
    assert f"{refunds}-0: begins at 0 (new partition), log start 1" in message
    quick.edit_feed(on_data_loss="record_gap")
    assert ranges(quick.plan()) == [(refunds, 0, 1, 3)]


def test_topics_that_an_edited_pattern_brings_in_get_the_start_rule(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    quick.write_feed(orders, start="latest", kafka={"topic_pattern": orders})
    quick.plan()
    quick.edit_feed(kafka={"topic_pattern": f"{orders}.*"})
    found = quick.plan()
    assert found["ranges"] == []
    assert seeds(found) == {0: (3, "latest")}
    assert quick.partition(0, topic=refunds)["stored_offset"] == 3


def test_topics_that_an_edited_list_brings_in_get_the_start_rule_or_their_own(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    returns = one_partition(servers, f"{orders}-returns", 4)
    quick.write_feed(orders, start="latest")
    quick.plan()
    quick.edit_feed(kafka={"topics": [orders, refunds, {"name": returns, "start": "earliest"}]})
    assert ranges(quick.plan()) == [(returns, 0, 0, 4)]
    assert quick.partition(0, topic=refunds)["seeded_by"] == "latest"
    assert quick.partition(0, topic=returns)["seeded_by"] == "earliest"


def test_a_topic_that_is_taken_out_keeps_its_offsets_and_continues_from_them_when_it_comes_back(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    quick.write_feed(orders, kafka={"topics": [orders, refunds]})
    quick.run()
    produce(servers, refunds, 0, plain_records(2))
    quick.edit_feed(kafka={"topics": [orders]})
    assert quick.plan()["result"] == "nothing_new"
    quick.edit_feed(start="latest", kafka={"topics": [orders, refunds]})
    assert ranges(quick.plan()) == [(refunds, 0, 3, 5)]


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


def test_a_topic_that_is_gone_for_good_is_forgotten_as_the_message_says(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    quick.write_feed(orders, kafka={"topic_pattern": f"{orders}.*"})
    quick.run()
    delete_topic(servers, refunds)
    produce(servers, orders, 2, plain_records(1))

    _, code, message = quick.refusal("plan", "orders")
    assert code == "TOPIC_GONE"
    forget = ("topic-changed", "orders", "--topic", refunds, "--choice", "forget")
    assert f"`kafka-ingest {' '.join(forget)}`" in message
    assert quick.answer(*forget)["after"] == []
    quick.answer(*forget, "--execute", "--reason", "the shop closed")

    assert ranges(quick.plan()) == [(orders, 2, 0, 1)]
    assert {entry["topic"] for entry in quick.status()["partitions"]} == {orders}


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


def test_since_when_a_topic_is_held_does_not_change_from_plan_to_plan(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders, on_missing_topic="hold", kafka={"topics": [orders, f"{orders}-later"]})
    quick.run()
    first = quick.status()["topics"]
    quick.plan()
    assert quick.status()["topics"] == first
    assert first[0]["since"] is not None


def test_a_held_topic_that_was_never_there_is_read_from_offset_0_once_it_is_made(
    quick: QuickProject, servers: str, orders: str
) -> None:
    later = f"{orders}-later"
    quick.write_feed(orders, start="latest", on_missing_topic="hold", kafka={"topics": [orders, later]})
    quick.plan()
    one_partition(servers, later, 2)
    assert ranges(quick.plan()) == [(later, 0, 0, 2)]
    assert quick.status()["topics"] == []


def test_a_missing_topic_stops_the_first_plan_unless_it_is_to_be_held(quick: QuickProject, orders: str) -> None:
    topics = {"topics": [orders, f"{orders}-misspelt"]}
    quick.write_feed(orders, kafka=topics)
    exit_code, code, message = quick.refusal("plan", "orders")
    assert (exit_code, code) == (2, "UNKNOWN_TOPIC")
    assert "on_missing_topic: hold" in message
    assert quick.status()["partitions"] == []
    quick.write_feed(orders, kafka=topics, on_missing_topic="hold")
    assert spans(quick.plan()) == {0: (0, 10), 1: (0, 5)}


def test_hold_does_not_make_a_feed_of_missing_topics_only_look_like_nothing_new(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, on_missing_topic="hold")
    quick.run()
    delete_topic(servers, orders)
    exit_code, code, _ = quick.refusal("plan", "orders")
    assert (exit_code, code) == (3, "TOPIC_GONE")


def test_a_held_topic_that_comes_back_under_another_id_stops_the_feed(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = one_partition(servers, f"{orders}-refunds", 3)
    quick.write_feed(orders, on_missing_topic="hold", kafka={"topics": [orders, refunds]})
    quick.run()
    delete_topic(servers, refunds)
    quick.plan()
    one_partition(servers, refunds, 3)
    exit_code, code, message = quick.refusal("plan", "orders")
    assert (exit_code, code) == (3, "TOPIC_RECREATED")
    assert repr(refunds) in message


def test_a_topic_that_came_back_with_fewer_partitions_is_another_topic(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run()
    recreate_topic(servers, orders, 1)
    exit_code, code, _ = quick.refusal("plan", "orders")
    assert (exit_code, code) == (3, "TOPIC_RECREATED")
