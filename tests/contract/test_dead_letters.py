"""Records that cannot be decoded, over control tables and a real output: counted, published beside it, limited."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.conftest import SqlStore
from tests.contract.every_record_once import assert_every_record_is_there_once, records_in_output
from tests.contract.lives import Feeds, second_batch, stop_before
from tests.contract.whole_feed import WholeFeed, at_rest
from tests.fakes import InMemoryControlTables

from kafka_ingest.batches.commit_batch import commit_batch
from kafka_ingest.batches.restore import decide_restore, restore
from kafka_ingest.errors import (
    BatchStateError,
    OutputConflictError,
    StagedOutputUnusableError,
    TooManyDeadLettersError,
    WrongUseError,
)
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.batch_limits import BatchLimits
from kafka_ingest.model.coverage import coverage_of, dead_letters_in
from kafka_ingest.model.dead_letters import output_of_dead_letters, staged_dead_letters
from kafka_ingest.model.decoding import RAW
from kafka_ingest.model.place import DATA
from kafka_ingest.observing.verify_output import Counted, count_batches
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.adopt import adopt, decide_adoption
from kafka_ingest.verbs.clean import clean_up, staged_outputs_of_batch
from kafka_ingest.verbs.dead_letters import give_up_dead_letters

DEAD = [("orders", 0, 5), ("orders", 0, 7), ("orders", 0, 9), ("orders", 1, 3), ("orders", 1, 5)]
"""The positions of the second batch's records that cannot be decoded: their offsets are odd (`whole_feed.py`)."""


@pytest.fixture
def feeds(sqlite: SqlStore, lake: Path) -> Feeds:
    """Feeds in SQLite."""
    return Feeds(lake, sqlite.connect)


@pytest.fixture
def feed(feeds: Feeds) -> WholeFeed:
    """A feed that has run before, and decodes its records since; its next batch has dead letters."""
    return feeds.new(second_batch)


def letters_of(feed: WholeFeed) -> list[tuple[str, int, int]]:
    """Return the positions of the dead letters that readers see."""
    return [record[:3] for record in records_in_output(output_of_dead_letters(feed.settings.output).path)]


def staged_letters(feed: WholeFeed) -> list[Path]:
    """Return the staged files of dead letters of the newest batch."""
    [attempt] = feed.control.attempts(max(feed.states()))
    return sorted((staged_dead_letters(attempt.directory) / DATA).iterdir())


def counted(feed: WholeFeed) -> list[Counted]:
    """Return the batches as their outputs hold them."""
    rows = feed.control.coverage(feed.settings.name)
    assert rows is not None
    return list(count_batches(rows, feed.control, feed.sinks))


def commit(feed: WholeFeed) -> None:
    """Run the commit task of the newest batch."""
    commit_batch(max(feed.states()), feed, group=None, actor="r", limits=feed.limits)


def test_a_record_that_cannot_be_decoded_stops_no_batch_and_is_published_beside_the_output(feed: WholeFeed) -> None:
    at_rest(feed)

    assert letters_of(feed) == DEAD
    assert_every_record_is_there_once(feed)


def test_of_each_range_rows_and_dead_letters_and_offsets_without_a_record_add_up(feed: WholeFeed) -> None:
    at_rest(feed)

    counts = feed.control.range_counts(max(feed.states()))
    assert [(count.rows, count.dead_letters, count.invisible, count.offset_range.span) for count in counts] == [
        (1, 3, 1, 5),
        (1, 2, 0, 3),
    ]
    rows = feed.control.coverage(feed.settings.name)
    assert rows is not None
    partitions = coverage_of(rows).values()
    assert [dead_letters_in(partition) for partition in partitions] == [3, 2, 0]
    assert all(partition.is_accounted for partition in partitions)


def test_a_dead_letter_that_is_gone_is_found_by_counting(feed: WholeFeed) -> None:
    at_rest(feed)
    assert [each.differences for each in counted(feed)] == [(), ()]
    [first, *_] = sorted(output_of_dead_letters(feed.settings.output).path.rglob("*.parquet"))

    first.unlink()

    [difference] = [found for each in counted(feed) for found in each.differences]
    assert str(difference).startswith("orders-0[5, 10): expected 3 dead letters in ")
    assert difference.found == "no rows"


@pytest.mark.parametrize("limits", [BatchLimits(max_dead_letters=4), BatchLimits(max_dead_letter_percent=71)])
def test_too_many_dead_letters_stop_the_commit_and_nothing_moves(feed: WholeFeed, limits: BatchLimits) -> None:
    stop_before(feed, "control.begin_commit")
    feed.limits = limits
    stored = feed.snapshot().stored

    with pytest.raises(TooManyDeadLettersError, match="5 of its 7 records cannot be decoded") as error:
        commit(feed)

    assert error.value.exit_code == 3
    batch = feed.control.batch(max(feed.states()))
    assert (batch.state, feed.snapshot().stored, letters_of(feed)) == (BatchState.PLANNED, stored, [])
    [attempt] = feed.control.attempts(batch.batch_id)
    assert "5 of its 7 records cannot be decoded" in (attempt.reason or "")


@pytest.mark.parametrize("limits", [BatchLimits(max_dead_letters=5), BatchLimits(max_dead_letter_percent=72)])
def test_as_many_dead_letters_as_are_allowed_are_published(feed: WholeFeed, limits: BatchLimits) -> None:
    feed.limits = limits

    at_rest(feed)

    assert letters_of(feed) == DEAD


def test_a_batch_that_had_too_many_is_written_again_once_the_feed_says_better_what_they_are(feed: WholeFeed) -> None:
    stop_before(feed, "control.begin_commit")
    feed.limits = BatchLimits(max_dead_letters=0)
    with pytest.raises(TooManyDeadLettersError, match="Mend what the feed says"):
        commit(feed)

    feed.decoding = RAW
    at_rest(feed)

    assert letters_of(feed) == []
    assert_every_record_is_there_once(feed)


# ── Damaged, revoked, restored ────────────────────────────────────────────────────────────────────────────────────────


def test_damaged_dead_letters_are_found_before_the_commit_and_the_batch_is_written_again(feed: WholeFeed) -> None:
    stop_before(feed, "control.begin_commit")
    staged_letters(feed)[0].write_bytes(b"damaged")

    with pytest.raises(StagedOutputUnusableError, match="instead of"):
        commit(feed)
    at_rest(feed)

    assert letters_of(feed) == DEAD
    assert_every_record_is_there_once(feed)


def test_dead_letters_that_vanish_after_the_data_is_published_hold_the_offsets_until_they_are_back(
    feed: WholeFeed,
) -> None:
    stop_before(feed, "letters.publish")
    [first, *_] = staged_letters(feed)
    aside = first.rename(first.parent.parent / first.name)
    stored = feed.snapshot().stored

    with pytest.raises(OutputConflictError, match="is missing"):
        commit(feed)
    assert (feed.snapshot().stored, letters_of(feed)) == (stored, [])
    aside.rename(first)
    at_rest(feed)

    assert letters_of(feed) == DEAD
    assert_every_record_is_there_once(feed)


def test_dead_letters_that_are_gone_for_good_are_given_up_and_the_batch_is_committed(feed: WholeFeed) -> None:
    stop_before(feed, "letters.publish")
    batch_id = max(feed.states())
    for path in staged_letters(feed):
        path.unlink()
    with pytest.raises(OutputConflictError, match=f"--batch {batch_id} --give-up --reason"):
        commit(feed)

    for _ in range(2):
        assert give_up_dead_letters(batch_id, feed.control, feed.sinks, reason="disk lost", actor="ops") == len(DEAD)
    at_rest(feed)

    assert feed.control.batch(batch_id).state is BatchState.COMMITTED
    assert sum(count.dead_letters for count in feed.control.range_counts(batch_id)) == len(DEAD)
    assert [each.differences for each in counted(feed)] == [(), ()]


def test_dead_letters_that_are_given_up_are_taken_out_of_readers_sight(feed: WholeFeed) -> None:
    at_rest(feed)

    give_up_dead_letters(max(feed.states()), feed.control, feed.sinks, reason="not needed", actor="ops")

    assert letters_of(feed) == []
    assert [each.differences for each in counted(feed)] == [(), ()]


@pytest.mark.parametrize("before", ["control.begin_commit", "sink.publish"])
def test_only_dead_letters_of_a_batch_that_cannot_go_back_are_given_up(feed: WholeFeed, before: str) -> None:
    stop_before(feed, before)
    newest, first = sorted(feed.states(), reverse=True)
    with pytest.raises(WrongUseError, match="has no dead letters"):
        give_up_dead_letters(first, feed.control, feed.sinks, reason="wrong batch", actor="ops")
    if before == "control.begin_commit":
        with pytest.raises(BatchStateError, match="is WRITTEN: expected one whose rows are published"):
            give_up_dead_letters(newest, feed.control, feed.sinks, reason="too early", actor="ops")
    at_rest(feed)
    assert letters_of(feed) == DEAD


def test_a_restored_batch_may_have_any_number_of_dead_letters(feed: WholeFeed) -> None:
    stop_before(feed, "sink.publish")
    batch_id = max(feed.states())
    abandon(batch_id, feed.control, feed.sinks, reason="wrong button", actor="ops")
    feed.limits = BatchLimits(max_dead_letters=0)

    decision = decide_restore(batch_id, feed)
    for restored in restore(decision, feed, reason="it was right", actor="ops"):
        feed.commit(restored, "ops")

    assert letters_of(feed) == DEAD


def test_no_reader_ever_sees_the_dead_letters_of_a_batch_that_was_revoked(feed: WholeFeed) -> None:
    stop_before(feed, "sink.publish")
    batch_id = max(feed.states())
    abandon(batch_id, feed.control, feed.sinks, reason="wrong schema", actor="ops")

    with pytest.raises(BatchStateError, match="was abandoned by ops"):
        commit(feed)

    assert letters_of(feed) == []
    feed.decoding = RAW
    at_rest(feed)
    assert_every_record_is_there_once(feed)


def test_a_restored_batch_brings_its_dead_letters_back(feed: WholeFeed) -> None:
    stop_before(feed, "sink.publish")
    batch_id = max(feed.states())
    abandon(batch_id, feed.control, feed.sinks, reason="wrong button", actor="ops")

    decision = decide_restore(batch_id, feed)
    for restored in restore(decision, feed, reason="it was right", actor="ops"):
        feed.commit(restored, "ops")

    assert letters_of(feed) == DEAD
    assert_every_record_is_there_once(feed)


def test_a_restore_is_refused_whose_dead_letters_are_gone(feed: WholeFeed) -> None:
    stop_before(feed, "sink.publish")
    batch_id = max(feed.states())
    [first, *_] = staged_letters(feed)
    abandon(batch_id, feed.control, feed.sinks, reason="wrong button", actor="ops")
    first.unlink()

    with pytest.raises(StagedOutputUnusableError, match="is missing"):
        decide_restore(batch_id, feed)


def test_cleaning_up_takes_staged_dead_letters_and_leaves_published_ones(feed: WholeFeed) -> None:
    stop_before(feed, "spark.write_receipt")
    at_rest(feed)
    batch_id = max(feed.states())
    attempts = [attempt.directory for attempt in feed.control.attempts(batch_id)]
    assert [staged_dead_letters(each).is_dir() for each in attempts] == [True, True]

    staged = staged_outputs_of_batch(batch_id, feed.control, feed.sinks)
    assert not any(each.kept for each in clean_up(staged, feed.control, feed.sinks))

    assert not any(each.exists() for each in attempts)
    assert letters_of(feed) == DEAD


@pytest.mark.parametrize("died_before", ["letters.publish", "control.complete_commit"])
def test_lost_control_tables_learn_of_dead_letters_and_publish_what_was_not(feed: WholeFeed, died_before: str) -> None:
    stop_before(feed, died_before)
    rebuilt = replace(feed, control=InMemoryControlTables())
    decision = decide_adoption(feed.settings, rebuilt.control, feed.sink)

    adopt(decision, rebuilt.control, feed.sink, reason="tables lost", actor="ops", letters=feed.letters)

    assert letters_of(feed) == DEAD
    at_rest(rebuilt)
    assert_every_record_is_there_once(rebuilt)
