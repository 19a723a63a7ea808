"""What a Delta table brings besides: tables of others, their maintenance, and what its library would take wrongly."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from tests.contract.builders import NOON, batch_id_of
from tests.contract.sink_outputs import ROWS, DeltaOutput, plan_to, publish, rows_of, written

from kafka_ingest.errors import (
    BatchStateError,
    InstallationError,
    OutputNotUsableError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.sinks.delta.columns import raw_schema
from kafka_ingest.sinks.delta.log_entry import entry_name

OLD = datetime(2020, 1, 1, tzinfo=UTC).timestamp()


@pytest.fixture
def output(tmp_path: Path) -> DeltaOutput:
    made = DeltaOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def table(output: DeltaOutput) -> DeltaTable:
    return DeltaTable(str(output.path))


def a_table(path: Path, change: Callable[[dict[str, Any]], object] = lambda _: None, **made_with: Any) -> None:
    """Make a table of another program, with the raw columns unless they are changed."""
    schema = raw_schema()
    change(schema)
    DeltaTable.create(str(path), deltalake.Schema.from_json(json.dumps(schema)), **made_with)


def listing_of(path: Path) -> dict[str, int]:
    return {str(each.relative_to(path)): each.stat().st_size for each in path.rglob("*") if each.is_file()}


def of(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what finds a column in a schema."""
    return lambda schema: next(field for field in schema["fields"] if field["name"] == name)


# ── Tables of others ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_that_fits_is_taken_as_it_is(tmp_path: Path) -> None:
    a_table(
        tmp_path / "orders",
        lambda schema: schema["fields"].append(of("key")(schema) | {"name": "note", "type": "string"}),
    )
    output = DeltaOutput(tmp_path / "orders")
    output.sink.publisher.prepare()
    published = publish(output, plan_to(output, 1))
    assert output.seen() == rows_of(published)
    assert table(output).version() == 1


UNFIT: dict[str, tuple[Callable[[dict[str, Any]], object], dict[str, Any], str]] = {
    "missing": (lambda s: s["fields"].remove(of("key")(s)), {}, "column key: expected binary, found none"),
    "type": (
        lambda s: of("kafka_offset")(s).update(type="integer"),
        {},
        "column kafka_offset: expected long, found integer",
    ),
    "nested": (
        lambda s: of("kafka_headers")(s).update(type="string"),
        {},
        "column kafka_headers: expected array<struct<key: string, value: binary>>, found string",
    ),
    "not null": (
        lambda s: of("key")(s).update(nullable=False),
        {},
        "column key: expected one that allows nulls, found NOT NULL",
    ),
    "partitioned": (lambda _: None, {"partition_by": ["kafka_topic"]}, "partitioned by kafka_topic"),
    "markers": (
        lambda _: None,
        {"configuration": {"delta.setTransactionRetentionDuration": "interval 7 days"}},
        "delta.setTransactionRetentionDuration=interval 7 days",
    ),
    "staged files are deleted at once": (
        lambda _: None,
        {"configuration": {"delta.deletedFileRetentionDuration": "interval 5 minutes"}},
        "delta.deletedFileRetentionDuration=interval 5 minutes",
    ),
    "deletion vectors": (
        lambda _: None,
        {
            "configuration": {
                "delta.enableDeletionVectors": "true",
                "delta.minReaderVersion": "3",
                "delta.minWriterVersion": "7",
            }
        },
        "reader feature deletionVectors",
    ),
}


@pytest.mark.parametrize("harm", UNFIT)
def test_a_table_that_cannot_be_written_is_refused_by_name_when_planning_and_before_committing(
    tmp_path: Path, harm: str
) -> None:
    change, made_with, said = UNFIT[harm]
    staged = DeltaOutput(tmp_path / "orders")
    staged.sink.publisher.prepare()
    directory, published = written(staged, plan_to(staged, 1))
    a_table(staged.path, change, **made_with)
    before = listing_of(tmp_path)
    for refuse in (
        staged.sink.publisher.prepare,
        lambda: staged.sink.publisher.can_take(directory, published.receipt),
        staged.sink.publisher.examine,
    ):
        with pytest.raises(OutputNotUsableError) as refused:
            refuse()
        assert said in str(refused.value)
    assert listing_of(tmp_path) == before


@pytest.mark.parametrize("name", ["a%20b", "a\\b"])
def test_a_path_that_the_library_reads_as_another_one_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputNotUsableError, match=r"expected a path without '\\' and without '%' before"):
        DeltaOutput(tmp_path / name).sink.publisher.prepare()
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_allows_only_some_rows_is_refused(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    table(output).alter.add_constraint({"few": "kafka_partition < 5"})
    with pytest.raises(OutputNotUsableError, match="found CHECK constraint few"):
        output.sink.publisher.prepare()


@pytest.mark.parametrize(
    "feature",
    [
        *("columnMapping", "deletionVectors", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "variantType"),
        *("clustering", "domainMetadata", "icebergCompatV2", "identityColumns", "inCommitTimestamp", "rowTracking"),
        "aFeatureOfTheFuture",
    ],
)
def test_a_table_with_a_feature_that_is_not_written_here_is_refused_by_the_features_name(
    output: DeltaOutput, feature: str
) -> None:
    publish(output, plan_to(output, 1))
    of_readers = {"columnMapping", "deletionVectors", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", feature],
        "readerFeatures": [feature] if feature in of_readers else [],
    }
    (output.path / "_delta_log" / entry_name(2)).write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(OutputNotUsableError, match=f"found (reader|writer) feature {feature}"):
        output.sink.publisher.prepare()


def test_a_table_that_becomes_unfit_after_the_commit_began_takes_nothing(output: DeltaOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.can_take(directory, published.receipt)
    a_table(output.path, UNFIT["type"][0])
    with pytest.raises(OutputNotUsableError, match="column kafka_offset"):
        output.sink.publisher.publish(directory, published)
    assert table(output).version() == 0


# ── Files that are not what they should be ────────────────────────────────────────────────────────────────────────────


def rewrite(directory: Path, output: DeltaOutput, change: Callable[[pa.Table], pa.Table]) -> int:
    """Change a staged file; return its size."""
    place = output.sink.publisher.data_needs(directory).place
    assert place is not None
    path = place / "part-00000.parquet"
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)
    return path.stat().st_size


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.drop_columns(["kafka_batch"]), "column kafka_batch: expected string, found none"),
        (lambda rows: rows.append_column("extra", pa.array([1] * ROWS)), "column extra: expected none, found long"),
        (
            lambda rows: rows.set_column(1, "kafka_partition", pa.array(range(ROWS), pa.int64())),
            "column kafka_partition: expected integer, found long",
        ),
        (
            lambda rows: rows.set_column(9, "kafka_batch", pa.array([str(batch_id_of(7))] * ROWS)),
            f"kafka_batch: expected {batch_id_of(1)} alone, found {batch_id_of(7)}",
        ),
        (
            lambda rows: rows.set_column(2, "kafka_offset", pa.array([None, *range(ROWS - 1)], pa.int64())),
            "column kafka_offset holds nulls",
        ),
    ],
)
def test_a_staged_file_that_would_harm_readers_sends_the_batch_back(
    output: DeltaOutput, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    directory, published = written(output, plan_to(output, 1))
    size = rewrite(directory, output, change)
    first, *others = published.receipt.files
    receipt = replace(published.receipt, files=(replace(first, size_bytes=size), *others))
    with pytest.raises(StagedOutputUnusableError) as refused:
        output.sink.publisher.can_take(directory, receipt)
    assert said in str(refused.value)
    assert output.seen() == Counter()


def test_files_may_lie_in_folders_of_their_own(output: DeltaOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    place = output.sink.publisher.data_needs(directory).place
    assert place is not None
    (place / "day=2026-01-02").mkdir()
    (place / "part-00000.parquet").rename(place / "day=2026-01-02" / "part-00000.parquet")
    first, *others = published.receipt.files
    receipt = replace(published.receipt, files=(replace(first, name="day=2026-01-02/part-00000.parquet"), *others))
    output.sink.publisher.can_take(directory, receipt)
    output.sink.staging.verify(directory, receipt)
    output.sink.publisher.publish(directory, replace(published, receipt=receipt))
    assert output.seen() == rows_of(published)
    (place / "day=2026-01-02" / "more.parquet").touch()
    with pytest.raises(StagedOutputUnusableError, match=r"day=2026-01-02/more.parquet is not in the receipt"):
        output.sink.staging.verify(directory, receipt)


def newest_entry(output: DeltaOutput) -> Path:
    return max((output.path / "_delta_log").glob("*.json"))


def test_a_log_entry_that_a_power_cut_left_empty_is_none_and_the_batch_is_committed_again(output: DeltaOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    newest_entry(output).write_bytes(b"")
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_a_log_entry_that_is_cut_off_stops_the_commit_with_a_short_error(output: DeltaOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    newest_entry(output).write_bytes(b'{"commitInfo":{"timest')
    with pytest.raises(OutputUnavailableError, match=r"could not be read.*No offset was moved") as refused:
        output.sink.publisher.publish(directory, published)
    assert len(str(refused.value)) < 700
    newest_entry(output).unlink()
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


# ── Statistics, by which queries skip files ───────────────────────────────────────────────────────────────────────────


def test_the_commit_says_what_each_file_holds(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    [*_, last] = sorted((output.path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    assert [add["path"] for add in adds] == [f"batches/{batch_id_of(1)}/1/part-0000{each}.parquet" for each in (0, 1)]
    statistics = json.loads(adds[1]["stats"])
    assert statistics["numRecords"] == ROWS
    for bounds, offset in (("minValues", 0), ("maxValues", ROWS - 1)):
        assert statistics[bounds] == {
            "kafka_topic": "orders",
            "kafka_partition": 1,
            "kafka_offset": offset,
            "kafka_timestamp": "2026-01-02T00:00:00.000Z",
            "kafka_topic_id": "topic-id-1",
            "kafka_batch": str(batch_id_of(1)),
        }
    assert {name: statistics["nullCount"][name] for name in ("kafka_offset", "kafka_timestamp_ms")} == {
        "kafka_offset": 0,
        "kafka_timestamp_ms": ROWS,
    }
    assert [action["txn"]["appId"] for action in actions if "txn" in action] == [str(batch_id_of(1))]
    [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
    assert info["kafka_ingest.plan_fingerprint"] == plan_to(output, 1).fingerprint


# ── What others do beside us ──────────────────────────────────────────────────────────────────────────────────────────


def test_vacuum_with_the_default_retention_leaves_staged_files_alone(output: DeltaOutput) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    assert table(output).vacuum(full=True, dry_run=False) == []
    output.sink.publisher.publish(directory, published)
    assert len(output.seen()) == 4 * ROWS


def test_files_that_vacuum_would_take_are_not_committed_and_count_as_new_then(
    output: DeltaOutput,
) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    for path in (output.path / "batches" / str(batch_id_of(2)) / "1").iterdir():
        os.utime(path, (OLD, OLD))
    assert len(table(output).vacuum(full=True, dry_run=True)) == 2, "this is what VACUUM would take"
    with pytest.raises(OutputUnavailableError, match="VACUUM may take them"):
        output.sink.publisher.can_take(directory, published.receipt)
    assert table(output).vacuum(full=True, dry_run=True) == [], "they count as new from now on"


def test_a_mark_outlives_compaction_checkpoints_and_the_logs_clean_up(tmp_path: Path) -> None:
    a_table(tmp_path / "orders", configuration={"delta.logRetentionDuration": "interval 0 seconds"})
    output = DeltaOutput(tmp_path / "orders")
    output.sink.publisher.prepare()
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    later = publish(output, plan_to(output, 2))
    table(output).optimize.compact()
    table(output).create_checkpoint()
    table(output).cleanup_metadata()
    assert not (output.path / "_delta_log" / f"{1:020}.json").exists()
    output.sink.publisher.publish(directory, published)
    with pytest.raises(BatchStateError, match="is published already"):
        output.sink.publisher.revoke(directory, published.plan.batch_id)
    assert output.seen() == rows_of(published) + rows_of(later)


# ── Batches that leave the table ──────────────────────────────────────────────────────────────────────────────────────


def test_a_table_that_only_takes_appends_keeps_its_batches(tmp_path: Path) -> None:
    a_table(tmp_path / "orders", configuration={"delta.appendOnly": "true"})
    output = DeltaOutput(tmp_path / "orders")
    output.sink.publisher.prepare()
    published = publish(output, plan_to(output, 1))
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "ops", "old"))
    assert output.sink.remover is not None
    for refuse in (output.sink.remover.check_can_remove, lambda: output.sink.remover.hide(batch_id_of(1))):
        with pytest.raises(OutputNotUsableError, match=r"delta\.appendOnly=true"):
            refuse()
    assert output.seen() == rows_of(published)


# ── Durable, since the library is not ─────────────────────────────────────────────────────────────────────────────────


def test_the_commit_is_on_the_disk_when_publishing_returns(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(output, plan_to(output, 1))
    synced: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.publish(directory, published)
    log, place = output.path / "_delta_log", output.path / "batches" / str(batch_id_of(1)) / "1"
    needed = [*log.glob("*.json"), log, *place.iterdir(), place, place.parent, place.parent.parent, output.path]
    assert {str(path) for path in needed} <= set(synced)
    assert synced.index(str(output.kept(1).parent)) < synced.index(str(log))


def test_a_commit_that_a_killed_publisher_left_is_on_the_disk_when_the_next_one_returns(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    output.sink.publisher.publish(directory, published)
    assert {str(path) for path in (output.path / "_delta_log").glob("*.json")} <= set(synced)


def test_what_another_writer_has_not_written_yet_is_left_alone_since_it_is_gone_at_any_moment(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    (output.path / "_delta_log" / f"{2:020}.json#1").write_bytes(b"half")
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    output.sink.publisher.publish(directory, published)
    assert [path for path in synced if "_delta_log/" in path]
    assert not [path for path in synced if "#" in path]


# ── Without the library ───────────────────────────────────────────────────────────────────────────────────────────────


def test_without_the_library_a_feed_is_refused_when_it_is_planned_or_examined(
    output: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delitem(sys.modules, "deltalake")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for refuse in (output.sink.publisher.prepare, output.sink.publisher.examine):
        with pytest.raises(InstallationError, match=r"pip install deltalake==1\.6\.6"):
            refuse()


@pytest.mark.long
def test_a_forked_task_can_publish_since_nothing_is_imported_before_it(tmp_path: Path) -> None:
    code = (
        "import os, sys, kafka_ingest.assembly\n"
        "from pathlib import Path\n"
        "from kafka_ingest.sinks.choose import sink_of\n"
        "from kafka_ingest.model.place import OutputLocation\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    sink_of(OutputLocation('delta', {str(tmp_path / 'forked')!r})).publisher.prepare()\n"
        "    import deltalake; os._exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    plugins = Path(__file__).resolve().parents[2] / "plugins"
    assert subprocess.run([sys.executable, "-c", code], cwd=plugins, check=False).returncode == 0
