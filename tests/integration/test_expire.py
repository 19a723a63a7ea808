"""Old batches expire from the output.

No reader sees them, their offsets stay committed, and every crash is repaired.
"""

import itertools
from typing import Any
from unittest.mock import patch

import pytest
from tests.integration.conftest import Begun
from tests.integration.test_adopt import DO_IT, lose_control_tables, what_is_known
from tests.kafka_faults import plain_records, produce
from tests.quick_project import Killed, QuickProject

from kafka_ingest.control.gap_store import OutputStore
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.parquet.publisher import ParquetRemover

NOW = ("--before", "2100-01-01")
EXECUTE = ("--execute", "--reason", "older than the contract")


def begin(project: QuickProject, orders: str) -> None:
    """Let a feed have three live batches of 5 records each."""
    project.write_feed(orders, limits={"max_records": 5})
    project.run("orders", "--until-caught-up")
    assert [batch["rows"] for batch in project.batches()] == [5, 5, 5]


@pytest.fixture
def feed(begun: Begun) -> QuickProject:
    return begun.project


def expired(project: QuickProject) -> int:
    """Return how many offsets are listed as expired.

    Everything is accounted for, and the output is what it should be.
    """
    found = project.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])
    return sum(partition["offsets"]["expired"] for partition in found["partitions"])


def directories(project: QuickProject) -> list[str]:
    return sorted(path.name.removeprefix("kafka_batch=") for path in (project.output / "orders").iterdir())


def ids(project: QuickProject) -> list[str]:
    """Return the batches, oldest first."""
    return [str(batch["batch_id"]) for batch in reversed(project.batches())]


def test_old_batches_leave_the_output_and_their_offsets_stay_committed(feed: QuickProject) -> None:
    oldest, second, newest = ids(feed)
    known = what_is_known(feed)
    shown = feed.answer("expire", "orders", *NOW)
    assert [batch["batch_id"] for batch in shown["batches"]] == [oldest, second]
    assert shown["kept"] == [{"batch_id": newest, "reason": "it is the feed's newest"}]
    assert (shown["rows"], shown["executed"], directories(feed)) == (10, False, [oldest, second, newest])

    feed.answer("expire", "orders", *NOW, *EXECUTE)
    assert directories(feed) == [newest]
    assert len(feed.positions()) == 5
    assert what_is_known(feed) == known
    assert expired(feed) == 10
    assert feed.answer("expire", "orders", *NOW, *EXECUTE)["batches"] == []
    [event] = feed.answer("history", "orders", "--kind", "expired")["events"]
    assert event["reason"] == "older than the contract"


def test_the_feed_continues_after_its_old_batches_expired(feed: QuickProject, orders: str, servers: str) -> None:
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    produce(servers, orders, 1, plain_records(2))
    [batch] = feed.run()
    assert batch["rows"] == 2
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    assert expired(feed) == 15


def test_nothing_younger_expires(feed: QuickProject) -> None:
    for before in ("1d", "2026-01-01", "2026-01-01T00:00:00Z"):
        assert feed.answer("expire", "orders", "--before", before, *EXECUTE)["batches"] == []
    assert len(directories(feed)) == 3


UNREADABLE: list[str] = ["yesterday", "", "2026-01-01T12:00:00", "0d", "-3d", "1718000000"]


def test_an_unreadable_time_is_refused(feed: QuickProject) -> None:
    for before in UNREADABLE:
        assert feed.refusal("expire", "orders", "--before", before)[:2] == (2, "WRONG_USE"), before


def test_expiring_needs_a_reason(feed: QuickProject) -> None:
    assert feed.refusal("expire", "orders", *NOW, "--execute")[:2] == (2, "WRONG_USE")
    assert len(directories(feed)) == 3


STEPS: list[tuple[type, str]] = [
    (KeptReceipts, "note_removal"),
    (ParquetRemover, "hide"),
    (OutputStore, "record_removed"),
    (ParquetRemover, "delete_hidden"),
]


@pytest.mark.parametrize(
    ("step", "is_done"),
    list(itertools.product(STEPS, [False, True])),
    ids=lambda each: each[1] if isinstance(each, tuple) else None,
)
def test_a_crash_before_and_after_each_step_is_repaired_by_the_next_call(
    feed: QuickProject, step: tuple[type, str], *, is_done: bool
) -> None:
    oldest, second, newest = ids(feed)
    owner, name = step
    real = getattr(owner, name)

    def die(*arguments: Any, **named: Any) -> None:
        if is_done:
            real(*arguments, **named)
        raise Killed

    with patch.object(owner, name, die), pytest.raises(Killed):
        feed.answer("expire", "orders", *NOW, *EXECUTE)
    for directory in directories(feed):
        rows = [row for row in feed.positions() if row]
        assert directory in {oldest, second, newest}
        assert len(rows) % 5 == 0, "readers see whole batches"

    feed.answer("expire", "orders", "--before", "2000-01-01", *EXECUTE)
    assert not list((feed.output / "orders.kafka-ingest" / "removed").glob("*"))
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    assert (directories(feed), expired(feed)) == ([newest], 10)
    assert not list((feed.output / "orders.kafka-ingest" / "removed").glob("*"))


def test_lost_control_tables_are_rebuilt_with_what_expired(feed: QuickProject) -> None:
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    known, coverage = what_is_known(feed), feed.answer("coverage", "orders")["partitions"]
    lose_control_tables(feed)
    answer = feed.answer("adopt", "orders", *DO_IT)
    assert [each["state"] for each in answer["files"]] == ["expired", "expired"]
    assert (what_is_known(feed), feed.answer("coverage", "orders")["partitions"]) == (known, coverage)
    assert expired(feed) == 10


def test_what_expired_is_not_read_again_into_the_output_and_can_be_copied_elsewhere(
    feed: QuickProject, orders: str
) -> None:
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    asked = ("backfill", "orders", f"{orders}:0=0-5")
    assert feed.answer(*asked)["chunks"] == []
    exit_code, code, message = feed.refusal(*asked, "--when", "overlap=refuse")
    assert (exit_code, code) == (2, "RANGES_TAKEN")
    assert "expired from the output" in message
    feed.answer(*asked, "--copy-to", str(feed.home / "again"))
    assert len(list((feed.home / "again").glob("kafka_batch=*"))) == 1


def test_locating_an_expired_offset_says_who_removed_it_and_why(feed: QuickProject, orders: str) -> None:
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    found = feed.answer("locate", "orders", orders, "0", "0")
    assert (found["state"], found["batches"][0]["record"]) == ("committed", "expired")
    assert "older than the contract" in found["batches"][0]["problem"]


def test_an_expired_batch_has_lost_no_files(feed: QuickProject) -> None:
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    exit_code, code, message = feed.refusal("lost", "orders", "--batch", ids(feed)[0])
    assert (exit_code, code) == (2, "BATCH_STATE")
    assert "--copy-to" in message


def test_a_batch_that_a_user_removed_by_hand_can_be_said_to_be_expired(feed: QuickProject) -> None:
    for path in (feed.output / "orders" / f"kafka_batch={ids(feed)[0]}").iterdir():
        path.unlink()
    assert feed.kafka_ingest("coverage", "orders", "--verify", "--json").exit_code == 3
    feed.answer("expire", "orders", *NOW, *EXECUTE)
    assert expired(feed) == 10
