"""What holds for a table of either format, apart from the contract of all sinks: `sinks/tables/`."""

import json
import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pytest
from deltalake import DeltaTable
from pyiceberg.table import DataScan
from tests.contract.builders import NOON, batch_id_of, orders
from tests.contract.sink_outputs import (
    ROWS,
    DeltaOutput,
    IcebergOutput,
    ParquetOutput,
    plan_to,
    publish,
    rows_of,
    written,
)
from tests.iceberg_lake import table_at

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import local
from kafka_ingest.model.proof import Proof, proof_of
from kafka_ingest.model.published_output import FilesState, PublishedCount
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.choose import DataFilesOfAllFormats

Table = DeltaOutput | IcebergOutput

OLD = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
CLEAN_UP = {"delta": "VACUUM", "iceberg": "remove_orphan_files"}


@pytest.fixture(params=[DeltaOutput, IcebergOutput], ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made: Table = request.param(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def data_of(output: Table, number: int, attempt: int = 1) -> Path:
    """Return where an attempt's data files are."""
    directory = output.sink.staging.attempt_directory(batch_id_of(number), attempt)
    place = output.sink.publisher.data_needs(directory).place
    assert place is not None
    return local(place)


def as_another_program_has_it(output: Table) -> Any:
    return table_at(output.path) if isinstance(output, IcebergOutput) else DeltaTable(str(output.path))


@pytest.mark.parametrize("kind", [DeltaOutput, IcebergOutput, ParquetOutput], ids=lambda kind: kind.name)
def test_a_path_with_what_a_pattern_has_is_that_path_alone(kind: type[ParquetOutput], tmp_path: Path) -> None:
    for name in ("orders[12]*{a,b} é", "orders1a"):
        output = kind(tmp_path / name)
        output.sink.publisher.prepare()
        published = publish(output, plan_to(output, 1))
        look = output.sink.inspector.look_at(published.plan.batch_id)
        assert ([count.rows for count in look.counts], look.problems) == ([ROWS, ROWS], [])
    output.sink.staging.remove(output.sink.staging.attempt_directory(batch_id_of(1), 1))
    assert (tmp_path / "orders[12]*{a,b} é.kafka-ingest" / "staging" / str(batch_id_of(1))).is_dir()
    assert not (tmp_path / "orders1a.kafka-ingest" / "staging" / str(batch_id_of(1))).exists()


# ── The table that is made ────────────────────────────────────────────────────────────────────────────────────────────

OF_FEED = {
    "delta": {"delta.logRetentionDuration": "interval 7 days", "owner": "shop"},
    "iceberg": {"history.expire.max-snapshot-age-ms": "86400000", "owner": "shop"},
}


def test_a_new_table_has_the_feeds_properties_and_an_existing_one_keeps_its_own(output: Table, tmp_path: Path) -> None:
    asked = OF_FEED[output.name]
    made = type(output)(tmp_path / "made", TableOptions(properties=tuple(asked.items())))
    made.sink.publisher.prepare()
    publish(made, plan_to(made, 1))
    publish(output, plan_to(output, 2))
    before = properties_of(output)
    again = type(output)(output.path, TableOptions(properties=tuple(asked.items())))
    publish(again, plan_to(again, 3))
    assert asked.items() <= properties_of(made).items()
    marks = {name for name in properties_of(output) if name.startswith("kafka_ingest")}
    assert {name: value for name, value in properties_of(output).items() if name not in marks} == {
        name: value for name, value in before.items() if name not in marks
    }


def properties_of(output: Table) -> dict[str, str]:
    table = as_another_program_has_it(output)
    return dict(table.properties if isinstance(output, IcebergOutput) else table.metadata().configuration)


# ── Before and after a commit begins ──────────────────────────────────────────────────────────────────────────────────


def test_a_directory_of_another_outputs_files_is_no_table(output: Table) -> None:
    (output.path / f"kafka_batch={batch_id_of(1)}").mkdir()
    with pytest.raises(OutputNotUsableError, match=f"files of another output, which {CLEAN_UP[output.name]} would"):
        output.sink.publisher.prepare()


def test_files_that_vanish_after_the_commit_began_are_not_added(output: Table) -> None:
    directory, published = written(output, plan_to(output, 1))
    (data_of(output, 1) / "part-00000.parquet").unlink()
    with pytest.raises(OutputConflictError, match=r"part-00000.parquet is missing.*no offset was moved"):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()


def test_files_that_another_clean_up_could_take_at_this_moment_are_not_committed(output: Table) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    for path in data_of(output, 2).iterdir():
        os.utime(path, (OLD, OLD))
    with pytest.raises(OutputUnavailableError, match=f"{CLEAN_UP[output.name]} may take them"):
        output.sink.publisher.can_take(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)  # they count as new from now on


def test_files_that_became_old_after_the_commit_began_are_not_committed_either(output: Table) -> None:
    before = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    output.sink.publisher.can_take(directory, published.receipt)
    for path in data_of(output, 2).iterdir():
        os.utime(path, (OLD, OLD))
    with pytest.raises(OutputUnavailableError, match=f"{CLEAN_UP[output.name]} may take them"):
        output.sink.publisher.publish(directory, published)
    assert sum(output.seen().values()) == before.receipt.rows
    output.sink.publisher.publish(directory, published)
    assert sum(output.seen().values()) == before.receipt.rows + published.receipt.rows


def test_a_mark_without_a_kept_receipt_is_no_proof(output: Table) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    output.kept(1).unlink()
    assert output.sink.publisher.known_batches() == [str(batch_id_of(1))]
    with pytest.raises(OutputConflictError, match="its receipt is not kept beside it"):
        output.sink.publisher.publish(directory, published)


def test_records_that_are_staged_again_carry_the_id_of_their_new_batch(output: Table) -> None:
    source, published = written(output, plan_to(output, 1))
    plan = plan_to(output, 2)
    target = output.sink.staging.attempt_directory(plan.batch_id, 1)
    output.sink.staging.open_attempt(target, b"{}")
    ranges = [OffsetRange(orders(0), 0, ROWS), OffsetRange(orders(1), 2, 5)]
    files = tuple(output.sink.staging.restage(source, published.receipt, target, ranges))
    receipt = replace(published.receipt, batch_id=plan.batch_id, plan_fingerprint=plan.fingerprint, files=files)
    output.sink.publisher.can_take(target, receipt)
    output.sink.publisher.publish(target, replace(published, plan=plan, receipt=receipt))
    assert Counter(batch for batch, _, _ in output.seen()) == {str(plan.batch_id): ROWS + 3}


@pytest.mark.parametrize("without_rows", [False, True], ids=["rows", "no rows"])
def test_a_commit_says_where_the_tables_own_readers_look_which_offsets_it_holds(
    output: Table, *, without_rows: bool
) -> None:
    publish(output, plan_to(output, 1))
    published = publish(output, plan_to(output, 2), without_rows=without_rows)

    said = json.loads(proof_in_newest_commit(output))

    counts = [0, 0, 0, ROWS] if without_rows else [ROWS, 0, 0, 0]
    assert said["ranges"] == {"orders": [[0, 0, ROWS, *counts], [1, 0, ROWS, *counts]]}
    assert (said["batch_id"], said["topic_ids"]) == (str(batch_id_of(2)), {"orders": "orders-topic-id"})
    assert Proof.from_document(said) == Proof.from_text(proof_of(published.plan, published.receipt).as_text())


def proof_in_newest_commit(output: Table) -> str:
    """Return what DESCRIBE HISTORY shows of a Delta table, or the summary of an Iceberg table's snapshot."""
    table = as_another_program_has_it(output)
    found: str = (
        table.history(1)[0]["userMetadata"]
        if isinstance(table, DeltaTable)
        else table.current_snapshot().summary["kafka_ingest.proof"]
    )
    return found


# ── What is there ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_that_another_writer_deleted_are_missed(output: Table) -> None:
    published = publish(output, plan_to(output, 1))
    as_another_program_has_it(output).delete("kafka_partition = 0 and kafka_offset < 4")
    [found] = output.sink.publisher.published_receipts()
    assert found.files.state is FilesState.CHANGED
    assert f"holds {2 * ROWS - 4} of its {2 * ROWS} rows" in found.files.difference
    assert output.sink.inspector is not None
    look = output.sink.inspector.look_at(published.plan.batch_id)
    assert [count.rows for count in look.counts] == [ROWS - 4, ROWS]
    assert [problem.name for problem in look.problems] == ["part-00000.parquet"]


def test_a_row_that_another_writer_copied_shows_as_one_too_many(output: Table) -> None:
    published = publish(output, plan_to(output, 1))
    table = as_another_program_has_it(output)
    if isinstance(output, IcebergOutput):
        table.append(table.scan(limit=3).to_arrow())
    else:
        deltalake.write_deltalake(str(output.path), table.to_pyarrow_table().slice(0, 3), mode="append")
    assert output.sink.inspector is not None
    [first, second] = output.sink.inspector.look_at(published.plan.batch_id).counts
    assert (first.rows + second.rows, first.offsets + second.offsets) == (2 * ROWS + 3, 2 * ROWS)


def test_a_files_place_says_whose_it_is_and_whether_it_is_published(output: Table) -> None:
    written(output, plan_to(output, 1), attempt=1)
    publish(output, plan_to(output, 1), attempt=2)
    places = [DataFilesOfAllFormats().place_of(data_of(output, 1, each) / "part-00000.parquet") for each in (1, 2)]
    assert [(each.batch_id, each.attempt, each.output.format) for each in places if each is not None] == [
        (batch_id_of(1), 1, output.format),
        (batch_id_of(1), None, output.format),
    ]


def test_listing_what_was_published_looks_through_the_tables_files_as_often_for_many_batches_as_for_one(
    output: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def count(owner: type[Any], look: str) -> None:
        real = getattr(owner, look)

        def counted(*arguments: Any, **named: Any) -> object:
            looks.append(look)
            return real(*arguments, **named)

        monkeypatch.setattr(owner, look, counted)

    count(DeltaTable, "get_add_actions")
    count(DataScan, "plan_files")
    found: list[int] = []
    for number in range(1, 5):
        publish(output, plan_to(output, number))
        looks.clear()
        listed = list(output.sink.publisher.published_receipts())
        assert [each.files.state for each in listed] == [FilesState.INTACT] * number
        found.append(len(looks))
    assert found[0] > 0
    assert found == [found[0]] * 4


# ── What compaction and expiry do ─────────────────────────────────────────────────────────────────────────────────────


def compact(output: Table) -> None:
    """Put all rows into files of another program's making."""
    table = as_another_program_has_it(output)
    if isinstance(output, IcebergOutput):
        table.overwrite(table.scan().to_arrow())
    else:
        assert table.optimize.compact()["numFilesRemoved"] > 1


def test_a_batch_is_found_and_counted_wherever_a_compaction_put_its_rows(output: Table) -> None:
    batches = [publish(output, plan_to(output, number)) for number in (1, 2, 3)]
    compact(output)
    last = publish(output, plan_to(output, 4))
    receipts = list(output.sink.publisher.published_receipts())
    assert [each.files.state for each in receipts] == [FilesState.INTACT] * 4
    for published in (*batches, last):
        batch_id, inspector = published.plan.batch_id, output.sink.inspector
        look = inspector.look_at(batch_id)
        assert list(look.problems) == []
        assert list(look.counts) == [PublishedCount(orders(each), ROWS, ROWS, 0, ROWS - 1) for each in (0, 1)]
        first = published.receipt.files[0]
        assert inspector.holds(batch_id, first, orders(0), 3)
        assert not inspector.holds(batch_id, first, orders(0), ROWS)


@pytest.mark.parametrize("is_compacted", [False, True], ids=["own files", "compacted"])
def test_a_batch_that_expires_leaves_in_one_commit_and_takes_no_other_along(
    output: Table, *, is_compacted: bool
) -> None:
    publish(output, plan_to(output, 1))
    if is_compacted and output.format == "iceberg":  # of which only whole files are taken out
        compact(output)
    second = publish(output, plan_to(output, 2))
    if is_compacted and output.format == "delta":
        compact(output)
    before, remover = commits_of(output), output.sink.remover
    with pytest.raises(ValueError, match="noted as removed before it is hidden"):
        remover.hide(batch_id_of(1))
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "ops", "old"))
    assert remover.unfinished() == [str(batch_id_of(1))]
    for _ in range(2):
        remover.hide(batch_id_of(1))
    assert output.seen() == rows_of(second)
    assert commits_of(output) == before + 1
    remover.delete_hidden(batch_id_of(1))
    assert remover.unfinished() == []
    states = [each.files.state for each in output.sink.publisher.published_receipts()]
    assert states == [FilesState.EXPIRED, FilesState.INTACT]


def commits_of(output: Table) -> int:
    table = as_another_program_has_it(output)
    return len(table.history()) if isinstance(output, IcebergOutput) else table.version()
