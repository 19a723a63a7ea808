"""Late rows that are files beside a table or a topic: what a crash, a clean-up or another program may do to them.

What publishing comes to with them, test_sink_publishing tries at each call to the file system and in races.
"""

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from deltalake import DeltaTable
from tests.contract.builders import NOON, orders
from tests.contract.sink_outputs import (
    ROWS,
    BesideInFiles,
    DeltaBeside,
    DeltaInStoreBeside,
    IcebergBeside,
    IcebergInStore,
    InStore,
    KafkaBeside,
    made,
    plan_to,
    publish,
    rows_of,
    without_late,
    written,
)
from tests.contract.test_sink_replace import replacing

from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    InvalidBackfillError,
    OutputConflictError,
    OutputNotUsableError,
)
from kafka_ingest.foundation import storage
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.partition_term import LATE_FOLDER
from kafka_ingest.model.place import Place
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.observing.account_of_output import AccountOfOutput, account_of
from kafka_ingest.sinks.staged_files import DATA_LATE
from kafka_ingest.sinks.tables.late_files import LateFiles


class IcebergInStoreBeside(DeltaInStoreBeside, IcebergInStore):
    """The sink of an Iceberg table in a store, with late rows beside it."""

    name = "iceberg in S3 with late rows"


TABLES: list[Any] = [DeltaBeside, pytest.param(IcebergInStoreBeside, marks=pytest.mark.long)]
"""Both formats, on a disk and in a store: late rows are the same files beside either format."""
KINDS = [*TABLES, pytest.param(KafkaBeside, marks=pytest.mark.long)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return made(request.param, tmp_path / "out" / "orders", request)


@pytest.fixture(params=TABLES, ids=lambda kind: kind.name)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return made(request.param, tmp_path / "out" / "orders", request)


class Died(BaseException):
    """The process ends here."""


def dies(output: Any, when: str, step: str, directory: Path, published: PublishedReceipt) -> None:
    """Publish, and die before or after a step of late rows."""
    real: Any = getattr(LateFiles, step)

    def dying(*given: object) -> None:
        if when == "after":
            real(*given)
        raise Died

    output.sink.publisher.can_take(directory, published.receipt)
    with patch.object(LateFiles, step, dying), pytest.raises(Died):
        output.sink.publisher.publish(directory, published)


def dead(output: Any, number: int = 1) -> tuple[Any, PublishedReceipt]:
    """Let a publisher die where late rows alone are left to publish; return what it was to publish."""
    directory, published = written(output, plan(output, number))
    dies(output, "before", "publish", directory, published)
    assert output.seen() == without_late(rows_of(published))
    return directory, published


def plan(output: Any, number: int) -> BatchPlan:
    """Return the plan of a batch of the topic of which the rows are."""
    return replace(plan_to(output, number), topic_ids={"orders": "topic-id-1"})


def again(output: Any) -> Any:
    """Return the sink as another process has it."""
    return type(output)(output.path).sink


def at(output: Any, place: Place) -> Any:
    return output.opened(place) if isinstance(output, InStore) else place


def late_place(output: Any) -> Any:
    place = output.place if isinstance(output, InStore) else output.path
    return at(output, place.parent / f"{place.name}_late")


def states(output: Any) -> list[FilesState]:
    return [each.files.state for each in again(output).publisher.published_receipts()]


def alone(output: Any) -> AccountOfOutput:
    contents = again(output).contents
    evidence = contents.evidence()
    return account_of(evidence, *contents.held(evidence))


def expired(output: Any, published: PublishedReceipt) -> None:
    removal = Removal(published.plan.batch_id, RemovalCause.EXPIRED, NOON, "ops", "old")
    output.sink.archive.note_removal(removal)


@pytest.mark.parametrize("step", ["set_aside", "publish"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_publisher_that_dies_at_either_step_is_completed_by_the_next_one(output: Any, when: str, step: str) -> None:
    directory, published = written(output, plan(output, 1))
    dies(output, when, step, directory, published)
    before = states(output)

    for _ in range(2):
        again(output).publisher.publish(directory, published)

    assert output.seen() == rows_of(published)
    assert before == [FilesState.INTACT if (when, step) == ("after", "publish") else FilesState.STAGED]
    assert states(output) == [FilesState.INTACT]
    output.sink.staging.remove(directory)
    assert len([name for name in output.data_files() if "kafka_late=true" in name]) == 1, "what was staged is removed"
    assert alone(output).is_sound


def test_late_rows_are_published_where_a_clean_up_took_what_was_staged(output: Any) -> None:
    directory, published = dead(output)
    storage.remove_tree(
        at(output, (output.sink.publisher.data_needs(directory).place or directory / "data") / LATE_FOLDER)
    )

    again(output).publisher.publish(directory, published)

    assert output.seen() == rows_of(published)


def test_late_rows_that_are_lost_between_the_two_steps_stop_the_commit_until_they_are_restored(output: Any) -> None:
    directory, published = dead(output)
    aside = at(output, directory / DATA_LATE)
    [name] = storage.files_below(aside)
    content = storage.read_whole(aside / name)
    storage.remove_file(aside / name)

    with pytest.raises(OutputConflictError, match=r"its late rows cannot be, and no offset was moved.*Restore them"):
        again(output).publisher.publish(directory, published)
    assert states(output) == [FilesState.CHANGED]

    shutil.rmtree(late_place(output)) if isinstance(aside, Path) else None
    storage.make_folder((aside / name).parent)
    storage.write_whole(aside / name, content)
    again(output).publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_a_batch_that_is_revoked_leaves_no_late_rows_and_one_whose_late_rows_are_left_cannot_be(output: Any) -> None:
    directory, published = written(output, plan(output, 1))
    dies(output, "after", "set_aside", directory, published)
    again(output).publisher.revoke(directory, published.plan.batch_id)
    with pytest.raises(BatchRevokedError):
        again(output).publisher.publish(directory, published)
    assert (output.seen().total(), states(output)) == (0, [])
    output.sink.staging.check_restageable(directory, published.receipt)
    output.sink.staging.remove(directory)
    assert not [name for name in output.data_files() if "kafka_late=true" in name]

    directory, published = dead(output, 2)
    with pytest.raises(BatchStateError):
        again(output).publisher.revoke(directory, published.plan.batch_id)


def test_a_zombie_shows_late_rows_no_second_time(table: Any) -> None:
    directory, published = written(table, plan(table, 1))
    real = LateFiles.set_aside

    def held_up(*given: Any) -> None:
        real(*given)
        with patch.object(LateFiles, "set_aside", real):
            again(table).publisher.publish(directory, published)
        expired(table, published)
        again(table).remover.hide(published.plan.batch_id)

    with patch.object(LateFiles, "set_aside", held_up):
        table.sink.publisher.publish(directory, published)

    assert (table.seen().total(), table.sink.remover.unfinished()) == (0, [])


def test_nor_does_one_that_is_held_up_after_it_has_asked(table: Any) -> None:
    directory, published = written(table, plan(table, 1))
    real = LateFiles.publish

    def held_up(*given: Any) -> None:
        with patch.object(LateFiles, "publish", real):
            again(table).publisher.publish(directory, published)
        expired(table, published)
        again(table).remover.hide(published.plan.batch_id)
        real(*given)

    with patch.object(LateFiles, "publish", held_up):
        table.sink.publisher.publish(directory, published)

    assert (table.seen().total(), table.sink.remover.unfinished()) == (0, [])


def test_late_rows_expire_also_where_the_receipt_is_lost(table: Any) -> None:
    published = publish(table, plan(table, 1))
    expired(table, published)
    storage.remove_file(table.sink.archive.path(published.plan.batch_id))

    again(table).remover.hide(published.plan.batch_id)

    assert (table.seen().total(), again(table).remover.unfinished()) == (0, [])


def test_a_batch_expires_with_its_late_rows_also_where_that_ended_half_way(table: Any) -> None:
    first, second = (publish(table, plan(table, number)) for number in (1, 2))
    expired(table, first)
    with patch.object(LateFiles, "remove", side_effect=Died), pytest.raises(Died):
        table.sink.remover.hide(first.plan.batch_id)
    assert again(table).remover.unfinished() == [str(first.plan.batch_id)]

    again(table).remover.hide(first.plan.batch_id)

    assert table.seen() == rows_of(second)
    assert again(table).remover.unfinished() == []
    assert alone(table).is_sound


def test_what_readers_see_of_a_batch_is_in_both_and_damage_and_doubles_show(table: Any) -> None:
    published = publish(table, plan(table, 1))
    batch_id, late = published.plan.batch_id, published.receipt.part(late=True).files[0]
    table.sink.staging.remove(table.sink.staging.attempt_directory(batch_id, 1))
    inspector = again(table).inspector
    look = inspector.look_at(batch_id, closely=True)
    assert [(each.rows, each.offsets) for each in look.counts] == [(ROWS, ROWS)] * 2
    assert not look.problems
    assert inspector.holds(batch_id, late, orders(1), 3)
    assert not inspector.holds(batch_id, late, orders(1), ROWS)
    day = datetime(2026, 1, 2, tzinfo=UTC)
    assert inspector.rows_by_hour(published.receipt, late, day + timedelta(hours=1)) == {day: ROWS}

    path = at(table, inspector.path(batch_id, late))
    content = storage.read_whole(path)
    other = at(table, inspector.path(batch_id, published.receipt.part(late=False).files[0]))
    storage.write_whole(path, storage.read_whole(other))
    account = alone(table)
    assert [each.held.doubled.count for each in account.partitions] == [ROWS, 0]
    assert not account.is_sound
    storage.write_whole(path, content[:-9])
    assert [each.written for each in again(table).inspector.look_at(batch_id).problems] == [late]
    assert alone(table).problems
    storage.remove_file(path)
    [problem] = again(table).inspector.look_at(batch_id).problems
    assert (problem.written, problem.is_there) == (late, False)
    assert states(table) == [FilesState.CHANGED]
    assert [each.unaccounted for each in alone(table).partitions] == [0, ROWS]


def test_a_batch_of_which_all_rows_are_lost_is_gone_and_one_whose_late_rows_are_left_is_changed(table: Any) -> None:
    published = publish(table, plan(table, 1))
    staging = table.sink.staging
    staging.remove(staging.attempt_directory(published.plan.batch_id, published.receipt.attempt))
    table.sink.publisher._table.commits.delete_rows(published.plan.batch_id)
    assert states(table) == [FilesState.CHANGED]
    storage.remove_tree(late_place(table))
    [found] = again(table).publisher.published_receipts()
    assert (found.files.state, found.files.rows) == (FilesState.GONE, 0)


@pytest.mark.long
def test_late_rows_of_a_topic_are_counted_with_its_records_and_missing_ones_show(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    topic: Any = made(KafkaBeside, tmp_path / "orders", request)
    published = publish(topic, plan(topic, 1))
    assert [each.held.rows for each in alone(topic).partitions] == [ROWS, ROWS]
    day = datetime(2026, 1, 2, tzinfo=UTC)
    for file in published.receipt.files:
        assert topic.sink.rows_by_hour(published.receipt, file, day + timedelta(hours=1)) == {day: ROWS}

    shutil.rmtree(late_place(topic))

    account = alone(topic)
    assert [(each.held.rows, each.unaccounted) for each in account.partitions] == [(ROWS, 0), (0, ROWS)]


def test_ranges_with_late_rows_are_not_replaced_and_the_others_are(table: Any) -> None:
    published = publish(table, plan(table, 1))
    with pytest.raises(InvalidBackfillError, match=r"late rows in orders-1\[0, 10\).*--copy-to"):
        table.sink.replacer.rows_of(replacing(table, 2, published.plan, 0, 1).replaces)
    assert table.sink.replacer.rows_of(replacing(table, 2, published.plan, 0).replaces).rows == ROWS


def test_a_table_in_the_place_of_late_rows_is_refused_before_and_neither_read_nor_touched(table: Any) -> None:
    late = late_place(table)
    storage.make_folder(late / "_delta_log")
    storage.write_whole(late / "_delta_log" / f"{0:020d}.json", b"garbage")
    refuse(table, "a table")
    assert [storage.read_whole(late / name) for name in storage.files_below(late)] == [b"garbage"]


@pytest.mark.parametrize("kind", [DeltaBeside, IcebergBeside], ids=lambda kind: kind.name)
def test_so_is_a_file_there(kind: type[Any], request: pytest.FixtureRequest, tmp_path: Path) -> None:
    table = made(kind, tmp_path / "out" / "orders", request)
    late_place(table).write_bytes(b"garbage")
    refuse(table, "a file")
    assert late_place(table).read_bytes() == b"garbage"


def refuse(table: Any, what: str) -> None:
    """See something in the place of late rows refused, and the rest of the output as it would be without it."""
    directory, published = written(table, plan(table, 1))
    for refuses in (again(table).check_late, lambda: again(table).publisher.can_take(directory, published.receipt)):
        with pytest.raises(OutputNotUsableError, match=f"for files of late rows alone, found {what}"):
            refuses()

    with patch.object(BesideInFiles, "late_partition", None):
        other = publish(table, plan(table, 2))
    assert states(table) == [FilesState.INTACT]
    assert again(table).inspector.look_at(other.plan.batch_id).problems == []
    assert alone(table).is_sound
    expired(table, other)
    table.sink.remover.hide(other.plan.batch_id)
    assert again(table).remover.unfinished() == []


def test_a_batch_without_late_rows_asks_nothing_of_their_place(table: Any) -> None:
    with patch.object(BesideInFiles, "late_partition", None), patch.object(LateFiles, "_opened", side_effect=Died):
        directory, published = written(table, plan(table, 1))
        table.sink.publisher.can_take(directory, published.receipt)
        table.sink.publisher.publish(directory, published)
        assert states(table) == [FilesState.INTACT]
        again(table).inspector.look_at(published.plan.batch_id, closely=True)
        expired(table, published)
        table.sink.remover.hide(published.plan.batch_id)


def test_a_batch_that_is_never_published_but_there_is_not_moved_into(output: Any) -> None:
    directory, published = written(output, plan(output, 1))
    stranger = late_place(output) / f"kafka_batch={published.plan.batch_id}" / "stranger.parquet"
    storage.make_folder(stranger.parent)
    storage.write_whole(stranger, b"stranger")

    with pytest.raises(OutputConflictError, match="was never published"):
        output.sink.publisher.can_take(directory, published.receipt)
    assert storage.read_whole(stranger) == b"stranger"


def test_rows_that_vacuum_and_compaction_leave_alone_are_all_there(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    delta: Any = made(DeltaBeside, tmp_path / "orders", request)
    batch = publish(delta, plan(delta, 1))
    table = DeltaTable(str(delta.path))
    table.optimize.compact()
    table.vacuum(full=True, retention_hours=0, enforce_retention_duration=False, dry_run=False)

    assert delta.seen() == rows_of(batch)
    assert states(delta) == [FilesState.INTACT]
    assert alone(delta).is_sound
