"""An abandoned batch's staged files, the last copy of its records, are published after all.

Once, and where they belong.
"""

from typing import Any
from unittest.mock import patch

import pytest
from tests.integration.conftest import Begun
from tests.kafka_faults import delete_records
from tests.quick_project import Killed, QuickProject

from kafka_ingest.assembly import FeedParts
from kafka_ingest.control.batch_life import BatchLife
from kafka_ingest.control.gap_store import JournalStore
from kafka_ingest.control.plan_store import AttemptStore, PlanStore
from kafka_ingest.sinks.parquet.publisher import ParquetPublisher
from kafka_ingest.sinks.staged_files import StagedFiles

EXECUTE = ("--execute", "--reason", "it was the last copy")
EVERY_RECORD = [(0, n) for n in range(10)] + [(1, n) for n in range(5)]


@pytest.fixture(params=["written", "committing"])
def abandoned_batch(request: pytest.FixtureRequest, quick: QuickProject, orders: str) -> str:
    """A batch of the whole topic that was abandoned, WRITTEN or COMMITTING."""
    quick.write_feed(orders)
    return abandoned(quick, is_committing=request.param == "committing")


def abandoned(quick: QuickProject, *options: str, is_committing: bool = False) -> str:
    """Write a batch, and abandon it."""
    dying = (
        patch.object(ParquetPublisher, "publish", side_effect=Killed)
        if is_committing
        else quick.stopping_before_the_commit()
    )
    with dying, pytest.raises(Killed):
        quick.kafka_ingest("run", "orders", *options)
    [batch, *_] = quick.batches()
    quick.answer("abandon", batch["batch_id"], "--reason", "a mistake")
    return str(batch["batch_id"])


def begin(project: QuickProject, orders: str) -> None:
    """Abandon a batch of the whole topic that was COMMITTING, and pass some of it since."""
    project.write_feed(orders)
    abandoned(project, is_committing=True)
    project.run("orders", "--end-offset", f"{orders}:0=3")
    project.answer("skip", "orders", orders, "0", "3-6", "--reason", "poisoned")


def restore(quick: QuickProject, batch_id: str, *options: str) -> dict[str, Any]:
    return quick.answer("restore", batch_id, *options)


def ranges(found: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(each["partition"], each["start_offset"], each["end_offset"]) for each in found]


def assert_every_record_is_there_once(quick: QuickProject) -> None:
    assert quick.positions() == EVERY_RECORD
    found = quick.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])


def test_where_nothing_moved_since_it_comes_back_as_a_live_batch_without_kafka_holding_the_records(
    quick: QuickProject, orders: str, servers: str, abandoned_batch: str
) -> None:
    delete_records(servers, orders, 0, 10)
    shown = restore(quick, abandoned_batch)
    assert (ranges(shown["live"]), shown["fill"], shown["executed"]) == ([(0, 0, 10), (1, 0, 5)], [], False)
    assert quick.positions() == []

    [batch_id] = restore(quick, abandoned_batch, *EXECUTE)["into"]
    assert_every_record_is_there_once(quick)
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}
    states = {batch["batch_id"]: batch["state"] for batch in quick.batches()}
    assert states == {abandoned_batch: "ABANDONED", batch_id: "COMMITTED"}
    assert restore(quick, abandoned_batch, *EXECUTE)["executed"] is False
    assert quick.run() == []


def test_what_was_passed_over_since_comes_back_as_a_backfill_and_what_was_read_again_does_not(
    quick: QuickProject, orders: str, servers: str, abandoned_batch: str
) -> None:
    delete_records(servers, orders, 0, 6)
    quick.edit_feed(on_data_loss="record_gap")
    quick.run()
    assert [gap[:5] for gap in quick.gaps()] == [(0, 0, 6, "retention", "open")]
    shown = restore(quick, abandoned_batch, *EXECUTE)
    assert (shown["live"], ranges(shown["fill"]), ranges(shown["held"])) == ([], [(0, 0, 6)], [(0, 6, 10), (1, 0, 5)])
    assert quick.gaps() == [(0, 0, 6, "retention", "closed")]
    assert_every_record_is_there_once(quick)


def test_what_lies_on_both_sides_of_the_stored_offset_comes_back_in_both_ways(
    quick: QuickProject, orders: str, abandoned_batch: str
) -> None:
    quick.run("orders", "--end-offset", f"{orders}:0=3")
    quick.answer("skip", "orders", orders, "0", "3-6", "--reason", "poisoned")
    shown = restore(quick, abandoned_batch)
    assert (ranges(shown["live"]), ranges(shown["fill"])) == ([(0, 6, 10), (1, 0, 5)], [(0, 3, 6)])
    restore(quick, abandoned_batch, *EXECUTE)
    assert_every_record_is_there_once(quick)


def test_a_batch_that_was_read_again_has_nothing_to_come_back(quick: QuickProject, abandoned_batch: str) -> None:
    quick.run()
    shown = restore(quick, abandoned_batch, *EXECUTE)
    assert (shown["live"], shown["fill"], shown["into"], shown["executed"]) == ([], [], [], False)
    assert_every_record_is_there_once(quick)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (JournalStore, "record_event"),
        (PlanStore, "record_backfill"),
        (PlanStore, "record_plan"),
        (AttemptStore, "open_attempt"),
        (StagedFiles, "restage"),
        (StagedFiles, "write_receipt"),
        (BatchLife, "pin"),
        (FeedParts, "commit"),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
def test_a_crash_after_any_step_is_repaired_by_restoring_again(begun: Begun, owner: type, name: str) -> None:
    quick = begun.project
    batch_id = quick.batches()[-1]["batch_id"]
    real = getattr(owner, name)

    def die(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        raise Killed

    with patch.object(owner, name, die), pytest.raises(Killed):
        restore(quick, batch_id, *EXECUTE)
    restore(quick, batch_id, *EXECUTE)
    restore(quick, batch_id, *EXECUTE)
    assert_every_record_is_there_once(quick)


def test_files_that_are_damaged_or_gone_do_not_come_back(quick: QuickProject, abandoned_batch: str) -> None:
    staging = quick.output / "orders.kafka-ingest" / "staging" / abandoned_batch
    [path, *_] = sorted(staging.rglob("*.parquet"))
    path.write_bytes(b"damaged")
    assert quick.refusal("restore", abandoned_batch, *EXECUTE)[:2] == (1, "STAGED_OUTPUT_UNUSABLE")
    assert [batch["state"] for batch in quick.batches()] == ["ABANDONED"], "nothing was planned"
    quick.answer("clean", "--batch", abandoned_batch, "--reason", "not needed")
    assert quick.refusal("restore", abandoned_batch, *EXECUTE)[:2] == (2, "BATCH_STATE")


def test_an_open_batch_is_finished_first_and_only_an_abandoned_one_comes_back(
    quick: QuickProject, abandoned_batch: str
) -> None:
    planned = quick.plan()
    exit_code, code, message = quick.refusal("restore", abandoned_batch, *EXECUTE)
    assert (exit_code, code) == (2, "BATCH_STATE")
    assert planned["batch_id"] in message
    assert quick.refusal("restore", planned["batch_id"], *EXECUTE)[:2] == (2, "BATCH_STATE")
