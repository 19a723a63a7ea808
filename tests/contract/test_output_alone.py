"""What an output shows alone: sound, damaged, copied elsewhere, or rewritten by another program."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.contract.builders import NOON, batch_id_of, orders
from tests.contract.sink_outputs import (
    ROWS,
    DeltaInStore,
    DeltaOutput,
    IcebergOutput,
    ParquetOutput,
    plan_to,
    publish,
    written,
)
from tests.iceberg_lake import table_at
from tests.quick_project import QuickProject

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.receipt import Filtered, WrittenFile
from kafka_ingest.observing.account_of_output import AccountOfOutput, account_of
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.choose import SinkConnections, format_found, sink_of

OUTPUTS = (ParquetOutput, DeltaOutput, IcebergOutput)


@pytest.fixture(params=OUTPUTS, ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> ParquetOutput:
    made: ParquetOutput = request.param(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


@pytest.fixture
def delta(tmp_path: Path) -> DeltaOutput:
    made = DeltaOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def reading(output: ParquetOutput, number: int, *partitions: int, end: int = ROWS) -> BatchPlan:
    """Return the plan of a batch of some partitions' first offsets."""
    ranges = tuple(OffsetRange(orders(each), 0, end) for each in partitions)
    return replace(plan_to(output, number), ranges=ranges, topic_ids={"orders": "topic-id-1"})


def publish_two(output: ParquetOutput) -> None:
    publish(output, reading(output, 1, 0, 1))
    publish(output, reading(output, 2, 2))


def account(sink: Sink) -> AccountOfOutput:
    assert sink.contents is not None
    evidence = sink.contents.evidence()
    return account_of(evidence, *sink.contents.held(evidence))


def account_at(path: Path) -> AccountOfOutput:
    """Return the account of what is in a directory, of which nothing is known beforehand."""
    return account(sink_of(format_found(str(path), {}, SinkConnections())))


def unaccounted(found: AccountOfOutput) -> dict[int, int]:
    return {each.held.topic_partition.partition: each.unaccounted for each in found.partitions if each.unaccounted}


def doubled(found: AccountOfOutput) -> dict[int, int]:
    return {
        each.held.topic_partition.partition: each.held.doubled.count for each in found.partitions if each.held.doubled
    }


def test_an_output_as_it_was_published_is_sound(output: ParquetOutput) -> None:
    publish_two(output)
    found = account(output.sink)
    assert found.is_sound
    assert found.proofs.keys() == {batch_id_of(1), batch_id_of(2)}
    assert [
        (str(each.held.topic_partition), each.held.topic_id, each.held.offsets.first(9)) for each in found.partitions
    ] == [(f"orders-{number}", "topic-id-1", [(0, ROWS)]) for number in range(3)]


def test_an_output_of_which_every_receipt_is_gone_is_proved_by_the_tables_own_history(output: ParquetOutput) -> None:
    publish_two(output)
    shutil.rmtree(output.kept(1).parent.parent)
    found = account(output.sink)
    assert found.is_sound
    assert len(found.proofs) == (0 if output.name == "parquet" else 2)
    assert len(found.unproven) == (2 if output.name == "parquet" else 0)


def test_a_batch_that_was_published_twice_by_other_ids_is_doubled(output: ParquetOutput) -> None:
    publish_two(output)
    publish(output, reading(output, 3, 1))
    found = account(output.sink)
    assert (found.is_sound, doubled(found), unaccounted(found)) == (False, {1: ROWS}, {})
    of_one = found.partitions[1].held
    assert of_one.batches_of(0, 1) == [batch_id_of(1), batch_id_of(3)]
    assert len(of_one.files_of(0, 1)) == 2


def test_dead_letters_and_what_else_is_no_row_are_accounted_for(output: ParquetOutput) -> None:
    directory, published = written(output, reading(output, 1, 0, end=ROWS + 4))
    letters = WrittenFile.of_one("part-00001.parquet", 1, 2, orders(0), ROWS, ROWS + 1)
    receipt = replace(
        published.receipt, dead_letters=(letters,), filtered=(Filtered(orders(0), 1),), rows_read=ROWS + 3
    )
    output.sink.publisher.publish(directory, replace(published, receipt=receipt))

    found = account(output.sink)

    [one] = found.partitions
    assert (found.is_sound, one.dead_letters, one.filtered, one.invisible, one.reached) == (True, 2, 1, 1, ROWS + 4)


def test_a_missing_file_is_named_with_its_batch_and_offsets(output: ParquetOutput) -> None:
    publish_two(output)
    [path] = [Path(each) for each in output.data_files() if each.endswith("part-00001.parquet")]
    path.unlink()

    found = account(output.sink)

    assert (found.is_sound, unaccounted(found)) == (False, {1: ROWS})
    [missing] = found.partitions[1].missing
    assert (missing.batch_id, missing.among.first(9)) == (batch_id_of(1), [(0, ROWS)])
    assert len(found.problems) == (0 if output.name == "parquet" else 1), "a table names the file still"


def test_a_batch_that_expired_is_accounted_for(output: ParquetOutput) -> None:
    publish_two(output)
    assert output.sink.remover is not None
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "test", "old"))
    output.sink.remover.hide(batch_id_of(1))

    found = account(output.sink)
    assert (found.is_sound, [each.removed for each in found.partitions]) == (True, [ROWS, ROWS, 0])

    if output.name != "parquet":
        shutil.rmtree(output.kept(1).parent.parent)
        assert account(output.sink).is_sound, "the table's history says that it was removed"


def test_a_batch_whose_commit_was_interrupted_misses_nothing(output: ParquetOutput) -> None:
    publish_two(output)
    _, published = written(output, reading(output, 3, 3))
    output.sink.archive.keep(published)  # type: ignore[attr-defined] # what a publisher does first
    assert account(output.sink).is_sound


def test_a_receipt_that_was_changed_does_not_fit_the_tables_commit(delta: DeltaOutput) -> None:
    publish_two(delta)
    delta.change(2, lambda kept: kept["receipt"]["files"].clear() or kept["receipt"].update(rows_read=0))
    [problem] = account(delta.sink).problems
    assert "expected its commit and the receipt beside the output to say the same" in problem


def test_a_damaged_receipt_and_a_damaged_file_stop_no_other_count(output: ParquetOutput) -> None:
    publish_two(output)
    output.kept(2).write_text("{}")
    [path] = [Path(each) for each in output.data_files() if each.endswith("part-00001.parquet")]
    path.write_bytes(b"no Parquet")

    found = account(output.sink)

    assert len(found.problems) == 2
    assert [each.held.rows for each in found.partitions] == [ROWS, 0, ROWS]


@pytest.mark.parametrize("with_receipts", [True, False], ids=["with receipts", "alone"])
@pytest.mark.parametrize("kind", [ParquetOutput, DeltaOutput], ids=lambda kind: kind.name)
def test_a_copy_elsewhere_is_checked_as_the_original(
    kind: type[ParquetOutput], tmp_path: Path, *, with_receipts: bool
) -> None:
    made = kind(tmp_path / "orders")
    made.sink.publisher.prepare()
    publish_two(made)
    copy = tmp_path / "elsewhere" / "a copy"
    shutil.copytree(made.path, copy)
    if with_receipts:
        shutil.copytree(tmp_path / "orders.kafka-ingest", copy.with_name("a copy.kafka-ingest"))
    for each in (made.path, tmp_path / "orders.kafka-ingest"):
        shutil.rmtree(each)

    found = account_at(copy)

    assert (found.is_sound, sum(each.held.rows for each in found.partitions)) == (True, 3 * ROWS)
    assert bool(found.proofs) == (with_receipts or kind is DeltaOutput)


def compact(path: Path) -> None:
    DeltaTable(str(path)).optimize.compact()


def rewrite_without_batches(path: Path) -> None:
    """Write the rows anew, as a program does that knows nothing of batches."""
    rows = DeltaTable(str(path)).to_pyarrow_table()
    emptied = rows.set_column(rows.schema.get_field_index("kafka_batch"), "kafka_batch", [[None] * len(rows)])
    write_deltalake(str(path), emptied.cast(rows.schema), mode="overwrite")


@pytest.mark.parametrize("rewrite", [compact, rewrite_without_batches])
def test_a_table_that_another_program_rewrote_is_checked_by_its_rows(
    delta: DeltaOutput, rewrite: Callable[[Path], None]
) -> None:
    publish_two(delta)
    publish(delta, reading(delta, 3, 0))
    rewrite(delta.path)
    found = account_at(delta.path)
    assert (doubled(found), unaccounted(found), found.problems) == ({0: ROWS}, {}, [])

    DeltaTable(str(delta.path)).delete("kafka_partition = 2 AND kafka_offset IN (3, 4)")

    [_, _, third] = account_at(delta.path).partitions
    [missing] = third.missing
    assert (missing.batch_id, missing.offsets, missing.among.first(9)) == (batch_id_of(2), 2, [(3, 5)])


def test_an_iceberg_table_that_another_program_rewrote_is_checked_by_its_rows(tmp_path: Path) -> None:
    output = IcebergOutput(tmp_path / "orders")
    output.sink.publisher.prepare()
    publish_two(output)
    table = table_at(output.path)
    table.overwrite(table.scan(row_filter="kafka_offset != 7").to_arrow())
    found = account(output.sink)
    assert (unaccounted(found), found.problems) == ({0: 1, 1: 1, 2: 1}, [])


def test_files_of_another_form_in_a_directory_are_read_where_they_have_positions(tmp_path: Path) -> None:
    output = ParquetOutput(tmp_path / "orders")
    output.sink.publisher.prepare()
    publish_two(output)
    rows = pyarrow.parquet.read_table(output.path, partitioning="hive")
    shutil.rmtree(output.path)
    output.path.mkdir()
    text = rows.set_column(
        rows.schema.get_field_index("kafka_batch"), "kafka_batch", rows["kafka_batch"].cast("string")
    )
    pyarrow.parquet.write_table(text, output.path / "compacted.parquet")
    assert account_at(output.path).is_sound
    pyarrow.parquet.write_table(text, output.path / "once more.parquet")
    assert doubled(account_at(output.path)) == {0: ROWS, 1: ROWS, 2: ROWS}


def test_rows_of_other_programs_in_a_table_are_counted_apart(delta: DeltaOutput) -> None:
    publish_two(delta)
    schema = DeltaTable(str(delta.path)).to_pyarrow_table().schema
    write_deltalake(str(delta.path), pyarrow.Table.from_pylist([{}, {}], schema), mode="append")
    found = account_at(delta.path)
    assert (found.is_sound, found.foreign_rows) == (True, 2)


def test_nothing_at_a_place_is_no_output(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "not there"):
        with pytest.raises(OutputNotUsableError, match="found nothing there"):
            account_at(path)


@pytest.mark.usefixtures("object_store")
def test_a_table_in_a_store_is_checked_where_it_is(tmp_path: Path) -> None:
    output = DeltaInStore(tmp_path / "orders")
    output.sink.publisher.prepare()
    publish_two(output)
    connections = SinkConnections(store=lambda _: output.store.access())
    found = account(sink_of(format_found(str(output.place), {}, connections), connections))
    assert (found.is_sound, len(found.proofs)) == (True, 2)


# ── By the command ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QuickProject:
    """A shell without control tables, feed files and connections."""
    project = QuickProject(tmp_path / "shell", "127.0.0.1:1")
    for name in [name for name in project.environment if name.startswith(("AIRFLOW_CONN_", "KAFKA_INGEST_"))]:
        project.environment.pop(name)
        monkeypatch.delenv(name, raising=False)
    return project


def test_the_command_needs_the_output_alone_and_ends_with_3_where_it_is_not_sound(
    delta: DeltaOutput, elsewhere: QuickProject
) -> None:
    publish_two(delta)
    sound = elsewhere.kafka_ingest("verify", str(delta.path))
    assert (sound.exit_code, sound.stdout.splitlines()[-1]) == (
        0,
        "30 rows in 3 partitions: each offset is there once, or accounted for",
    )
    DeltaTable(str(delta.path)).delete("kafka_partition = 1 AND kafka_offset > 6")
    publish(delta, reading(delta, 3, 2))

    found = elsewhere.kafka_ingest("verify", str(delta.path), "--json")
    lines = elsewhere.kafka_ingest("verify", str(delta.path)).stdout

    assert found.exit_code == 3
    document = found.document
    assert (document["format"], document["sound"], document["batches"], document["problems"]) == ("delta", False, 3, [])
    of_one, of_two = document["partitions"][1:]
    assert (of_one["rows"], of_one["ranges"], of_one["unaccounted"]) == (7, [{"start_offset": 0, "end_offset": 7}], 3)
    assert of_one["missing"] == [
        {"topic": "orders", "partition": 1, "start_offset": 0, "end_offset": ROWS, "batch_id": str(batch_id_of(1))}
        | {"offsets": 3, "among": [{"start_offset": 7, "end_offset": ROWS}], "among_count": 1}
    ]
    [doubled_range] = of_two["doubled"]
    assert doubled_range["batch_ids"] == [str(batch_id_of(2)), str(batch_id_of(3))]
    assert (of_two["doubled_offsets"], len(doubled_range["files"])) == (ROWS, 2)
    assert f"orders-1[0, 10), which batch {batch_id_of(1)} has read: 3 offsets missing, among [7, 10)" in lines
    assert "orders-2[0, 10): there more than once, by" in lines
    assert "37 rows in 3 partitions: 10 offsets more than once, 3 unaccounted for, 0 other problems" in lines


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["", "--json"], "expected the place of an output, found an empty text"),
        ([".", "--json"], "found no rows of Kafka's records and no receipts"),
        (["ORDERS", "--topic", "nope", "--json"], "expected rows or proofs of topic nope in"),
        (["ORDERS", "--table", "shop.orders", "--json"], "expected --table with --catalog or with --database"),
        (["ORDERS", "--database", "pg", "--json"], "found --database"),
        (["ORDERS", "--catalog", "a", "--database", "b", "--table", "c.d", "--json"], "found --catalog and --database"),
        (["ORDERS", "--bootstrap", "a:1", "--kafka", "b", "--json"], "expected either --bootstrap or --kafka"),
        (["ABOVE", "--json"], "found a folder of several: orders.kafka-ingest"),
    ],
)
def test_what_is_no_output_or_cannot_be_asked_is_wrong_use(
    delta: DeltaOutput, elsewhere: QuickProject, arguments: list[str], why: str
) -> None:
    publish_two(delta)
    places = {"ORDERS": str(delta.path), "ABOVE": str(delta.path.parent), ".": str(elsewhere.home)}
    answer = elsewhere.kafka_ingest("verify", *(places.get(each, each) for each in arguments))
    assert (answer.exit_code, why in answer.document["error"]["message"]) == (2, True), answer.stdout
