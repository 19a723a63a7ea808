"""An operator moves stored offsets on a real broker.

Back, forward, and back again after the control tables are lost.
"""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from tests.integration.test_adopt import back_up, lose_control_tables, restore
from tests.kafka_faults import plain_records, produce
from tests.quick_project import QuickProject

DO_IT = ("--execute", "--reason", "the consumer downstream lost a day")


def moved(answer: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Return old and new offset of each partition that moves."""
    return {
        entry["partition"]: (entry["old_offset"], entry["new_offset"])
        for entry in answer["partitions"]
        if entry["old_offset"] != entry["new_offset"]
    }


def partition(answer: dict[str, Any], number: int) -> dict[str, Any]:
    """Return what a reset says of one partition."""
    [found] = [entry for entry in answer["partitions"] if entry["partition"] == number]
    return found


def interval(start_offset: int, end_offset: int) -> dict[str, int]:
    return {"start_offset": start_offset, "end_offset": end_offset}


def resets(quick: QuickProject) -> list[tuple[str, dict[str, Any]]]:
    """Return who and what of the audit journal's resets."""
    with closing(sqlite3.connect(quick.control_file)) as connection:
        rows = connection.execute("SELECT who, detail FROM event WHERE kind = 'reset' ORDER BY event_id").fetchall()
    return [(actor, json.loads(detail)) for actor, detail in rows]


def times_read(quick: QuickProject, number: int) -> dict[int, int]:
    """Return how often the output holds each record of a partition."""
    return dict(Counter(offset for found, offset in quick.positions() if found == number))


def what_is_stored(quick: QuickProject) -> list[str]:
    """Return all control rows."""
    with closing(sqlite3.connect(quick.control_file)) as connection:
        return list(connection.iterdump())


@pytest.fixture
def read(quick: QuickProject, orders: str) -> str:
    """A topic of ten, five and no records, all of which the feed has committed."""
    quick.write_feed(orders)
    quick.run()
    return orders


# ── Back ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_going_back_is_shown_first_and_then_the_records_are_in_the_output_twice(quick: QuickProject, read: str) -> None:
    before = what_is_stored(quick)
    shown = quick.answer("reset", "orders", "--to", f"offsets={read}:0=4,{read}:1=5")
    assert (shown["executed"], moved(shown)) == (False, {0: (10, 4)})
    assert partition(shown, 0) == {
        "topic": read,
        "partition": 0,
        "old_offset": 10,
        "new_offset": 4,
        "read_again": 6,
        "skipped": 0,
        "overlaps": [interval(4, 10)],
        "gaps": [],
        "gaps_ended": [],
        "remark": None,
    }
    assert what_is_stored(quick) == before

    done = quick.answer("reset", "orders", "--to", f"offsets={read}:0=4", *DO_IT)
    assert (done["executed"], done["mirror_failure"], moved(done)) == (True, None, {0: (10, 4)})
    assert (quick.stored_offsets(), quick.group_offsets()) == ({0: 4, 1: 5, 2: 0}, {0: 4, 1: 5, 2: 0})

    [batch] = quick.run()
    assert batch["rows"] == 6
    assert times_read(quick, 0) == dict.fromkeys(range(4), 1) | dict.fromkeys(range(4, 10), 2)
    assert times_read(quick, 1) == dict.fromkeys(range(5), 1)
    assert (quick.stored_offsets(), quick.group_offsets()) == ({0: 10, 1: 5, 2: 0}, {0: 10, 1: 5, 2: 0})


# ── Forward ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_going_forward_files_gaps_and_takes_the_group_along(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=3")
    shown = quick.answer("reset", "orders", "--to", "latest")
    assert {number: partition(shown, number)["gaps"] for number in range(3)} == {
        0: [interval(3, 10)],
        1: [interval(0, 5)],
        2: [],
    }
    assert quick.gaps() == []

    done = quick.answer("reset", "orders", "--to", "latest", *DO_IT)
    assert {entry["partition"]: entry["skipped"] for entry in done["partitions"]} == {0: 7, 1: 5, 2: 0}
    assert quick.gaps() == [(0, 3, 10, "reset", "open"), (1, 0, 5, "reset", "open")]
    assert {gap["reason"] for gap in quick.answer("gaps", "orders")["gaps"]} == {"the consumer downstream lost a day"}
    assert (quick.stored_offsets(), quick.group_offsets()) == ({0: 10, 1: 5, 2: 0}, {0: 10, 1: 5, 2: 0})
    produce(servers, orders, 0, plain_records(1))
    [batch] = quick.run()
    assert batch["rows"] == 1
    assert quick.positions() == [(0, 0), (0, 1), (0, 2), (0, 10)]


# ── Where to ──────────────────────────────────────────────────────────────────────────────────────────────────────────


TARGETS: list[tuple[tuple[str, ...], dict[int, int]]] = [
    (("--to", "earliest"), {0: 0, 1: 0, 2: 0}),
    (("--to", "latest"), {0: 10, 1: 5, 2: 0}),
    (("--to", "timestamp=2026-01-01T00:00:03Z"), {0: 3, 1: 3, 2: 0}),
    (("--to", "timestamp=2026-01-01T01:00:03.5+01:00"), {0: 4, 1: 4, 2: 0}),
    (("--to", "timestamp=2027-01-01T00:00:00Z"), {0: 10, 1: 5, 2: 0}),
    (("--shift-by", "-2"), {0: 8, 1: 3, 2: 0}),
    (("--shift-by", "-7"), {0: 3, 1: 0, 2: 0}),
    (("--shift-by", "3"), {0: 10, 1: 5, 2: 0}),
    (("--to", "offsets={topic}:0=1_0,{topic}:1=2"), {0: 10, 1: 2}),
    (("--to", "earliest", "--topic", "{topic}:0,2"), {0: 0, 2: 0}),
    (("--to", "earliest", "--topic", "{topic}:0", "--topic", "{topic}:1"), {0: 0, 1: 0}),
    (("--to", "earliest", "--topic", "{topic}"), {0: 0, 1: 0, 2: 0}),
]


def test_each_target_comes_to_an_offset_in_each_partition_that_is_meant(quick: QuickProject, read: str) -> None:
    for target, expected in TARGETS:
        answer = quick.answer("reset", "orders", *(word.format(topic=read) for word in target))
        assert {entry["partition"]: entry["new_offset"] for entry in answer["partitions"]} == expected, target


@pytest.mark.usefixtures("read")
def test_where_nothing_moves_nothing_is_done(quick: QuickProject) -> None:
    before = what_is_stored(quick)
    answer = quick.answer("reset", "orders", "--to", "latest", *DO_IT)
    assert (answer["executed"], moved(answer)) == (False, {})
    assert what_is_stored(quick) == before
    assert "nothing to move" in quick.kafka_ingest("reset", "orders", "--to", "latest", *DO_IT).stdout


def test_the_group_stays_where_it_is_if_that_is_wanted_and_follows_the_next_commit(
    quick: QuickProject, read: str
) -> None:
    done = quick.answer("reset", "orders", "--to", f"offsets={read}:0=4", "--keep-group", *DO_IT)
    assert done["mirror_failure"] is None
    assert (quick.stored_offsets()[0], quick.group_offsets()[0]) == (4, 10)
    quick.run("orders", "--end-offset", f"{read}:0=7")
    assert (quick.stored_offsets()[0], quick.group_offsets()[0]) == (7, 7)


def test_executing_again_takes_the_group_along_that_a_crash_left_behind(quick: QuickProject, read: str) -> None:
    there = ("reset", "orders", "--to", f"offsets={read}:0=4")
    quick.answer(*there, "--keep-group", *DO_IT)
    quick.answer(*there)
    assert (quick.stored_offsets()[0], quick.group_offsets()[0]) == (4, 10)
    again = quick.answer(*there, *DO_IT)
    assert (again["executed"], again["mirror_failure"], moved(again)) == (False, None, {})
    assert (quick.stored_offsets()[0], quick.group_offsets()[0]) == (4, 4)


def test_people_see_its_consequences(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=8")
    shown = quick.kafka_ingest("reset", "orders", "--to", f"offsets={orders}:0=6,{orders}:1=2")
    assert shown.exit_code == 0
    assert "reads 2 again" in shown.stdout
    assert "skips 2" in shown.stdout
    assert f"overlaps: {orders}-0[6, 8), 2 offsets committed already: once read again, the output holds" in shown.stdout
    assert f"gaps that would be filed: {orders}-1[0, 2), 2 offsets not read" in shown.stdout
    assert "nothing was changed: --execute --reason … does it" in shown.stdout
    done = quick.kafka_ingest("reset", "orders", "--to", f"offsets={orders}:0=6,{orders}:1=2", *DO_IT)
    assert "moved 2 stored offsets" in done.stdout


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


MEANINGLESS: list[tuple[tuple[str, ...], str, str]] = [
    ((), "WRONG_USE", "expected --to or --shift-by, found neither"),
    (("--to", "earliest", "--shift-by", "1"), "WRONG_USE", "expected --to or --shift-by, found both"),
    (("--to", "yesterday"), "WRONG_USE", "expected --to earliest, latest, timestamp=2026-01-31T00:00:00Z"),
    (("--to", "earliest=5"), "WRONG_USE", "found 'earliest=5'"),
    (("--to", "timestamp"), "WRONG_USE", "expected --to timestamp=…, found 'timestamp' without a value"),
    (("--to", "timestamp="), "WRONG_USE", "found 'timestamp=' without a value"),
    (("--to", "timestamp=2026-01-31T00:00:00"), "WRONG_USE", "expected a time with a zone"),
    (("--to", "timestamp=1969-12-31T00:00:00Z"), "WRONG_USE", "after 1970"),
    (("--to", "timestamp=1767225600"), "WRONG_USE", "such as 2026-01-31T00:00:00Z, found '1767225600'"),
    (("--to", "offsets=0=4"), "WRONG_USE", "expected --to offsets=TOPIC:PARTITION=OFFSET"),
    (("--to", "offsets={topic}:0=-1"), "WRONG_USE", "such as orders:0=1200, found"),
    (("--to", "offsets={topic}:0=4,"), "WRONG_USE", "found ''"),
    (("--to", "offsets={topic}:0=4,{topic}:0=5"), "WRONG_USE", "{topic}:0 twice"),
    (("--to", "offsets={topic}:0=4", "--topic", "{topic}:0"), "WRONG_USE", "--topic or --to offsets=…, found both"),
    (("--to", "offsets={topic}:0=11"), "INVALID_RANGE", "{topic}-0: expected 0 to 10, found 11"),
    (("--to", "offsets={topic}:7=0"), "INVALID_RANGE", "which are 0, 1, 2; found 7"),
    (("--to", "offsets=refunds:0=0"), "INVALID_RANGE", "which are {topic}; found refunds"),
    (("--to", "latest", "--topic", "refunds"), "INVALID_RANGE", "which are {topic}; found refunds"),
    (("--to", "latest", "--topic", "{topic}:3,0"), "INVALID_RANGE", "which are 0, 1, 2; found 3"),
    (("--to", "latest", "--topic", "{topic}:0,1-2"), "WRONG_USE", "expected --topic TOPIC or TOPIC:PARTITION,…"),
    (("--to", "latest", "--topic", "{topic}:"), "WRONG_USE", "found '{topic}:'"),
    (
        ("--to", "latest", "--topic", "{topic}", "--topic", "{topic}:0"),
        "WRONG_USE",
        "expected --topic {topic} once",
    ),
    (("--to", "batch=7"), "UNKNOWN_BATCH", "expected a batch's id, found '7'"),
    (("--to", "batch=01890000-0000-7000-8000-000000000404"), "UNKNOWN_BATCH", "no batch 01890000"),
]


def test_what_cannot_be_meant_is_refused_with_what_to_write_instead(quick: QuickProject, read: str) -> None:
    before = what_is_stored(quick)
    for arguments, code, said in MEANINGLESS:
        words = [word.format(topic=read) for word in arguments]
        exit_code, found, message = quick.refusal("reset", "orders", *words, *DO_IT)
        assert (exit_code, found) == (2, code), arguments
        assert said.format(topic=read) in message, arguments
        assert what_is_stored(quick) == before, arguments


def test_executing_needs_a_reason(quick: QuickProject, read: str) -> None:
    for reason in ((), ("--reason", " ")):
        exit_code, code, message = quick.refusal(
            "reset", "orders", "--to", "earliest", "--topic", read, "--execute", *reason
        )
        assert (exit_code, code) == (2, "WRONG_USE")
        assert "expected --reason with a few words" in message
    assert quick.stored_offsets()[0] == 10


def test_another_feeds_batch_is_no_place_to_go_back_to(quick: QuickProject, read: str) -> None:
    quick.write_feed(read, name="again")
    planned = quick.plan(name="again")["batch_id"]
    assert quick.refusal("reset", "orders", "--to", f"batch={planned}")[:2] == (2, "WRONG_USE")


# ── After the control tables are lost ─────────────────────────────────────────────────────────────────────────────────


def what_is_known(quick: QuickProject) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what adopting has to bring back: stored offsets with their history, batches, gaps."""
    partitions = [
        (entry["topic_id"], entry["partition"], entry["first_offset"], entry["stored_offset"], entry["rows"])
        for entry in quick.status()["partitions"]
    ]
    batches = [(batch["batch_id"], batch["state"], batch["rows"], batch["ranges"]) for batch in quick.batches()]
    return partitions, batches, quick.answer("gaps", "orders")["gaps"]


@pytest.mark.parametrize("lost", [True, False])
def test_resets_both_ways_are_restored_by_the_receipts(
    quick: QuickProject, servers: str, orders: str, *, lost: bool
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=2")
    quick.answer("skip", "orders", orders, "0", "2-6", "--reason", "poisoned")
    quick.run()
    older = back_up(quick)
    produce(servers, orders, 1, plain_records(4))
    quick.answer("reset", "orders", "--to", f"offsets={orders}:0=4,{orders}:1=7", *DO_IT)
    quick.run("orders", "--end-offset", f"{orders}:0=8")
    known = what_is_known(quick)
    assert quick.stored_offsets() == {0: 8, 1: 7, 2: 0}
    assert quick.gaps() == [(0, 2, 4, "skipped", "open"), (1, 5, 7, "reset", "open")]

    if lost:
        lose_control_tables(quick)
    else:
        restore(quick, older)
    quick.answer("adopt", "orders", "--execute", "--reason", "the disk died")
    assert what_is_known(quick) == known
    quick.run()
    assert times_read(quick, 0) == {0: 1, 1: 1, 4: 1, 5: 1, 6: 2, 7: 2, 8: 2, 9: 2}
    assert times_read(quick, 1) == dict.fromkeys(range(5), 1) | {7: 1, 8: 1}


@pytest.mark.usefixtures("read")
def test_a_reason_that_is_no_utf8_is_kept_and_the_next_batch_commits(quick: QuickProject) -> None:
    reason = b"caf\xe9".decode(errors="surrogateescape")
    quick.answer("reset", "orders", "--to", "earliest", "--execute", "--reason", reason)

    [batch] = quick.run()

    assert batch["state"] == "COMMITTED"
    [(_, detail)] = resets(quick)
    assert detail["reason"] == r"caf\xe9"
    assert r"caf\xe9" in quick.kafka_ingest("history", "orders").stdout
