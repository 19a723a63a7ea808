"""`history` and `batches` from the command line: who changed what, when and why, and what each batch was."""

import shutil
from typing import Any

import pytest
from tests.integration.conftest import MoveGroup
from tests.kafka_faults import create_topic, live_member, recreate_topic
from tests.quick_project import QuickProject

WHY = "poisoned by a broken producer"
BECAUSE = ("--reason", WHY)


@pytest.fixture
def feed(quick: QuickProject, orders: str) -> QuickProject:
    quick.write_feed(orders)
    return quick


def events(quick: QuickProject, *options: str, name: str = "orders") -> list[dict[str, Any]]:
    return quick.answer("history", name, *options)["events"]  # type: ignore[no-any-return]


def kinds(found: list[dict[str, Any]]) -> list[str]:
    return [event["kind"] for event in found]


# ── What it shows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_event_says_who_did_what_and_why_and_how_offsets_moved_newest_first(
    feed: QuickProject, orders: str
) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    feed.answer("skip", "orders", orders, "0", "4-6", *BECAUSE)
    batch_id = feed.plan()["batch_id"]
    feed.answer("abandon", batch_id, "--reason", "read with the wrong settings")

    abandoned, skipped, seeded = events(feed)
    assert kinds([abandoned, skipped, seeded]) == ["abandoned", "gap", "seeded"]
    assert all(event["who"].startswith("cli:") for event in (abandoned, skipped, seeded))
    assert (abandoned["batch_id"], abandoned["reason"]) == (batch_id, "read with the wrong settings")
    assert abandoned["summary"] == "PLANNED → ABANDONED"
    assert (skipped["reason"], skipped["batch_id"]) == (WHY, None)
    assert skipped["summary"] == f"passed over: {orders}-0: 4 → 6 (skipped)"
    assert skipped["changes"] == [{"topic": orders, "partition": 0, "was": 4, "is": 6}]
    assert skipped["detail"]["gaps"][0]["cause"] == "skipped"
    assert seeded["summary"] == f"by start rule earliest: {orders}-0 → 0, {orders}-1 → 0, {orders}-2 → 0"
    assert [change["is"] for change in seeded["changes"]] == [0, 0, 0]
    assert abandoned["at"] > skipped["at"] > seeded["at"]
    assert abandoned["event_id"] > skipped["event_id"] > seeded["event_id"]


def test_a_topic_that_was_made_again_is_reported_with_old_and_new_offsets_and_topic_ids(
    feed: QuickProject, servers: str, orders: str
) -> None:
    feed.run()
    recreate_topic(servers, orders, partitions=3)
    feed.answer("topic-changed", "orders", "--choice", "start-over", "--execute", *BECAUSE)

    reset = next(event for event in events(feed) if event["kind"] == "reset")
    assert reset["summary"].startswith(
        f"{orders}-0: 10 → 0, {orders}-1: 5 → 0; 1 partition keeps its offset; {orders}: topic id"
    )
    assert reset["changes"] == [
        {"topic": orders, "partition": 0, "was": 10, "is": 0},
        {"topic": orders, "partition": 1, "was": 5, "is": 0},
    ]
    assert reset["reason"] == WHY


def test_a_group_that_could_not_be_moved_is_reported_with_the_batch_and_the_cause(
    feed: QuickProject, orders: str, move_group: MoveGroup
) -> None:
    move_group("orders-ingest", orders, {0: 0})
    with live_member(feed.bootstrap_servers, "orders-ingest", orders):
        [batch] = feed.run()
    failed = events(feed)[0]
    assert (failed["kind"], failed["batch_id"]) == ("mirror_failed", batch["batch_id"])
    assert failed["summary"] == "consumer group orders-ingest was not moved"
    assert failed["reason"] == batch["mirror_failure"]


def test_the_table_has_a_line_an_event_and_names_few_of_many_partitions(
    quick: QuickProject, servers: str, name: str
) -> None:
    create_topic(servers, name, 8)
    quick.write_feed(name)
    quick.plan()
    shown = quick.kafka_ingest("history", "orders").stdout
    assert "seeded" in shown
    assert f"{name}-4" in shown
    assert f"{name}-5" not in shown
    assert len(events(quick)[0]["changes"]) == 8


# ── Which of it ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_newest_events_of_some_kinds_since_a_time_are_reported(feed: QuickProject, orders: str) -> None:
    feed.plan("--end-offset", f"{orders}:0=0")
    for interval in ("0-1", "1-2", "2-3"):
        feed.answer("skip", "orders", orders, "0", interval, *BECAUSE)
    newest, middle, oldest, seeded = events(feed)

    assert events(feed, "--limit", "2") == [newest, middle]
    assert events(feed, "--kind", "seeded") == [seeded]
    assert events(feed, "--kind", "seeded", "--kind", "gap", "--limit", "4") == [newest, middle, oldest, seeded]
    assert events(feed, "--since", middle["at"]) == [newest, middle]
    assert events(feed, "--kind", "reset") == []


UNASKABLE: list[tuple[tuple[str, ...], str]] = [
    (("--kind", "gaps"), "expected one of abandoned, adopted,"),
    (("--since", "yesterday"), "expected a time such as 2026-01-31T00:00:00Z"),
    (("--since", "2026-01-31T00:00:00"), "expected a time with a zone"),
]


def test_what_cannot_be_asked_for_is_refused(feed: QuickProject) -> None:
    feed.plan()
    for options, said in UNASKABLE:
        exit_code, code, message = feed.refusal("history", "orders", *options)
        assert (exit_code, code) == (2, "WRONG_USE"), options
        assert said in message, options


# ── Of which feed ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_was_never_planned_has_no_history_and_an_unknown_one_is_refused(feed: QuickProject) -> None:
    assert feed.answer("history", "orders") == {"version": 1, "feed": "orders", "events": []}
    assert feed.refusal("history", "nobody")[:2] == (2, "UNKNOWN_FEED")


def test_the_history_continues_under_another_name_and_needs_no_feed_file(feed: QuickProject) -> None:
    feed.plan()
    feed.answer("rename-feed", "orders", "sales", "--reason", "a better name")
    shutil.rmtree(feed.feeds)
    feed.feeds.mkdir()

    renamed, seeded = events(feed, name="sales")
    assert (renamed["kind"], renamed["summary"], renamed["reason"]) == ("renamed", "orders → sales", "a better name")
    assert seeded["kind"] == "seeded"
    assert feed.refusal("history", "orders")[:2] == (2, "UNKNOWN_FEED")


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_is_listed_with_who_planned_it_where_it_went_and_the_topic_ids_of_its_ranges(
    feed: QuickProject, orders: str
) -> None:
    feed.run()
    [batch] = feed.batches()
    assert (batch["kind"], batch["output"]) == ("live", str(feed.output / "orders"))
    assert batch["planned_by"] == batch["committed_by"]
    assert {found["topic_id"] for found in batch["ranges"]} == {feed.partition(0)["topic_id"]}
    assert {found["topic"] for found in batch["ranges"]} == {orders}
    assert f"live COMMITTED {batch['planned_by']}" in feed.kafka_ingest("batches", "orders").stdout


def test_batches_can_be_watched_by_kind_and_state(feed: QuickProject, orders: str) -> None:
    [committed] = feed.run("orders", "--end-offset", f"{orders}:0=4")
    abandoned = feed.plan()["batch_id"]
    feed.answer("abandon", abandoned, *BECAUSE)
    planned = feed.plan()["batch_id"]

    def listed(*options: str) -> list[str]:
        return [batch["batch_id"] for batch in feed.answer("batches", "orders", *options)["batches"]]

    assert listed() == listed("--kind", "live") == [planned, abandoned, committed["batch_id"]]
    assert listed("--kind", "backfill", "--kind", "copy") == []
    assert listed("--state", "ABANDONED") == listed("--state", "abandoned", "--kind", "live") == [abandoned]
    assert listed("--state", "PLANNED", "--state", "COMMITTED") == [planned, committed["batch_id"]]
    assert listed("--state", "ABANDONED", "--kind", "backfill") == []


def test_backfills_and_copies_are_listed_apart_with_what_was_asked_for(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    feed.answer("skip", "orders", orders, "0", "4-8", *BECAUSE)
    feed.run()
    feed.answer("backfill", "orders", f"{orders}:0=5-7", "--reason", "mended")
    feed.answer(
        "backfill", "orders", f"{orders}:0=0-3", "--copy-to", str(feed.home / "copies"), "--reason", "a closer look"
    )

    [backfill] = feed.answer("batches", "orders", "--kind", "backfill")["batches"]
    [copy] = feed.answer("batches", "orders", "--kind", "copy")["batches"]
    assert (backfill["output"], backfill["rows"]) == (str(feed.output / "orders"), 2)
    assert (copy["output"], copy["rows"]) == (str(feed.home / "copies"), 3)
    copied, closed, planned = events(feed, "--limit", "3")
    assert kinds([copied, closed, planned]) == ["backfill_planned", "gap_closed", "backfill_planned"]
    assert (copied["reason"], planned["reason"]) == ("a closer look", "mended")
    assert planned["summary"].startswith(f"1 chunk planned: offset_ranges {orders}:0=5-7")
    assert (closed["summary"], closed["batch_id"]) == (f"read after all: {orders}-0[5, 7)", backfill["batch_id"])


def test_a_reset_is_reported_once_as_old_and_new_offsets_back_and_forward(feed: QuickProject, orders: str) -> None:
    feed.run("orders", "--end-offset", f"{orders}:0=4")
    feed.answer("reset", "orders", "--to", f"offsets={orders}:0=1", "--execute", "--reason", "read it again")
    feed.answer("reset", "orders", "--to", f"offsets={orders}:0=8", "--execute", "--reason", "fresh ones first")

    moves = [event for event in reversed(events(feed)) if event["changes"] and event["kind"] != "seeded"]
    assert [(event["kind"], event["reason"]) for event in moves] == [
        ("reset", "read it again"),
        ("reset", "fresh ones first"),
    ]
    assert [(change["was"], change["is"]) for event in moves for change in event["changes"]] == [(4, 1), (1, 8)]
    assert moves[0]["summary"] == f"{orders}-0: 4 → 1"
    skipped = next(event for event in events(feed) if event["kind"] == "gap")
    assert "(reset)" in skipped["summary"]


UNKNOWN: list[tuple[str, str]] = [("--kind", "dead"), ("--state", "DONE")]


def test_a_kind_or_state_that_no_batch_has_is_refused(feed: QuickProject) -> None:
    for option in UNKNOWN:
        answer = feed.kafka_ingest("batches", "orders", *option)
        assert answer.exit_code == 2, option
        assert option[1] in answer.stderr, option
