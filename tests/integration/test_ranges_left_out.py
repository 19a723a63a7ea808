"""Retention that is quicker than a batch, with real brokers and Spark.

What lost nothing is committed by the same batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.hold_and_run import HELD, RESUME
from tests.integration.test_adopt import lose_control_tables
from tests.kafka_faults import delete_records, plain_records, produce
from tests.kept_spark import kept_spark
from tests.killing import HOLD_AND_RUN, processes_of, wait_for
from tests.quick_project import QuickProject

from kafka_ingest.model.place import DATA
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkSubmission

AFTER_KAFKA_WAS_ASKED = "after:kafka_ingest.writing.write_batch:log_starts"


@contextmanager
def spark_held_between_rounds(
    project: QuickProject, then: Callable[[], object], *, is_its_own: bool = False
) -> Iterator[None]:
    """Let the Spark job wait once it knows what was lost in its first round, and do something before it reads again."""
    between = project.home / "between"
    between.mkdir()

    def submit(submission: SparkSubmission, log_file: Path, *, while_running: Callable[[], object]) -> None:
        def at_the_hold() -> None:
            while_running()
            wait_for((between / HELD).exists, "the Spark job to have asked Kafka what was lost")
            then()
            (between / RESUME).touch()

        arguments = (str(between), AFTER_KAFKA_WAS_ASKED, submission.application, *submission.arguments)
        held = replace(submission, application=str(HOLD_AND_RUN), arguments=arguments)
        project.before_spark()
        started = held if is_its_own else kept_spark().instead(held)
        run_spark_submit(started, log_file, while_running=at_the_hold)

    with patch.object(project, "submit", submit):
        yield


def left_out(batch: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    """Return partition, start, end and log start of what a batch left out."""
    names = ("partition", "start_offset", "end_offset", "log_start_offset")
    return [tuple(each[name] for name in names) for each in batch["left_out"]]  # type: ignore[misc]


# ── One range is lost ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_that_loses_one_range_keeps_the_others_and_the_next_plan_meets_the_loss(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    planned = quick.plan()
    delete_records(servers, orders, 0, 4)

    with quick.submitting(spark_is_real=True):
        [batch] = quick.run()
    assert (batch["batch_id"], batch["result"], batch["rows"]) == (planned["batch_id"], "resumed", 5)
    [batch] = quick.batches()
    assert (batch["state"], [each["partition"] for each in batch["ranges"]]) == ("COMMITTED", [1])
    assert left_out(batch) == [(0, 0, 10, 4)]
    assert quick.stored_offsets() == {0: 0, 1: 5, 2: 0}
    assert quick.partition(0)["group_offset"] in {0, None}
    assert quick.partition(1)["group_offset"] == 5
    assert quick.positions() == [(1, n) for n in range(5)]
    assert " 1 of 2 " in quick.kafka_ingest("batches", "orders", COLUMNS="200").stdout
    [event] = quick.answer("history", "orders", "--kind", "ranges_left_out")["events"]
    assert event["summary"] == f"not read: {orders}-0[0, 10) (the log starts at 4)"
    located = quick.kafka_ingest("locate", "orders", orders, "0", "5", "--json").document
    assert located["batches"] == []
    verified = quick.answer("coverage", "orders", "--verify")
    assert verified["verified"]["differences"] == []

    # The next plan decides, as the feed says: stop, …
    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "OFFSETS_LOST")
    assert f"{orders}-0: stored offset 0, log start 4" in message
    # … hold, …
    produce(servers, orders, 1, plain_records(2))
    quick.edit_feed(on_data_loss="hold")
    [batch] = quick.run()
    assert batch["rows"] == 2
    [hold] = quick.status()["holds"]
    assert (hold["partition"], hold["cause"], hold["at_offset"]) == (0, "offsets_lost", 0)
    # … or continue over a gap.
    quick.edit_feed(on_data_loss="record_gap")
    [batch] = quick.run()
    assert batch["rows"] == 6
    assert quick.gaps() == [(0, 0, 4, "retention", "open")]
    assert quick.positions() == [(0, n) for n in range(4, 10)] + [(1, n) for n in range(7)]
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []


def test_what_the_output_alone_records_is_the_same(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    quick.plan()
    delete_records(servers, orders, 0, 4)
    quick.run()
    before = quick.batches()

    lose_control_tables(quick)
    quick.answer("adopt", "orders", "--execute", "--reason", "tables lost")

    assert quick.stored_offsets() == {0: 0, 1: 5, 2: 0}
    [adopted], [batch] = quick.batches(), before
    for key in ("batch_id", "state", "rows", "ranges", "left_out"):
        assert adopted[key] == batch[key]
    quick.edit_feed(on_data_loss="record_gap")
    quick.run()
    assert quick.positions() == [(0, n) for n in range(4, 10)] + [(1, n) for n in range(5)]


# ── While Spark reads ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_lost_in_each_round_is_left_out_by_the_same_attempt(
    quick: QuickProject, servers: str, orders: str
) -> None:
    produce(servers, orders, 2, plain_records(3))
    quick.write_feed(orders, on_data_loss="record_gap")
    with (
        quick.submitting(before_spark=lambda: delete_records(servers, orders, 0, 4)),
        spark_held_between_rounds(quick, lambda: delete_records(servers, orders, 2, 1)),
    ):
        [batch] = quick.run()
    assert (batch["rows"], batch["result"]) == (5, "planned")
    [batch] = quick.batches()
    assert (batch["attempt"], left_out(batch)) == (1, [(0, 0, 10, 4), (2, 0, 3, 1)])
    [attempt] = quick.output.glob("**/staging/*/1")
    assert [path.name for path in attempt.iterdir() if path.is_dir() and path.name.startswith(DATA)] in ([], [DATA])

    [batch] = quick.run()
    assert batch["rows"] == 8
    assert quick.gaps() == [(0, 0, 4, "retention", "open"), (2, 0, 1, "retention", "open")]
    expected = {0: range(4, 10), 1: range(5), 2: range(1, 3)}
    assert quick.positions() == [(partition, n) for partition, offsets in expected.items() for n in offsets]


def test_a_spark_that_is_killed_between_two_rounds_leaves_what_the_next_run_does_again(
    quick: QuickProject, servers: str, orders: str
) -> None:
    def kill_spark() -> None:
        for process in processes_of(quick.home):
            process.kill()  # and no more: who started it has to learn of its end

    quick.write_feed(orders)
    with (
        quick.submitting(before_spark=lambda: delete_records(servers, orders, 0, 4)),
        spark_held_between_rounds(quick, kill_spark, is_its_own=True),
    ):
        exit_code, code, _ = quick.refusal("run", "orders")
    assert (exit_code, code) == (1, "SPARK_FAILED")
    assert quick.rows() == []
    assert quick.status()["open_batch"]["state"] == "PLANNED"

    [batch] = quick.run()
    assert (batch["result"], batch["rows"]) == ("resumed", 5)
    [batch] = quick.batches()
    assert (batch["attempt"], left_out(batch)) == (2, [(0, 0, 10, 4)])
    assert quick.positions() == [(1, n) for n in range(5)]


def test_where_everything_is_lost_between_the_rounds_the_batch_is_read_no_more(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, on_data_loss="record_gap")
    with (
        quick.submitting(before_spark=lambda: delete_records(servers, orders, 0, 4)),
        spark_held_between_rounds(quick, lambda: delete_records(servers, orders, 1, 2)),
    ):
        exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (1, "RANGE_NOT_IN_LOG")
    assert f"{orders}-0[0, 10) begins below the log start 4" in message
    assert f"{orders}-1[0, 5) begins below the log start 2" in message
    [batch] = quick.run()
    assert batch["rows"] == 9
    assert quick.gaps() == [(0, 0, 4, "retention", "open"), (1, 0, 2, "retention", "open")]
