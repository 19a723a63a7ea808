"""A dry run is refused where the command itself would be, and a refused command changes no control row."""

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest
from tests.kafka_faults import plain_records, produce, recreate_topic
from tests.quick_project import Killed, QuickProject

DRY: Sequence[str] = ("--dry-run",)
DO: Sequence[str] = ("--execute", "--reason", "why")
WHY: Sequence[str] = ("--reason", "why")


def rows_of(quick: QuickProject) -> list[str]:
    """Return all control rows."""
    with closing(sqlite3.connect(quick.control_file)) as connection:
        return list(connection.iterdump())


def refused(quick: QuickProject, *command: str, dry: Sequence[str] = DRY, do: Sequence[str] = ()) -> str:
    """Return the error of a command that is refused, and so is its dry run; neither leaves a trace."""
    before = rows_of(quick)
    shown, done = quick.refusal(*command, *dry), quick.refusal(*command, *do)
    assert shown == done
    assert rows_of(quick) == before
    return done[1]


def test_where_the_topic_was_made_again_under_an_open_batch_nothing_is_shown_that_is_refused(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4", "--end-offset", f"{orders}:1=0")
    with quick.stopping_before_the_commit(), pytest.raises(Killed):
        quick.run()
    written = quick.status()["open_batch"]["batch_id"]
    quick.answer("abandon", written, *WHY)
    planned = quick.plan()["batch_id"]
    recreate_topic(servers, orders)
    produce(servers, orders, 0, plain_records(12))

    assert refused(quick, "plan", "orders") == "TOPIC_RECREATED"
    assert refused(quick, "backfill", "orders", f"{orders}:0=0-4") == "TOPIC_RECREATED"
    assert refused(quick, "backfill", "orders", f"{orders}:0=0-4", "--copy-to", "again") == "TOPIC_RECREATED"
    assert refused(quick, "skip", "orders", orders, "0", "4-6", *WHY) == "TOPIC_RECREATED"
    assert refused(quick, "reset", "orders", "--to", "earliest", dry=(), do=DO) == "BATCH_STATE"
    for choice in (["--choice", "start-over"], ["--batch", "accept"], ["--choice", "forget"]):
        error = "BATCH_STATE" if choice[-1] == "start-over" else "WRONG_USE"
        assert refused(quick, "topic-changed", "orders", *choice, dry=(), do=DO) == error
    assert refused(quick, "abandon", written, *WHY) == "BATCH_STATE"
    assert refused(quick, "lost", "orders", "--batch", planned, dry=(), do=DO) == "BATCH_STATE"
    assert refused(quick, "fold", "orders") == "WRONG_USE"
    assert refused(quick, "rename-feed", "orders", "no name!", *WHY) == "WRONG_USE"
    assert refused(quick, "clean", "--batch", planned, dry=DRY, do=WHY) == "BATCH_STATE"
    quick.answer("abandon", planned, *WHY)
    assert refused(quick, "restore", written, dry=(), do=DO) == "TOPIC_RECREATED"


def test_where_the_output_has_batches_that_the_control_tables_lack_nothing_is_shown_that_is_refused(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4", "--end-offset", f"{orders}:1=0")
    backup = shutil.copy(quick.control_file, quick.home / "backup.db")
    quick.run()
    shutil.copy(backup, quick.control_file)

    for command in (
        ["plan", "orders"],
        ["backfill", "orders", f"{orders}:0=0-4"],
        ["replay", "orders"],
        ["skip", "orders", orders, "0", "4-6", *WHY],
    ):
        assert refused(quick, *command) == "OUTPUT_UNKNOWN", command
    for command in (
        ["reset", "orders", "--to", "earliest"],
        ["topic-changed", "orders", "--choice", "start-over"],
        ["expire", "orders", "--before", "2020-01-01"],
    ):
        assert refused(quick, *command, dry=(), do=DO) == "OUTPUT_UNKNOWN", command
    assert refused(quick, "mirror", "orders", dry=(), do=("--repair",)) == "OUTPUT_UNKNOWN"


def test_a_batch_that_readers_see_is_not_shown_as_one_to_abandon(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    [batch] = quick.run()
    with closing(sqlite3.connect(quick.control_file)) as connection, connection:
        connection.execute("UPDATE batch SET state = 'COMMITTING', committed_at = NULL, committed_by = NULL")
    assert refused(quick, "abandon", batch["batch_id"], *WHY) == "BATCH_STATE"
