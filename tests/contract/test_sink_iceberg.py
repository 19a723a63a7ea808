"""What an Iceberg table brings besides: catalogs, tables of others, their maintenance, what its library would take."""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from tests.contract.builders import NOON, at_once, batch_id_of
from tests.contract.conftest import PostgresqlServer
from tests.contract.sink_outputs import IcebergOutput, plan_to, publish, rows_of, written
from tests.iceberg_lake import catalog_beside, connections_beside, iceberg_at, name_at, table_at

from embedded_postgresql import EMPTY
from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    InstallationError,
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import POSITION
from kafka_ingest.sinks.choose import SinkConnections, sink_of
from kafka_ingest.sinks.iceberg import commits as iceberg_commits
from kafka_ingest.sinks.iceberg import marks
from kafka_ingest.sinks.iceberg import table as iceberg_table
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings
from kafka_ingest.sinks.iceberg.columns import RAW
from kafka_ingest.sinks.iceberg.one_try import OneTry

OLD = datetime(2020, 1, 1, tzinfo=UTC).timestamp()


@pytest.fixture
def output(tmp_path: Path) -> IcebergOutput:
    made = IcebergOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def raw_with(*changed: NestedField, without: str = "") -> Schema:
    """Return the raw columns with some of them changed or added."""
    fields = {field.name: field for field in RAW.fields if field.name != without}
    return Schema(*(fields | {field.name: field for field in changed}).values())


def a_table(path: Path, schema: Schema = RAW, **made_with: Any) -> Table:
    """Make a table of another program."""
    catalog = catalog_beside(path)
    catalog.create_namespace_if_not_exists("shop")
    return catalog.create_table(name_at(path), schema, **({"location": f"file://{path}"} | made_with))


def listing_of(path: Path) -> dict[str, int]:
    return {str(each.relative_to(path)): each.stat().st_size for each in path.rglob("*") if each.is_file()}


def place_of(output: IcebergOutput, number: int) -> Path:
    return output.path / "data" / "batches" / str(batch_id_of(number)) / "1"


def rewrite_all(table: Table) -> None:
    """Do what a compaction does: all rows into one new file, in one snapshot."""
    table.overwrite(table.scan().to_arrow())


# ── The table that is made ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_table_has_the_raw_columns_and_properties_that_keep_its_metadata_small(output: IcebergOutput) -> None:
    publish(output, plan_to(output, 1))
    table = table_at(output.path)
    assert table.metadata.format_version == 2
    assert [field.name for field in table.schema().fields] == [field.name for field in RAW.fields]
    assert table.location() == f"file://{output.path}"
    assert table.name_mapping() is not None, "the files have no field ids, so their columns are found by name"
    assert table.properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert table.properties["commit.manifest-merge.enabled"] == "true"


def test_old_metadata_files_are_deleted_as_the_table_asks_for(tmp_path: Path) -> None:
    asked = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    a_table(tmp_path / "orders", properties=asked)
    output = IcebergOutput(tmp_path / "orders")
    output.sink.publisher.prepare()
    published = [publish(output, plan_to(output, number)) for number in range(1, 7)]
    assert len(list((output.path / "metadata").glob("*.metadata.json"))) == 3
    assert output.seen() == sum(map(rows_of, published), Counter())


def test_a_table_whose_metadata_other_engines_compress_takes_batches_as_any_other(tmp_path: Path) -> None:
    asked = TableOptions(properties=(("write.metadata.compression-codec", "gzip"),))
    output = IcebergOutput(tmp_path / "orders", asked)
    output.sink.publisher.prepare()
    first = publish(output, plan_to(output, 1))
    table = table_at(output.path)
    assert table.properties["write.metadata.compression-codec"] == "gzip"
    compressed = table.metadata_location.replace(".metadata.json", ".gz.metadata.json")
    content = Path(table.metadata_location.removeprefix("file://")).read_bytes()
    Path(compressed.removeprefix("file://")).write_bytes(gzip.compress(content))
    catalog = catalog_beside(output.path)
    catalog.drop_table(name_at(output.path))
    catalog.register_table(name_at(output.path), compressed)
    second = publish(output, plan_to(output, 2))
    assert output.seen() == rows_of(first) + rows_of(second)


# ── Tables of others ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_that_fits_is_taken_as_it_is(tmp_path: Path) -> None:
    a_table(tmp_path / "orders", raw_with(NestedField(50, "note", StringType(), required=False)))
    output = IcebergOutput(tmp_path / "orders")
    output.sink.publisher.prepare()
    published = publish(output, plan_to(output, 1))
    assert output.seen() == rows_of(published)
    assert set(table_at(output.path).scan().to_arrow()["note"].to_pylist()) == {None}


# ── Tables whose metadata is hostile ──────────────────────────────────────────────────────────────────────────────────


CHOICES = {
    "py-io-impl": "mine.Own",
    "write.py-location-provider.impl": "mine.Own",
    "write.metadata.path": "file:///elsewhere",
    "write.data.path": "file:///elsewhere",
    "write.object-storage.enabled": "true",
}


@pytest.fixture
def is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once a module that a table may name is imported."""
    ran = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"from pathlib import Path\nPath({str(ran)!r}).touch()\nOwn = print\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return ran


@pytest.mark.parametrize("name", CHOICES)
def test_a_property_that_chooses_classes_or_places_is_refused_at_each_look_and_by_the_commit_that_it_overtakes(
    output: IcebergOutput, name: str, is_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    commit = OneTry.commit_once

    def overtaken(change: OneTry) -> None:
        monkeypatch.undo()
        set_in_metadata(output, lambda metadata: metadata["properties"].update({name: CHOICES[name]}))
        sys.path.insert(0, str(is_run.parent))
        commit(change)

    monkeypatch.setattr(OneTry, "commit_once", overtaken)
    expected = rf"found the property {name}\..*UNSET TBLPROPERTIES \('{name}'\)"
    for _ in range(2):
        with pytest.raises(OutputNotUsableError, match=expected):
            output.sink.publisher.publish(directory, published)
    sys.path.remove(str(is_run.parent))
    assert not is_run.exists()

    set_in_metadata(output, lambda metadata: metadata["properties"].pop(name))
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first) + rows_of(published)


def set_in_metadata(output: IcebergOutput, change: Callable[[dict[str, Any]], object]) -> None:
    """Give a table metadata of any form, by the catalog's row, as one who writes both can."""
    with catalog_beside(output.path).engine.begin() as connection:
        row = connection.execute(text("SELECT metadata_location FROM iceberg_tables")).scalar_one()
        place = Path(row.removeprefix("file://"))
        metadata = json.loads(place.read_bytes())
        change(metadata)
        number = int(place.name.partition("-")[0]) + 1
        new = place.with_name(f"{number:05d}-{uuid4()}.metadata.json")
        new.write_text(json.dumps(metadata))
        connection.execute(text("UPDATE iceberg_tables SET metadata_location = :new"), {"new": f"file://{new}"})


def test_a_commit_deletes_old_metadata_of_its_table_alone_whatever_the_log_of_it_names(
    output: IcebergOutput, tmp_path: Path
) -> None:
    first = publish(output, plan_to(output, 1))
    data = next(place_of(output, 1).glob("*.parquet"))
    of_another = tmp_path / "other" / "metadata" / f"00001-{uuid4()}.metadata.json"
    strange = output.path / "metadata" / "notes.metadata.json"
    leads_out = f"{output.path}/metadata/../../other/metadata/{of_another.name}"
    old = output.path / "metadata" / f"00000-{uuid4()}.metadata.json"
    for each in (of_another, strange, old):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    named = [data, of_another, strange, leads_out, old]

    def lies(metadata: dict[str, Any]) -> None:
        metadata["properties"]["write.metadata.previous-versions-max"] = "1"
        metadata["metadata-log"] = [{"metadata-file": f"file://{each}", "timestamp-ms": 0} for each in named]

    set_in_metadata(output, lies)
    second = publish(output, plan_to(output, 2))
    assert all(each.exists() for each in (data, of_another, strange))
    assert not old.exists()
    assert output.seen() == rows_of(first) + rows_of(second)


@pytest.mark.parametrize("place", ["/elsewhere/list.avro", "s3://other/list.avro", "{output}/metadata/../../list.avro"])
def test_a_list_of_manifests_that_is_not_below_the_table_is_not_read(output: IcebergOutput, place: str) -> None:
    publish(output, plan_to(output, 1))
    named = place.format(output=output.path)
    set_in_metadata(output, lambda metadata: metadata["snapshots"][-1].update({"manifest-list": named}))
    directory, published = written(output, plan_to(output, 2))
    for ask in (output.sink.publisher.known_batches, lambda: output.sink.publisher.publish(directory, published)):
        with pytest.raises(OutputNotUsableError, match="expected an Iceberg table whose files are all below file://"):
            ask()


def test_a_column_that_another_program_adds_later_stops_nothing(output: IcebergOutput) -> None:
    first = publish(output, plan_to(output, 1))
    with table_at(output.path).update_schema() as update:
        update.add_column("note", StringType())
    second = publish(output, plan_to(output, 2))
    assert output.seen() == rows_of(first) + rows_of(second)


UNFIT: dict[str, tuple[Schema, dict[str, Any], str]] = {
    "missing": (raw_with(without="key"), {}, "column key: expected binary, found none"),
    "type": (
        raw_with(NestedField(2, "kafka_partition", LongType(), required=False)),
        {},
        "column kafka_partition: expected int, found long",
    ),
    "nested": (
        raw_with(NestedField(7, "kafka_headers", StringType(), required=False)),
        {},
        "column kafka_headers: expected list<struct<key: string, value: binary>>, found string",
    ),
    "required": (
        raw_with(NestedField(3, "kafka_offset", LongType(), required=True)),
        {},
        "column kafka_offset: expected one that allows nulls, found a required one",
    ),
    "another required": (
        raw_with(NestedField(50, "note", StringType(), required=True)),
        {},
        "column note: it is required, and nothing would be written into it",
    ),
    "old format": (RAW, {"properties": {"format-version": "1"}}, "format version 1, expected 2"),
    "name mapping": (
        RAW,
        {"properties": {"schema.name-mapping.default": '[{"field-id": 1, "names": ["kafka_topic"]}]'}},
        "schema.name-mapping.default does not lead from the name kafka_offset to field 3",
    ),
}


@pytest.mark.parametrize("harm", UNFIT)
def test_a_table_that_cannot_be_written_is_refused_by_name_when_planning_and_before_committing(
    tmp_path: Path, harm: str
) -> None:
    schema, made_with, said = UNFIT[harm]
    staged = IcebergOutput(tmp_path / "orders")
    staged.sink.publisher.prepare()
    directory, published = written(staged, plan_to(staged, 1))
    a_table(staged.path, schema, **made_with)
    assert_refused(staged, directory, published.receipt, said)


def test_a_table_of_format_version_3_is_refused_since_the_library_cannot_write_it(tmp_path: Path) -> None:
    staged = IcebergOutput(tmp_path / "orders")
    staged.sink.publisher.prepare()
    directory, published = written(staged, plan_to(staged, 1))
    table = a_table(staged.path)
    content = json.loads(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    newer = table.metadata_location.replace("/00000-", "/00001-")
    Path(newer.removeprefix("file://")).write_text(json.dumps(content | {"format-version": 3, "next-row-id": 0}))
    catalog = catalog_beside(staged.path)
    catalog.drop_table(name_at(staged.path))
    catalog.register_table(name_at(staged.path), newer)
    assert_refused(staged, directory, published.receipt, "format version 3, expected 2")
    with pytest.raises(NotImplementedError, match="Writing V3 is not yet supported"):
        table_at(staged.path).metadata.model_dump_json()


def test_a_partitioned_table_is_refused(tmp_path: Path) -> None:
    staged = IcebergOutput(tmp_path / "orders")
    staged.sink.publisher.prepare()
    directory, published = written(staged, plan_to(staged, 1))
    with a_table(staged.path).update_spec() as update:
        update.add_field("kafka_topic", IdentityTransform(), "topic")
    assert_refused(
        staged, directory, published.receipt, "partitioned by kafka_topic, sink.partition_by asks for nothing"
    )


def assert_refused(staged: IcebergOutput, directory: Path, receipt: Any, said: str) -> None:
    before = listing_of(staged.path)
    for refuse in (
        staged.sink.publisher.prepare,
        lambda: staged.sink.publisher.can_take(directory, receipt),
        staged.sink.publisher.examine,
    ):
        with pytest.raises(OutputNotUsableError) as refused:
            refuse()
        assert said in str(refused.value)
    assert listing_of(staged.path) == before


def test_a_table_that_becomes_unfit_after_the_commit_began_takes_nothing(output: IcebergOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.can_take(directory, published.receipt)
    a_table(output.path, UNFIT["type"][0])
    with pytest.raises(OutputNotUsableError, match="column kafka_partition"):
        output.sink.publisher.publish(directory, published)
    assert table_at(output.path).current_snapshot() is None


def test_a_table_elsewhere_is_refused(tmp_path: Path) -> None:
    a_table(tmp_path / "orders", location=f"file://{tmp_path}/others")
    output = IcebergOutput(tmp_path / "orders")
    with pytest.raises(
        OutputNotUsableError, match=r"files are all below .*orders, found that its metadata names file:"
    ):
        output.sink.publisher.prepare()


@pytest.mark.parametrize("name", ["a?b", "a#b", "a;b"])
def test_a_path_that_would_end_early_as_a_location_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputNotUsableError, match="which end the path in an Iceberg location"):
        sink_of(iceberg_at(tmp_path / name / "orders"), connections_beside(tmp_path / "orders")).publisher.prepare()


def test_a_path_may_hold_blanks_and_other_letters(tmp_path: Path) -> None:
    output = IcebergOutput(tmp_path / "Übung 100%" / "orders")
    output.sink.publisher.prepare()
    assert output.seen() == Counter()
    published = publish(output, plan_to(output, 1))
    assert output.seen() == rows_of(published)


# ── Catalogs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_catalog_that_does_not_know_the_table_any_more_stops_everything(output: IcebergOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    catalog_beside(output.path).drop_table(name_at(output.path))
    newest = max((output.path / "metadata").glob("*.metadata.json"))
    for refuse in (
        output.sink.publisher.prepare,
        output.sink.publisher.known_batches,
        lambda: output.sink.publisher.publish(directory, published),
        lambda: list(output.sink.publisher.published_receipts()),
    ):
        with pytest.raises(OutputUnavailableError, match=r"knows no table shop\.orders, but .*Is it the right catalog"):
            refuse()
    catalog_beside(output.path).register_table(name_at(output.path), f"file://{newest}")
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_a_table_that_another_committer_makes_and_commits_to_between_two_looks_is_found(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (written(output, plan_to(output, number)) for number in (1, 2))
    real = SqlCatalog.load_table

    def made_in_between(catalog: SqlCatalog, name: str) -> Table:
        monkeypatch.setattr(SqlCatalog, "load_table", real)
        try:
            return real(catalog, name)
        finally:
            IcebergOutput(output.path).sink.publisher.publish(*first)

    monkeypatch.setattr(SqlCatalog, "load_table", made_in_between)
    output.sink.publisher.publish(*second)
    assert output.seen() == rows_of(first[1]) + rows_of(second[1])


def test_of_five_committers_through_a_catalog_in_postgresql_each_batch_is_there_once(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    settings = postgresql_server.control_database(EMPTY)
    properties = {"type": "sql", "uri": settings.url.render_as_string(hide_password=False)}
    connections = SinkConnections(catalog=lambda conn_id: CatalogSettings(conn_id, "lake", properties))

    def another() -> IcebergOutput:
        made = IcebergOutput(tmp_path / "orders")
        made.sink = sink_of(iceberg_at(made.path), connections)
        return made

    output = another()
    output.sink.publisher.prepare()
    steps = [written(output, plan_to(output, number)) for number in (1, 1, 1, 1, 1, 2, 3, 4, 5, 6)]
    for five in (steps[:5], steps[5:]):
        racers = [lambda step=step: another().sink.publisher.publish(*step) for step in five]
        assert at_once(*racers) == [None] * 5
    table = load_catalog("lake", **properties).load_table(name_at(output.path))
    rows = table.scan().to_arrow().to_pylist()
    seen = Counter((row["kafka_batch"], row["kafka_partition"], row["kafka_offset"]) for row in rows)
    assert seen == sum((rows_of(each) for _, each in steps[4:]), Counter())
    postgresql_server.drop_database(settings)


def test_a_crash_while_the_table_was_made_leaves_nothing_in_the_way(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(output, plan_to(output, 1))
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "_create_table_row", dying)
        with pytest.raises(KeyboardInterrupt):
            output.sink.publisher.publish(directory, published)
    assert len(list((output.path / "metadata").iterdir())) == 1, "its first metadata file, in no catalog"
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_a_table_that_was_made_without_an_answer_is_found(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(output, plan_to(output, 1))
    make = SqlCatalog.create_table

    def without_answer(*arguments: Any, **named: Any) -> None:
        make(*arguments, **named)
        raise OperationalError("INSERT INTO iceberg_tables", {}, OSError("server closed the connection unexpectedly"))

    monkeypatch.setattr(SqlCatalog, "create_table", without_answer)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    assert len(output.table().metadata.metadata_log) == 1, "the table was made once"


def dying(*_: object) -> None:
    raise KeyboardInterrupt


def test_without_its_options_an_output_is_refused_by_name_as_soon_as_its_table_is_needed(output: IcebergOutput) -> None:
    publish(output, plan_to(output, 1))
    bare = sink_of(OutputLocation.local("iceberg", output.path), connections_beside(output.path))
    assert bare.archive.is_kept(batch_id_of(1))
    with pytest.raises(OutputNotUsableError, match="found no catalog and no table"):
        bare.publisher.prepare()


def test_what_a_connection_keeps_secret_is_in_no_message_and_no_repr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = "postgresql+psycopg://app:hunter22@localhost:1/lake"
    settings = CatalogSettings("lake", "lake", {"type": "sql", "uri": uri, "token": "s3cret-token"})
    assert "hunter22" not in repr(settings)

    def refused(*_: object, **__: object) -> None:
        raise ValueError(f"cannot connect to {uri} with s3cret-token")

    monkeypatch.setattr(iceberg_table, "load_catalog", refused)
    sink = sink_of(iceberg_at(tmp_path / "orders"), SinkConnections(catalog=lambda _: settings))
    with pytest.raises(OutputUnavailableError) as found:
        sink.publisher.prepare()
    assert "hunter22" not in str(found.value)
    assert "s3cret-token" not in str(found.value)
    assert "connection 'lake'" in str(found.value)
    assert found.value.__cause__ is None


# ── What its library would take, and must not ─────────────────────────────────────────────────────────────────────────


def rewrite(directory: Path, output: IcebergOutput, change: Callable[[pa.Table], pa.Table]) -> int:
    """Change the first staged file; return its size."""
    data = output.sink.publisher.data_needs(directory).place
    assert data is not None
    path = Path(str(data)) / "part-00000.parquet"
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)
    return path.stat().st_size


def with_column(name: str, values: Callable[[int], Any]) -> Callable[[pa.Table], pa.Table]:
    """Return what gives a table another column of a name."""
    return lambda table: table.drop_columns(name).append_column(name, values(table.num_rows))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop_columns("key"), "column key: missing"),
        (lambda table: table.append_column("note", pa.nulls(len(table), pa.string())), "column note: not of the raw"),
        (
            with_column("kafka_offset", lambda rows: pa.array(range(rows), pa.int32())),
            "column kafka_offset: expected long, found int",
        ),
        (
            with_column("kafka_timestamp", lambda rows: pa.nulls(rows, pa.timestamp("us"))),
            "column kafka_timestamp: expected timestamptz, found timestamp",
        ),
        (with_column("kafka_offset", lambda rows: pa.nulls(rows, pa.int64())), "column kafka_offset holds nulls"),
        (
            with_column("kafka_batch", lambda rows: pa.array([str(batch_id_of(9))] * rows)),
            f"kafka_batch: expected {batch_id_of(1)} alone, found {batch_id_of(9)}",
        ),
    ],
    ids=["missing", "added", "type", "zone", "null", "batch"],
)
def test_a_file_that_is_not_of_the_tables_form_is_found_before_the_commit(
    output: IcebergOutput, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    directory, published = written(output, plan_to(output, 1))
    size = rewrite(directory, output, change)
    first, *others = published.receipt.files
    receipt = replace(published.receipt, files=(replace(first, size_bytes=size), *others))
    with pytest.raises(StagedOutputUnusableError, match="part-00000") as refused:
        output.sink.publisher.can_take(directory, receipt)
    assert said in str(refused.value)


def test_a_mark_of_another_plan_is_no_proof(output: IcebergOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    with table_at(output.path).transaction() as change:
        change.set_properties({f"{marks.PREFIX}{batch_id_of(1)}": "published another-plan"})
    with pytest.raises(OutputConflictError, match="found plan another-plan"):
        output.sink.publisher.publish(directory, published)


# ── Marks that leave the table ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a table carry four marks at most."""
    monkeypatch.setattr(iceberg_commits, "MOST", 4)
    monkeypatch.setattr(iceberg_commits, "STAY", 2)


def marks_of(output: IcebergOutput) -> list[str]:
    return sorted(key for key in table_at(output.path).properties if key.startswith(marks.PREFIX))


@pytest.mark.usefixtures("few_marks")
def test_a_table_carries_only_the_newest_marks(output: IcebergOutput) -> None:
    for number in range(1, 12):
        publish(output, plan_to(output, number))
        assert len(marks_of(output)) <= 4
    assert marks_of(output)[-1] == f"{marks.PREFIX}{batch_id_of(11)}"


@pytest.mark.usefixtures("few_marks")
def test_a_committer_that_wakes_up_after_its_batchs_mark_left_the_table_publishes_nothing(
    output: IcebergOutput,
) -> None:
    late, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(late, published)
    others = [publish(output, plan_to(output, number)) for number in range(2, 9)]
    assert f"{marks.PREFIX}{batch_id_of(1)}" not in marks_of(output)
    IcebergOutput(output.path).sink.publisher.publish(late, published)
    with pytest.raises(BatchStateError):
        output.sink.publisher.revoke(late, batch_id_of(1))
    assert output.seen() == sum(map(rows_of, others), rows_of(published))


@pytest.mark.usefixtures("few_marks")
def test_a_committer_that_read_the_table_before_its_batch_was_published_publishes_nothing(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It stands still between its look and its try; in between the batch is published, and its mark leaves the table.
    late, published = written(output, plan_to(output, 1))
    others: list[Any] = []
    commit = iceberg_commits.OneTry.commit_once

    def after_all_others(change: iceberg_commits.OneTry) -> None:
        monkeypatch.setattr(iceberg_commits.OneTry, "commit_once", commit)
        rival = IcebergOutput(output.path)
        rival.sink.publisher.publish(late, published)
        others.extend(publish(rival, plan_to(rival, number)) for number in range(2, 9))
        commit(change)

    monkeypatch.setattr(iceberg_commits.OneTry, "commit_once", after_all_others)
    output.sink.publisher.publish(late, published)
    assert output.seen() == sum(map(rows_of, others), rows_of(published))


@pytest.mark.usefixtures("few_marks")
def test_a_batch_that_was_revoked_stays_revoked_after_its_mark_left_the_table(output: IcebergOutput) -> None:
    late, published = written(output, plan_to(output, 1))
    output.sink.publisher.revoke(late, batch_id_of(1))
    for path in (output.path.with_name("orders.kafka-ingest") / "receipts").rglob("*.revoked"):
        path.unlink()
    for number in range(2, 9):
        publish(output, plan_to(output, number))
    with pytest.raises(BatchRevokedError):
        IcebergOutput(output.path).sink.publisher.publish(late, published)


# ── What others do beside us ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_mark_outlives_compaction_and_expired_snapshots(output: IcebergOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    later = publish(output, plan_to(output, 2))
    table = table_at(output.path)
    rewrite_all(table)
    table.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()  # noqa: DTZ005
    assert len(table_at(output.path).snapshots()) == 1
    output.sink.publisher.publish(directory, published)
    with pytest.raises(BatchStateError, match="is published already"):
        output.sink.publisher.revoke(directory, published.plan.batch_id)
    assert output.seen() == rows_of(published) + rows_of(later)


def test_a_record_is_looked_for_in_rewritten_files_by_its_position(output: IcebergOutput) -> None:
    batch_id = publish(output, plan_to(output, 1)).plan.batch_id
    rewrite_all(table_at(output.path))
    inspector: Any = output.sink.inspector
    rows = inspector._parts.table.commits.rows()
    found = rows.read_elsewhere(list(POSITION), batch_id, (TopicPartition("orders", 0), 3))
    assert [each.to_pylist() for each in found] == [
        [{"kafka_topic": "orders", "kafka_partition": 0, "kafka_offset": 3}],
    ]


def test_a_compaction_between_look_and_try_is_lost_by_neither(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    commit = iceberg_commits.OneTry.commit_once

    def after_a_compaction(change: iceberg_commits.OneTry) -> None:
        monkeypatch.setattr(iceberg_commits.OneTry, "commit_once", commit)
        rewrite_all(table_at(output.path))
        commit(change)

    monkeypatch.setattr(iceberg_commits.OneTry, "commit_once", after_a_compaction)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first) + rows_of(published)


def test_a_batch_whose_rows_are_among_others_is_left_to_an_engine_that_copies_those_unchanged(
    output: IcebergOutput,
) -> None:
    batches = [publish(output, plan_to(output, number)) for number in (1, 2)]
    rewrite_all(table_at(output.path))
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "ops", "old"))
    assert output.sink.remover is not None
    with pytest.raises(OutputNotUsableError, match="Delete the rows whose kafka_batch is"):
        output.sink.remover.hide(batch_id_of(1))
    assert output.seen() == rows_of(batches[0]) + rows_of(batches[1])
    table_at(output.path).delete(f"kafka_batch == '{batch_id_of(1)}'")
    output.sink.remover.hide(batch_id_of(1))
    assert output.sink.remover.unfinished() == []
    assert output.seen() == rows_of(batches[1])


# ── Durable before the catalog says so ────────────────────────────────────────────────────────────────────────────────


def test_all_that_a_commit_names_is_on_the_disk_before_the_catalog_names_it(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    before = set((output.path / "metadata").iterdir())
    synced: list[str] = []
    fsync, needed, execute = os.fsync, set[Path](), SqlCatalog.commit_table

    def noting(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def checking(*arguments: Any, **named: Any) -> Any:
        answer = execute(*arguments, **named)
        needed.update(set((output.path / "metadata").iterdir()) - before)
        return answer

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(SqlCatalog, "commit_table", checking)
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.publish(directory, published)
    place = place_of(output, 2)
    needed |= {output.path / "metadata", *place.iterdir(), place, place.parent, place.parent.parent}
    assert {str(path) for path in needed} <= set(synced)
    assert len(needed) == 3 + 1 + 2 + 3, "a manifest, a list of manifests and metadata; data files and directories"
    [manifest_list] = [path for path in needed if path.name.startswith("snap-")]
    assert synced.index(str(output.kept(2).parent)) < synced.index(str(manifest_list))


# ── Without the library ───────────────────────────────────────────────────────────────────────────────────────────────


def test_without_the_library_a_feed_is_refused_when_it_is_planned_or_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    path = tmp_path / "orders"
    for refuse in (
        sink_of(iceberg_at(path), connections_beside(path)).publisher.prepare,
        sink_of(iceberg_at(path), connections_beside(path)).publisher.examine,
    ):
        with pytest.raises(InstallationError, match=r"pip install pyiceberg==0\.12\.0"):
            refuse()


@pytest.mark.long
def test_a_forked_task_can_publish_since_nothing_is_imported_before_it_and_a_plan_imports_no_pyarrow(
    output: IcebergOutput,
) -> None:
    publish(output, plan_to(output, 1))
    settings = connections_beside(output.path).catalog("lake").properties
    code = f"""
import os, sys, kafka_ingest.assembly
from kafka_ingest.batches.known_output import LEAST_ID
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.choose import SinkConnections
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings

def publisher_of(path, uri):
    found = SinkConnections(catalog=lambda _: CatalogSettings("lake", "lake", {{"type": "sql", "uri": uri}}))
    output = OutputLocation.at("iceberg", path, {{"catalog": "lake", "table": "shop." + os.path.basename(path)}})
    publisher = sink_of(output, found).publisher
    publisher.prepare()
    return publisher

child = os.fork()
if child == 0:
    for uri in ({settings["uri"]!r}, "sqlite:///{output.path.parent}/new.db"):
        assert publisher_of("{output.path.parent}/first", uri).known_batches() == []
    assert len(publisher_of({str(output.path)!r}, {settings["uri"]!r}).known_batches(LEAST_ID)) == 1
    os._exit(bool({{"pyarrow", "fsspec", "requests"}} & sys.modules.keys()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root / "plugins")}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
