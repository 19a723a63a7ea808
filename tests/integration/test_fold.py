"""Old batches are folded in the control tables.

What is asked of the feed has the same answer, from sums and receipts.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from tests.by_form import ALICE, DO, asking_by_form
from tests.integration.conftest import Begun
from tests.integration.test_adopt import DO_IT, lose_control_tables, receipts, what_is_known
from tests.integration.test_lost_files import path_of
from tests.kafka_faults import plain_records, produce
from tests.quick_project import QuickProject

from kafka_ingest.model.folded import FoldCut

OLD = ("--before", "100d")
FOLDED = {"folded", "folded_batches"}
EXECUTE = ("--execute", "--reason", "a disk died")


def begin(project: QuickProject, orders: str) -> None:
    """Let a feed have three live batches of 5 records each, and one of 2: the older three are 400 days old."""
    project.write_feed(orders, limits={"max_records": 5}, control_retention="365d")
    project.run("orders", "--until-caught-up")
    make_old(project)
    produce(project.bootstrap_servers, orders, 1, plain_records(2))
    project.run()
    project.answer("clean")
    assert [batch["rows"] for batch in project.batches()] == [2, 5, 5, 5]


@pytest.fixture
def feed(begun: Begun) -> Iterator[QuickProject]:
    with patch("kafka_ingest.verbs.database.FoldCut", partial(FoldCut, newest_stay=1)):
        yield begun.project


OLDER = (
    (
        "UPDATE batch SET planned_at = strftime('%Y-%m-%d %H:%M:%f000', planned_at, '-400 days'), "
        "committed_at = strftime('%Y-%m-%d %H:%M:%f000', committed_at, '-400 days'), "
        "updated_at = strftime('%Y-%m-%d %H:%M:%f000', updated_at, '-400 days')"
    ),
    "UPDATE event SET at = strftime('%Y-%m-%d %H:%M:%f000', at, '-400 days')",
)
COUNTED = {
    "folded_range": "SELECT count(*) FROM folded_range",
    "batch_range": "SELECT count(*) FROM batch_range",
    "attempt": "SELECT count(*) FROM attempt",
}


def make_old(project: QuickProject) -> None:
    """Let all that the control tables hold of batches be 400 days older."""
    with closing(sqlite3.connect(project.control_file)) as connection:
        for statement in OLDER:
            connection.execute(statement)
        connection.commit()


def change(project: QuickProject, statement: str, *values: str) -> None:
    """Change a row by hand."""
    with closing(sqlite3.connect(project.control_file)) as connection:
        assert connection.execute(statement, values).rowcount == 1
        connection.commit()


def rows_of(project: QuickProject, table: str) -> int:
    with closing(sqlite3.connect(project.control_file)) as connection:
        return int(connection.execute(COUNTED[table]).fetchone()[0])


def old_ids(project: QuickProject) -> list[str]:
    """Return the old batches, oldest first."""
    return [str(batch["batch_id"]) for batch in reversed(project.batches()[1:])]


def without(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in FOLDED}


def answers(project: QuickProject) -> dict[str, Any]:
    """Return what is asked of a feed, without what says how it is known."""
    coverage = project.answer("coverage", "orders", "--verify")
    topic = coverage["partitions"][0]["topic"]
    return {
        "coverage": [without(partition) for partition in coverage["partitions"]],
        "verified": without(coverage["verified"]),
        "status": project.status() | {"now": None},
        "feeds": project.answer("status")["feeds"],
        "batches": [
            without(batch) | {"ranges": None, "attempt": None}
            for batch in project.answer("batches", "orders")["batches"]
        ],
        "located": [without(project.answer("locate", "orders", topic, "0", str(offset))) for offset in (0, 4, 5, 9)],
        "expired": without(project.answer("expire", "orders", *OLD)) | {"before": None},
        "adopted": project.answer("adopt", "orders"),
    }


def differences(project: QuickProject) -> list[tuple[str, str, str]]:
    """Return where the output is not what the control tables say."""
    found = project.kafka_ingest("coverage", "orders", "--verify", "--json")
    assert found.exit_code == 3
    return [(each["where"], each["expected"], each["found"]) for each in found.document["verified"]["differences"]]


# ── Folded, and asked ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_asked_of_a_feed_has_the_same_answer_when_its_old_batches_are_folded(feed: QuickProject) -> None:
    before = answers(feed)
    with asking_by_form(feed) as ask:
        shown = ask(action="fold").document
    assert (shown["batches"], shown["executed"], rows_of(feed, "batch_range") > 1) == (3, False, True)

    with asking_by_form(feed) as ask:
        done = ask(action="fold", **DO).document

    assert (done["batches"], done["attempts"], done["executed"], done["kept"]) == (3, 3, True, [])
    assert answers(feed) == before
    assert [(batch["folded"], bool(batch["ranges"])) for batch in feed.batches()] == [(False, True)] + [
        (True, False)
    ] * 3
    assert (rows_of(feed, "folded_range"), rows_of(feed, "batch_range"), rows_of(feed, "attempt")) == (2, 1, 1)
    verified = feed.answer("coverage", "orders", "--verify")
    assert verified["verified"]["folded_batches"] == 3
    assert [sum(each["rows"] for each in partition["folded"]) for partition in verified["partitions"]] == [10, 5, 0]
    assert feed.answer("fold", "orders")["batches"] == 0
    [event] = feed.answer("history", "orders", "--kind", "folded")["events"]
    assert (event["who"], DO["reason"] in json.dumps(event)) == (ALICE, True)
    assert "3 batches" in json.dumps(event)


def test_an_offset_of_a_folded_batch_is_found_in_its_file_by_its_receipt(feed: QuickProject, orders: str) -> None:
    first = old_ids(feed)[0]
    path = path_of(feed, first)
    explained = feed.answer("explain", str(path))
    feed.answer("fold", "orders")

    located = feed.answer("locate", "orders", orders, "0", "0")
    assert (located["state"], [batch["batch_id"] for batch in located["batches"]]) == ("committed", [first])
    assert [(each["batches"], each["batch_id"]) for each in located["folded"]] == [(3, first)]
    again = feed.answer("explain", str(path))
    assert again["batch"].pop("folded") != explained["batch"].pop("folded")
    assert again["batch"] == explained["batch"] | {"pinned_attempt": None}


def test_an_offset_whose_receipt_is_away_is_committed_and_which_batch_it_was_is_not_known(
    feed: QuickProject, orders: str
) -> None:
    feed.answer("fold", "orders")
    for path in receipts(feed):
        path.rename(path.with_suffix(".away"))

    located = feed.answer("locate", "orders", orders, "0", "3")
    assert (located["state"], located["batches"]) == ("committed", [])
    assert "expected its receipt" in located["folded"][0]["problem"]
    assert feed.kafka_ingest("locate", "orders", orders, "0", "3").exit_code == 0


def test_a_folded_batch_is_read_again_into_another_output(feed: QuickProject) -> None:
    feed.answer("fold", "orders")
    to = str(feed.home / "copied")

    copied = feed.answer("backfill", "orders", f"batch={old_ids(feed)[1]}", "--copy-to", to)

    assert sum(each["rows"] for each in copied["chunks"]) == 5


def test_tables_that_were_folded_and_lost_are_rebuilt_from_the_output(feed: QuickProject) -> None:
    coverage = feed.answer("coverage", "orders")["partitions"]
    known = what_is_known(feed)
    feed.answer("fold", "orders")
    lose_control_tables(feed)

    feed.answer("adopt", "orders", *DO_IT)

    assert what_is_known(feed) == known
    assert [without(each) for each in feed.answer("coverage", "orders", "--verify")["partitions"]] == [
        without(each) for each in coverage
    ]


# ── Killed ────────────────────────────────────────────────────────────────────────────────────────────────────────────


# ── Proven from the output ────────────────────────────────────────────────────────────────────────────────────────────


def test_sums_that_are_not_those_of_the_receipts_are_found(feed: QuickProject) -> None:
    feed.answer("fold", "orders")
    change(feed, "UPDATE folded_range SET rows = rows - 1, invisible = invisible + 1 WHERE partition = 0")

    [(where, expected, found)] = differences(feed)
    assert where.startswith("what is folded of")
    assert (expected.split(", ")[1], found.split(", ")[1]) == ("10 rows", "9 rows")


def test_a_folded_range_that_is_lost_is_found(feed: QuickProject) -> None:
    feed.answer("fold", "orders")
    change(feed, "DELETE FROM folded_range WHERE partition = 1")

    [(_, expected, found)] = differences(feed)
    assert (expected.split(", ")[0], found.split(", ")[0]) == ("5 offsets of 3 batches", "0 offsets of 0 batches")


def test_a_folded_range_that_the_stored_offset_never_passed_is_found_without_a_look_at_the_output(
    feed: QuickProject,
) -> None:
    feed.answer("fold", "orders")
    change(feed, "UPDATE folded_range SET end_offset = 12, rows = rows + 2 WHERE partition = 0")

    found = feed.kafka_ingest("coverage", "orders", "--json")
    assert found.exit_code == 3
    assert (
        "is folded, and is outside what the stored offset has passed" in found.document["partitions"][0]["problems"][0]
    )


def test_a_receipt_of_a_folded_batch_that_is_gone_is_found(feed: QuickProject) -> None:
    feed.answer("fold", "orders")
    receipts(feed)[1].unlink()

    [(_, expected, found)] = differences(feed)
    assert (expected, "found none" in found) == ("files that can be read", True)


def test_a_receipt_of_another_plan_is_found(feed: QuickProject) -> None:
    feed.answer("fold", "orders")
    change(
        feed,
        "UPDATE batch SET plan_fingerprint = ?, plan = json_set(plan, '$.folded', ?) "
        "WHERE planned_at = (SELECT min(planned_at) FROM batch)",
        *("ab" * 32, "ab" * 32),
    )

    [(_, expected, found)] = differences(feed)
    assert (expected, "found that of another" in found) == ("files that can be read", True)


# ── What was lost ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_file_of_a_folded_batch_becomes_a_gap_that_a_backfill_fills(feed: QuickProject) -> None:
    first = old_ids(feed)[0]
    before = feed.positions()
    feed.answer("fold", "orders")
    path_of(feed, first).unlink()

    [gap] = feed.answer("lost", "orders", "--batch", first, *EXECUTE)["gaps"]
    assert (gap["start_offset"], gap["end_offset"]) == (0, 3)
    assert feed.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    feed.answer("backfill", "orders", "gaps")

    assert feed.positions() == before
    assert feed.answer("coverage", "orders", "--verify")["accounted"] is True


# ── Refused by name ───────────────────────────────────────────────────────────────────────────────────────────────────


TOO_YOUNG: list[str] = ["6d", "2100-01-01"]


def test_younger_batches_than_a_week_are_never_folded(feed: QuickProject) -> None:
    for before in TOO_YOUNG:
        exit_code, code, message = feed.refusal("fold", "orders", "--before", before)
        assert (exit_code, code) == (2, "WRONG_USE"), before
        assert "7 days ago or earlier" in message, before


def test_without_control_retention_an_operator_says_what_is_old(feed: QuickProject) -> None:
    feed.edit_feed(control_retention="8d")
    assert feed.answer("fold", "orders", "--dry-run")["batches"] == 3
    path = feed.feeds / "orders.yaml"
    path.write_text(path.read_text().replace("control_retention: 8d\n", ""))

    assert feed.refusal("fold", "orders")[:2] == (2, "WRONG_USE")
    assert feed.answer("fold", "orders", *OLD)["batches"] == 3


def test_a_batch_whose_staged_files_are_there_stays_and_is_named(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    make_old(quick)
    with patch("kafka_ingest.verbs.database.FoldCut", partial(FoldCut, newest_stay=0)):
        assert quick.answer("fold", "orders", *OLD)["kept"] == [
            {"reason": "their staged output is not removed yet: `kafka-ingest clean` does that", "batches": 1}
        ]
        said = quick.kafka_ingest("fold", "orders", *OLD).stdout
    assert "1 batch not folded: " in said
    assert "folded 0 batches" in said


def test_a_feed_that_was_never_planned_is_refused(quick: QuickProject, name: str) -> None:
    quick.write_feed(name)
    assert quick.refusal("fold", "orders", *OLD)[:2] == (2, "UNKNOWN_FEED")
