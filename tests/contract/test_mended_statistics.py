"""Delta tables of earlier versions, whose files lack bounds that delta-rs takes for nulls, and how they are mended."""

import json
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.contract.builders import ORDERS_FEED, orders, plan_first, plan_of
from tests.contract.decoded_rows import DECODED, publish_decoded
from tests.contract.sink_outputs import DeltaInStore, DeltaOutput, IcebergOutput, ParquetOutput, plan_to, publish
from tests.contract.table_filters import BATCHES, columns_of
from tests.contract.test_table_filters import wrong_in_dataset
from tests.fakes import InMemoryControlTables, feed_settings

from kafka_ingest.errors import NotOfThisFormatError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import TableStatistics
from kafka_ingest.sinks.delta import add_actions, table_fit, table_log
from kafka_ingest.sinks.delta.table_fit import FileStatistics
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.verbs.answer import Answer
from kafka_ingest.verbs.mending import MendStatistics
from kafka_ingest.verbs.request import Decided

NAMED = table_fit.NAMED
OF_KAFKA = {
    *("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp"),
    *("kafka_topic_id", "kafka_timestamp_ms", "kafka_batch"),
}


def as_earlier_versions(statistics: FileStatistics, _searched: object) -> str:
    found = {"numRecords": statistics.rows, "nullCount": statistics.nulls}
    return json.dumps(found | {"minValues": statistics.smallest, "maxValues": statistics.largest})


@pytest.fixture
def older(tmp_path: Path) -> DeltaOutput:
    """A table as an earlier version made it: it names no columns, and its files lack the bounds of some."""
    output = DeltaOutput(tmp_path / "orders", DECODED)
    publish_as_earlier_versions(output)
    assert NAMED not in table(output).metadata().configuration
    return output


def publish_as_earlier_versions(output: Any) -> None:
    output.sink.publisher.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_log, "for_new_table", lambda *_: {})
        patch.setattr(FileStatistics, "recorded", as_earlier_versions)
        patch.setattr(TableLog, "_add_columns", adding_at_once(TableLog._add_columns, patch))
        for number, batch in enumerate(BATCHES[:3], start=1):
            publish_decoded(output, plan_to(output, number, partitions=1), columns_of(batch))


def adding_at_once(real: Any, patch: pytest.MonkeyPatch) -> Any:
    """Add columns without naming those before them."""

    def add(*arguments: Any) -> Any:
        with patch.context() as inner:
            inner.setattr(add_actions, "statistics_of", lambda *_: TableStatistics(0, {}, ()))
            return real(*arguments)

    return add


def table(output: DeltaOutput) -> DeltaTable:
    return DeltaTable(str(output.path))


@pytest.mark.long
def test_one_commit_lets_readers_find_every_row_of_an_older_table_and_a_second_call_makes_none(
    older: DeltaOutput,
) -> None:
    statistics = older.sink.statistics
    assert len(wrong_in_dataset(older.path, below=30)) > 50
    assert statistics.may_lack() == ["yes", "ratio", "real", "price", "wide", "local", "value", "later"]
    found = statistics.look()
    assert (found.files, found.lacking["real"], found.lacking["huge"], found.lacking["late"]) == (3, 3, 2, 2)
    assert OF_KAFKA | {"number", "count"} == set(found.complete)

    before, files = table(older), table(older).file_uris()
    protocol, identity = before.protocol(), before.metadata().id
    statistics.mend()
    assert wrong_in_dataset(older.path, below=30) == []
    assert (table(older).version(), table(older).file_uris()) == (before.version() + 1, files)
    assert table(older).metadata().configuration == {NAMED: ",".join(found.complete)}
    assert (table(older).schema(), table(older).protocol()) == (before.schema(), protocol)
    assert (table(older).metadata().id, table(older).metadata().created_time) == (
        identity,
        before.metadata().created_time,
    )

    statistics.mend()
    assert (table(older).version(), statistics.look().lacking, statistics.may_lack()) == (before.version() + 1, {}, [])
    publish_decoded(older, plan_to(older, 4, partitions=1), columns_of(BATCHES[3]))
    assert wrong_in_dataset(older.path) == []


def test_batches_are_found_in_an_older_table_that_nobody_has_mended(older: DeltaOutput) -> None:
    publish_decoded(older, plan_to(older, 4, partitions=1), columns_of(BATCHES[3]))
    rows = table(older).to_pyarrow_table(filters=[("real", ">", 35.0), ("real", "<", 37.0)])
    assert sorted(rows["number"].to_pylist()) == [35, 36]


def test_before_columns_are_added_to_an_older_table_it_names_those_that_have_bounds(tmp_path: Path) -> None:
    output = DeltaOutput(tmp_path / "orders", DECODED)
    output.sink.publisher.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_log, "for_new_table", lambda *_: {})
        for number, batch in enumerate(([{"number": 1}], [{"number": 2, "late": 1, "real": 1.0}]), start=1):
            columns = {name: values.take([0] * 10) for name, values in columns_of(batch).items()}
            publish_decoded(output, plan_to(output, number, partitions=1), columns)
    named = table(output).metadata().configuration[NAMED].split(",")
    assert set(named) == OF_KAFKA | {"number"}
    for name in ("late", "real"):
        [ten] = {len(table(output).to_pandas(filters=[(name, ask, 1)])) for ask in ("=", ">=", "<=")}
        assert (ten, len(table(output).to_pandas(filters=[(name, "!=", 1)]))) == (10, 0)


def test_where_another_commit_comes_first_the_files_are_looked_at_again(
    older: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looked_at = TableLog.name_columns, []

    def after_a_rival(log: TableLog, found: DeltaTable, columns: tuple[str, ...]) -> None:
        looked_at.append(found.version())
        if len(looked_at) == 1:
            table(older).delete("number = 0")
        real(log, found, columns)

    monkeypatch.setattr(TableLog, "name_columns", after_a_rival)
    older.sink.statistics.mend()
    first, second = looked_at
    assert (second, table(older).version()) == (first + 1, first + 2)
    assert NAMED in table(older).metadata().configuration


def test_a_commit_that_landed_and_failed_is_found_and_one_that_always_fails_has_a_name(
    older: DeltaOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, before = TableLog.name_columns, table(older).version()
    lost = OSError("Generic S3 error: timed out")

    def never(*_: Any) -> None:
        raise lost

    monkeypatch.setattr(TableLog, "name_columns", never)
    with pytest.raises(
        OutputUnavailableError, match="5 tries to name the columns with bounds failed: Generic S3 error"
    ):
        older.sink.statistics.mend()

    def landing(*arguments: Any) -> None:
        real(*arguments)
        raise lost

    monkeypatch.setattr(TableLog, "name_columns", landing)
    older.sink.statistics.mend()
    assert table(older).version() == before + 1


@pytest.mark.usefixtures("object_store")
def test_a_table_in_a_store_is_mended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = DeltaInStore(tmp_path / "in-store" / "orders")
    output.sink.publisher.prepare()
    monkeypatch.setattr(table_log, "for_new_table", lambda *_: {})
    monkeypatch.setattr(
        FileStatistics,
        "recorded",
        lambda *_: '{"numRecords": 10, "minValues": {"kafka_topic": "o"}, "maxValues": {"kafka_topic": "p"}}',
    )
    publish(output, plan_to(output, 1))
    monkeypatch.undo()
    statistics = output.sink.statistics
    assert statistics is not None
    assert statistics.look().lacking["kafka_offset"] == 2
    statistics.mend()
    assert (statistics.look().lacking, statistics.look().complete) == ({}, ("kafka_topic",))


def test_a_table_without_any_bounds_that_all_files_have_is_refused_by_name(older: DeltaOutput) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStatistics, "recorded", lambda *_: '{"numRecords": 10, "minValues": {}, "maxValues": {}}')
        publish_decoded(older, plan_to(older, 4, partitions=1), columns_of(BATCHES[3]))
    with pytest.raises(OutputNotUsableError, match="a column of which all files have bounds, found none"):
        older.sink.statistics.mend()


def test_other_formats_have_no_statistics_to_mend(tmp_path: Path) -> None:
    for output in (IcebergOutput(tmp_path / "iceberg" / "orders"), ParquetOutput(tmp_path / "parquet" / "orders")):
        assert output.sink.statistics is None


# ── The command ───────────────────────────────────────────────────────────────────────────────────────────────────────

DECIDED = Decided("alice", "filters find nothing")


def mend_statistics(parts: Any, decided: Decided | None) -> Answer:
    """Call the verb."""
    caller: Any = SimpleNamespace(parts=parts, decided=decided)
    return MendStatistics().answer(caller)


def parts_of(output: Any, control: InMemoryControlTables) -> Any:
    """Return a feed's parts, as far as the command uses them."""
    location = OutputLocation(output.format, str(output.path))
    settings = feed_settings(output=location)
    plan_first(control, replace(plan_of((orders(0), 0, 10)), output=location))
    return SimpleNamespace(
        feed=SimpleNamespace(name="orders"), plan_settings=settings, control=control, sinks=lambda _: output.sink
    )


def test_the_command_shows_what_is_missing_and_mends_it_once_with_a_line_in_the_journal(older: DeltaOutput) -> None:
    control = InMemoryControlTables()
    parts, version = parts_of(older, control), table(older).version()
    shown = mend_statistics(parts, None)
    assert (shown.document["executed"], shown.only_shown, table(older).version()) == (False, True, version)
    assert shown.document["lacking"]["real"] == shown.document["files"] == 3
    assert "real: 3 of 3 files lack its bounds" in [line.text for line in shown.shown]  # type: ignore[union-attr]

    done = mend_statistics(parts, DECIDED)
    assert done.document == shown.document | {"executed": True}
    again = mend_statistics(parts, DECIDED)
    assert (again.document["lacking"], again.document["executed"], table(older).version()) == ({}, False, version + 1)
    [event] = control.journal(ORDERS_FEED, kinds=["statistics_mended"], limit=9)
    assert (event.actor, event.detail["reason"], event.detail["named"]) == (*astuple(DECIDED), done.document["named"])


def test_the_command_refuses_other_formats_by_name(tmp_path: Path) -> None:
    output = IcebergOutput(tmp_path / "iceberg" / "orders")
    output.sink.publisher.prepare()
    with pytest.raises(NotOfThisFormatError, match="format iceberg cannot have statistics that need mending"):
        mend_statistics(parts_of(output, InMemoryControlTables()), None)
