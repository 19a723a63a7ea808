"""What replacing rows in a table promises its readers: the old rows or the new ones, whatever happens in between."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.contract.builders import batch_id_of
from tests.contract.sink_outputs import (
    ROWS,
    DeltaInStore,
    DeltaOutput,
    Died,
    Fault,
    IcebergInStore,
    IcebergOutput,
    InStore,
    plan_to,
    publish,
    rows_of,
    written,
)
from tests.iceberg_lake import table_at
from tests.object_store import ObjectStore

from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    OutputConflictError,
    OutputNotUsableError,
    RecordsDeletedError,
)
from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.read_again import ReplacedRange, RowsReplaced
from kafka_ingest.ports.outputs import Replacer
from kafka_ingest.sinks.delta import replaced_files
from kafka_ingest.sinks.iceberg.one_try import OneTry


@pytest.fixture(params=[DeltaOutput, IcebergOutput], ids=lambda kind: kind.name)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaOutput:
    """A table of either format."""
    made: DeltaOutput = request.param(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


@pytest.fixture
def output(tmp_path: Path) -> DeltaOutput:
    """A Delta table."""
    made = DeltaOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergOutput:
    made = IcebergOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def versions(table: DeltaOutput) -> int:
    """Return how many states of the table readers could have seen."""
    if table.format == "delta":
        return DeltaTable(str(table.path)).version()
    return len(table_at(table.path).snapshots())


def replacer_of(output: DeltaOutput) -> Replacer:
    assert output.sink.replacer is not None
    return output.sink.replacer


def replacing(output: DeltaOutput, number: int, was: BatchPlan, *partitions: int) -> BatchPlan:
    """Return the plan of a batch that reads ranges of another one again."""
    ranges = [planned for planned in was.ranges if planned.partition in partitions]
    return replace(
        plan_to(output, number),
        kind=BatchKind.REPLACE,
        ranges=tuple(ranges),
        replaces=tuple(ReplacedRange(each, was.batch_id) for each in ranges),
    )


def of_partition(published: PublishedReceipt, number: int) -> Counter[tuple[str, int, int]]:
    return Counter({row: count for row, count in rows_of(published).items() if row[1] == number})


def compact(output: DeltaOutput) -> None:
    DeltaTable(str(output.path)).optimize.compact()


def all_columns(output: DeltaOutput) -> list[Any]:
    order = ["kafka_batch", "kafka_partition", "kafka_offset"]
    return pl.read_delta(str(output.path)).sort(order).rows()


# ── What readers see ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_version_of_the_table_has_the_new_rows_and_not_the_old_ones(table: DeltaOutput) -> None:
    old, other = publish(table, plan_to(table, 1)), publish(table, plan_to(table, 2))
    before = versions(table)
    new = publish(table, replacing(table, 3, old.plan, 0))
    assert table.seen() == of_partition(old, 1) + rows_of(other) + rows_of(new)
    assert versions(table) == before + 1


def updated(output: DeltaOutput) -> None:
    """Do what a program does that changes rows with delta-rs, whose files call texts and bytes views."""
    compact(output)
    DeltaTable(str(output.path)).update({"kafka_timestamp_ms": "kafka_timestamp_ms"})


@pytest.mark.parametrize("move", [compact, updated])
def test_rows_that_others_have_moved_are_replaced_and_the_other_rows_in_their_files_stay_as_they_are(
    output: DeltaOutput, move: Callable[[DeltaOutput], None]
) -> None:
    old, other = publish(output, plan_to(output, 1)), publish(output, plan_to(output, 2))
    move(output)
    before = all_columns(output)
    new = publish(output, replacing(output, 3, old.plan, 1))
    assert output.seen() == of_partition(old, 0) + rows_of(other) + rows_of(new)
    stayed = [row for row in before if (row[-1], row[1]) != (str(old.plan.batch_id), 1)]
    assert [row for row in all_columns(output) if row[-1] != str(new.plan.batch_id)] == stayed


def test_a_replacement_is_replaced_itself(table: DeltaOutput) -> None:
    first = publish(table, plan_to(table, 1))
    second = publish(table, replacing(table, 2, first.plan, 0, 1))
    third = publish(table, replacing(table, 3, second.plan, 0))
    assert table.seen() == of_partition(second, 1) + rows_of(third)


def test_rows_of_the_same_offsets_that_another_batch_holds_stay(table: DeltaOutput) -> None:
    """A topic that was created again, or a log that was truncated, gives other records the same offsets."""
    old, same_offsets = publish(table, plan_to(table, 1)), publish(table, plan_to(table, 2))
    new = publish(table, replacing(table, 3, old.plan, 0, 1))
    assert table.seen() == rows_of(same_offsets) + rows_of(new)


OTHERS: dict[str, tuple[pa.DataType, Any]] = {
    "date": (pa.date32(), date(2026, 1, 2)),
    "decimal": (pa.decimal128(10, 2), Decimal("1.50")),
    "bytes": (pa.binary(), b"\xff"),
    "later": (pa.timestamp("us", "UTC"), 253_402_300_799_999_999),
}


@pytest.mark.parametrize("int96", [True, False], ids=["int96", "int64"])
def test_columns_of_other_programs_stay_as_they_are_in_a_file_of_any_writer(output: DeltaOutput, int96: bool) -> None:  # noqa: FBT001
    """Spark writes INT96 unless told otherwise, which does not say that times are in UTC."""
    old = publish(output, plan_to(output, 1))
    rows = DeltaTable(str(output.path)).to_pyarrow_table()
    for name, (kind, value) in OTHERS.items():
        rows = rows.append_column(name, pa.array([value] * len(rows), kind))
    write_deltalake(str(output.path), rows, mode="overwrite", schema_mode="merge")
    [path] = DeltaTable(str(output.path)).file_uris()
    pyarrow.parquet.write_table(
        rows, path.removeprefix("file://"), use_deprecated_int96_timestamps=int96, store_schema=False
    )
    publish(output, replacing(output, 2, old.plan, 0))
    stayed = DeltaTable(str(output.path)).to_pyarrow_table().filter(pc.field("kafka_batch") == str(old.plan.batch_id))
    wanted = rows.filter(pc.field("kafka_partition") == 1)
    assert stayed.num_rows == ROWS
    for name in ("kafka_timestamp", *OTHERS):
        assert stayed[name].cast(rows.schema.field(name).type).combine_chunks().equals(wanted[name].combine_chunks())


@pytest.mark.parametrize("harm", [lambda path: path.write_bytes(b"damaged"), Path.unlink], ids=["damaged", "missing"])
def test_a_file_that_cannot_be_read_is_named(table: DeltaOutput, harm: Callable[[Path], object]) -> None:
    old = publish(table, plan_to(table, 1))
    path = min(table.path.rglob("*.parquet"))
    harm(path)
    with pytest.raises(OutputConflictError, match=r"parquet cannot be read: (.|\n)*Restore the file"):
        replacer_of(table).rows_of(replacing(table, 2, old.plan, 0).replaces)


def test_a_file_that_cannot_leave_the_log_by_its_name_is_named_before_anything_is_committed(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = publish(output, plan_to(output, 1))
    monkeypatch.setattr(replaced_files, "PLAIN", re.compile("plain"))
    directory, new = written(output, replacing(output, 2, old.plan, 0))
    with pytest.raises(OutputNotUsableError, match="expected files with plain names, found 'batches/"):
        replacer_of(output).can_take(directory, new.plan, new.receipt)


def test_what_would_be_replaced_is_counted_wherever_it_is(output: DeltaOutput) -> None:
    old = publish(output, plan_to(output, 1))
    publish(output, plan_to(output, 2))
    plan = replacing(output, 3, old.plan, 0)
    assert replacer_of(output).rows_of(plan.replaces) == RowsReplaced(rows=ROWS, files=1, rewritten=0)
    compact(output)
    assert replacer_of(output).rows_of(plan.replaces) == RowsReplaced(rows=ROWS, files=1, rewritten=1)


# ── Crashes and rivals ────────────────────────────────────────────────────────────────────────────────────────────────


def assert_replaced_once(table: DeltaOutput, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Let the commit come to a fault, and publish again, twice; batch 1 is published before."""
    old = table.sink.archive.published_receipt(batch_id_of(1))
    assert old is not None
    directory, new = written(table, replacing(table, 2, old.plan, 0))
    with monkeypatch.context() as patched:
        table.with_fault(patched, fault)
        with pytest.raises(Died) if "DIES" in fault.name else nullcontext():
            table.sink.publisher.publish(directory, new)
    one_or_the_other = (rows_of(old), of_partition(old, 1) + rows_of(new))
    assert table.seen() == one_or_the_other[fault is not Fault.DIES_BEFORE]
    for _ in range(2):
        table.sink.publisher.publish(directory, new)
        assert table.seen() == one_or_the_other[1]


@pytest.mark.parametrize("fault", Fault)
def test_whatever_the_commit_comes_to_the_next_run_has_replaced_the_rows_once(
    table: DeltaOutput, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    publish(table, plan_to(table, 1))
    assert_replaced_once(table, monkeypatch, fault)


@pytest.mark.parametrize("fault", Fault)
def test_the_same_holds_where_other_rows_have_to_be_copied(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    publish(output, plan_to(output, 1))
    compact(output)
    assert_replaced_once(output, monkeypatch, fault)


def test_a_compaction_between_looking_and_committing_moves_no_row_past_the_replacement(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, other = publish(output, plan_to(output, 1)), publish(output, plan_to(output, 2))
    directory, new = written(output, replacing(output, 3, old.plan, 0))
    commit, rivals = DeltaTable.create_write_transaction, [lambda: compact(output), lambda: publish_late(output)]

    def after_a_rival(*arguments: Any, **named: Any) -> None:
        if rivals:
            with monkeypatch.context() as unpatched:
                unpatched.setattr(DeltaTable, "create_write_transaction", commit)
                rivals.pop(0)()
        commit(*arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", after_a_rival)
    output.sink.publisher.publish(directory, new)
    late = Counter((str(batch_id_of(9)), number, offset) for number in range(2) for offset in range(ROWS))
    assert output.seen() == of_partition(old, 1) + rows_of(other) + rows_of(new) + late


def publish_late(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 9))


def test_a_replacement_that_was_revoked_first_replaces_nothing(table: DeltaOutput) -> None:
    old = publish(table, plan_to(table, 1))
    directory, new = written(table, replacing(table, 2, old.plan, 0))
    table.sink.publisher.revoke(directory, new.plan.batch_id)
    with pytest.raises(BatchRevokedError):
        table.sink.publisher.publish(directory, new)
    assert table.seen() == rows_of(old)


def test_a_replacement_that_was_published_first_cannot_be_revoked(table: DeltaOutput) -> None:
    old = publish(table, plan_to(table, 1))
    directory, new = written(table, replacing(table, 2, old.plan, 0, 1))
    table.sink.publisher.publish(directory, new)
    with pytest.raises(BatchStateError):
        table.sink.publisher.revoke(directory, new.plan.batch_id)
    assert table.seen() == rows_of(new)


# ── What is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_whose_record_was_not_read_again_is_not_replaced(table: DeltaOutput) -> None:
    old = publish(table, plan_to(table, 1))
    plan = replacing(table, 2, old.plan, 0, 1)
    directory, new = written(table, replace(plan, ranges=plan.ranges[:1], replaces=plan.replaces[:1]))
    replacer_of(table).can_take(directory, new.plan, new.receipt)
    with pytest.raises(RecordsDeletedError, match=r"found none for 10 of them: orders-1\[0, 10\)"):
        replacer_of(table).can_take(directory, plan, new.receipt)
    assert table.seen() == rows_of(old)


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_a_table_that_must_keep_its_rows_is_refused_by_name(output: DeltaOutput, name: str) -> None:
    old = publish(output, plan_to(output, 1))
    DeltaTable(str(output.path)).alter.set_table_properties({name: "true"})
    with pytest.raises(OutputNotUsableError, match=f"{name}=true"):
        replacer_of(output).check_can_replace()
    directory, new = written(output, replacing(output, 2, old.plan, 0))
    with pytest.raises(OutputNotUsableError, match=f"{name}=true"):
        output.sink.publisher.publish(directory, new)
    assert output.seen() == rows_of(old)


def test_rows_among_others_in_a_file_of_an_iceberg_table_are_left_to_an_engine_that_copies_those(
    iceberg: IcebergOutput,
) -> None:
    old, other = publish(iceberg, plan_to(iceberg, 1)), publish(iceberg, plan_to(iceberg, 2))
    table = table_at(iceberg.path)
    table.overwrite(table.scan().to_arrow())
    plan = replacing(iceberg, 3, old.plan, 0, 1)
    with pytest.raises(OutputNotUsableError, match="holds other rows"):
        replacer_of(iceberg).rows_of(plan.replaces)
    directory, new = written(iceberg, plan)
    with pytest.raises(OutputNotUsableError, match="holds other rows"):
        replacer_of(iceberg).can_take(directory, plan, new.receipt)
    with pytest.raises(OutputNotUsableError, match="holds other rows"):
        iceberg.sink.publisher.publish(directory, new)
    assert iceberg.seen() == rows_of(old) + rows_of(other)


def test_rows_that_a_compaction_of_an_iceberg_table_put_into_one_file_are_replaced_together(
    iceberg: IcebergOutput,
) -> None:
    old = publish(iceberg, plan_to(iceberg, 1))
    table = table_at(iceberg.path)
    table.overwrite(table.scan().to_arrow())
    new = publish(iceberg, replacing(iceberg, 2, old.plan, 0, 1))
    assert iceberg.seen() == rows_of(new)


def test_a_commit_to_an_iceberg_table_between_looking_and_committing_is_lost_by_neither(
    iceberg: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = publish(iceberg, plan_to(iceberg, 1))
    directory, new = written(iceberg, replacing(iceberg, 2, old.plan, 0))
    commit, rivals = OneTry.commit_once, [lambda: publish_late(iceberg)]

    def after_a_rival(change: OneTry) -> None:
        if rivals:
            rivals.pop()()
        commit(change)

    monkeypatch.setattr(OneTry, "commit_once", after_a_rival)
    iceberg.sink.publisher.publish(directory, new)
    late = Counter((str(batch_id_of(9)), number, offset) for number in range(2) for offset in range(ROWS))
    assert iceberg.seen() == of_partition(old, 1) + rows_of(new) + late


@pytest.mark.parametrize("kind", [DeltaInStore, IcebergInStore], ids=lambda kind: kind.name)
def test_a_table_in_a_store_is_replaced_in_as_one_on_a_disk(
    object_store: ObjectStore, tmp_path: Path, kind: type[InStore]
) -> None:
    assert object_store is not None
    stored = kind(tmp_path / "orders")
    stored.sink.publisher.prepare()
    old, other = publish(stored, plan_to(stored, 1)), publish(stored, plan_to(stored, 2))
    if stored.format == "delta":  # whose files with other rows are written again
        uri = str(stored.place.without_connection)
        DeltaTable(uri, storage_options=stored.store.access().for_delta()).optimize.compact()
    plan = replacing(stored, 3, old.plan, 0)
    directory, new = written(stored, plan)
    replacer_of(stored).can_take(directory, plan, new.receipt)
    for _ in range(2):
        stored.sink.publisher.publish(directory, new)
        assert stored.seen() == of_partition(old, 1) + rows_of(other) + rows_of(new)
