"""A write whose rows do not fit the plan.

Refused by name with partition and counts, and the next run reads every record once.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.like_spark import FIELDS
from tests.quick_project import QuickProject

from kafka_ingest.foundation.durable_files import write_durably
from kafka_ingest.model.place import DATA, RECEIPT
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.writing.stage_files import staged_files

Rows = list[dict[str, Any]]
Change = Callable[[Rows], list[Rows]]

EVERY_RECORD = [(0, n) for n in range(10)] + [(1, n) for n in range(5)]


class SpoilingProject(QuickProject):
    """A project whose Spark writes other rows of partition 0 than it read, as files, once ``change`` says which."""

    change: Change | None = None
    rows_read: int | None = None

    def write_like_spark(self, submission: SparkSubmission, log_file: Path) -> None:
        super().write_like_spark(submission, log_file)
        if self.change is None:
            return
        directory = Path(submission.arguments[1])
        file = directory / DATA / "part-00000.parquet"
        for number, rows in enumerate(self.change(pyarrow.parquet.read_table(file).to_pylist())):
            name = file if number == 0 else file.with_name(f"part-1000{number}.parquet")
            pyarrow.parquet.write_table(pa.Table.from_pylist(rows, pa.schema(FIELDS)), name)
        files = tuple(staged_files(directory / DATA))
        written = sum(found.rows for found in files)
        receipt = Receipt.from_bytes((directory / RECEIPT).read_bytes())
        changed = replace(receipt, files=files, rows_read=written if self.rows_read is None else self.rows_read)
        write_durably(directory / RECEIPT, changed.as_bytes())


@pytest.fixture
def spoiling(tmp_path: Path, servers: str) -> SpoilingProject:
    made = SpoilingProject(tmp_path / "spoiling", servers)
    made.make_control_tables()
    return made


def at_offset(row: dict[str, Any], offset: int) -> dict[str, Any]:
    """Return a row as if it had been read at another offset."""
    return row | {"kafka_offset": offset}


def of_partition(row: dict[str, Any], partition: int) -> dict[str, Any]:
    """Return a row as if it had been read from another partition."""
    return row | {"kafka_partition": partition}


# The plan reads offsets 2 to 8 of partition 0: [2, 8).
CHANGES: dict[str, tuple[Change, str]] = {
    "a record twice": (
        lambda rows: [[*rows, rows[-1]]],
        "-0[2, 8) can hold 6 records, the files hold 7",
    ),
    "a record twice where another is missing": (
        lambda rows: [[*rows[:4], rows[3]]],
        "part-00000.parquet holds 5 records of {topic}-0 between offsets 2 and 5: some are duplicates",
    ),
    "a record twice, in two files": (
        lambda rows: [rows[:4], rows[3:5]],
        "part-00000.parquet and part-10001.parquet both hold offsets of {topic}-0 from 5 to 5: duplicate records",
    ),
    "a record before the range": (
        lambda rows: [[at_offset(rows[0], 1), *rows[1:]]],
        "-0[2, 8) was planned, the files begin at offset 1",
    ),
    "a record after the range": (
        lambda rows: [[*rows[:-1], at_offset(rows[-1], 8)]],
        "-0[2, 8) was planned, the files go up to offset 8",
    ),
    "records of a partition that was not planned": (
        lambda rows: [rows[:5], [of_partition(rows[5], 2)]],
        "part-10001.parquet holds {topic}-2, which the plan does not read",
    ),
}


def read_two_records(project: SpoilingProject, topic: str) -> None:
    """Bring partition 0 to offset 2."""
    project.write_feed(topic)
    project.run("orders", "--end-offset", f"{topic}:0=2")


@pytest.mark.parametrize("rows", CHANGES)
def test_rows_that_the_plan_does_not_read_are_refused_with_partition_and_counts(
    spoiling: SpoilingProject, orders: str, rows: str
) -> None:
    read_two_records(spoiling, orders)
    spoiling.change, said = CHANGES[rows]
    exit_code, code, message = spoiling.refusal("run", "orders", "--end-offset", f"{orders}:0=8")
    assert (exit_code, code) == (1, "INVALID_RECEIPT")
    assert said.format(topic=orders) in message
    assert "attempt 1 of batch " in message
    assert spoiling.stored_offsets() == spoiling.group_offsets() == {0: 2, 1: 0, 2: 0}
    assert spoiling.positions() == [(0, 0), (0, 1)]
    assert spoiling.status()["open_batch"]["state"] == "PLANNED"


def test_the_next_run_reads_the_same_ranges_again_and_every_record_is_there_once(
    spoiling: SpoilingProject, orders: str
) -> None:
    read_two_records(spoiling, orders)
    spoiling.change = lambda rows: [[*rows, rows[-1]]]
    spoiling.refusal("run", "orders", "--end-offset", f"{orders}:0=8")
    planned = spoiling.status()["open_batch"]["batch_id"]
    spoiling.refusal("run", "orders")
    spoiling.change = None
    [batch] = spoiling.run()
    assert (batch["batch_id"], batch["result"], batch["rows"]) == (planned, "resumed", 6)
    assert spoiling.stored_offsets() == {0: 8, 1: 0, 2: 0}
    spoiling.run()
    assert spoiling.positions() == EVERY_RECORD


def test_fewer_rows_in_the_files_than_spark_counted_are_a_file_that_never_arrived(
    spoiling: SpoilingProject, orders: str
) -> None:
    read_two_records(spoiling, orders)
    spoiling.change, spoiling.rows_read = lambda rows: [rows[:-1]], 6
    exit_code, code, message = spoiling.refusal("run", "orders", "--end-offset", f"{orders}:0=8")
    assert (exit_code, code) == (1, "INVALID_RECEIPT")
    assert "Spark read 6 records, the files hold 5: a file did not reach the storage" in message
    assert spoiling.stored_offsets() == {0: 2, 1: 0, 2: 0}
    assert spoiling.positions() == [(0, 0), (0, 1)]


def test_no_rows_at_all_where_spark_counted_some_are_refused(spoiling: SpoilingProject, orders: str) -> None:
    spoiling.write_feed(orders)
    spoiling.change, spoiling.rows_read = lambda _: [[]], 15
    exit_code, code, message = spoiling.refusal("run", "orders")
    assert (exit_code, code) == (1, "INVALID_RECEIPT")
    assert "Spark read 15 records, the files hold 5" in message
    assert spoiling.rows() == []


# ── Offsets without a record ──────────────────────────────────────────────────────────────────────────────────────────


def policy(project: QuickProject, topic: str, offsets: str) -> None:
    """Say what the feed makes of offsets without a record."""
    project.write_feed(topic, kafka={"topics": [topic], "group": "orders-ingest", "offsets": offsets})


def counted(project: QuickProject) -> dict[int, tuple[int, int]]:
    """Return rows and invisible offsets of the newest batch, by partition."""
    return {entry["partition"]: (entry["rows"], entry["invisible"]) for entry in project.batches()[0]["ranges"]}


def test_a_hole_is_an_error_at_the_commit_of_a_feed_that_says_dense(spoiling: SpoilingProject, orders: str) -> None:
    policy(spoiling, orders, "dense")
    spoiling.change = lambda rows: [[*rows[:4], *rows[5:]]]
    exit_code, code, message = spoiling.refusal("run", "orders")
    assert (exit_code, code) == (3, "OFFSETS_MISSING")
    assert f"{orders}-0[0, 10): 9 records, 1 offset without one" in message
    assert f"{orders}-1" not in message
    assert "Nothing was published" in message
    assert spoiling.stored_offsets() == {0: 0, 1: 0, 2: 0}
    assert spoiling.rows() == []
    assert spoiling.status()["open_batch"]["state"] == "WRITTEN"

    assert spoiling.refusal("run", "orders")[:2] == (3, "OFFSETS_MISSING"), "it stays so until an operator decides"
    spoiling.change = None
    open_batch = spoiling.status()["open_batch"]["batch_id"]
    spoiling.answer("abandon", open_batch, "--reason", "a record was lost on the way")
    spoiling.run()
    assert spoiling.positions() == EVERY_RECORD


def test_a_batch_of_records_only_is_dense(quick: QuickProject, orders: str) -> None:
    policy(quick, orders, "dense")
    [batch] = quick.run()
    assert batch["rows"] == 15
    assert counted(quick) == {0: (10, 0), 1: (5, 0)}
