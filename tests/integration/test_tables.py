"""A feed whose output is a table, on real parts: every record once for every reader, killed commits included."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import plain_records, topic_id
from tests.kafka_faults import produce as produce_plain
from tests.killing import Processes, ending_all, kill_a_run_that_spark_wrote_for
from tests.quick_project import Killed, QuickProject
from tests.table_kinds import Delta, Iceberg, Postgresql, TableKind, batches_seen, lands

from kafka_ingest.airflow_tasks.openlineage_facets import TABLE_FORMATS, found_lineage, output_name, topic_name
from kafka_ingest.assembly import assemble_named
from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.batches.mirror_group import Mirrored
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.sinks.delta.columns import RAW_COLUMNS
from order_events import order_events, produce


@pytest.fixture(params=[Delta(), Iceberg(), Postgresql()], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest, quick: QuickProject) -> TableKind:
    """The table's format; the project has the connections that it needs."""
    found: TableKind = request.param
    found.connect(quick)
    return found


@pytest.fixture
def processes(quick: QuickProject) -> Iterator[Processes]:
    with ending_all(quick) as made:
        yield made


def test_every_record_is_in_the_table_once_after_commits_that_were_killed_before_and_after_landing_and_a_backfill(
    kind: TableKind, quick: QuickProject, processes: Processes, servers: str, topic: str
) -> None:
    quick.write_feed(topic, sink=kind.sink)
    events = list(order_events(4_000, seed=11))
    id_of_topic = topic_id(servers, topic)
    produce(servers, topic, islice(events, 1_000))
    # What Spark stages for the other two is read in test_store and test_other_stores.
    with quick.submitting(spark_is_real=kind.name == "postgresql"):
        [first] = quick.run()
    assert first["rows"] == 1_000
    assert [comparable(row) for row in kind.rows(quick)] == rows_expected(events[:1_000], topic, id_of_topic)

    # Two commits are killed with -9; the run after each continues with the same batch.
    batches = {first["batch_id"]}
    for killed_at, end in ((f"before:{lands(kind.landing)}", 2_000), (f"after:{lands(kind.landing)}", 3_000)):
        produce(servers, topic, events[end - 1_000 : end])
        kill_a_run_that_spark_wrote_for(quick, processes, killed_at)
        assert len(kind.rows(quick)) == (end if killed_at.startswith("after") else end - 1_000)
        open_batch = quick.status()["open_batch"]
        assert open_batch["state"] == "COMMITTING"
        [resumed] = quick.run()
        assert (resumed["batch_id"], resumed["rows"]) == (open_batch["batch_id"], 1_000)
        assert [comparable(row) for row in kind.rows(quick)] == rows_expected(events[:end], topic, id_of_topic)
        batches.add(resumed["batch_id"])

    # What an operator skipped is read by a backfill, after all.
    stored = quick.stored_offsets()[0]
    produce(servers, topic, events[3_000:])
    quick.answer("skip", "orders", topic, "0", f"{stored}-{stored + 10}", "--reason", "poisoned")
    [live] = quick.run()
    assert len(kind.rows(quick)) == 4_000 - 10
    check_lineage(kind, quick, topic, live)
    [chunk] = quick.answer("backfill", "orders", "gaps", "--reason", "mended")["chunks"]
    assert [comparable(row) for row in kind.rows(quick)] == rows_expected(events, topic, id_of_topic)
    batches |= {live["batch_id"], chunk["batch_id"]}
    assert {row["kafka_batch"] for row in kind.rows(quick)} == batches
    assert quick.stored_offsets() == quick.group_offsets()

    check_questions(kind, quick, topic, stored, chunk["batch_id"])

    # The first batch's rows are read again, and take the place of the old ones.
    again = quick.answer("backfill", "orders", f"batch={first['batch_id']}", "--when", "overlap=replace")
    assert [(each["kind"], each["rows"]) for each in again["chunks"]] == [("replace", 1_000)]
    assert [comparable(row) for row in kind.rows(quick)] == rows_expected(events, topic, id_of_topic)
    now = batches - {first["batch_id"]} | {again["chunks"][0]["batch_id"]}
    assert {row["kafka_batch"] for row in kind.rows(quick)} == now
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    assert quick.stored_offsets() == quick.group_offsets()


def check_lineage(kind: TableKind, project: QuickProject, topic: str, batch: dict[str, Any]) -> None:
    """What OpenLineage gets of a batch in a table: its names, and the columns as its files have them."""
    with patch.dict(os.environ, project.environment):
        parts = assemble_named("orders", find_connection_from_shell)
        stored = parts.control.batch(UUID(batch["batch_id"]))
        counts = tuple(parts.control.range_counts(stored.batch_id))
        found = found_lineage(Committed(stored, counts, by_us=True, mirrored=Mirrored(None)), parts)
    [read], [written] = found.inputs, found.outputs
    assert (read.namespace, read.name) == topic_name(project.bootstrap_servers, topic)
    assert (written.namespace, written.name) == output_name(OutputLocation.local(kind.name, project.output / "orders"))
    names = [(f"sqlite:{project.home}/catalog.db", "shop.orders")] if kind.name == "iceberg" else []
    found_names = written.facets["symlinks"].identifiers if "symlinks" in written.facets else []
    assert [(each.namespace, each.name) for each in found_names] == names
    layers = [kind.name] if kind.name in TABLE_FORMATS else []
    assert [written.facets[each].storageLayer for each in ("storage",) if each in written.facets] == layers
    assert written.outputFacets["outputStatistics"].rowCount == batch["rows"]
    assert {field.name for field in written.facets["schema"].fields} == set(RAW_COLUMNS)


def check_questions(kind: TableKind, quick: QuickProject, topic: str, offset: int, batch_id: str) -> None:
    """The questions about an output are answered of a table, too, or refused by name."""
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    located = quick.answer("locate", "orders", topic, "0", str(offset))
    [file] = [file for batch in located["batches"] for file in batch["files"] if file["holds_record"]]
    if kind.name != "postgresql":  # there readers see no files
        explained = quick.answer("explain", file["path"])
        assert (explained["published"], explained["batch_id"]) == (True, batch_id)
        assert explained["receipt"]["differences"] == []
        assert {"name": "kafka_batch", "type": "string"} in explained["columns"]
    [feed] = quick.answer("feeds")["feeds"]
    assert {key: feed["sink"][key] for key in kind.sink} == kind.sink
    assert kind.guarantee in feed["guarantee"]
    refused = quick.kafka_ingest("lost", "orders", "--batch", batch_id, "--json")
    assert (refused.exit_code, refused.document["error"]["code"]) == (2, "NOT_OF_THIS_FORMAT")
    assert quick.kafka_ingest("doctor").exit_code == 0


# ── What operators do to a table ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def three_batches(kind: TableKind, quick: QuickProject, orders: str) -> QuickProject:
    """A feed with three live batches of 5 records each."""
    quick.write_feed(orders, limits={"max_records": 5}, sink=kind.sink)
    quick.run("orders", "--until-caught-up")
    return quick


def ids(project: QuickProject) -> list[str]:
    """Return the batches, oldest first."""
    return [str(batch["batch_id"]) for batch in reversed(project.batches())]


def test_old_batches_leave_the_table_and_their_offsets_stay_committed(
    kind: TableKind, three_batches: QuickProject
) -> None:
    oldest, second, newest = ids(three_batches)
    kind.compact(three_batches)
    mended = three_batches.kafka_ingest("mend-statistics", "orders", "--json")
    if kind.name == "delta":
        assert (mended.exit_code, mended.document["lacking"], mended.document["executed"]) == (0, {}, False)
    else:
        assert (mended.exit_code, mended.document["error"]["code"]) == (2, "NOT_OF_THIS_FORMAT")
    expire = ("expire", "orders", "--before", "2100-01-01", "--execute", "--reason", "old")
    assert [batch["batch_id"] for batch in three_batches.answer(*expire)["batches"]] == [oldest, second]
    assert batches_seen(kind, three_batches) == {newest: 5}
    found = three_batches.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])
    assert sum(partition["offsets"]["expired"] for partition in found["partitions"]) == 10
    assert three_batches.run() == []


def test_lost_control_tables_are_rebuilt_from_the_receipts_beside_the_table(
    kind: TableKind, three_batches: QuickProject, servers: str, orders: str
) -> None:
    before = batches_seen(kind, three_batches), three_batches.stored_offsets()
    lose_control_tables(three_batches)
    refused = three_batches.kafka_ingest("run", "orders", "--json")
    assert refused.document["error"]["code"] == "OUTPUT_UNKNOWN"
    three_batches.answer("adopt", "orders", *DO_IT)
    assert (batches_seen(kind, three_batches), three_batches.stored_offsets()) == before
    produce_plain(servers, orders, 2, plain_records(3))
    assert [batch["rows"] for batch in three_batches.run()] == [3]
    assert sum(batches_seen(kind, three_batches).values()) == 18


def test_a_batch_that_was_abandoned_while_it_was_committed_is_never_seen_and_can_be_restored(
    kind: TableKind, quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders, sink=kind.sink)
    with patch.object(kind.landing, "land", side_effect=Killed), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    [batch] = quick.batches()
    assert batch["state"] == "COMMITTING"
    quick.answer("abandon", batch["batch_id"], "--reason", "wrong topic")
    assert batches_seen(kind, quick) == {}
    quick.answer("restore", batch["batch_id"], "--execute", "--reason", "it was the right one")
    assert list(batches_seen(kind, quick).values()) == [15]
    assert batch["batch_id"] not in batches_seen(kind, quick)


@pytest.mark.parametrize("kind", [Delta()], indirect=True, ids=["delta"])
def test_rows_that_were_changed_by_hand_are_replaced_by_what_kafka_holds(
    kind: Delta, three_batches: QuickProject, orders: str
) -> None:
    oldest, *_ = ids(three_batches)
    table = kind.table(three_batches)
    before = kind.rows(three_batches)
    table.optimize.compact()
    table.update(predicate=f"kafka_batch = '{oldest}'", updates={"kafka_timestamp_ms": "-1"})
    asked = ("backfill", "orders", f"batch={oldest}", "--when", "overlap=replace")
    shown = three_batches.answer(*asked, "--dry-run")
    assert shown["replaced"] | {"ranges": []} == {
        "batches": [oldest],
        "ranges": [],
        "rows": 5,
        "files": 1,
        "files_rewritten": 1,
    }
    seen = batches_seen(kind, three_batches)
    replaced = three_batches.answer(*asked, "--reason", "changed by hand")["chunks"]
    assert sum(chunk["rows"] for chunk in replaced) == 5
    assert without_batch(kind.rows(three_batches)) == without_batch(before)
    new = {chunk["batch_id"]: chunk["rows"] for chunk in replaced}
    assert batches_seen(kind, three_batches) == {name: rows for name, rows in seen.items() if name != oldest} | new
    check_replaced(three_batches, orders, set(new))
    lose_control_tables(three_batches)
    three_batches.answer("adopt", "orders", *DO_IT)
    check_replaced(three_batches, orders, set(new))
    assert three_batches.run() == []


def without_batch(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "kafka_batch"} for row in rows]


def check_replaced(project: QuickProject, topic: str, new: set[str]) -> None:
    """Five offsets are committed by one batch, and their rows are in others."""
    found = project.answer("coverage", "orders", "--verify")
    assert (found["accounted"], found["verified"]["differences"]) == (True, [])
    assert sum(partition["offsets"]["replaced"] for partition in found["partitions"]) == 5
    [span, *_] = [each for partition in found["partitions"] for each in partition["replaced"]]
    located = project.answer("locate", "orders", topic, str(span["partition"]), str(span["start_offset"]))
    assert [batch["record"] for batch in located["batches"]] == ["in_file", "replaced"]
    assert located["batches"][0]["batch_id"] in new
    for command in (
        ("locate", "orders", topic, str(span["partition"]), str(span["start_offset"])),
        ("coverage", "orders"),
    ):
        assert project.kafka_ingest(*command).exit_code == 0


def test_a_copy_goes_to_a_table_of_its_own_and_clean_ups_leave_what_is_published(
    kind: TableKind, three_batches: QuickProject
) -> None:
    """A copy of an Iceberg table is in the same namespace; another writer cleans up, and this project."""
    seen = batches_seen(kind, three_batches)
    copy = ("backfill", "orders", f"batch={ids(three_batches)[0]}", "--copy-to", "orders_again", "--reason", "a look")
    assert [chunk["rows"] for chunk in three_batches.answer(*copy)["chunks"]] == [5]
    assert sum(batches_seen(kind, three_batches, "orders_again").values()) == 5

    for batch_id in seen:
        three_batches.answer("clean", "--batch", batch_id, "--reason", "the disk is full")
    kind.clean_up(three_batches)
    assert batches_seen(kind, three_batches) == seen
    assert list(seen.values()) == [5, 5, 5]
    assert three_batches.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
