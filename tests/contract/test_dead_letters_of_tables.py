"""What a table's records that cannot be decoded become: rows of a table beside it, on a disk and in a store, replayed
once; files where an earlier version has begun with some.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest
import uuid6
from tests.contract import whole_feed as whole_feed_module
from tests.contract.conftest import SqlStore
from tests.contract.every_record_once import records_in_iceberg, records_in_table
from tests.contract.interference import Died
from tests.contract.lives import Feeds, decode_into_a_table, produce, stop_before
from tests.contract.test_offsets_in_transaction import TABLE, reaching
from tests.contract.test_replay import differences, replay, request_of
from tests.contract.whole_feed import JSON, TEXT, Record, Scheduler, WholeFeed, at_rest, parquet_of, whole_feed
from tests.contract.without_waiting import let_s3_try_at_once
from tests.fakes import InMemoryControlTables
from tests.iceberg_lake import connections_beside, table_at
from tests.object_store import ObjectStore, StoreFault

from kafka_ingest.batches.restore import decide_restore, restore
from kafka_ingest.errors import OutputConflictError, OutputUnavailableError
from kafka_ingest.foundation.storage import copy_file, opened, remote_sizes, remove_file
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.dead_letters import output_of_dead_letters, staged_dead_letters
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import Place, local
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.receipt import WrittenFile
from kafka_ingest.model.table_options import DECODED, RECORDS
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.parquet.publisher import ParquetRemover
from kafka_ingest.sinks.tables import dead_letters
from kafka_ingest.sinks.tables.late_files import copy_at_once
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.adopt import adopt, decide_adoption
from kafka_ingest.verbs.clean import clean_up, staged_outputs_of_batch
from kafka_ingest.verbs.dead_letters import by_cause, dead_letters_of, give_up_dead_letters
from kafka_ingest.verbs.expire import decide_expiry, expire

DEAD = [(0, 1), (0, 5), (0, 7), (0, 9), (1, 1), (1, 3), (1, 5)]
"""Partitions and offsets of what is no JSON: the odd ones, of two productions with aborted transactions between."""


@pytest.fixture(
    params=[
        ("delta", False),
        ("iceberg", False),
        ("postgresql", False),
        pytest.param(("delta", True), marks=pytest.mark.long),
    ],
    ids=["delta", "iceberg", "postgresql", "delta in S3"],
)
def feed(request: pytest.FixtureRequest, sqlite: SqlStore, lake: Path) -> WholeFeed:
    """A feed of a table that decodes its records, of which no batch has been read."""
    table_format, is_in_store = request.param
    if table_format == "postgresql":
        return in_postgresql(request.getfixturevalue("postgresql"), lake)
    access = None
    if is_in_store:
        request.getfixturevalue("object_store")
        store = ObjectStore.running()
        store.make_bucket("lake")
        access = store.access()
    return Feeds(lake, sqlite.connect, table_format, access).new(decoding_from_the_first_batch_on)


def in_postgresql(store: SqlStore, lake: Path) -> WholeFeed:
    """Return a feed whose control tables, rows and dead letters are in one database."""
    store.execute("CREATE SCHEMA shop")
    store.execute(TABLE.replace("key bytea, ", ""))
    made = reaching(whole_feed("orders", store.connect(), lake), store.settings.url, **{RECORDS: DECODED})
    made.decoding = JSON
    produce(made)
    produce(made)
    return made


def decoding_from_the_first_batch_on(feed: WholeFeed) -> None:
    decode_into_a_table(feed)
    produce(feed)
    produce(feed)


def rows_in(feed: WholeFeed) -> list[tuple[int, int]]:
    if feed.settings.output.format == "postgresql":
        return sorted(map(tuple, in_database(feed, "SELECT kafka_partition, kafka_offset FROM shop.orders")))
    return sorted(record[1:3] for record in reading(feed)(feed.output, feed.access))


def reading(feed: WholeFeed) -> Callable[[Path, Any], list[Record]]:
    return records_in_table if feed.settings.output.format == "delta" else records_in_iceberg


def in_database(feed: WholeFeed, query: str) -> list[Any]:
    found: list[Any] = []
    feed.sink.in_transaction(lambda connection: found.extend(connection.exec_driver_sql(query)) or True)
    return found


def letters_in(feed: WholeFeed) -> list[tuple[int, int]]:
    """Return what `dead-letters` shows."""
    rows = feed.control.coverage(feed.settings.name)
    found = list(dead_letters_of(rows, feed.control, feed.sinks, samples=99))
    assert [each.problem for each in found if each.problem is not None] == []
    samples = [sample for cause in by_cause(found, 99) for sample in cause.samples]
    return sorted((each.topic_partition.partition, each.offset) for each in samples)


def every(feed: WholeFeed) -> list[tuple[int, int]]:
    return sorted((partition, offset) for _, partition, offset, _ in feed.log.records)


def test_every_record_is_a_row_or_a_dead_letter_beside_the_table_and_is_replayed_once(feed: WholeFeed) -> None:
    at_rest(feed)
    assert letters_in(feed) == sorted(set(every(feed)) - set(rows_in(feed))) == DEAD
    assert differences(feed) == []

    feed.decoding = TEXT
    assert len(replay(feed)) == 1
    assert sorted([*rows_in(feed), *letters_in(feed)]) == every(feed)
    assert letters_in(feed) == [(0, 5), (1, 5)]
    replay(feed, actor="another run")
    assert sorted([*rows_in(feed), *letters_in(feed)]) == every(feed)
    assert differences(feed) == []

    [first, *_] = sorted(feed.states())
    assert give_up_dead_letters(first, feed.control, feed.sinks, reason="test data", actor="ops") == len(DEAD)
    assert differences(feed) == []


@pytest.mark.parametrize("died_before", ["letters.publish", "control.complete_commit"])
def test_a_crash_between_rows_dead_letters_and_offsets_is_repaired_also_by_adopting(
    feed: WholeFeed, died_before: str
) -> None:

    stop_before(feed, died_before)
    rebuilt = replace(feed, control=InMemoryControlTables())
    decision = decide_adoption(feed.settings, rebuilt.control, feed.sink)
    adopt(decision, rebuilt.control, feed.sink, reason="tables lost", actor="ops", letters=feed.letters)
    at_rest(rebuilt)
    assert sorted([*rows_in(rebuilt), *DEAD]) == every(rebuilt)
    [letters] = rebuilt.letters.publisher.published_receipts()
    assert (letters.receipt.rows, letters.files.state) == (len(DEAD), FilesState.INTACT)


def test_a_restored_batch_brings_its_dead_letters_along(feed: WholeFeed) -> None:
    restored(feed)
    assert letters_in(feed) == DEAD
    assert sorted([*rows_in(feed), *DEAD]) == every(feed)
    assert differences(feed) == []


def restored(feed: WholeFeed) -> None:
    """Abandon a batch that is written, and restore it."""
    stop_before(feed, "control.begin_commit")
    [batch_id] = feed.states()
    abandon(batch_id, feed.control, feed.sinks, reason="too soon", actor="ops")
    decision = decide_restore(batch_id, feed)
    for each in restore(decision, feed, reason="it was not", actor="ops"):
        feed.commit(each, "ops")


# ── Beside other programs, earlier versions and damage ────────────────────────────────────────────────────────────────

in_a_store = pytest.mark.parametrize(
    "feed", [pytest.param(("delta", True), marks=pytest.mark.long)], indirect=True, ids=["delta in S3"]
)
on_a_disk = pytest.mark.parametrize("feed", [("delta", False), ("iceberg", False)], indirect=True, ids=str)


def rows_of_letters(feed: WholeFeed) -> list[tuple[int, int]]:
    """Return what other readers of the table find."""
    place = output_of_dead_letters(feed.settings.output).place
    return sorted(record[1:3] for record in reading(feed)(Path(f"/{local_part(place)}"), feed.access))


def local_part(place: Place) -> str:
    return str(place).removeprefix("/") if isinstance(place, Path) else place.key


@pytest.mark.parametrize(
    "feed",
    [
        ("delta", False),
        ("iceberg", False),
        pytest.param(("delta", True), marks=pytest.mark.long),
        pytest.param(("iceberg", True), marks=pytest.mark.long),
    ],
    indirect=True,
    ids=str,
)
def test_readers_find_dead_letters_as_a_table_of_the_same_kind_and_given_up_ones_no_more(feed: WholeFeed) -> None:
    at_rest(feed)
    produce(feed)
    at_rest(feed)
    first, second = sorted(feed.states())
    assert rows_of_letters(feed) == letters_in(feed)
    give_up_dead_letters(first, feed.control, feed.sinks, reason="test data", actor="ops")
    assert rows_of_letters(feed) == letters_in(feed) == [each for each in letters_in(feed) if each not in DEAD]
    give_up_dead_letters(second, feed.control, feed.sinks, reason="test data", actor="ops")
    assert (rows_of_letters(feed), differences(feed)) == ([], [])


@on_a_disk
def test_dead_letters_that_another_program_has_put_into_other_files_are_counted_replayed_and_given_up(
    feed: WholeFeed,
) -> None:
    at_rest(feed)
    produce(feed)
    at_rest(feed)
    before, [first, _] = letters_in(feed), sorted(feed.states())
    rewrite(feed)
    assert (rows_of_letters(feed), letters_in(feed), differences(feed)) == (before, before, [])
    feed.decoding = TEXT
    replay(feed, request_of(first))
    still_dead = [(0, 5), (1, 5)]
    assert letters_in(feed) == sorted([*still_dead, *(each for each in before if each not in DEAD)])
    assert (sorted([*rows_in(feed), *letters_in(feed)]), differences(feed)) == (every(feed), [])
    if feed.settings.output.format == "delta":  # PyIceberg would not copy the other rows of a file unchanged
        give_up_dead_letters(first, feed.control, feed.sinks, reason="test data", actor="ops")
        assert (rows_of_letters(feed), differences(feed)) == (letters_in(feed), [])


@pytest.mark.parametrize("feed", [("delta", False)], indirect=True, ids=str)
def test_what_others_do_to_the_table_is_seen(feed: WholeFeed) -> None:
    at_rest(feed)
    [batch_id] = feed.states()
    rewrite(feed)
    table = deltalake.DeltaTable(str(output_of_dead_letters(feed.settings.output).path))
    table.alter.add_columns([deltalake.Field("schema_id", "long")])  # as a later version may
    [problem_free] = dead_letters_of(feed.control.coverage(feed.settings.name), feed.control, feed.sinks, samples=9)
    assert problem_free.problem is None
    reader, attempt = feed.letters.dead_letters, feed.output.parent / "attempt"
    reader.bring(batch_id, attempt)
    [brought] = reader.files(batch_id, attempt)
    assert pyarrow.parquet.read_table(brought)["schema_id"].null_count == len(DEAD)

    (feed.output.with_name(f"{feed.output.name}_dead_letters") / "kafka_batch=strange").mkdir()
    table.delete("kafka_offset = 5")
    [found] = dead_letters_of(feed.control.coverage(feed.settings.name), feed.control, again(feed).sinks, samples=9)
    assert "expected 7 dead letters in" in str(found.problem)
    assert "found 5" in str(found.problem)
    with pytest.raises(OutputUnavailableError, match="expected 7 dead letters in"):
        replay(again(feed))


@pytest.mark.parametrize("feed", [("delta", False)], indirect=True, ids=str)
def test_a_batch_that_others_have_rewritten_in_part_leaves_by_one_commit(feed: WholeFeed) -> None:
    at_rest(feed)
    [batch_id] = feed.states()
    place = str(output_of_dead_letters(feed.settings.output).path)
    deltalake.DeltaTable(place).delete("kafka_partition = 1 and kafka_offset = 5")
    versions = deltalake.DeltaTable(place).version()
    give_up_dead_letters(batch_id, feed.control, feed.sinks, reason="test data", actor="ops")
    assert (deltalake.DeltaTable(place).version(), rows_of_letters(feed)) == (versions + 1, [])


def rewrite(feed: WholeFeed) -> None:
    """Put all dead letters into one file, and delete those that they were in."""
    place = output_of_dead_letters(feed.settings.output).path
    if feed.settings.output.format == "delta":
        table = deltalake.DeltaTable(str(place))
        table.optimize.compact()
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    else:
        found = table_at(place)
        found.overwrite(found.scan().to_arrow())
        for path in place.glob("data/batches/**/*.parquet"):
            path.unlink()


@on_a_disk
def test_dead_letters_whose_files_are_lost_are_named_and_can_be_given_up(feed: WholeFeed) -> None:
    at_rest(feed)
    [batch_id] = feed.states()
    place = output_of_dead_letters(feed.settings.output).path
    for path in place.glob("**/batches/**/*.parquet"):
        path.unlink()
    [found] = dead_letters_of(feed.control.coverage(feed.settings.name), feed.control, feed.sinks, samples=9)
    assert "found no file there" in str(found.problem)
    assert differences(feed) != []
    assert give_up_dead_letters(batch_id, feed.control, feed.sinks, reason="disk broke", actor="ops") == len(DEAD)
    assert (rows_of_letters(feed), differences(feed)) == ([], [])


def again(feed: WholeFeed) -> WholeFeed:
    """Return the feed as another process finds it."""
    letters = sink_of(output_of_dead_letters(feed.settings.output), connections_beside(feed.output))
    return replace(feed, letters=letters)


@pytest.fixture
def earlier_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stage dead letters without their batch's id for some time, as an earlier version does."""
    real = whole_feed_module.dead_letters_of
    with monkeypatch.context() as patched:
        patched.setattr(whole_feed_module, "dead_letters_of", lambda records, _: real(records, None))
        yield


def staged_letters(feed: WholeFeed) -> list[Path]:
    [batch_id] = feed.states()
    [attempt] = feed.control.attempts(batch_id)
    return sorted(local(staged_dead_letters(attempt.directory) / "data").iterdir())


@on_a_disk
@pytest.mark.usefixtures("earlier_version")
def test_dead_letters_that_an_earlier_version_staged_are_files_and_later_ones_too(feed: WholeFeed) -> None:
    stop_before(feed, "letters.publish")
    feed = again(feed)
    at_rest(feed)
    output = output_of_dead_letters(feed.settings.output)
    for _ in range(2):
        feed = again(feed)
        assert [each.name.partition("=")[0] for each in output.path.iterdir()] == ["kafka_batch"] * len(feed.states())
        assert (sorted([*rows_in(feed), *letters_in(feed)]), differences(feed)) == (every(feed), [])
        produce(feed)
        at_rest(feed)
    feed.decoding = TEXT
    assert len(replay(feed)) == 1
    assert sorted([*rows_in(feed), *letters_in(feed)]) == every(feed)


@on_a_disk
@pytest.mark.usefixtures("earlier_version")
def test_restored_dead_letters_of_an_earlier_version_are_files_too(feed: WholeFeed) -> None:
    restored(feed)
    feed = again(feed)
    assert (letters_in(feed), differences(feed)) == (DEAD, [])


@pytest.mark.parametrize("feed", [("delta", False)], indirect=True, ids=str)
@pytest.mark.usefixtures("earlier_version")
@pytest.mark.parametrize("died_before", ["control.begin_commit", "letters.publish"])
def test_dead_letters_that_an_earlier_version_staged_go_into_a_table_that_another_batch_has_made(
    feed: WholeFeed, died_before: str
) -> None:
    stop_before(feed, died_before)
    record = feed.log.records[0]
    made = pyarrow.parquet.read_table(pa.BufferReader(parquet_of([record], batch_id=uuid6.uuid7(), decided={})))
    place = output_of_dead_letters(feed.settings.output).path
    causes = [pa.field(name, pa.string()) for name in ("error_part", "error_class", "error")]
    deltalake.write_deltalake(str(place), pa.schema([*made.schema, *causes]).empty_table())
    feed = again(feed)
    at_rest(feed)
    assert (rows_of_letters(feed), letters_in(feed), differences(feed)) == (DEAD, DEAD, [])
    feed.letters.publisher.publish(*published_letters(feed))  # once more
    assert rows_of_letters(feed) == DEAD


def published_letters(feed: WholeFeed) -> tuple[Place, PublishedReceipt]:
    [batch_id] = feed.states()
    [attempt] = feed.control.attempts(batch_id)
    published = feed.sink.archive.published_receipt(batch_id)
    letters = PublishedReceipt(published.plan, published.receipt.of_dead_letters(), ())
    return staged_dead_letters(attempt.directory), letters


@on_a_disk
def test_a_publisher_that_is_late_changes_nothing_also_after_the_staged_letters_are_gone(feed: WholeFeed) -> None:
    at_rest(feed)
    directory, published = published_letters(feed)
    shutil.rmtree(str(directory))
    again(feed).letters.publisher.publish(directory, published)
    assert (rows_of_letters(feed), letters_in(feed)) == (DEAD, DEAD)


def test_copies_come_to_their_place_at_once_and_are_never_written_over(tmp_path: Path, monkeypatch: Any) -> None:
    source, target = tmp_path / "staged", tmp_path / "table" / "batch" / "1"
    source.mkdir()
    files = {name: WrittenFile.of_one(name=name, size_bytes=4, rows=1, **POSITION_OF_FILE) for name in ("a", "b")}
    for name in files:
        (source / name).write_text("data")
    receipt: Any = SimpleNamespace(files=tuple(files.values()))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dies)
        with pytest.raises(Died):
            copy_at_once(source, target, receipt)
    assert not target.exists()
    target.mkdir(parents=True)  # as VACUUM leaves it
    copy_at_once(source, target, receipt)
    with pytest.raises(Died):
        copy_at_once(source, tmp_path / "other", receipt, dies)
    copy_at_once(source, target, receipt, dies)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"a": "data", "b": "data"}


POSITION_OF_FILE: dict[str, Any] = {
    "topic_partition": TopicPartition("orders", 0),
    "smallest_offset": 0,
    "largest_offset": 0,
    "without_date": 0,
}


def dies(*_: object) -> None:
    raise Died


@on_a_disk
@pytest.mark.parametrize("content", [b"damaged", None], ids=["shorter", "of the same size"])
def test_damaged_staged_letters_are_written_again_and_while_committing_named(
    feed: WholeFeed, content: bytes | None
) -> None:
    stop_before(feed, "control.begin_commit")
    for path in staged_letters(feed):
        path.write_bytes(content or b"x" * path.stat().st_size)
    feed = again(feed)
    assert len(Scheduler().run_until_rest(feed)) <= 1
    assert (rows_of_letters(feed), differences(feed)) == (DEAD, [])


@on_a_disk
def test_letters_that_are_damaged_while_committing_are_named_and_can_be_given_up(feed: WholeFeed) -> None:
    stop_before(feed, "letters.publish")
    for path in staged_letters(feed):
        path.write_bytes(b"x" * path.stat().st_size)
    feed = again(feed)
    [batch_id] = feed.states()
    with pytest.raises(OutputConflictError, match="its dead letters cannot be, and no offset was moved"):
        feed.commit(batch_id, "run 2")
    give_up_dead_letters(batch_id, feed.control, feed.sinks, reason="disk broke", actor="ops")
    at_rest(again(feed))
    assert (letters_in(feed), differences(feed)) == ([], [])


@on_a_disk
def test_a_table_that_cannot_be_made_stops_a_batch_before_its_rows_are_published(
    feed: WholeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OutputUnavailableError("no right to create orders_dead_letters")

    with monkeypatch.context() as patched:
        patched.setattr(feed.letters.publisher, "_make", refused)
        failures = Scheduler()
        with pytest.raises(OutputUnavailableError, match="no right to create"):
            failures.resume(feed)
    assert set(feed.states().values()) == {BatchState.WRITTEN}
    at_rest(feed)
    assert (rows_of_letters(feed), differences(feed)) == (DEAD, [])


@on_a_disk
@pytest.mark.usefixtures("earlier_version")
def test_files_that_were_given_up_are_deleted_also_after_a_crash_in_between(
    feed: WholeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_rest(feed)
    [batch_id] = feed.states()
    with monkeypatch.context() as patched:
        patched.setattr(ParquetRemover, "delete_hidden", dies)
        with pytest.raises(Died):
            give_up_dead_letters(batch_id, feed.control, again(feed).sinks, reason="duty", actor="ops")
    give_up_dead_letters(batch_id, feed.control, again(feed).sinks, reason="duty", actor="ops")
    beside = feed.output.with_name(f"{feed.output.name}_dead_letters.kafka-ingest")
    assert list(beside.rglob("*.parquet")) == []


# ── In a store ────────────────────────────────────────────────────────────────────────────────────────────────────────


@in_a_store
def test_copies_that_a_crash_cut_short_are_made_again_and_counted_once_their_receipt_is_kept(
    feed: WholeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[None] = []

    def dies_at_the_second(*arguments: Any) -> None:
        if len(copied) == 1:
            raise Died
        copied.append(copy_file(*arguments))

    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "copy_at_once", partial(copy_at_once, copy=dies_at_the_second))
        with pytest.raises(Died):
            at_rest(feed)
    assert letters_in(feed) == []
    [batch_id] = feed.states()
    feed.commit(batch_id, "run 2")
    assert feed.letters.publisher.known_batches() == [str(batch_id)]
    assert letters_in(feed) == DEAD
    assert differences(feed) == []


@in_a_store
@pytest.mark.parametrize("kind", ["lose the answer", "cut"])
def test_a_copy_that_fails_or_whose_answer_is_lost_leaves_the_batch_to_the_next_run(
    feed: WholeFeed, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_s3_try_at_once(monkeypatch)
    stop_before(feed, "letters.publish")
    [batch_id] = feed.states()
    store = ObjectStore.running()
    with (
        store.failing(StoreFault(r"PUT .*orders_dead_letters/batches", kind)),
        pytest.raises(OutputUnavailableError),
    ):
        feed.commit(batch_id, "run 1")
    assert feed.states() == {batch_id: BatchState.COMMITTING}
    at_rest(feed)
    assert letters_in(feed) == DEAD
    assert differences(feed) == []


@in_a_store
def test_cleaning_up_and_expiring_take_staged_letters_and_rows_and_leave_published_letters(feed: WholeFeed) -> None:
    stop_before(feed, "spark.write_receipt")
    at_rest(feed)
    [batch_id] = feed.states()
    attempts = [opened(each.directory, feed.access) for each in feed.control.attempts(batch_id)]
    assert all("dead-letters" in str(remote_sizes(each)) for each in attempts)
    staged = staged_outputs_of_batch(batch_id, feed.control, feed.sinks)
    assert [each.kept for each in clean_up(staged, feed.control, feed.sinks)] == [None, None]
    assert [remote_sizes(each) for each in attempts] == [{}, {}]
    assert (letters_in(feed), differences(feed)) == (DEAD, [])

    produce(feed)
    at_rest(feed)
    before = letters_in(feed)
    decision = decide_expiry(feed.settings, datetime.now(UTC), feed.control, feed.sinks)
    assert list(expire(decision, feed.control, feed.sink, reason="old", actor="ops")) == [batch_id]
    assert (letters_in(feed), differences(feed)) == (before, [])
    feed.decoding = TEXT
    assert replay(feed, request_of(batch_id)) == [], "of what has expired nothing is replayed"


@in_a_store
def test_a_missing_object_is_named_by_coverage_and_stops_a_replay(feed: WholeFeed) -> None:
    at_rest(feed)
    [batch_id] = feed.states()
    place = output_of_dead_letters(feed.settings.output).place
    folder = opened(place / f"batches/{batch_id}/1", feed.access)
    names = sorted(remote_sizes(folder))
    remove_file(folder / names[0])
    assert any("expected 4" in each or "4 " in each for each in map(str, differences(feed)))
    [found] = feed.letters.publisher.published_receipts()
    assert (found.files.state.value, names[0] in found.files.difference) == ("changed", True)
    feed.decoding = TEXT
    with pytest.raises(OutputUnavailableError, match=f"expected its dead letters in .*{names[0]}, found no file there"):
        replay(feed, request_of(batch_id))
