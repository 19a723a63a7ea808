"""A crash at any instant of a backfill, over real files.

Run again, it ends with every record once and every gap closed once.

Each case is a feed of its own whose process dies at an instant of planning, writing or committing two chunks. Then the
DAG run is tried again in the same name, or an operator continues with what is open.
"""

from collections.abc import Callable

import pytest
from tests.contract.every_record_once import directories_in, records_in_output
from tests.contract.interference import Died, OtherWorlds, dying_at, watched
from tests.contract.lives import Feeds
from tests.contract.test_crash_at_every_boundary import CHOICES, Choice, every_world
from tests.contract.whole_feed import TOPIC, WholeFeed, at_rest
from tests.fakes import GROUP

from kafka_ingest.batches.backfill_request import BackfillRequest, OpenGaps
from kafka_ingest.batches.plan_backfill import plan_backfill
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, span_of, union
from kafka_ingest.verbs.skip import decide_skip, skip

pytestmark = pytest.mark.long

HOLE = OffsetRange(TopicPartition(TOPIC, 0), 2, 7)
RUN = "airflow:backfill_offsets/manual__1"


def with_a_hole(feed: WholeFeed) -> None:
    """A feed that read all there is, apart from a gap of five offsets, one of which holds no record."""
    feed.log.produce(0, 2)
    feed.log.produce(1, 2)
    at_rest(feed)
    feed.log.produce(0, 3)
    feed.log.append_markers(0, 1)
    feed.log.produce(0, 6)
    skip(decide_skip(feed.settings.name, HOLE, "poisoned", feed.control, feed.kafka), feed.control, actor="ops")
    at_rest(feed)


def backfill(feed: WholeFeed) -> None:
    """Do what the run of the DAG does: plan, or find what it planned before, and write and commit chunk after chunk."""
    request = BackfillRequest(OpenGaps(), asked={}, max_records=3)
    outcome = plan_backfill(request, feed.settings, feed, actor=RUN, once=True)
    for chunk in outcome.chunks:
        feed.write(chunk.batch_id, RUN)
        feed.commit(chunk.batch_id, RUN)


def resume_what_is_open(feed: WholeFeed) -> None:
    """Do what an operator does with the command line.

    Finish the chunks that are open, then fill what is still a gap.
    """
    for batch in feed.control.open_backfills(feed.snapshot().feed_id):
        feed.write(batch.batch_id, "operator")
        feed.commit(batch.batch_id, "operator")
    backfill(feed)


def instants_of_a_backfill(feed: WholeFeed, choice: Choice) -> tuple[list[str], list[int]]:
    """Return the instants that a backfill passes where nothing happens, and the numbers of those to be tried."""
    others = OtherWorlds(feed, choice)
    with watched(feed, others.look) as (seen, instants):
        backfill(seen)
    assert_filled_once(feed)
    return instants.names, others.found


def assert_filled_once(feed: WholeFeed) -> None:
    """Hold output, gaps, batches and positions against what was produced."""
    assert records_in_output(feed.output) == sorted(feed.log.records)
    feed_id, ends = feed.snapshot().feed_id, feed.log.end_offsets
    assert {tp: row.next_offset for tp, row in feed.snapshot().stored.items()} == ends
    assert feed.kafka.groups[GROUP] == ends

    rows = feed.control.coverage(feed.settings.name)
    assert [partition.problems for partition in coverage_of(rows).values()] == [[], [], []]
    assert {gap.state for gap in rows.gaps} == {"closed"}
    assert union(gap.offset_range for gap in rows.gaps) == [HOLE]
    closed = [
        gap for event in feed.control.journal(feed_id, kinds=["gap_closed"], limit=100) for gap in event.detail["gaps"]
    ]
    assert sum(gap["end_offset"] - gap["start_offset"] for gap in closed) == HOLE.span
    assert {gap["closed_by_batch"] for gap in closed} == {str(gap.closed_by_batch) for gap in rows.gaps}

    assert feed.control.open_backfills(feed_id) == []
    committed = list(feed.control.committed_batches(feed_id))
    filled = [each for each in committed if each.kind is BatchKind.BACKFILL]
    assert span_of(each.count.offset_range for batch in filled for each in batch.ranges) == HOLE.span
    assert set(feed.states().values()) == {BatchState.COMMITTED}
    assert set(directories_in(feed.output)) == {f"kafka_batch={each.batch_id}" for each in committed}


def die(feed: WholeFeed, instant: int) -> None:
    """Let a feed's process die at an instant of its backfill."""
    with watched(feed, dying_at(instant)) as (doomed, _), pytest.raises(Died):
        backfill(doomed)


@pytest.mark.parametrize("recovery", [backfill, resume_what_is_open])
def test_a_backfill_that_died_at_any_instant_ends_with_every_record_and_every_gap_once(
    feeds: Feeds, kind: str, recovery: Callable[[WholeFeed], None]
) -> None:
    names, to_try = instants_of_a_backfill(feeds.new(with_a_hole), CHOICES[kind])
    assert {"after control.record_backfill", "after control.complete_commit"} <= {names[each] for each in to_try}
    beginning = feeds.beginning(with_a_hole)
    for instant in to_try:
        feed, _ = beginning.again()
        die(feed, instant)
        try:
            recovery(feed)
            assert_filled_once(feed)
        except BaseException as error:
            error.add_note(f"after a crash {names[instant]}, number {instant}")
            raise


@pytest.mark.parametrize("kind", ["in_memory"])
def test_live_runs_continue_between_the_crash_of_a_backfill_and_its_end(feeds: Feeds, kind: str) -> None:
    names, to_try = instants_of_a_backfill(feeds.new(with_a_hole), every_world)
    beginning = feeds.beginning(with_a_hole)
    for instant in to_try:
        feed, _ = beginning.again()
        die(feed, instant)
        try:
            feed.log.produce(0, 2)
            at_rest(feed)
            backfill(feed)
            assert_filled_once(feed)
        except BaseException as error:
            error.add_note(f"{kind}, after a crash {names[instant]}, number {instant}")
            raise
