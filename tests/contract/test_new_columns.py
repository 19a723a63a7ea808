"""Tables that lack columns which a feed writes: the columns are added, left out of the files, or the feed stops."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyiceberg.schema import Schema
from pyiceberg.types import LongType
from tests.contract.builders import at_once, orders
from tests.contract.sink_outputs import ROWS, DeltaOutput, Died, IcebergOutput, plan_to, publish, rows_of, written
from tests.duckdb_tables import rows_by_duckdb
from tests.iceberg_lake import catalog_beside, name_at, table_at

from kafka_ingest.errors import OutputNotUsableError, StagedOutputUnusableError
from kafka_ingest.model.published_output import FilesState
from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.sinks.batch_folders import data_file
from kafka_ingest.sinks.delta import log_entry
from kafka_ingest.sinks.delta.columns import raw_schema
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.iceberg.columns import RAW
from kafka_ingest.sinks.iceberg.one_try import OneTry

ADD, IGNORE, STOP = (TableOptions(each) for each in OnNewColumns)
LATER = ("kafka_headers", "kafka_topic_id")
"""What a table lacks that an earlier version or a person made."""


class DeltaLake:
    """Delta tables, as another program makes, changes and reads them."""

    output = DeltaOutput

    def make(self, path: Path, without: tuple[str, ...]) -> None:
        """Make a table with the raw columns but some, and one row in it whose batch is unknown."""
        fields = [field for field in raw_schema()["fields"] if field["name"] not in without]
        first = {"type": "struct", "fields": [field for field in fields if field["name"] != "kafka_batch"]}
        DeltaTable.create(str(path), deltalake.Schema.from_json(json.dumps(first)))
        rows = a_row_of_another_program().select([field["name"] for field in first["fields"]])
        deltalake.write_deltalake(str(path), rows, mode="append")
        if "kafka_batch" not in without:
            self.add_column(path, "kafka_batch", "text")

    def columns(self, path: Path) -> list[str]:
        return [field.name for field in DeltaTable(str(path)).schema().fields]

    def add_column(self, path: Path, name: str, kind: str) -> None:
        kinds = {"long": deltalake.schema.PrimitiveType("long"), "text": deltalake.schema.PrimitiveType("string")}
        DeltaTable(str(path)).alter.add_columns(deltalake.Field(name, kinds[kind]))

    def read(self, path: Path) -> list[pa.Table]:
        """Return the rows as several readers see them."""
        rows = DeltaTable(str(path)).to_pyarrow_table()
        return [pl.read_delta(str(path)).to_arrow(), rows, rows_by_duckdb("delta", str(path))]

    def before_the_deciding_step(self, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
        """Let something happen between the last look at the table and the commit."""
        before(monkeypatch, TableLog, "_add_columns", do)


class IcebergLake:
    """The same of Iceberg tables."""

    output = IcebergOutput

    def make(self, path: Path, without: tuple[str, ...]) -> None:
        catalog = catalog_beside(path)
        catalog.create_namespace_if_not_exists("shop")
        schema = Schema(*(field for field in RAW.fields if field.name not in without))
        table = catalog.create_table(name_at(path), schema, location=f"file://{path}")
        # The library makes files with field ids, and the table has no mapping of names.
        table.append(a_row_of_another_program().select([field.name for field in schema.fields]))

    def columns(self, path: Path) -> list[str]:
        return [field.name for field in table_at(path).schema().fields]

    def add_column(self, path: Path, name: str, kind: str) -> None:
        with table_at(path).update_schema() as update:
            update.add_column(name, {"long": LongType(), "text": RAW.find_type("kafka_topic_id")}[kind])

    def read(self, path: Path) -> list[pa.Table]:
        rows = table_at(path).scan().to_arrow()
        with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
            polars = pl.scan_iceberg(table_at(path)).collect().to_arrow()
        return [polars, rows, rows_by_duckdb("iceberg", table_at(path).metadata_location)]

    def before_the_deciding_step(self, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
        before(monkeypatch, OneTry, "commit_once", do)


def before(monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, do: Callable[[], object]) -> None:
    """Let something happen once before a method is called."""
    real = getattr(owner, name)

    def after_it(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        do()
        return real(self, *arguments)

    monkeypatch.setattr(owner, name, after_it)


def a_row_of_another_program() -> pa.Table:
    """Return a row that no batch has written."""
    kinds = {"kafka_partition": pa.int32(), "kafka_offset": pa.int64(), "kafka_timestamp": pa.timestamp("us", "UTC")}
    kinds |= {"kafka_timestamp_ms": pa.int64(), "key": pa.binary(), "value": pa.binary()}
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds |= {"kafka_headers": pa.list_(header)}
    names = [field.name for field in RAW.fields]
    return pa.table({name: pa.nulls(1, kinds.get(name, pa.string())) for name in names})


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def an_output(lake: Any, path: Path, options: TableOptions) -> Any:
    """Return an output whose table lacks later columns, as a feed with these options has it."""
    output = lake.output(path, options)
    lake.make(path, LATER)
    output.sink.publisher.prepare()
    return output


def positions(output: Any) -> dict[Any, int]:
    """Return what readers see of batches."""
    return {key: count for key, count in output.seen().items() if key[0] is not None}


# ── add ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_missing_columns_are_added_at_the_end_and_every_reader_sees_them(lake: Any, path: Path) -> None:
    output = an_output(lake, path, ADD)
    had = lake.columns(path)
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.can_take(directory, published.receipt)
    assert lake.columns(path) == had, "asking changes nothing"
    output.sink.publisher.publish(directory, published)
    assert lake.columns(path) == [*had, *LATER]
    for rows in lake.read(path):
        assert sorted(rows["kafka_topic_id"].to_pylist(), key=str) == [None, *["topic-id-1"] * 2 * ROWS]
    assert positions(output) == rows_of(published)
    [found] = output.sink.publisher.published_receipts()
    assert found.files.state is FilesState.INTACT
    inspector = output.sink.inspector
    assert inspector.look_at(published.plan.batch_id).problems == []
    file = inspector.path(published.plan.batch_id, published.receipt.files[0])
    assert {*had, *LATER} <= set(data_file(file).columns().names)


def test_columns_and_files_come_in_one_commit_where_the_format_has_one(path: Path) -> None:
    output = an_output(IcebergLake(), path, ADD)
    before = len(table_at(path).metadata.metadata_log)
    publish(output, plan_to(output, 1))
    assert len(table_at(path).metadata.metadata_log) == before + 1
    mapped = table_at(path).name_mapping()
    assert mapped is not None
    assert {name for field in mapped.root for name in field.names} == {field.name for field in RAW.fields}


def test_the_mapping_of_names_that_a_table_has_gets_the_new_columns_too(path: Path) -> None:
    output = IcebergOutput(path, ADD)
    IcebergLake().make(path, LATER)
    mapping = table_at(path).schema().name_mapping.model_dump_json()
    with table_at(path).transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
    output.sink.publisher.prepare()
    for number in (1, 2):
        publish(output, plan_to(output, number))
    [polars, *_] = IcebergLake().read(path)
    assert polars["kafka_topic_id"].null_count == 1


def test_a_name_of_a_renamed_iceberg_column_is_not_given_to_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    output = IcebergOutput(path, ADD)
    output.sink.publisher.prepare()
    publish(output, plan_to(output, 1))
    with table_at(path).update_schema() as update:
        update.rename_column("value", "payload")
    with pytest.raises(OutputNotUsableError, match=r"value, a name that .* leads to field 6, which is called payload"):
        output.sink.publisher.prepare()


def test_a_crash_between_columns_and_files_leaves_columns_without_values(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = an_output(DeltaLake(), path, ADD)
    directory, published = written(output, plan_to(output, 1))

    real = log_entry.create

    def dies(place: Any, content: bytes) -> None:
        if b'"add"' in content:
            raise Died
        real(place, content)

    with monkeypatch.context() as patched:
        patched.setattr(log_entry, "create", dies)
        with pytest.raises(Died):
            output.sink.publisher.publish(directory, published)
    assert positions(output) == {}
    for rows in DeltaLake().read(path):
        assert rows["kafka_topic_id"].to_pylist() == [None]
    output.sink.publisher.publish(directory, published)
    assert positions(output) == rows_of(published)


@pytest.mark.parametrize("what", ["revoked", "empty"])
def test_columns_are_added_with_files_only(lake: Any, path: Path, what: str) -> None:
    output = an_output(lake, path, ADD)
    had = lake.columns(path)
    directory, published = written(output, plan_to(output, 1), without_rows=what == "empty")
    if what == "empty":
        output.sink.publisher.publish(directory, published)
    else:
        output.sink.publisher.revoke(directory, published.plan.batch_id)
    assert lake.columns(path) == had


def test_several_committers_at_once_add_each_column_once_and_every_row_once(lake: Any, path: Path) -> None:
    output = an_output(lake, path, ADD)
    had = lake.columns(path)
    batches = [written(output, plan_to(output, number)) for number in range(1, 5)]
    rivals = [lake.output(path, ADD).sink.publisher for _ in batches]
    outcomes = at_once(*(lambda r=rival, b=batch: r.publish(*b) for rival, batch in zip(rivals, batches, strict=True)))
    for outcome, rival, batch in zip(outcomes, rivals, batches, strict=True):
        if isinstance(outcome, Exception):
            rival.publish(*batch)  # all its tries met a rival's
    assert lake.columns(path) == [*had, *LATER]
    expected = sum(
        (rows_of(published) for _, published in batches), start=rows_of(batches[0][1]) - rows_of(batches[0][1])
    )
    assert positions(output) == expected


def test_a_column_that_another_writer_adds_meanwhile_with_another_type_is_refused(
    lake: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = an_output(lake, path, ADD)
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.can_take(directory, published.receipt)
    lake.before_the_deciding_step(monkeypatch, lambda: lake.add_column(path, "kafka_topic_id", "long"))
    with pytest.raises(OutputNotUsableError, match="column kafka_topic_id: expected string, found long"):
        output.sink.publisher.publish(directory, published)
    assert positions(output) == {}


def test_a_column_that_another_writer_adds_meanwhile_with_the_same_type_is_used(
    lake: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = an_output(lake, path, ADD)
    lake.before_the_deciding_step(monkeypatch, lambda: lake.add_column(path, "kafka_topic_id", "text"))
    published = publish(output, plan_to(output, 1))
    for rows in lake.read(path):
        assert rows["kafka_topic_id"].null_count == 1
    assert positions(output) == rows_of(published)


def test_columns_of_a_position_are_never_added(lake: Any, path: Path) -> None:
    output = lake.output(path, ADD)
    lake.make(path, ("kafka_offset",))
    with pytest.raises(OutputNotUsableError, match="column kafka_offset: expected long, found none"):
        output.sink.publisher.prepare()


# ── ignore ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ignored_columns_are_not_written_and_no_reader_sees_them(lake: Any, path: Path) -> None:
    output = an_output(lake, path, IGNORE)
    had = lake.columns(path)
    directory, published = written(output, plan_to(output, 1))
    needs = output.sink.publisher.data_needs(directory)
    assert needs.without == ("kafka_headers", "kafka_topic_id")
    output.sink.publisher.can_take(directory, published.receipt)
    output.sink.publisher.publish(directory, published)
    assert lake.columns(path) == had
    for rows in lake.read(path):
        assert sorted(rows.column_names) == sorted(had)
        assert rows.num_rows == 2 * ROWS + 1
    assert positions(output) == rows_of(published)
    assert output.sink.inspector.look_at(published.plan.batch_id).problems == []


def test_a_column_that_the_table_gets_later_is_written_from_then_on(lake: Any, path: Path) -> None:
    output = an_output(lake, path, IGNORE)
    directory, first = written(output, plan_to(output, 1))
    lake.add_column(path, "kafka_topic_id", "text")
    output.sink.publisher.can_take(directory, first.receipt)  # staged before: its rows have no value there
    output.sink.publisher.publish(directory, first)
    second = publish(output, plan_to(output, 2))
    for rows in lake.read(path):
        assert rows["kafka_topic_id"].null_count == 1 + 2 * ROWS
    assert positions(output) == rows_of(first) + rows_of(second)


def test_a_mapping_of_names_that_a_commit_adds_knows_what_another_writer_added_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, output = IcebergLake(), an_output(IcebergLake(), path, IGNORE)
    lake.before_the_deciding_step(monkeypatch, lambda: lake.add_column(path, "kafka_topic_id", "text"))
    published = [publish(output, plan_to(output, number)) for number in (1, 2)]
    assert positions(output) == rows_of(published[0]) + rows_of(published[1])
    for rows in lake.read(path):
        assert rows["kafka_topic_id"].null_count == 1 + 2 * ROWS


def test_a_file_with_a_column_that_the_table_lost_since_is_written_again(lake: Any, path: Path) -> None:
    output = lake.output(path, IGNORE)
    output.sink.publisher.prepare()
    directory, published = written(output, plan_to(output, 1))
    lake.make(path, ("kafka_topic_id",))
    with pytest.raises(StagedOutputUnusableError, match="column kafka_topic_id: the table has none"):
        output.sink.publisher.can_take(directory, published.receipt)


@pytest.mark.parametrize("column", ["key", "value", "kafka_timestamp", "kafka_batch"])
def test_what_makes_a_record_is_never_left_out(lake: Any, path: Path, column: str) -> None:
    output = lake.output(path, IGNORE)
    lake.make(path, (column,))
    with pytest.raises(OutputNotUsableError, match=f"column {column}: expected .*, found none"):
        output.sink.publisher.prepare()


def test_a_file_that_lacks_another_column_is_not_taken(lake: Any, path: Path) -> None:
    output = an_output(lake, path, IGNORE)
    directory, published = written(output, plan_to(output, 1))
    file = output.sink.publisher.data_needs(directory).place / "part-00000.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).drop_columns(["key"]), file)
    [first, *others] = published.receipt.files
    receipt = replace(published.receipt, files=(replace(first, size_bytes=file.stat().st_size), *others))
    with pytest.raises(StagedOutputUnusableError, match="column key"):
        output.sink.publisher.can_take(directory, receipt)


def test_a_table_that_has_no_column_of_batches_yet_has_no_batches(lake: Any, path: Path) -> None:
    lake.make(path, ("kafka_batch",))
    output = lake.output(path, ADD)
    output.sink.publisher.prepare()
    directory, published = written(output, plan_to(output, 1))
    assert list(output.sink.publisher.published_receipts()) == []
    assert output.sink.archive.is_kept(published.plan.batch_id) is False
    assert output.sink.remover.unfinished() == []
    output.sink.staging.remove(directory)


# ── stop ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_missing_columns_stop_a_feed_unless_it_says_otherwise(lake: Any, path: Path) -> None:
    staged = lake.output(path)
    staged.sink.publisher.prepare()
    directory, published = written(staged, plan_to(staged, 1))
    lake.make(path, LATER)
    had = lake.columns(path)
    for output in (staged, lake.output(path, STOP)):
        publisher = output.sink.publisher
        for refuse in (publisher.prepare, lambda p=publisher: p.can_take(directory, published.receipt)):
            with pytest.raises(OutputNotUsableError) as refused:
                refuse()
            said = str(refused.value)
            assert "column kafka_topic_id: expected string, found none" in said
            assert "column kafka_headers: expected" in said
            assert "planned with sink.on_new_columns: add" in said
    assert (lake.columns(path), positions(staged)) == (had, {})


def test_another_difference_is_not_said_to_be_a_missing_column(lake: Any, path: Path) -> None:
    output = an_output(lake, path, ADD)
    publish(output, plan_to(output, 1))
    lake.make(path.with_name("others"), ("kafka_topic_id",))
    lake.add_column(path.with_name("others"), "kafka_topic_id", "long")
    with pytest.raises(OutputNotUsableError) as refused:
        lake.output(path.with_name("others"), ADD).sink.publisher.prepare()
    assert "column kafka_topic_id: expected string, found long" in str(refused.value)
    assert "on_new_columns" not in str(refused.value)


def test_rows_of_another_program_belong_to_no_batch(lake: Any, path: Path) -> None:
    output = an_output(lake, path, ADD)
    assert output.sink.publisher.known_batches() == []
    published = publish(output, plan_to(output, 1))
    assert output.sink.publisher.known_batches() == [str(published.plan.batch_id)]
    assert output.sink.inspector.holds(published.plan.batch_id, published.receipt.files[0], orders(0), 3)
