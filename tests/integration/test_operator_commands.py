"""What only an operator decides: skipping, abandoning, renaming.

Each shown first, refused where it does not fit, kept.
"""

import json
import sqlite3
from typing import Any

import pytest
from tests.kafka_faults import plain_records, produce
from tests.quick_project import QuickProject

WHY = ("--reason", "poisoned by a broken producer")


def journal(quick: QuickProject, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Return who and what of the audit journal's events of one kind."""
    with sqlite3.connect(quick.control_file) as connection:
        rows = connection.execute("SELECT who, detail FROM event WHERE kind = ? ORDER BY event_id", [kind]).fetchall()
    return [(actor, json.loads(detail)) for actor, detail in rows]


# ── skip at the stored offset ─────────────────────────────────────────────────────────────────────────────────────────


def test_skipping_from_the_stored_offset_moves_it_now_and_takes_the_group_along(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4")
    answer = quick.answer("skip", "orders", orders, "0", "4-6", *WHY)
    assert (answer["moves_stored_offset_now"], answer["executed"], answer["mirror_failure"]) == (True, True, None)
    assert (quick.stored_offsets()[0], quick.group_offsets()[0]) == (6, 6)
    assert quick.gaps() == [(0, 4, 6, "skipped", "open")]
    quick.run()
    assert quick.positions() == [(0, n) for n in (0, 1, 2, 3, 6, 7, 8, 9)] + [(1, n) for n in range(5)]


# ── skip refused ──────────────────────────────────────────────────────────────────────────────────────────────────────


UNSKIPPABLE: list[tuple[str, str]] = [
    ("2-4", "expected FROM at or above the stored offset 4"),
    ("3-8", "expected FROM at or above the stored offset 4"),
    ("8-11", "expected TO up to the log's end 10"),
    ("7-9", "which is a gap already"),
    ("6-6", "expected FROM-TO with FROM below TO"),
    ("8-6", "expected FROM-TO with FROM below TO"),
    ("six-8", "expected FROM-TO with FROM below TO, such as 1200-1210"),
]


def test_an_interval_that_cannot_be_skipped_any_more_is_refused(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4")
    quick.answer("skip", "orders", orders, "0", "8-9", *WHY)
    for interval, said in UNSKIPPABLE:
        exit_code, code, message = quick.refusal("skip", "orders", orders, "0", interval, *WHY)
        assert (exit_code, code) == (2, "INVALID_RANGE"), interval
        assert said in message, interval
        assert quick.gaps() == [(0, 8, 9, "skipped", "ahead")], interval


NOT_READ: list[tuple[str, str, str, str]] = [
    ("nobody", "{topic}", "0", "UNKNOWN_FEED"),
    ("orders", "elsewhere", "0", "INVALID_RANGE"),
    ("orders", "{topic}", "9", "INVALID_RANGE"),
]


def test_skipping_where_nothing_is_read_is_refused(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    for feed, topic, partition, code in NOT_READ:
        _, found, _ = quick.refusal("skip", feed, topic.format(topic=orders), partition, "0-1", *WHY)
        assert found == code, feed


def test_skip_needs_a_feed_that_was_planned_and_a_reason(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    exit_code, code, _ = quick.refusal("skip", "orders", orders, "0", "0-1", *WHY)
    assert (exit_code, code) == (2, "UNKNOWN_FEED")
    quick.plan("--end-offset", f"{orders}:0=0")
    exit_code, code, message = quick.refusal("skip", "orders", orders, "0", "0-1", "--reason", "  ")
    assert (exit_code, code) == (2, "WRONG_USE")
    assert "expected --reason with a few words" in message
    assert quick.gaps() == []


# ── gaps ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_gap_ledger_lists_all_feeds_or_one_and_who_decided_what_and_why(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders, limits={"skip_to_latest_when_behind": 8})
    quick.write_feed(orders, name="refunds")
    quick.run()
    quick.plan("--end-offset", f"{orders}:0=0", name="refunds")
    quick.answer("skip", "refunds", orders, "1", "0-2", *WHY)

    found = quick.answer("gaps")["gaps"]
    assert [(gap["feed"], gap["partition"], gap["cause"]) for gap in found] == [
        ("orders", 0, "behind"),
        ("refunds", 1, "skipped"),
    ]
    assert found[0]["reason"] == "10 behind, more than skip_to_latest_when_behind: 8"
    assert found[1]["reason"] == "poisoned by a broken producer"
    assert quick.gaps("refunds") == [(1, 0, 2, "skipped", "open")]
    exit_code, code, _ = quick.refusal("gaps", "nobody")
    assert (exit_code, code) == (2, "UNKNOWN_FEED")


def test_tables_for_people_carry_the_same_and_no_colours_into_a_file(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=1")
    quick.answer("skip", "orders", orders, "0", "4-6", *WHY)
    gaps = quick.kafka_ingest("gaps").stdout
    status = quick.kafka_ingest("status", "orders").stdout
    assert "poisoned by a broken producer" in gaps
    assert "ahead" in gaps
    [total] = [line.split() for line in status.splitlines() if line.split()[:1] == ["total"]]
    assert total[:2] == ["total", "3"]
    assert "\x1b" not in gaps + status


# ── A feed file that is edited, a feed that is renamed ────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("servers")
def test_a_feed_file_that_is_edited_while_a_batch_is_open_counts_from_the_next_plan_on(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    planned = quick.plan("--end-offset", f"{orders}:0=6")
    quick.edit_feed(
        sink={"format": "parquet", "path": "elsewhere"},
        kafka={"topics": [orders], "isolation": "read_uncommitted", "offsets": "dense"},
        limits={"max_records": 2},
    )
    [finished] = quick.run()
    assert (finished["batch_id"], finished["result"], finished["rows"]) == (planned["batch_id"], "resumed", 6)
    assert finished["output"] == str(quick.output / "orders")
    [following] = quick.run()
    assert (following["output"], following["rows"]) == (str(quick.output / "elsewhere"), 2)
    assert len(quick.rows("orders")) == 6
    assert len(quick.rows("elsewhere")) == 2


def test_a_renamed_feed_keeps_its_offsets_and_history(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    [before] = quick.run()
    (quick.feeds / "orders.yaml").unlink()
    sink = {"format": "parquet", "path": "orders"}
    quick.write_feed(orders, name="sales", sink=sink)

    exit_code, code, message = quick.refusal("plan", "sales")
    assert (exit_code, code) == (3, "OUTPUT_UNKNOWN")
    assert "If the feed was renamed: `kafka-ingest rename-feed OLD NEW`" in message

    quick.answer("rename-feed", "orders", "sales", "--reason", "a better name")
    produce(servers, orders, 2, plain_records(1))
    [after] = quick.run("sales")
    assert after["rows"] == 1
    assert [batch["batch_id"] for batch in quick.batches("sales")] == [after["batch_id"], before["batch_id"]]
    assert len(quick.rows("orders")) == 16
    [(actor, detail)] = journal(quick, "renamed")
    assert actor.startswith("cli:")
    assert detail == {"reason": "a better name", "was": "orders", "is": "sales"}


def test_a_name_that_is_taken_or_unknown_is_refused(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.write_feed(orders, name="refunds")
    quick.plan()
    quick.plan(name="refunds")
    why = ("--reason", "a better name")
    assert quick.refusal("rename-feed", "orders", "refunds", *why)[:2] == (2, "WRONG_USE")
    assert quick.refusal("rename-feed", "sales", "orders", *why)[:2] == (2, "UNKNOWN_FEED")
