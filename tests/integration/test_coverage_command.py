"""``kafka-ingest coverage`` on a real broker and a real output.

Which offset is where, and whether the output agrees.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from sqlalchemy import Engine, create_engine, delete, event, update
from sqlalchemy.engine import URL
from tests.integration.conftest import Begun
from tests.kafka_faults import delete_records, plain_records, produce
from tests.quick_project import Killed, QuickProject

from kafka_ingest.control import schema
from kafka_ingest.verbs import coverage as coverage_of_feed

Verified = tuple[int, list[tuple[str, str, str]]]


def begin(project: QuickProject, orders: str) -> None:
    """Read all of a topic, apart from offsets 2 to 6 of partition 0, and 3 and 4 of these with a backfill."""
    project.write_feed(orders)
    project.run("orders", "--end-offset", f"{orders}:0=2")
    project.answer("skip", "orders", orders, "0", "2-7", "--reason", "poisoned")
    project.run()
    project.answer("backfill", "orders", f"{orders}:0=3-5")


@pytest.fixture
def feed(begun: Begun) -> QuickProject:
    return begun.project


def coverage(project: QuickProject, *options: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and answer of the command."""
    found = project.kafka_ingest("coverage", "orders", *options, "--json")
    return found.exit_code, found.document


def verify(project: QuickProject) -> Verified:
    """Return the exit code of counting the output, and for each difference its place, the expected and the found."""
    exit_code, document = coverage(project, "--verify")
    reported = [(each["where"], each["expected"], each["found"]) for each in document["verified"]["differences"]]
    return exit_code, reported


def of_partition(document: dict[str, Any], number: int = 0) -> dict[str, Any]:
    [found] = [each for each in document["partitions"] if each["partition"] == number]
    return found


def batch_of(project: QuickProject, kind: str) -> str:
    """Return the id of the newest batch of a kind."""
    return next(each["batch_id"] for each in project.batches() if each["kind"] == kind)


def files_of(project: QuickProject, batch_id: str) -> list[Path]:
    """Return the published files of a batch that have rows, partition by partition."""
    paths = sorted((project.output / "orders" / f"kafka_batch={batch_id}").iterdir())
    return [path for path in paths if pyarrow.parquet.ParquetFile(path).metadata.num_rows]


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of a published file by hand."""
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path, partitioning=None)), path)


def by_hand(project: QuickProject, statement: Any) -> None:
    """Change the control tables past the protocol."""
    engine = create_engine(URL.create("sqlite", database=str(project.control_file)))
    with engine.begin() as connection:
        assert connection.execute(statement).rowcount >= 1
    engine.dispose()


def nothing_but_rows(document: dict[str, Any], *rows: int) -> list[dict[str, Any]]:
    """Return the sums of committed ranges in each partition where each offset is a row."""
    nothing = {"filtered": 0, "dead_letters": 0, "invisible": 0}
    topic = document["partitions"][0]["topic"]
    return [
        {"topic": topic, "partition": partition, "offsets": found, "rows": found} | nothing | {"in_output": found}
        for partition, found in enumerate(rows)
    ]


# ── Where offsets are ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_offset_is_live_backfilled_or_in_an_open_gap(feed: QuickProject) -> None:
    exit_code, document = coverage(feed, "--verify")

    assert (exit_code, document["accounted"]) == (0, True)
    assert document["verified"] == {
        "batches": 3,
        "rows": 12,
        "copied": 0,
        "filtered": 0,
        "counts": nothing_but_rows(document, 7, 5),
        "removed_batches": 0,
        "folded_batches": 0,
        "differences": [],
    }
    partition = of_partition(document)
    offsets = {name: count for name, count in partition["offsets"].items() if count}
    assert offsets == {"live": 5, "backfilled": 2, "gaps_open": 3, "gaps_closed": 2}
    assert (partition["first_offset"], partition["stored_offset"], partition["problems"]) == (0, 10, [])
    states = [(gap["start_offset"], gap["end_offset"], gap["state"]) for gap in partition["gaps"]]
    assert states == [(2, 3, "open"), (3, 5, "closed"), (5, 7, "open")]
    assert [each["batch_id"] for each in partition["backfilled"]] == [batch_of(feed, "backfill")]


def test_what_open_batches_are_about_to_commit_is_pending(feed: QuickProject, orders: str, servers: str) -> None:
    produce(servers, orders, 0, plain_records(3))
    feed.plan()
    with feed.stopping_before_the_commit(), pytest.raises(Killed):
        feed.answer("backfill", "orders", f"{orders}:0=5-6")

    exit_code, document = coverage(feed, "--verify")
    pending = [
        (each["kind"], each["start_offset"], each["end_offset"], each.get("state"))
        for each in of_partition(document)["pending"]
    ]
    assert pending == [("live", 10, 13, None), ("backfill", 5, 6, "WRITTEN")]
    assert (exit_code, document["verified"]["differences"]) == (0, [])


def test_a_feed_that_was_never_planned_has_no_offsets_and_an_unknown_one_is_an_error(
    quick: QuickProject, name: str
) -> None:
    quick.write_feed(name)
    exit_code, document = coverage(quick, "--verify")
    assert (exit_code, document["accounted"], document["partitions"], document["verified"]) == (0, True, [], None)
    assert quick.refusal("coverage", "refunds")[:2] == (2, "UNKNOWN_FEED")


def test_what_retention_took_from_a_backfill_is_on_record_and_verified(
    quick: QuickProject, orders: str, servers: str
) -> None:
    quick.write_feed(orders, start="latest")
    quick.run()
    delete_records(servers, orders, 0, 4)
    quick.answer("backfill", "orders", f"{orders}:0=0-10", "--when", "missing=record_gap")

    exit_code, document = coverage(quick, "--verify")
    assert (exit_code, document["verified"]["differences"]) == (0, [])
    counts = of_partition(document)["offsets"]
    assert (counts["before_first"], counts["gaps_open"], counts["live"]) == (6, 4, 0)


def test_the_ranges_of_live_batches_are_read_only_where_the_output_is_counted(feed: QuickProject) -> None:
    live = [UUID(each["batch_id"]) for each in feed.batches() if each["kind"] == "live"]
    before = coverage(feed)
    by_hand(feed, delete(schema.batch_range).where(schema.batch_range.c.batch_id.in_(live)))

    assert coverage(feed) == before
    assert verify(feed)[0] == 3


# ── Without --json ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_says_how_many_offsets_are_where(feed: QuickProject) -> None:
    shown = feed.kafka_ingest("coverage", "orders", "--verify", COLUMNS="200")
    assert shown.exit_code == 0
    assert "counted 12 rows in 3 batches: no difference" in shown.stdout
    assert "open gaps" in shown.stdout
    assert "before first" not in shown.stdout


def test_differences_and_problems_are_said_in_words_as_well(feed: QuickProject) -> None:
    [path] = files_of(feed, batch_of(feed, "backfill"))
    path.unlink()
    gap_closed = update(schema.gap).where(schema.gap.c.closed_by_batch.is_(None))
    by_hand(feed, gap_closed.values(closed_by_batch=UUID(batch_of(feed, "backfill"))))

    shown = feed.kafka_ingest("coverage", "orders", "--verify", COLUMNS="200")
    assert shown.exit_code == 3
    assert "is closed by batch" in shown.stdout
    assert "rows in 3 batches: " in shown.stdout
    assert "expected 2 rows of 2 offsets from 3 to 4, found no rows" in shown.stderr


# ── What differs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_gone_is_named_by_its_range_and_batch(feed: QuickProject, orders: str) -> None:
    batch_id = batch_of(feed, "live")
    path = files_of(feed, batch_id)[0]
    path.unlink()

    exit_code, document = coverage(feed, "--verify")
    assert exit_code == 3
    span = {"topic": orders, "partition": 0, "start_offset": 7, "end_offset": 10}
    assert document["verified"]["differences"] == [
        {
            "where": f"{orders}-0[7, 10)",
            "batch_id": batch_id,
            "expected": "3 rows of 3 offsets from 7 to 9",
            "found": "no rows",
            "range": span,
            "files": [{"file": path.name, "problem": f"{path} is not there", "ranges": [span]}],
        }
    ]
    assert document["accounted"]


def test_a_batch_that_was_never_committed_is_named(feed: QuickProject) -> None:
    stranger = "01990000-0000-7000-8000-000000000001"
    source = feed.output / "orders" / f"kafka_batch={batch_of(feed, 'backfill')}"
    shutil.copytree(source, source.with_name(f"kafka_batch={stranger}"))

    expected = "batches that the control tables know"
    assert verify(feed) == (3, [(str(feed.output / "orders"), expected, stranger)])


def test_a_file_with_a_row_less_is_named(feed: QuickProject, orders: str) -> None:
    path = files_of(feed, batch_of(feed, "live"))[0]
    rewrite(path, lambda table: table.slice(0, 2))

    where = f"{orders}-0[7, 10)"
    assert verify(feed) == (3, [(where, "3 rows of 3 offsets from 7 to 9", "2 rows of 2 offsets from 7 to 8")])


def test_a_second_file_with_the_same_rows_is_named(feed: QuickProject, orders: str) -> None:
    path = files_of(feed, batch_of(feed, "live"))[0]
    shutil.copy(path, path.with_name("part-99999.parquet"))

    where = f"{orders}-0[7, 10)"
    assert verify(feed) == (3, [(where, "3 rows of 3 offsets from 7 to 9", "6 rows of 3 offsets from 7 to 9")])


def test_rows_of_a_partition_that_the_batch_did_not_read_are_named(feed: QuickProject, orders: str) -> None:
    path = files_of(feed, batch_of(feed, "backfill"))[0]
    another = files_of(feed, batch_of(feed, "live"))[-1]
    shutil.copy(another, path.with_name("part-99999.parquet"))

    assert verify(feed) == (
        3,
        [(f"{orders}-1", "nothing in this batch", "5 rows of 5 offsets from 0 to 4")],
    )


def test_a_damaged_file_is_named_with_its_range_and_all_others_are_counted_those_of_its_batch_too(
    feed: QuickProject, orders: str
) -> None:
    path = files_of(feed, batch_of(feed, "live"))[0]
    path.write_bytes(b"damaged")

    exit_code, document = coverage(feed, "--verify")
    [difference] = document["verified"]["differences"]
    assert (exit_code, difference["where"], difference["found"]) == (3, f"{orders}-0[7, 10)", "no rows")
    [file] = difference["files"]
    assert (file["file"], file["ranges"]) == (path.name, [difference["range"]])
    assert f"{path}: expected a data file of this project, found a damaged one" in file["problem"]
    assert (document["verified"]["batches"], document["verified"]["rows"]) == (3, 9)

    shown = feed.kafka_ingest("coverage", "orders", "--verify", COLUMNS="200")
    assert f"{path.name} ({orders}-0[7, 10)): {path}" in shown.stderr
    assert f"`kafka-ingest lost FEED --batch {batch_of(feed, 'live')}`" in shown.stderr


def test_a_damaged_file_that_no_receipt_names_is_named(feed: QuickProject) -> None:
    path = files_of(feed, batch_of(feed, "live"))[0].with_name("theirs.parquet")
    path.write_bytes(b"damaged")

    [(where, expected, found)] = verify(feed)[1]
    assert (where, expected) == ("theirs.parquet", "files that can be read")
    assert str(path) in found


def test_a_range_that_is_lost_from_the_control_tables_is_a_hole_and_rows_that_no_batch_read(
    feed: QuickProject, orders: str
) -> None:
    in_range = schema.batch_range.c
    lost = (in_range.batch_id == UUID(batch_of(feed, "live"))) & (in_range.partition == 0)
    by_hand(feed, delete(schema.batch_range).where(lost))

    assert verify(feed) == (
        3,
        [
            (f"{orders}-0", "nothing in this batch", "3 rows of 3 offsets from 7 to 9"),
            (f"{orders}-0[7, 10)", "a committed batch or an open gap", "neither"),
        ],
    )


def test_a_gap_that_is_lost_from_the_control_tables_is_a_hole(feed: QuickProject, orders: str) -> None:
    by_hand(feed, delete(schema.gap).where(schema.gap.c.start_offset == 5))

    assert verify(feed) == (3, [(f"{orders}-0[5, 7)", "a committed batch or an open gap", "neither")])


def test_an_output_whose_storage_is_away_is_said_of_each_of_its_batches(feed: QuickProject) -> None:
    (feed.output / "orders").rename(feed.home / "away")

    exit_code, document = coverage(feed, "--verify")
    assert exit_code == 3
    assert {each["found"] for each in document["verified"]["differences"]} == {"no rows"}
    assert document["verified"]["rows"] == 0


def test_an_output_that_cannot_be_read_is_said_of_each_of_its_batches(feed: QuickProject) -> None:
    shutil.rmtree(feed.output / "orders")
    (feed.output / "orders").symlink_to(feed.output / "orders")

    exit_code, document = coverage(feed, "--verify")
    assert exit_code == 3
    assert document["verified"]["batches"] == 3


# ── Beside others ─────────────────────────────────────────────────────────────────────────────────────────────────────


def while_counting(happens: Callable[[], object]) -> Any:
    """Let something happen after the control rows were read, before the first batch is counted."""
    count_batches = coverage_of_feed.count_batches

    def counting(*arguments: Any) -> Any:
        happens()
        return count_batches(*arguments)

    return patch.object(coverage_of_feed, "count_batches", counting)


def test_what_is_committed_while_the_output_is_counted_is_no_difference(
    feed: QuickProject, orders: str, servers: str
) -> None:
    produce(servers, orders, 0, plain_records(3))
    feed.plan()
    with feed.stopping_before_the_commit(), pytest.raises(Killed):
        feed.answer("backfill", "orders", f"{orders}:0=5-6")

    def others_continue() -> None:
        feed.run()
        feed.answer("backfill", "orders", "open")
        feed.answer("backfill", "orders", "gaps")
        produce(servers, orders, 1, plain_records(2))
        feed.run()

    with while_counting(others_continue):
        exit_code, document = coverage(feed, "--verify")
    assert (exit_code, document["verified"]) == (
        0,
        {
            "batches": 3,
            "rows": 12,
            "copied": 0,
            "filtered": 0,
            "counts": nothing_but_rows(document, 7, 5),
            "removed_batches": 0,
            "folded_batches": 0,
            "differences": [],
        },
    )
    assert verify(feed) == (0, [])
    assert feed.answer("coverage", "orders", "--verify")["verified"]["batches"] == 8


def test_counting_writes_nothing_to_the_control_tables(feed: QuickProject) -> None:
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2].split(maxsplit=1)[0])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        verify(feed)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert set(statements) <= {"SELECT", "PRAGMA", "BEGIN", "WITH"}
