"""`abandon` and `clean` from the command line: what they do, show, refuse and keep in the journal."""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.kafka_faults import delete_records
from tests.quick_project import Killed, QuickProject

WHY = ("--reason", "read with the wrong settings")
ALL = [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(5)]


@pytest.fixture
def feed(quick: QuickProject, orders: str) -> QuickProject:
    quick.write_feed(orders)
    return quick


def stop_at(quick: QuickProject, store: type, method: str) -> str:
    """Run the feed to a call of the control tables at which the process dies; return the batch."""
    with patch.object(store, method, side_effect=Killed), pytest.raises(Killed):
        quick.kafka_ingest("run", "orders")
    return str(quick.batches()[0]["batch_id"])


def staging(quick: QuickProject, batch_id: str) -> Path:
    return quick.output / "orders.kafka-ingest" / "staging" / batch_id


# ── abandon ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reason_that_is_an_option_is_refused_and_nothing_is_abandoned(feed: QuickProject) -> None:
    batch_id = feed.plan()["batch_id"]
    answer = feed.kafka_ingest("abandon", batch_id, "--reason", "--json")
    assert answer.exit_code == 2
    assert "found the option '--json'" in answer.stderr
    assert feed.batches()[0]["state"] == "PLANNED"


# ── clean ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def let_a_month_pass(quick: QuickProject) -> None:
    """Let all batches have ended a month ago."""
    with sqlite3.connect(quick.control_file) as connection:
        connection.execute(
            "UPDATE batch SET updated_at = ?", [f"{datetime.now(UTC) - timedelta(days=30):%Y-%m-%d %H:%M:%S.%f}"]
        )


def test_a_dry_run_shows_what_would_go_and_the_run_removes_exactly_that(feed: QuickProject) -> None:
    [batch] = feed.run()
    assert feed.answer("clean", "orders")["attempts"] == [], "a week is not over"
    let_a_month_pass(feed)

    shown = feed.answer("clean", "orders", "--dry-run")
    assert staging(feed, batch["batch_id"]).exists()
    done = feed.answer("clean")

    assert (shown["executed"], done["executed"]) == (False, True)
    assert shown["attempts"] == done["attempts"]
    assert [entry["batch_id"] for entry in done["attempts"]] == [batch["batch_id"]]
    assert done["freed_bytes"] > 0
    assert not staging(feed, batch["batch_id"]).exists()
    assert feed.positions() == ALL
    assert feed.answer("clean", "orders")["attempts"] == []


def test_the_last_copy_of_deleted_records_stays_until_an_operator_names_its_batch_and_says_why(
    feed: QuickProject, servers: str, orders: str
) -> None:
    with feed.stopping_before_the_commit(), pytest.raises(Killed):
        feed.kafka_ingest("run", "orders")
    batch_id = str(feed.batches()[0]["batch_id"])
    feed.answer("abandon", batch_id, *WHY)
    delete_records(servers, orders, 0, 4)
    let_a_month_pass(feed)

    [kept] = feed.answer("clean", "orders")["attempts"]
    assert f"the last copy of {orders}-0[0, 4)" in kept["kept"]
    assert feed.refusal("clean", "--batch", batch_id)[1] == "WRONG_USE"
    assert staging(feed, batch_id).exists()

    [removed] = feed.answer("clean", "--batch", batch_id, *WHY)["attempts"]
    assert removed["kept"] is None
    assert not staging(feed, batch_id).exists()


UNCLEANABLE: list[tuple[tuple[str, ...], str]] = [
    (("orders", "--batch", "01990000-0000-7000-8000-000000000001", *WHY), "WRONG_USE"),
    (("orders", *WHY), "WRONG_USE"),
    (("--batch", "4711", *WHY), "UNKNOWN_BATCH"),
    (("--batch", "01990000-0000-7000-8000-000000000001", *WHY), "UNKNOWN_BATCH"),
    (("absent",), "UNKNOWN_FEED"),
]


def test_what_cannot_be_cleaned_up_is_refused_by_name(feed: QuickProject) -> None:
    for arguments, code in UNCLEANABLE:
        assert feed.refusal("clean", *arguments)[:2] == (2, code), arguments


def test_a_feed_that_was_never_planned_has_nothing_to_clean_up(feed: QuickProject) -> None:
    assert feed.answer("clean", "orders")["attempts"] == []
