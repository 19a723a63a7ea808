"""How an Iceberg table's metadata stays small: old snapshots leave it with commits, and each step reads it once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import RemoveSnapshotsUpdate
from tests.contract.builders import batch_id_of
from tests.contract.sink_outputs import IcebergOutput, plan_to, publish, written
from tests.iceberg_lake import table_at

from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.sinks.iceberg import one_try
from kafka_ingest.sinks.iceberg.one_try import MAX_AGE_MS

pytestmark = pytest.mark.long

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def output(tmp_path: Path) -> IcebergOutput:
    made = IcebergOutput(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def table(output: IcebergOutput) -> Table:
    return table_at(output.path)


def keep_for(output: IcebergOutput, age: timedelta, **more: str) -> None:
    """Let the table keep its snapshots for some time: none, or more than a test takes."""
    milliseconds = str(int(age.total_seconds() * 1_000))
    with table(output).transaction() as change:
        change.set_properties({MAX_AGE_MS: milliseconds, **{f"history.expire.{k}": v for k, v in more.items()}})


def publish_many(output: IcebergOutput, first: int, last: int) -> None:
    for number in range(first, last + 1):
        publish(output, plan_to(output, number))


def snapshots(output: IcebergOutput) -> int:
    return len(table(output).snapshots())


def metadata_files(output: IcebergOutput) -> set[str]:
    """Return the lists of manifests and the manifests that there are."""
    return {path.name for path in (output.path / "metadata").glob("*.avro")}


def needed_files(output: IcebergOutput) -> set[str]:
    """Return those that the table's snapshots need."""
    now = table(output)
    lists = [each.manifest_list for each in now.snapshots()]
    manifests = [each.manifest_path for snapshot in now.snapshots() for each in snapshot.manifests(now.io)]
    return {path.rpartition("/")[2] for path in (*lists, *manifests)}


def test_a_new_table_keeps_its_snapshots_for_as_long_as_iceberg_does_by_default(output: IcebergOutput) -> None:
    publish_many(output, 1, 3)
    assert table(output).properties[MAX_AGE_MS] == "432000000"
    assert snapshots(output) == 3


def test_snapshots_leave_that_are_older_than_the_table_keeps_them_with_the_files_that_nothing_needs(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_try, "AT_ONCE", 5)
    publish_many(output, 1, 4)
    with table(output).transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    named = needed_files(output)
    publish(output, plan_to(output, 5))
    named |= needed_files(output)
    keep_for(output, timedelta(0))
    publish(output, plan_to(output, 6))
    needed = needed_files(output)
    assert snapshots(output) == 1, "the newest"
    assert metadata_files(output) & named < named, "what the library wrote and merged at once, was in no snapshot"
    assert metadata_files(output) & (named | needed) == needed
    assert sum(output.seen().values()) == 120
    assert table(output).scan().to_arrow().num_rows == 120


@pytest.mark.long
def test_a_long_history_leaves_a_piece_at_a_time(output: IcebergOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_try, "AT_ONCE", 2)
    publish_many(output, 1, 5)
    keep_for(output, timedelta(0))
    left = []
    for number in (6, 7, 8):
        publish(output, plan_to(output, number))
        left.append(snapshots(output))
    assert left == [4, 3, 2]
    assert metadata_files(output) == needed_files(output)


def test_a_table_keeps_as_many_snapshots_as_it_is_asked_to(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_try, "AT_ONCE", 1)
    publish_many(output, 1, 3)
    keep_for(output, timedelta(0), **{"min-snapshots-to-keep": "3"})
    for number in (4, 5):
        publish(output, plan_to(output, number))
        assert snapshots(output) == 3


@pytest.mark.long
def test_snapshots_leave_many_together_since_each_time_is_a_commit(output: IcebergOutput) -> None:
    publish_many(output, 1, one_try.AT_ONCE)
    keep_for(output, timedelta(0))
    publish(output, plan_to(output, 30))
    assert snapshots(output) == 1
    publish_many(output, 31, 33)
    assert snapshots(output) == 4


def refused(_: Any, __: Any, ___: Any, updates: Any) -> CommitTableResponse:
    raise ForbiddenError(f"this user must not {updates}")


@pytest.mark.parametrize("why", ["the catalog refuses it", "the property is no number"])
def test_a_batch_is_committed_whatever_becomes_of_old_snapshots(
    output: IcebergOutput, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(one_try, "AT_ONCE", 1)
    publish_many(output, 1, 2)
    if why == "the catalog refuses it":
        keep_for(output, timedelta(0))
        real = SqlCatalog.commit_table
        monkeypatch.setattr(
            SqlCatalog,
            "commit_table",
            lambda *arguments: (refused if isinstance(arguments[3][0], RemoveSnapshotsUpdate) else real)(*arguments),
        )
    else:
        with table(output).transaction() as change:
            change.set_properties({MAX_AGE_MS: "5d"})
    publish(output, plan_to(output, 3))
    assert sum(output.seen().values()) == 60
    assert snapshots(output) == 3
    assert ("Old snapshots may have stayed" in caplog.text) is (why == "the catalog refuses it")


def without_the_property(output: IcebergOutput) -> None:
    with table(output).transaction() as change:
        change.remove_properties(MAX_AGE_MS)


def removed_a_batch(output: IcebergOutput) -> None:
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOW, "ops", "old"))
    assert output.sink.remover is not None
    output.sink.remover.hide(batch_id_of(1))


def with_a_tag(output: IcebergOutput) -> None:
    first = table(output).snapshots()[0].snapshot_id
    table(output).manage_snapshots().create_tag(first, "audit").commit()


def test_files_of_a_snapshot_stay_that_another_program_tags_while_it_leaves(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_try, "AT_ONCE", 1)
    publish_many(output, 1, 2)
    keep_for(output, timedelta(0))
    named, real = needed_files(output), one_try.leaving

    def tagged_since(*arguments: Any) -> Any:
        found = real(*arguments)
        with_a_tag(output)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(one_try, "leaving", tagged_since)
        publish(output, plan_to(output, 3))
    assert named <= metadata_files(output)
    assert sum(output.seen().values()) == 60


def begins_with_a_removal(output: IcebergOutput) -> None:
    """Files of the rows that were removed are named by the oldest snapshot alone."""
    before = [each.snapshot_id for each in table(output).snapshots()]
    removed_a_batch(output)
    publish(output, plan_to(output, 8))
    table(output).maintenance.expire_snapshots().by_ids(before).commit()


def rolled_back(output: IcebergOutput) -> None:
    table(output).manage_snapshots().rollback_to_snapshot(table(output).snapshots()[-2].snapshot_id).commit()


@pytest.mark.parametrize(
    "what", [without_the_property, removed_a_batch, begins_with_a_removal, with_a_tag, rolled_back]
)
def test_snapshots_stay_that_the_table_or_another_program_may_need(
    output: IcebergOutput, what: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of rows that were removed are deleted by ``expire_snapshots``, which knows them by these snapshots."""
    monkeypatch.setattr(one_try, "AT_ONCE", 1)
    publish_many(output, 1, 3)
    keep_for(output, timedelta(0))
    what(output)
    before, files = snapshots(output), metadata_files(output)
    publish_many(output, 4, 5)
    assert snapshots(output) == before + 2
    assert files <= metadata_files(output)


def test_once_another_program_has_expired_them_the_next_ones_leave_again(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_try, "AT_ONCE", 1)
    publish_many(output, 1, 2)
    keep_for(output, timedelta(0))
    removed_a_batch(output)
    publish(output, plan_to(output, 3))
    assert snapshots(output) == 4
    later = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - as the library compares it
    table(output).maintenance.expire_snapshots().older_than(later).commit()
    publish_many(output, 4, 6)
    assert snapshots(output) == 1


def test_a_commit_reads_the_metadata_once_for_each_time_that_it_may_have_changed(
    output: IcebergOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    loaded: list[str] = []
    real = SqlCatalog.load_table

    def load(catalog: SqlCatalog, name: Any) -> Table:
        loaded.append(str(name))
        return real(catalog, name)

    monkeypatch.setattr(SqlCatalog, "load_table", load)
    output.sink.publisher.can_take(directory, published.receipt)
    assert len(loaded) == 1
    output.sink.publisher.publish(directory, published)
    assert len(loaded) == 1 + 3, "to look, by the library to compare, and to see that the commit landed"
