"""What retention took, what is too much or too little for one batch, and what was jumped over to be fresh."""

import sqlite3
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest
from tests.kafka_faults import (
    compacted_topic,
    delete_records,
    plain_records,
    produce,
    recreate_topic,
)
from tests.quick_project import QuickProject, spans

from embedded_broker import EmbeddedBroker
from kafka_ingest.planning import limits


def read_a_little(quick: QuickProject, orders: str, **changes: Any) -> None:
    """Read the first two records of partition 0 and the first of partition 1."""
    quick.write_feed(orders, **changes)
    quick.run("orders", "--end-offset", f"{orders}:0=2", "--end-offset", f"{orders}:1=1")


# ── Retention was quicker ─────────────────────────────────────────────────────────────────────────────────────────────


def test_records_that_retention_took_stop_the_feed_with_both_numbers_and_nothing_moves(
    quick: QuickProject, servers: str, orders: str
) -> None:
    read_a_little(quick, orders)
    delete_records(servers, orders, 0, 6)
    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "OFFSETS_LOST")
    assert f"{orders}-0: stored offset 2, log start 6 (4 offsets gone)" in message
    assert "Nothing was planned and no offset moved" in message
    assert quick.stored_offsets() == {0: 2, 1: 1, 2: 0}
    assert quick.gaps() == []
    assert quick.partition(0)["headroom"] == -4


def test_record_gap_continues_from_the_log_start_and_keeps_when_and_why(
    quick: QuickProject, servers: str, orders: str
) -> None:
    read_a_little(quick, orders)
    delete_records(servers, orders, 0, 6)
    quick.edit_feed(on_data_loss="record_gap")

    shown = quick.dry_run()
    assert shown["gaps"] == [
        {
            "topic": orders,
            "partition": 0,
            "start_offset": 2,
            "end_offset": 6,
            "cause": "retention",
            "reason": "the log starts at 6: Kafka deleted what lies before",
        }
    ]
    assert quick.gaps() == [], "a dry run files nothing"

    assert spans(quick.plan()) == {0: (6, 10), 1: (1, 5)}
    [gap] = quick.answer("gaps", "orders")["gaps"]
    assert (gap["start_offset"], gap["end_offset"], gap["cause"], gap["state"]) == (2, 6, "retention", "open")
    assert gap["decided_by"].startswith("cli:")
    assert gap["decided_at"] == gap["applied_at"]
    assert [shown["gap_id"] for shown in quick.partition(0)["gaps"]] == [gap["gap_id"]]


def test_what_was_lost_again_and_again_is_read_apart_after_the_others_and_costs_them_nothing_more(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, on_data_loss="record_gap")
    for deleted, rows in ((2, 5), (4, 1), (6, 1)):
        quick.plan()
        delete_records(servers, orders, 0, deleted)
        [batch] = quick.run()
        assert (batch["rows"], [each["log_start_offset"] for each in batch["ranges_left_out"]]) == (rows, [deleted])
        produce(servers, orders, 1, plain_records(1))

    [others] = quick.run()
    [apart] = quick.run()

    assert (others["rows"], others["capped"]) == (1, True)
    assert (apart["rows"], apart["capped"]) == (4, False)
    assert {each["state"] for each in quick.batches()} == {"COMMITTED"}
    assert quick.gaps() == [(0, start, start + 2, "retention", "open") for start in (0, 2, 4)]
    assert quick.positions() == [(0, n) for n in range(6, 10)] + [(1, n) for n in range(8)]


def test_hold_holds_the_partition_that_lost_records_until_they_are_skipped_and_the_others_continue(
    quick: QuickProject, servers: str, orders: str
) -> None:
    read_a_little(quick, orders, on_data_loss="hold")
    delete_records(servers, orders, 0, 6)

    [batch] = quick.run()
    assert batch["rows"] == 4
    assert batch["left_out"] == [
        {"topic": orders, "partition": 0, "reason": "4 offsets from 2 on were deleted unread: the log starts at 6"}
    ]
    [hold] = quick.status()["holds"]
    assert (hold["partition"], hold["cause"], hold["at_offset"]) == (0, "offsets_lost", 2)
    assert "4 offsets were deleted before they were read, held, since" in quick.kafka_ingest("status", "orders").stdout
    assert quick.answer("run", "orders")["ended_with"] == "nothing new"
    assert quick.status()["holds"] == [hold], "it stays held, since when it was first seen"
    assert quick.gaps() == []

    quick.answer("skip", "orders", orders, "0", "2-6", "--reason", "nobody needs them")
    [batch] = quick.run()
    assert batch["rows"] == 4
    assert quick.status()["holds"] == []
    assert quick.positions() == [(0, n) for n in (0, 1, 6, 7, 8, 9)] + [(1, n) for n in range(5)]


def test_a_partition_of_which_everything_is_gone_continues_at_its_end(
    quick: QuickProject, servers: str, orders: str
) -> None:
    read_a_little(quick, orders, on_data_loss="record_gap")
    delete_records(servers, orders, 0, 10)
    assert spans(quick.plan()) == {1: (1, 5)}
    assert quick.gaps() == [(0, 2, 10, "retention", "open")]
    # The group does not wait for a commit: what was jumped over would look like lag.
    assert (quick.partition(0)["stored_offset"], quick.partition(0)["group_offset"]) == (10, 10)


# ── Headroom ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_status_says_how_many_records_lie_between_retention_and_the_stored_offset(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=8", "--end-offset", f"{orders}:1=4")
    delete_records(servers, orders, 0, 7)
    assert [entry["headroom"] for entry in quick.status()["partitions"]] == [1, 4, 0]


# ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_without_a_limit_begins_small_and_says_that_there_is_more(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    with patch.object(limits, "LEAST_RECORDS", 4):
        answer = quick.kafka_ingest("run", "orders")
        assert quick.stored_offsets() == {0: 2, 1: 2, 2: 0}
        assert "--until-caught-up reads them at once" in answer.stderr
        assert quick.dry_run()["max_records"] > 4, "the speed of the first batch is known now"
        quick.run("orders", "--until-caught-up")
    assert quick.positions() == [(0, n) for n in range(10)] + [(1, n) for n in range(5)]


def test_a_limit_on_a_compacted_log_counts_offsets_so_batches_are_smaller_and_still_end(
    quick: QuickProject, broker: EmbeddedBroker, name: str
) -> None:
    # 22 offsets, of which 1 to 16 are holes.
    remaining = compacted_topic(broker, name)
    quick.write_feed(name, limits={"max_records": 6})
    batches = quick.run("orders", "--until-caught-up")
    assert [batch["rows"] for batch in batches] == [1, 0, 1, 4]
    assert [offset for _, offset in quick.positions()] == remaining


# ── Small batches wait ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_small_batch_waits_and_status_says_since_when(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders, limits={"min_records": 20, "max_wait": "2h"})
    answer = quick.kafka_ingest("run", "orders", "--json")
    assert (answer.exit_code, answer.document["batches"]) == (0, [])
    assert answer.document["ended_with"].startswith("15 records waiting for min_records, since ")
    since = quick.status()["waiting_since"]
    assert since is not None

    produce(servers, orders, 2, plain_records(4))
    assert quick.plan()["result"] == "waiting"
    assert quick.status()["waiting_since"] == since, "more records do not restart the wait"

    produce(servers, orders, 2, plain_records(1))
    [batch] = quick.run()
    assert batch["rows"] == 20
    assert quick.status()["waiting_since"] is None


# ── Above the log's end ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def beyond(quick: QuickProject, servers: str, orders: str) -> str:
    """The feed stands at 10 and 5 of a topic whose logs end at 4 and 5, as a manual change left the control tables."""
    quick.write_feed(orders)
    quick.run()
    made_again = recreate_topic(servers, orders, 3)
    produce(servers, orders, 0, plain_records(4))
    produce(servers, orders, 1, plain_records(5))
    with closing(sqlite3.connect(quick.control_file)) as connection, connection:
        connection.execute("UPDATE stored_offset SET topic_id = ?", [made_again])
    return orders


def test_a_stored_offset_above_the_log_s_end_stops_with_both_numbers_and_the_cluster(
    quick: QuickProject, broker: EmbeddedBroker, beyond: str
) -> None:
    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "STORED_OFFSET_BEYOND_LOG")
    assert f"{beyond}-0: stored offset 10, log end 4" in message
    assert broker.cluster_id in message
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}


def test_status_of_a_stored_offset_above_the_log_s_end_is_no_lag(quick: QuickProject, beyond: str) -> None:
    entry = quick.partition(0, topic=beyond)
    assert (entry["stored_offset"], entry["high_watermark"], entry["lag"]) == (10, 4, 0)
