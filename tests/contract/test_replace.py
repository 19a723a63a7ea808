"""A range's rows are replaced by what Kafka still holds of it: over a real table, with real control tables.

The offsets stay committed by the batch that read them first; every question has to say both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from deltalake import DeltaTable
from tests.contract.every_record_once import records_in_iceberg, records_in_table
from tests.contract.interference import Died, OtherWorlds, changes_the_world, dying_at, is_of_a_part, watched
from tests.contract.lives import Feeds, feeds_in
from tests.contract.whole_feed import TOPIC, WholeFeed, at_rest
from tests.fakes import GROUP, InMemoryControlTables, log, topic

from kafka_ingest.batches.backfill_request import BackfillRequest, Mode, OfBatch, OffsetRanges
from kafka_ingest.batches.plan_backfill import plan_backfill
from kafka_ingest.batches.restore import decide_restore
from kafka_ingest.errors import (
    BatchStateError,
    InvalidBackfillError,
    KafkaIngestError,
    NotOfThisFormatError,
    OffsetsMovedError,
    RangesTakenError,
    RecordsDeletedError,
)
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, span_of
from kafka_ingest.model.read_again import RowsReplaced
from kafka_ingest.observing.locate import OffsetState, RecordState, locate
from kafka_ingest.observing.verify_output import count_batches
from kafka_ingest.verbs.adopt import adopt, decide_adoption
from kafka_ingest.verbs.expire import decide_expiry, expire
from kafka_ingest.verbs.locate import describe_offset

pytestmark = pytest.mark.long  # three batches in a table for each, and then others
RUN = "airflow:backfill_offsets/manual__1"
FIRST = OffsetRange(TopicPartition(TOPIC, 0), 0, 5)
SECOND = OffsetRange(TopicPartition(TOPIC, 0), 5, 10)
OTHER = OffsetRange(TopicPartition(TOPIC, 1), 0, 3)


@pytest.fixture
def feed(request: pytest.FixtureRequest, lake: Path) -> Iterator[WholeFeed]:
    with feeds_in("sqlite", request, lake, "delta") as made:
        yield made.new(changed_by_hand)


@contextmanager
def killed_at(owner: object, step: str) -> Iterator[None]:
    """End the process where it would take a step."""

    def dies(*_arguments: object, **_named: object) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, step, dies)
        with pytest.raises(Died):
            yield


def changed_by_hand(feed: WholeFeed) -> None:
    """The same feed, after somebody has changed rows of its first batch."""
    of_three_batches(feed)
    DeltaTable(str(feed.output)).update(
        predicate="kafka_partition = 0 and kafka_offset < 5", updates={"value": "arrow_cast('by hand', 'Binary')"}
    )


def of_three_batches(feed: WholeFeed) -> None:
    """A feed with two batches in partition 0, the first of them in partition 1, too, and one in partition 2."""
    for count in (3, 0):
        feed.log.produce(0, 3)
        feed.log.append_markers(0, 1)
        feed.log.produce(0, 1)
        feed.log.produce(1, count)
        at_rest(feed)
    feed.log.produce(2, 1)
    at_rest(feed)


def request_of(*ranges: OffsetRange, max_records: int = 5) -> BackfillRequest:
    return BackfillRequest(OffsetRanges(ranges), asked={}, mode=Mode.REPLACE, max_records=max_records)


def planned(feed: WholeFeed, *ranges: OffsetRange, actor: str = RUN, **how: int) -> list[UUID]:
    request = request_of(*ranges, **how)
    outcome = plan_backfill(request, feed.settings, feed, actor=actor, once=True)
    return [chunk.batch_id for chunk in outcome.chunks]


def finish(feed: WholeFeed, batches: list[UUID]) -> None:
    for batch_id in batches:
        feed.write(batch_id, RUN)
        feed.commit(batch_id, RUN)


def replace_both(feed: WholeFeed) -> None:
    """Do what the run of the DAG does, chunk after chunk."""
    finish(feed, planned(feed, FIRST, SECOND, OTHER))


def resume_what_is_open(feed: WholeFeed) -> None:
    """Do what an operator does with the command line, and replace what was not planned yet."""
    open_ones = feed.control.open_backfills(feed.snapshot().feed_id)
    finish(feed, [batch.batch_id for batch in open_ones])
    if not open_ones:
        replace_both(feed)


def differences(feed: WholeFeed) -> list[str]:
    rows = feed.control.coverage(feed.settings.name)
    return [str(each) for batch in count_batches(rows, feed.control, feed.sinks) for each in batch.differences]


def assert_replaced(feed: WholeFeed, *, ranges: int = 13) -> None:
    """Hold the table and the books against what was produced: every record once, as Kafka has it."""
    records_in = records_in_iceberg if feed.settings.output.format == "iceberg" else records_in_table
    assert records_in(feed.output) == sorted(feed.log.records)
    ends = feed.log.end_offsets
    assert {tp: row.next_offset for tp, row in feed.snapshot().stored.items()} == ends
    assert feed.kafka.groups[GROUP] == ends
    coverage = coverage_of(feed.control.coverage(feed.settings.name))
    assert [partition.problems for partition in coverage.values()] == [[], [], []]
    assert sum(span_of(partition.live) for partition in coverage.values()) == sum(ends.values())
    assert sum(span_of(partition.replaced) for partition in coverage.values()) == ranges
    assert differences(feed) == []
    assert feed.control.open_backfills(feed.snapshot().feed_id) == []


# ── What it does ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_that_were_changed_by_hand_are_again_what_kafka_holds_and_no_offset_moves(feed: WholeFeed) -> None:
    assert differences(feed) == []
    assert records_in_table(feed.output) != sorted(feed.log.records)
    replace_both(feed)
    assert_replaced(feed)


def test_a_batch_names_what_is_replaced_and_may_be_replaced_again(feed: WholeFeed) -> None:
    replace_both(feed)
    again = planned(feed, FIRST, actor="somebody else")
    finish(feed, again)
    assert_replaced(feed)
    replacements = feed.control.coverage(feed.settings.name).replacements
    [was] = {each.replaced.batch_id for each in replacements if each.by == again[0]}
    assert feed.control.batch(was).plan.kind is BatchKind.REPLACE
    request = BackfillRequest(OfBatch(again[0]), asked={}, mode=Mode.REPLACE)
    decision = plan_backfill(request, feed.settings, feed, actor=None).decision
    assert decision.chunks == [(FIRST,)]


def test_a_dry_run_shows_rows_files_and_batches_and_writes_nothing(feed: WholeFeed) -> None:
    before = feed.snapshot().revision
    decision = plan_backfill(request_of(FIRST, OTHER), feed.settings, feed, actor=None).decision
    # One was changed by hand, and its rows are in another file since.
    assert decision.rows_replaced == RowsReplaced(rows=7, files=2, rewritten=0)
    assert decision.chunks == [(FIRST,), (OTHER,)]
    assert feed.snapshot().revision == before


def test_an_offset_is_found_in_the_new_file_and_stays_committed_by_the_batch_that_read_it(
    feed: WholeFeed,
) -> None:
    replace_both(feed)
    found = locate(feed.control, feed.sinks, feed.settings.name, FIRST.topic_partition, 1)
    assert (found.state, found.deciding and found.deciding.batch.kind) == (OffsetState.COMMITTED, BatchKind.LIVE)
    assert f"batch {found.batches[0].batch.batch_id} has replaced its rows of orders-0[0, 5)" in describe_offset(found)
    assert [(each.batch.kind, each.record) for each in found.batches] == [
        (BatchKind.REPLACE, RecordState.IN_FILE),
        (BatchKind.LIVE, RecordState.REPLACED),
    ]


def test_an_offset_stays_committed_where_its_row_is_about_to_be_replaced(feed: WholeFeed) -> None:
    planned(feed, FIRST)
    found = locate(feed.control, feed.sinks, feed.settings.name, FIRST.topic_partition, 1)
    assert (found.state, found.deciding and found.deciding.batch.kind) == (OffsetState.COMMITTED, BatchKind.LIVE)
    coverage = coverage_of(feed.control.coverage(feed.settings.name))
    assert [partition.problems for partition in coverage.values()] == [[], [], []]


# ── Lost control tables, expiry ───────────────────────────────────────────────────────────────────────────────────────


def test_lost_control_tables_are_rebuilt_with_what_was_replaced(feed: WholeFeed) -> None:
    replace_both(feed)
    rebuilt = replace(feed, control=InMemoryControlTables())
    decision = decide_adoption(feed.settings, rebuilt.control, feed.sink)
    assert decision.adoption.files == {}
    assert decision.adoption.expired == []
    adopt(decision, rebuilt.control, feed.sink, reason="lost", actor="ops")
    assert_replaced(rebuilt)
    wanted = [FIRST, SECOND, OTHER]
    held = feed.control.held_ranges(feed.snapshot().feed_id, wanted)
    assert rebuilt.control.held_ranges(feed.snapshot().feed_id, wanted) == held
    assert decide_adoption(feed.settings, rebuilt.control, feed.sink).is_nothing


def test_control_tables_that_were_lost_while_rows_were_replaced_are_rebuilt_with_the_replacement_finished(
    feed: WholeFeed,
) -> None:
    [batch_id] = planned(feed, FIRST)
    feed.write(batch_id, RUN)
    with killed_at(DeltaTable, "create_write_transaction"):
        feed.commit(batch_id, RUN)
    rebuilt = replace(feed, control=InMemoryControlTables())
    decision = decide_adoption(feed.settings, rebuilt.control, feed.sink)
    assert [published.plan.batch_id for published in decision.to_publish] == [batch_id]
    adopt(decision, rebuilt.control, feed.sink, reason="lost", actor="ops")
    assert_replaced(rebuilt, ranges=5)


def test_replaced_rows_expire_with_the_batch_that_holds_them_now(feed: WholeFeed) -> None:
    replace_both(feed)
    later = datetime.now(UTC) + timedelta(days=1)
    decision = decide_expiry(feed.settings, later, feed.control, feed.sinks)
    assert decision.rows == len(feed.log.records) - 1
    expired = list(expire(decision, feed.control, feed.sink, reason="old", actor="ops"))
    assert len(expired) == len(feed.states()) - 1
    coverage = coverage_of(feed.control.coverage(feed.settings.name))
    assert span_of(each for partition in coverage.values() for each in partition.expired) == 13
    assert differences(feed) == []
    with pytest.raises(InvalidBackfillError, match=r"orders-0\[0, 5\) have expired"):
        planned(feed, FIRST, actor="somebody else")


def test_rows_of_the_newest_batch_which_stays_expire_with_the_one_that_replaced_them(feed: WholeFeed) -> None:
    finish(feed, planned(feed, OffsetRange(TopicPartition(TOPIC, 2), 0, 1)))
    decision = decide_expiry(feed.settings, datetime.now(UTC) + timedelta(days=1), feed.control, feed.sinks)
    list(expire(decision, feed.control, feed.sink, reason="old", actor="ops"))
    assert records_in_table(feed.output) == []
    coverage = coverage_of(feed.control.coverage(feed.settings.name))
    assert span_of(each for partition in coverage.values() for each in partition.expired) == 14


def test_an_iceberg_table_says_the_same_after_its_control_tables_were_lost(lake: Path) -> None:
    feed = Feeds(lake, InMemoryControlTables, "iceberg").new(of_three_batches)
    replace_both(feed)
    assert_replaced(feed)
    rebuilt = replace(feed, control=InMemoryControlTables())
    adopt(decide_adoption(feed.settings, rebuilt.control, feed.sink), rebuilt.control, feed.sink, reason="l", actor="o")
    assert_replaced(rebuilt)


# ── Crashes and rivals ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("recovery", [replace_both, resume_what_is_open])
def test_a_crash_at_any_instant_ends_with_every_record_once_as_kafka_has_it(
    lake: Path, recovery: Callable[[WholeFeed], None]
) -> None:
    # An operator finds what the control tables have; before they change, what the run finds is the same.
    start = "after control." if recovery is resume_what_is_open else "after "
    feeds = Feeds(lake, InMemoryControlTables, "delta")
    calm = feeds.new(changed_by_hand)
    others = OtherWorlds(calm, lambda name: is_of_a_part(name) and changes_the_world(name))
    with watched(calm, others.look) as (seen, instants):
        replace_both(seen)
    assert_replaced(calm)
    names = instants.names
    assert {"after control.record_backfill", "after control.complete_commit"} <= {names[each] for each in others.found}
    beginning = feeds.beginning(changed_by_hand)
    # Of a step that each chunk takes its first and its last time: with none done before, and with none left.
    last = {names[each]: each for each in others.found if names[each].startswith(start)}
    first = {name: others.found[[names[each] for each in others.found].index(name)] for name in last}
    for instant in sorted({*first.values(), *last.values()}):
        feed, _ = beginning.again()
        with watched(feed, dying_at(instant)) as (doomed, _), pytest.raises(Died):
            replace_both(doomed)
        try:
            recovery(feed)
            assert_replaced(feed)
        except BaseException as error:
            error.add_note(f"after a crash {names[instant]}, number {instant}")
            raise


def test_of_two_at_once_the_second_is_refused_and_names_the_first(feed: WholeFeed) -> None:
    [first] = planned(feed, FIRST)
    with pytest.raises(RangesTakenError, match=str(first)):
        planned(feed, FIRST, SECOND, actor="somebody else")
    feed.control.abandon(first, reason="not wanted", actor="ops")
    finish(feed, planned(feed, FIRST, actor="somebody else"))
    assert_replaced(feed, ranges=5)


def test_a_batch_whose_rows_are_about_to_be_replaced_does_not_expire(feed: WholeFeed) -> None:
    [batch_id] = planned(feed, FIRST)
    decision = decide_expiry(feed.settings, datetime.now(UTC) + timedelta(days=1), feed.control, feed.sinks)
    assert [why for why in decision.kept.values() if str(batch_id) in why] == [
        f"batch {batch_id} is about to replace its rows"
    ]


def test_rows_that_expire_before_their_replacement_is_published_stay_expired(feed: WholeFeed) -> None:
    decision = decide_expiry(feed.settings, datetime.now(UTC) + timedelta(days=1), feed.control, feed.sinks)
    [batch_id] = planned(feed, FIRST)
    feed.write(batch_id, RUN)
    list(expire(decision, feed.control, feed.sink, reason="old", actor="ops"))
    before = records_in_table(feed.output)
    with pytest.raises(OffsetsMovedError, match=r"orders-0\[0, 5\)|not there any more"):
        feed.commit(batch_id, RUN)
    assert records_in_table(feed.output) == before


def test_rows_whose_expiry_was_decided_before_they_were_replaced_do_not_count_as_expired(feed: WholeFeed) -> None:
    decision = decide_expiry(feed.settings, datetime.now(UTC) + timedelta(days=1), feed.control, feed.sinks)
    finish(feed, planned(feed, FIRST))
    list(expire(decision, feed.control, feed.sink, reason="old", actor="ops"))
    coverage = coverage_of(feed.control.coverage(feed.settings.name))
    expired = [each for partition in coverage.values() for each in partition.expired]
    assert expired == [SECOND, OTHER]
    assert [row[1:3] for row in records_in_table(feed.output)][:4] == [(0, 0), (0, 1), (0, 2), (0, 4)]
    assert differences(feed) == []


def test_an_abandoned_replacement_is_not_restored_since_the_rows_are_there(feed: WholeFeed) -> None:
    [batch_id] = planned(feed, FIRST)
    feed.write(batch_id, RUN)
    feed.control.abandon(batch_id, reason="not wanted", actor="ops")
    with pytest.raises(BatchStateError, match="replace its ranges again"):
        decide_restore(batch_id, feed)


# ── What is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


def part(start: int, end: int) -> OffsetRange:
    return OffsetRange(FIRST.topic_partition, start, end)


REFUSED: dict[str, tuple[OffsetRange, type[KafkaIngestError], str]] = {
    "a part": (part(0, 4), InvalidBackfillError, r"Name these: orders:0=0-5\."),
    "parts of two": (part(3, 7), InvalidBackfillError, r"Name these: orders:0=0-10\."),
    "beyond": (part(5, 12), InvalidBackfillError, "below the stored offset"),
}


@pytest.mark.parametrize("harm", REFUSED)
def test_what_cannot_be_replaced_is_refused_by_name_before_anything_is_planned(feed: WholeFeed, harm: str) -> None:
    wanted, error, said = REFUSED[harm]
    before = feed.snapshot().revision
    with pytest.raises(error, match=said):
        planned(feed, wanted)
    assert feed.snapshot().revision == before


def test_records_that_retention_has_deleted_are_never_dropped_and_what_is_left_is_named(feed: WholeFeed) -> None:
    logs = (log(5, feed.log.ends[0]), *(log(0, feed.log.ends[each]) for each in (1, 2)))
    feed.kafka.topics[TOPIC] = topic(*logs)
    with pytest.raises(RecordsDeletedError, match=r"orders-0\[0, 5\) \(5 offsets\).* Name what can.*: orders:0=5-10\."):
        planned(feed, FIRST, SECOND)
    finish(feed, planned(feed, SECOND))
    assert differences(feed) == []


def test_records_that_compaction_has_deleted_are_found_before_the_commit(feed: WholeFeed) -> None:
    before = records_in_table(feed.output)
    feed.log.records.remove((TOPIC, 0, 1, b"orders-0@1"))
    [batch_id] = planned(feed, FIRST)
    feed.write(batch_id, RUN)
    with pytest.raises(RecordsDeletedError, match=r"1 of them: orders-0\[1, 2\)"):
        feed.commit(batch_id, RUN)
    assert records_in_table(feed.output) == before
    assert feed.states()[batch_id] is BatchState.WRITTEN


def test_rows_that_were_lost_before_and_that_kafka_holds_no_longer_are_not_forgotten(feed: WholeFeed) -> None:
    DeltaTable(str(feed.output)).delete("kafka_partition = 0 and kafka_offset = 1")
    feed.log.records.remove((TOPIC, 0, 1, b"orders-0@1"))
    [said] = differences(feed)
    before = records_in_table(feed.output)
    [batch_id] = planned(feed, FIRST)
    feed.write(batch_id, RUN)
    with pytest.raises(RecordsDeletedError, match=r"orders-0\[0, 5\): 4 rows committed by batch .*, 3 read again"):
        feed.commit(batch_id, RUN)
    assert records_in_table(feed.output) == before
    assert feed.states()[batch_id] is BatchState.WRITTEN
    assert differences(feed) == [said]


def test_rows_that_were_lost_and_that_kafka_still_holds_are_there_again(feed: WholeFeed) -> None:
    DeltaTable(str(feed.output)).delete("kafka_partition = 0 and kafka_offset < 5")
    replace_both(feed)
    assert_replaced(feed)


def test_rows_of_a_batch_whose_expiry_has_begun_are_not_brought_back(feed: WholeFeed) -> None:
    [earlier] = planned(feed, SECOND)
    feed.write(earlier, RUN)
    decision = replace(
        decide_expiry(feed.settings, datetime.now(UTC) + timedelta(days=1), feed.control, feed.sinks), kept={}
    )
    every = list(feed.sink.publisher.published_receipts())
    with killed_at(feed.control, "record_removed"):
        list(expire(replace(decision, batches=every), feed.control, feed.sink, reason="old", actor="ops"))
    before = records_in_table(feed.output)
    with pytest.raises(OffsetsMovedError, match=r"orders-0\[0, 5\) of batch .*, expired .*Run `expire` again"):
        planned(feed, FIRST, actor="somebody else")
    with pytest.raises(OffsetsMovedError, match=r"orders-0\[5, 10\) of batch .*, expired .*Run `expire` again"):
        feed.commit(earlier, RUN)
    assert records_in_table(feed.output) == before


def test_a_range_that_is_lost_while_it_is_about_to_be_replaced_is_reported(feed: WholeFeed) -> None:
    [batch_id] = planned(feed, FIRST)
    feed.write(batch_id, RUN)
    assert differences(feed) == []
    DeltaTable(str(feed.output)).delete("kafka_partition = 0 and kafka_offset < 5")
    assert differences(feed) == ["orders-0[0, 5): expected 4 rows of 4 offsets from 0 to 4, found no rows"]


def test_a_range_that_was_replaced_by_a_batch_that_is_still_open_is_not_missing(feed: WholeFeed) -> None:
    [batch_id] = planned(feed, FIRST)
    feed.write(batch_id, RUN)
    with killed_at(feed.control, "complete_commit"):
        feed.commit(batch_id, RUN)
    assert feed.states()[batch_id] is BatchState.COMMITTING
    assert differences(feed) == []


def test_a_replacement_whose_own_rows_are_gone_has_replaced_others_however_often_tables_are_rebuilt(
    feed: WholeFeed,
) -> None:
    [batch_id] = planned(feed, FIRST)
    finish(feed, [batch_id])
    DeltaTable(str(feed.output)).delete(f"kafka_batch = '{batch_id}'")
    for _ in range(3):
        rebuilt = replace(feed, control=InMemoryControlTables())
        decision = decide_adoption(feed.settings, rebuilt.control, feed.sink)
        assert set(decision.adoption.files) <= {batch_id}
        adopt(decision, rebuilt.control, feed.sink, reason="lost", actor="ops")
        assert differences(rebuilt) == []


def test_a_directory_of_parquet_files_is_refused_by_name(lake: Path) -> None:
    feed = Feeds(lake, InMemoryControlTables).new(lambda made: made.log.produce(0, 5))
    at_rest(feed)
    with pytest.raises(NotOfThisFormatError, match="format parquet cannot replace rows in one commit"):
        planned(feed, FIRST)
