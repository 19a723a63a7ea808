"""Dead letters are decoded again from their own files: over a real output, with control tables in SQLite.

Each becomes a row once, or stays a dead letter with its new error; the offsets stay committed by the batch that read
them.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pyarrow.parquet
import pytest
from sqlalchemy import text
from tests.contract.conftest import SqlStore, sqlite_store
from tests.contract.every_record_once import records_in_output
from tests.contract.interference import Died, changes_the_world, dying_at, dying_before, is_of_a_part, watched
from tests.contract.lives import Feeds, feeds_in, produce, second_batch
from tests.contract.whole_feed import JSON, TEXT, TOPIC, WholeFeed, at_rest
from tests.fakes import GROUP, a_plan, span

from kafka_ingest.batches.backfill_request import BackfillRequest, Mode, OpenGaps, StoredDeadLetters
from kafka_ingest.batches.plan_backfill import BackfillOutcome, plan_backfill
from kafka_ingest.batches.plan_batch import next_batch_id
from kafka_ingest.batches.restore import decide_restore
from kafka_ingest.errors import (
    BatchStateError,
    InvalidBackfillError,
    InvalidReceiptError,
    OffsetsMovedError,
    OutputUnavailableError,
    RangesTakenError,
    RecordsDeletedError,
)
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.batch_limits import BatchLimits
from kafka_ingest.model.control_rows import BackfillRecord, ResetMove
from kafka_ingest.model.coverage import coverage_of, dead_letters_in, kept_of, replayed_in
from kafka_ingest.model.dead_letters import DecodingError, output_of_dead_letters
from kafka_ingest.model.decoding import RAW
from kafka_ingest.model.offsets import OffsetsPolicy, TopicPartition
from kafka_ingest.model.written_columns import Shape
from kafka_ingest.observing.locate import OffsetState, RecordState, locate
from kafka_ingest.observing.verify_output import count_batches, held_by_replays, holes_and_overlaps
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.adopt import adopt, decide_adoption
from kafka_ingest.verbs.clean import clean_up, staged_outputs_of_batch
from kafka_ingest.verbs.dead_letters import by_cause, dead_letters_of, give_up_dead_letters
from kafka_ingest.verbs.expire import decide_expiry, expire
from kafka_ingest.verbs.locate import describe_offset
from kafka_ingest.verbs.lost import decide_lost, record_lost

RUN = "airflow:backfill_offsets/manual__1"
DEAD = [(TOPIC, 0, 5), (TOPIC, 0, 7), (TOPIC, 0, 9), (TOPIC, 1, 3), (TOPIC, 1, 5)]
NO_TEXT = [(TOPIC, 0, 5), (TOPIC, 1, 5)]
"""What is no text either, after the feed's file was mended."""


@pytest.fixture
def feeds(sqlite: SqlStore, lake: Path) -> Feeds:
    """Feeds in SQLite."""
    return Feeds(lake, sqlite.connect)


@pytest.fixture
def feed(feeds: Feeds) -> WholeFeed:
    return feeds.new(with_dead_letters)


def with_dead_letters(feed: WholeFeed) -> None:
    """A feed that has read all there is; of its second batch five records could not be decoded. Its file is mended."""
    second_batch(feed)
    at_rest(feed)
    feed.decoding = TEXT


def of_one_batch(feed: WholeFeed) -> None:
    """A feed with one batch, of which seven records could not be decoded; now five of them can."""
    produce(feed)
    produce(feed)
    feed.decoding = JSON
    at_rest(feed)
    feed.decoding = TEXT


def request_of(
    batch_id: UUID | None = None, *causes: str, since: datetime | None = None, max_records: int = 100
) -> BackfillRequest:
    wanted = StoredDeadLetters(batch_id, since, frozenset(causes))
    return BackfillRequest(wanted, asked={}, mode=Mode.REPLAY, max_records=max_records)


def plan(feed: WholeFeed, request: BackfillRequest | None = None, actor: str | None = RUN) -> BackfillOutcome:
    request = request or request_of()
    return plan_backfill(request, feed.settings, feed, actor=actor, once=True)


def replay(feed: WholeFeed, request: BackfillRequest | None = None, actor: str = RUN) -> list[UUID]:
    """Do what the run of the DAG does: plan, or find what it planned before, and write and commit chunk after chunk."""
    batches = [chunk.batch_id for chunk in plan(feed, request, actor).chunks]
    for batch_id in batches:
        feed.write(batch_id, actor)
        feed.commit(batch_id, actor)
    return batches


def again(feed: WholeFeed) -> list[UUID]:
    """Replay once more, in another run."""
    return replay(feed, actor="another run")


def resume_what_is_open(feed: WholeFeed) -> None:
    """Do what an operator does with the command line: finish the chunks that are open, then replay what is left."""
    for batch in feed.control.open_backfills(feed.snapshot().feed_id):
        feed.write(batch.batch_id, "operator")
        feed.commit(batch.batch_id, "operator")
    replay(feed, actor="operator")


def letters_in(feed: WholeFeed, batch_id: UUID) -> list[tuple[str, int, int]]:
    """Return the positions of the dead letters that one batch has published."""
    directory = output_of_dead_letters(feed.settings.output).path / f"kafka_batch={batch_id}"
    return [record[:3] for record in records_in_output(directory)]


def left_in(feed: WholeFeed) -> dict[DecodingError, int]:
    """Return how many dead letters `dead-letters` shows, by cause."""
    rows = feed.control.coverage(feed.settings.name)
    found = list(dead_letters_of(rows, feed.control, feed.sinks, samples=9))
    assert [each.problem for each in found if each.problem is not None] == []
    causes = by_cause(found, 9)
    assert all(len(each.samples) == each.records for each in causes)
    return {each.error: each.records for each in causes}


def replays_of(feed: WholeFeed) -> list[UUID]:
    """Return the committed replays, oldest first."""
    batches = feed.control.committed_batches(feed.snapshot().feed_id)
    return [each.batch_id for each in batches if each.kind is BatchKind.REPLAY]


def differences(feed: WholeFeed) -> list[str]:
    rows = feed.control.coverage(feed.settings.name)
    found = [str(each) for batch in count_batches(rows, feed.control, feed.sinks) for each in batch.differences]
    committed = {
        tp: [
            kept
            for batch in feed.control.committed_batches(rows.feed.feed_id)
            for each in batch.ranges
            for kept in kept_of(rows, batch.batch_id, each.count.offset_range)
            if batch.kind.commits_offsets and each.count.offset_range.topic_partition == tp
        ]
        for tp in rows.feed.stored
    }
    for span_held in held_by_replays(rows, feed.control, feed.sinks):
        committed[span_held.topic_partition].append(span_held)
    return [*found, *map(str, holes_and_overlaps(coverage_of(rows), committed))]


def assert_replayed(feed: WholeFeed, *, dead: list[tuple[str, int, int]] = NO_TEXT, of: int = len(DEAD)) -> None:
    """Hold output, dead letters and books against what was produced: every record once, as a row or a dead letter.

    ``of``: so many were dead letters before.
    """
    rows = feed.control.coverage(feed.settings.name)
    partitions = coverage_of(rows)
    assert [record for record in sorted(feed.log.records) if record[:3] not in dead] == records_in_output(feed.output)
    assert {tp: dead_letters_in(each) for tp, each in partitions.items()} == {
        tp: sum(1 for position in dead if position[:2] == (tp.topic, tp.partition)) for tp in partitions
    }
    assert sum(map(replayed_in, partitions.values())) == of - len(dead)
    assert sum(left_in(feed).values()) == len(dead)
    assert [partition.problems for partition in partitions.values()] == [[], [], []]
    assert differences(feed) == []
    assert {tp: row.next_offset for tp, row in feed.snapshot().stored.items()} == feed.log.end_offsets
    assert feed.kafka.groups[GROUP] == feed.log.end_offsets
    assert sum(feed.control.rows_by_partition(rows.feed.feed_id).values()) == len(feed.log.records) - len(dead)
    assert feed.control.open_backfills(rows.feed.feed_id) == []


def test_what_can_be_decoded_now_becomes_a_row_and_the_rest_stays_with_its_new_error(feed: WholeFeed) -> None:
    [batch_id] = replay(feed)

    assert letters_in(feed, batch_id) == NO_TEXT
    assert_replayed(feed)
    assert left_in(feed) == {DecodingError("value", "NOT_JSON"): 2}
    assert batch_id in feed.airflow.announced


def test_of_each_range_of_a_replay_and_of_the_batch_that_had_the_letters_the_counts_add_up(feed: WholeFeed) -> None:
    [source] = [each.batch_id for each in feed.control.coverage(feed.settings.name).dead_letters[:1]]

    [batch_id] = replay(feed)

    def counts(batch: UUID) -> list[tuple[int, int, int, int]]:
        found = feed.control.range_counts(batch)
        return [(each.rows, each.dead_letters, each.invisible, each.offset_range.span) for each in found]

    assert counts(batch_id) == [(2, 1, 2, 5), (1, 1, 1, 3)]
    assert counts(source) == [(1, 3, 1, 5), (1, 2, 0, 3)]
    letters = feed.control.coverage(feed.settings.name).dead_letters
    assert {(each.batch_id, each.count, each.replayed, each.left) for each in letters} == {
        (source, 3, 3, 0),
        (source, 2, 2, 0),
        (batch_id, 1, 0, 1),
    }


def test_a_second_replay_takes_up_what_the_first_left_and_nothing_twice(feed: WholeFeed) -> None:
    [first] = replay(feed)

    [second] = again(feed)

    assert [letters_in(feed, each) for each in (first, second)] == [NO_TEXT, NO_TEXT]
    assert_replayed(feed)
    feed.decoding = RAW
    replay(feed, actor="a third run")
    assert_replayed(feed, dead=[])
    assert plan(feed, actor="a fourth run").chunks == []


def test_the_run_that_planned_a_replay_finds_it_again(feed: WholeFeed) -> None:
    assert replay(feed) == replay(feed) == replays_of(feed)
    assert_replayed(feed)


@pytest.mark.long
def test_a_replay_that_died_at_any_instant_ends_with_every_record_once(feeds: Feeds) -> None:
    seen = feeds.new(of_one_batch)
    with watched(seen) as (fine, instants):
        replay(fine)
    assert_replayed(seen, of=7)
    changes = [each for each in instants.names if is_of_a_part(each) and changes_the_world(each)]
    assert {"after control.complete_commit", "after letters.publish", "after sink.publish"} <= set(changes)
    for name in changes:
        # An operator finds what the control tables have; before they change, what the run finds is the same.
        for recovery in (replay, resume_what_is_open) if name.startswith("after control.") else (replay,):
            feed = feeds.new(of_one_batch)
            with watched(feed, dying_at(instants.names.index(name))) as (doomed, _), pytest.raises(Died):
                replay(doomed)
            try:
                recovery(feed)
                assert_replayed(feed, of=7)
            except BaseException as error:
                error.add_note(f"after a crash {name}")
                raise


def test_of_two_replays_at_once_one_takes_the_letters_up_and_the_other_is_refused(feed: WholeFeed) -> None:
    [chunk] = plan(feed).chunks

    with pytest.raises(RangesTakenError, match=f"no open replay has claimed, found that {chunk.batch_id} has"):
        plan(feed, actor="another run")
    resume_what_is_open(feed)

    assert_replayed(feed)


def test_a_replay_of_letters_that_another_has_taken_up_is_not_recorded_however_it_was_planned(feed: WholeFeed) -> None:
    [chunk] = plan(feed).chunks
    record = BackfillRecord([replace(chunk, batch_id=next_batch_id(chunk.batch_id))], [], {})

    # The feed is as its snapshot says: what holds here are the letters, not the revision.
    with pytest.raises(RangesTakenError, match="expected dead letters that no other batch replays, found"):
        feed.control.record_backfill(feed.snapshot(), record, actor="another run")

    assert [each.batch_id for each in feed.control.open_backfills(feed.snapshot().feed_id)] == [chunk.batch_id]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_of_many_replays_that_are_planned_at_the_same_moment_one_is_recorded(
    request: pytest.FixtureRequest, lake: Path, kind: str
) -> None:
    with feeds_in(kind, request, lake) as made:
        feed = made.new(with_dead_letters)

        def planned(number: int) -> int:
            try:
                return len(plan(feed, actor=f"run {number}").chunks)
            except RangesTakenError:
                return 0

        with ThreadPoolExecutor(4) as rivals:
            assert sum(rivals.map(planned, range(4))) == 1
        resume_what_is_open(feed)

        assert_replayed(feed)


def test_the_database_takes_no_letter_up_twice_whatever_is_planned(feed: WholeFeed, sqlite: SqlStore) -> None:
    [chunk] = plan(feed).chunks
    with sqlite.by_hand() as connection:
        connection.execute(text("UPDATE batch_range SET replayed = dead_letters WHERE dead_letters > 0"))
        connection.commit()
    feed.write(chunk.batch_id, RUN)

    with pytest.raises(Exception, match="replayed"):
        feed.commit(chunk.batch_id, RUN)


def test_only_letters_of_some_causes_are_replayed_and_the_others_stay_where_they_are(feed: WholeFeed) -> None:
    source = max(feed.states())
    assert left_in(feed) == {DecodingError("value", "NOT_JSON"): 3, DecodingError("value", "DOES_NOT_FIT"): 2}

    [batch_id] = replay(feed, request_of(None, "DOES_NOT_FIT"))

    assert letters_in(feed, batch_id) == []
    assert left_in(feed) == {DecodingError("value", "NOT_JSON"): 3}
    assert_replayed(feed, dead=[(TOPIC, 0, 5), (TOPIC, 0, 7), (TOPIC, 1, 5)])
    assert plan(feed, request_of(source, "DOES_NOT_FIT"), actor="another run").chunks == []
    again(feed)
    assert_replayed(feed)


def test_a_replay_is_of_one_batch_or_of_those_committed_since_a_time(feed: WholeFeed) -> None:
    first, source = sorted(feed.states())
    later = datetime.now(UTC) + timedelta(hours=1)

    assert plan(feed, request_of(since=later)).chunks == []
    with pytest.raises(InvalidBackfillError, match=f"with dead letters, found {first}, which is COMMITTED and has non"):
        plan(feed, request_of(first))
    assert plan(feed, request_of(source), None).decision.records_at_most == 5
    assert len(replay(feed, request_of(source, since=later - timedelta(hours=2)))) == 1


def test_letters_of_several_batches_are_replayed_in_chunks(feed: WholeFeed) -> None:
    feed.decoding = JSON
    produce(feed)
    at_rest(feed)
    feed.decoding = RAW

    chunks = plan(feed, request_of(max_records=5)).chunks

    assert [[each.number for each in chunk.replays] for chunk in chunks] == [[3, 2], [1, 1]]
    resume_what_is_open(feed)
    assert records_in_output(feed.output) == sorted(feed.log.records)
    assert differences(feed) == []


def test_one_chunk_has_letters_of_several_batches_whose_ranges_it_spans(feed: WholeFeed) -> None:
    feed.decoding = JSON
    produce(feed)
    at_rest(feed)
    feed.decoding = RAW

    [chunk] = plan(feed).chunks

    assert chunk.ranges == (span(0, 5, 15), span(1, 3, 9))
    resume_what_is_open(feed)
    assert records_in_output(feed.output) == sorted(feed.log.records)
    assert differences(feed) == []


def test_kafka_is_not_asked_and_may_have_forgotten_the_topic(feed: WholeFeed) -> None:
    feed.kafka.topics.clear()
    feed.kafka.is_down = True

    replay(feed)

    feed.kafka.is_down = False
    assert left_in(feed) == {DecodingError("value", "NOT_JSON"): 2}


def test_limits_of_dead_letters_do_not_stop_a_replay_and_nor_do_offsets_in_between(feed: WholeFeed) -> None:
    feed.limits = BatchLimits(max_dead_letters=0)
    feed.settings = replace(feed.settings, offsets_policy=OffsetsPolicy.DENSE)

    replay(feed)

    assert_replayed(feed)


def test_a_receipt_with_fewer_records_than_were_planned_is_refused(feed: WholeFeed) -> None:
    [chunk] = plan(feed).chunks
    letters = next(iter(output_of_dead_letters(feed.settings.output).path.rglob("*.parquet")))
    aside = letters.rename(letters.with_suffix(".aside"))
    with pytest.raises(OutputUnavailableError, match="expected its dead letters in"):
        feed.write(chunk.batch_id, RUN)
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(aside).slice(1), letters)

    with pytest.raises(InvalidReceiptError, match="dead letters to be replayed, found"):
        feed.write(chunk.batch_id, RUN)

    aside.rename(letters)
    replay(feed)
    assert_replayed(feed)


# ── What operators do ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_abandoned_replay_gives_the_letters_back_and_is_not_restored(feed: WholeFeed) -> None:
    [chunk] = plan(feed).chunks
    feed.write(chunk.batch_id, RUN)
    abandon(chunk.batch_id, feed.control, feed.sinks, reason="wrong schema", actor="ops")

    with pytest.raises(BatchStateError, match=f"which are still there: `kafka-ingest replay {feed.settings.name}`"):
        decide_restore(chunk.batch_id, feed)
    staged = staged_outputs_of_batch(chunk.batch_id, feed.control, feed.sinks)
    assert [each.kept for each in clean_up(staged, feed.control, feed.sinks)] == [None]
    again(feed)

    assert_replayed(feed)


def test_letters_that_are_given_up_are_not_replayed(feed: WholeFeed) -> None:
    source = max(feed.states())
    [chunk] = plan(feed).chunks
    give_up_dead_letters(source, feed.control, feed.sinks, reason="not needed", actor="ops")

    with pytest.raises(RecordsDeletedError, match="its dead letters were given up"):
        feed.write(chunk.batch_id, RUN)
    abandon(chunk.batch_id, feed.control, feed.sinks, reason="given up", actor="ops")
    outcome = plan(feed, actor="another run")

    assert outcome.chunks == []
    assert outcome.decision is not None
    [left_out] = outcome.decision.letters_left_out
    assert left_out.startswith(f"batch {source}: its dead letters were given up")


def test_letters_of_a_batch_that_has_expired_are_not_replayed(feed: WholeFeed) -> None:
    source = max(feed.states())
    feed.decoding = RAW
    produce(feed)
    at_rest(feed)
    decision = decide_expiry(feed.settings, datetime.now(UTC), feed.control, feed.sinks)
    list(expire(decision, feed.control, feed.sink, reason="old", actor="ops"))

    outcome = plan(feed)

    assert (outcome.chunks, outcome.decision is not None) == ([], True)
    assert f"batch {source}: its rows are no longer in the output" in outcome.decision.letters_left_out[0]


def test_a_replay_that_expires_leaves_the_ranges_of_the_others_as_they_are(feed: WholeFeed) -> None:
    [batch_id] = replay(feed)
    feed.decoding = RAW
    produce(feed)
    at_rest(feed)
    decision = decide_expiry(feed.settings, datetime.now(UTC), feed.control, feed.sinks)
    only = replace(decision, batches=[each for each in decision.batches if each.plan.batch_id == batch_id])
    assert only.ranges_of(only.batches) == []

    assert list(expire(only, feed.control, feed.sink, reason="old", actor="ops")) == [batch_id]

    rows = feed.control.coverage(feed.settings.name)
    assert rows.removed == []
    assert differences(feed) == []


def test_what_a_reset_lets_the_feed_read_again_is_not_replayed(feed: WholeFeed) -> None:
    move = ResetMove(TopicPartition(TOPIC, 0), 10, 8)
    feed.control.reset_offsets(feed.snapshot(), [move], reason="again", actor="ops")

    [chunk] = plan(feed).chunks

    assert [(str(each.offset_range), each.number) for each in chunk.replays] == [
        ("orders-0[5, 8)", 2),
        ("orders-1[3, 6)", 2),
    ]
    resume_what_is_open(feed)
    at_rest(feed)
    assert [record for record in records_in_output(feed.output) if record[:3] == (TOPIC, 0, 9)] != []


def test_lost_rows_are_read_again_without_what_was_replayed(feeds: Feeds) -> None:
    feed = feeds.new(of_one_batch)
    source = max(feed.states())
    replay(feed)
    for path in (feed.output / f"kafka_batch={source}").iterdir():
        path.unlink()

    decision = decide_lost(feed.settings.name, source, feed.control, feed.sinks)
    record_lost(decision, feed.control, feed.sinks, reason="disk", actor="ops")
    feed.decoding = RAW
    request = BackfillRequest(OpenGaps(), asked={}, max_records=100)
    outcome = plan_backfill(request, feed.settings, feed, actor="ops")
    for chunk in outcome.chunks:
        feed.write(chunk.batch_id, "ops")
        feed.commit(chunk.batch_id, "ops")

    assert records_in_output(feed.output) == [each for each in sorted(feed.log.records) if each[:3] not in NO_TEXT]
    assert differences(feed) == []


def test_rows_are_lost_before_or_after_a_replay_but_not_while_it_is_open(feed: WholeFeed) -> None:
    source = max(feed.states())
    [chunk] = plan(feed).chunks

    with pytest.raises(BatchStateError, match=f"{chunk.batch_id} is to replay its dead letters"):
        decide_lost(feed.settings.name, source, feed.control, feed.sinks)
    resume_what_is_open(feed)

    with pytest.raises(BatchStateError, match="has replayed dead letters, and its ranges are those of other batches"):
        decide_lost(feed.settings.name, chunk.batch_id, feed.control, feed.sinks)


def test_letters_that_another_process_had_lost_or_read_again_are_not_committed(
    feed: WholeFeed, sqlite: SqlStore
) -> None:
    source = max(feed.states())
    [chunk] = plan(feed).chunks
    feed.write(chunk.batch_id, RUN)
    with sqlite.by_hand() as connection:
        lost = {"feed": feed.snapshot().feed_id.hex, "batch": source.hex}
        connection.execute(
            text(
                "INSERT INTO lost_range VALUES (:feed, :batch, 'part-0.parquet', 'orders', 0, 'topic-id-1', 5, 10, 1)"
            ),
            lost,
        )
        connection.commit()

    with pytest.raises(OffsetsMovedError, match="lost, replayed or read again by others"):
        feed.commit(chunk.batch_id, RUN)


@pytest.mark.parametrize("died_before", ["sink.publish", "letters.publish", "control.complete_commit"])
def test_lost_control_tables_learn_what_was_replayed(
    feed: WholeFeed, died_before: str, migrated_sqlite_file: Path, tmp_path: Path
) -> None:
    with watched(feed, dying_before(died_before)) as (doomed, _), pytest.raises(Died):
        replay(doomed)
    with sqlite_store(migrated_sqlite_file, tmp_path / "rebuilt.db") as store:
        rebuilt = replace(feed, control=store.connect())
        decision = decide_adoption(feed.settings, rebuilt.control, feed.sink)

        adopt(decision, rebuilt.control, feed.sink, reason="tables lost", actor="ops", letters=feed.letters)
        at_rest(rebuilt)
        again(rebuilt)

        assert_replayed(rebuilt)


def test_where_a_replayed_record_is_is_found(feed: WholeFeed) -> None:
    source = max(feed.states())
    [batch_id] = replay(feed)

    def found(offset: int) -> list[tuple[UUID, RecordState | None]]:
        located = locate(feed.control, feed.sinks, feed.settings.name, TopicPartition(TOPIC, 0), offset)
        assert located.state is OffsetState.COMMITTED
        return [(each.batch.batch_id, each.record) for each in located.batches]

    assert found(7) == [(batch_id, RecordState.IN_FILE), (source, RecordState.REPLAYED)]
    assert found(5) == [(batch_id, RecordState.DEAD_LETTER), (source, RecordState.REPLAYED)]
    assert found(6) == [(source, RecordState.IN_FILE)]
    located = locate(feed.control, feed.sinks, feed.settings.name, TopicPartition(TOPIC, 0), 7)
    assert describe_offset(located) == (
        f"orders-0 offset 7: committed with live batch {source}; batch {batch_id} has replayed it"
    )


def test_a_record_that_a_replay_filters_is_found_as_filtered_and_no_other_is(feed: WholeFeed) -> None:
    source = max(feed.states())
    feed.decoding = replace(feed.decoding, shape=Shape(where="kafka_offset % 10 not in (4, 6, 7)"))
    [batch_id] = replay(feed)

    def found(offset: int) -> list[tuple[UUID, RecordState | None]]:
        located = locate(feed.control, feed.sinks, feed.settings.name, TopicPartition(TOPIC, 0), offset)
        return [(each.batch.batch_id, each.record) for each in located.batches]

    assert found(7) == [(batch_id, RecordState.FILTERED), (source, RecordState.REPLAYED)]
    assert found(6) == [(source, RecordState.IN_FILE)]
    assert found(9) == [(batch_id, RecordState.IN_FILE), (source, RecordState.REPLAYED)]
    assert sum(left_in(feed).values()) == len(NO_TEXT)
    assert differences(feed) == []


def test_a_batch_with_dead_letters_stays_unfolded_and_a_replay_has_a_plan_of_its_own_kind() -> None:
    with pytest.raises(ValueError, match="names the dead letters that it replays, found none"):
        replace(a_plan(span(0, 0, 10)), kind=BatchKind.REPLAY)
    assert BatchState.COMMITTED.value == "COMMITTED"
