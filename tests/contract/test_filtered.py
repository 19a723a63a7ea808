"""Records that a feed's ``where`` leaves out, over control tables and a real output: counted, located, restored."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.contract.conftest import SqlStore, sqlite_store
from tests.contract.every_record_once import records_in_output
from tests.contract.lives import Feeds, second_batch, stop_before
from tests.contract.test_dead_letters import counted
from tests.contract.test_replay import RUN, again, plan, replay
from tests.contract.whole_feed import TEXT, WholeFeed, at_rest
from tests.fakes import InMemoryControlTables

from kafka_ingest.batches.restore import decide_restore, filtered_of_ranges, restore
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.coverage import coverage_of, dead_letters_in
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, span_of
from kafka_ingest.model.receipt import Filtered
from kafka_ingest.model.written_columns import Shape
from kafka_ingest.observing.locate import RecordState, locate
from kafka_ingest.observing.offset_sums import offset_counts
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.adopt import adopt, decide_adoption
from kafka_ingest.verbs.expire import decide_expiry, expire
from kafka_ingest.verbs.locate import describe_files

FIRST, SECOND = (TopicPartition("orders", number) for number in range(2))


@pytest.fixture
def feed(sqlite: SqlStore, lake: Path) -> WholeFeed:
    """A feed that has run before, and filters since: offsets that end with 4, 6 or 7 (`whole_feed.py`)."""
    feed = Feeds(lake, sqlite.connect).new(second_batch)
    feed.decoding = replace(feed.decoding, shape=Shape(where="kafka_offset % 10 not in (4, 6, 7)"))
    return feed


def balances(feed: WholeFeed) -> list[tuple[int, int, int, int, int]]:
    """Return of each range of the newest batch its rows, filtered records, dead letters, other offsets, and the sum."""
    return [
        (count.rows, count.filtered, count.dead_letters, count.invisible, count.offset_range.span)
        for count in feed.control.range_counts(max(feed.states()))
    ]


BALANCES = [(0, 1, 3, 1, 5), (0, 1, 2, 0, 3)]


def positions(feed: WholeFeed) -> list[tuple[str, int, int]]:
    """Return the positions of the rows and dead letters that readers see."""
    both = (feed.settings.output.path, output_of_dead_letters(feed.settings.output).path)
    return sorted(record[:3] for path in both for record in records_in_output(path))


def test_of_each_range_rows_and_filtered_and_dead_letters_and_others_add_up(feed: WholeFeed) -> None:
    at_rest(feed)

    assert balances(feed) == BALANCES
    assert [each.differences for each in counted(feed)] == [(), ()]
    missing = {record[:3] for record in feed.log.records} - set(positions(feed))
    assert missing == {("orders", 0, 6), ("orders", 1, 4)}


def filtered_in(feed: WholeFeed) -> dict[TopicPartition, int]:
    """Return what `coverage` says of each partition that has filtered records."""
    rows = feed.control.coverage(feed.settings.name)
    counts = {tp: offset_counts(partition)["filtered"] for tp, partition in coverage_of(rows).items()}
    return {tp: count for tp, count in counts.items() if count}


def accounts(feed: WholeFeed) -> list[bool]:
    """Whether the partitions' sums and the other offsets of their ranges are all offsets that were passed."""
    rows = feed.control.coverage(feed.settings.name)
    batches = [batch for batch in feed.control.committed_batches(rows.feed.feed_id) if batch.kind.commits_offsets]
    counts = [each.count for batch in batches for each in batch.ranges]
    published = feed.control.rows_by_partition(rows.feed.feed_id)
    return [
        published.get(tp, 0)
        + each.filtered
        + dead_letters_in(each)
        + sum(count.invisible for count in counts if count.offset_range.topic_partition == tp)
        == span_of(each.committed)
        for tp, each in coverage_of(rows).items()
    ]


def test_coverage_sums_up_what_was_filtered_and_with_rows_and_dead_letters_each_offset_counts_once(
    feed: WholeFeed,
) -> None:
    assert filtered_in(feed) == {}
    at_rest(feed)

    assert filtered_in(feed) == {FIRST: 1, SECOND: 1}
    assert accounts(feed) == [True] * 3


AFTER_A_REPLAY = {FIRST: 2, SECOND: 1}
"""Of the dead letters 5, 7 and 9 of one partition, and 3 and 5 of the other, 7 is text, and filtered."""


@pytest.fixture
def mended(feed: WholeFeed) -> WholeFeed:
    """The feed at rest, with dead letters that can be replayed, and one of them will be filtered."""
    at_rest(feed)
    feed.decoding = replace(TEXT, shape=feed.decoding.shape)
    return feed


def assert_in_order(feed: WholeFeed) -> None:
    """The sums are those after a replay, each offset counts once, and the output holds what they say."""
    assert filtered_in(feed) == AFTER_A_REPLAY
    assert accounts(feed) == [True] * 3
    assert [each.differences for each in counted(feed)] == [()] * 3


def test_a_replay_may_filter_and_lost_control_tables_learn_that_from_its_receipt(
    mended: WholeFeed, tmp_path: Path, migrated_sqlite_file: Path
) -> None:
    replay(mended)
    assert_in_order(mended)

    with sqlite_store(migrated_sqlite_file, tmp_path / "rebuilt.db") as store:
        rebuilt = replace(mended, control=store.connect())
        decision = decide_adoption(mended.settings, rebuilt.control, mended.sink)
        adopt(decision, rebuilt.control, mended.sink, reason="tables lost", actor="ops", letters=mended.letters)

        assert_in_order(rebuilt)


def test_a_replay_that_filtered_expires_and_what_it_filtered_stays_counted(mended: WholeFeed) -> None:
    [batch_id] = replay(mended)
    decision = decide_expiry(mended.settings, datetime.now(UTC), mended.control, mended.sinks)
    only = replace(decision, batches=[each for each in decision.batches if each.plan.batch_id == batch_id])

    assert list(expire(only, mended.control, mended.sink, reason="old", actor="ops")) == [batch_id]

    assert_in_order(mended)


def test_an_abandoned_replay_that_filtered_is_not_restored_but_replayed_again(mended: WholeFeed) -> None:
    [chunk] = plan(mended).chunks
    mended.write(chunk.batch_id, RUN)
    abandon(chunk.batch_id, mended.control, mended.sinks, reason="wrong button", actor="ops")

    with pytest.raises(BatchStateError, match="kafka-ingest replay"):
        decide_restore(chunk.batch_id, mended)
    assert filtered_in(mended) == {FIRST: 1, SECOND: 1}

    again(mended)
    assert_in_order(mended)


def test_locate_says_that_an_offset_was_filtered_or_that_it_may_have_been(feed: WholeFeed) -> None:
    at_rest(feed)

    def found(topic_partition: TopicPartition, offset: int) -> tuple[RecordState | None, str]:
        [batch] = locate(feed.control, feed.sinks, feed.settings.name, topic_partition, offset).batches
        return batch.record, " ".join(describe_files(batch))

    record, said = found(SECOND, 4)
    assert record is RecordState.FILTERED
    assert said.endswith("filtered: the feed's where or transform has left the record out")
    record, said = found(FIRST, 6)
    assert record is RecordState.FILTERED_OR_NONE
    assert said.endswith("of orders-0[5, 10) it filtered 1 record, and found 1 offset without one")
    assert found(SECOND, 3)[0] is RecordState.DEAD_LETTER


def test_lost_control_tables_learn_what_was_filtered_from_the_receipts(feed: WholeFeed) -> None:
    at_rest(feed)
    rebuilt = replace(feed, control=InMemoryControlTables())
    decision = decide_adoption(feed.settings, rebuilt.control, feed.sink)

    adopt(decision, rebuilt.control, feed.sink, reason="tables lost", actor="ops", letters=feed.letters)

    assert balances(rebuilt) == BALANCES


def test_a_restored_batch_keeps_what_it_had_filtered(feed: WholeFeed) -> None:
    stop_before(feed, "sink.publish")
    batch_id = max(feed.states())
    abandon(batch_id, feed.control, feed.sinks, reason="wrong button", actor="ops")

    decision = decide_restore(batch_id, feed)
    for restored in restore(decision, feed, reason="it was right", actor="ops"):
        feed.commit(restored, "ops")

    assert balances(feed) == BALANCES


def test_of_part_of_a_range_what_was_filtered_is_known_where_each_offset_had_a_record(feed: WholeFeed) -> None:
    stop_before(feed, "sink.publish")
    batch_id = max(feed.states())
    abandon(batch_id, feed.control, feed.sinks, reason="wrong button", actor="ops")
    decision = decide_restore(batch_id, feed)

    def of(*ranges: OffsetRange) -> tuple[Filtered, ...]:
        letters = decision.receipt.dead_letters
        kept = [file for file in letters if file.partitions[0].smallest_offset >= ranges[0].start_offset]
        return filtered_of_ranges(decision, replace(decision.batch.plan, ranges=ranges), kept)

    assert of(OffsetRange(SECOND, 4, 5)) == (Filtered(SECOND, 1),)
    assert of(OffsetRange(FIRST, 6, 10)) == ()
