"""Planning a backfill against a feed in memory: what it claims, what it leaves to others, and what it never touches."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import (
    FEED_ID,
    FeedInMemory,
    InMemorySink,
    Watched,
    a_plan,
    feed_settings,
    log,
    partition,
    sinks,
    span,
    topic,
)
from tests.outputs import parquet_at

from kafka_ingest.batches.backfill_request import (
    BackfillRequest,
    BetweenTimestamps,
    Mode,
    OfBatch,
    OfDagRun,
    OffsetRanges,
    OnMissing,
    OnOverlap,
    OpenChunks,
    OpenGaps,
    Place,
    Selection,
)
from kafka_ingest.batches.decide_backfill import BackfillDecision
from kafka_ingest.batches.plan_backfill import BackfillOutcome, is_one_table, plan_backfill
from kafka_ingest.errors import (
    ColumnsChangedError,
    FeedChangedError,
    InvalidBackfillError,
    KafkaIngestError,
    KafkaUnavailableError,
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    OutputUnknownError,
    RangesTakenError,
    RecordsDeletedError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    TopicRecreatedError,
    UnknownBatchError,
    UnknownFeedError,
    WrongClusterError,
)
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, NewFeed, PlanRecord, StartOver
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.hold import beyond_log
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, Unavailable
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.planning.settings import Latest
from kafka_ingest.verbs.reset import decide_reset, reset
from kafka_ingest.verbs.reset_target import ToOffsets
from kafka_ingest.verbs.skip import decide_skip, skip

COPIES = parquet_at(Path("/data/orders-again"))
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Backfilled(FeedInMemory):
    """A feed in memory with an output for copies, and what an operator does with it."""

    copies: Any = field(default_factory=lambda: InMemorySink(COPIES.path))

    @property
    def sinks(self) -> Any:
        return sinks(self.sink, self.copies)

    def backfill(
        self, *ranges: OffsetRange, actor: str | None = "operator", once: bool = False, **request: Any
    ) -> BackfillOutcome:
        """Plan a backfill of ranges, or of what ``selection`` says."""
        asked = a_request(*ranges, **request)
        return plan_backfill(asked, self.settings, self, actor=actor, once=once)

    def dry_run(self, *ranges: OffsetRange, **request: Any) -> BackfillDecision:
        asked = a_request(*ranges, **request)
        found = plan_backfill(asked, self.settings, self, actor=None).decision
        assert found is not None
        return found

    def chunks(self) -> list[tuple[OffsetRange, ...]]:
        """Return the ranges of all backfills and copies that are open."""
        return [batch.plan.ranges for batch in self.control.open_backfills(self.feed_id)]

    @property
    def feed_id(self) -> UUID:
        found = self.control.feed("orders")
        assert found is not None
        return found.feed_id

    def run_live(self) -> None:
        """Run the feed after ten more records arrived in each partition."""
        logs = self.kafka.topics["orders"].logs
        grown = {number: log(bounds.log_start_offset, bounds.high_watermark + 10) for number, bounds in logs.items()}
        self.kafka.topics["orders"] = replace(self.kafka.topics["orders"], logs=grown)
        self.committed()


def a_request(*ranges: OffsetRange, selection: Selection | None = None, **request: Any) -> BackfillRequest:
    """Return a request for ranges, or for what a selection means."""
    return BackfillRequest(selection or OffsetRanges(ranges), **{"asked": {"by": "a test"}, **request})


COPY = {"mode": Mode.COPY, "output": COPIES}


def feed_with_a_hole() -> Backfilled:
    """Return a feed that committed orders-0[0, 20) and [60, 200), and orders-1[0, 150).

    Orders-0[20, 60) is an open gap.
    """
    feed = Backfilled()
    feed.kafka.topics["orders"] = topic(log(0, 20), log(0, 50))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150))
    skip(decide_skip("orders", span(0, 20, 60), "poisoned", feed.control, feed.kafka), feed.control, actor="operator")
    feed.committed()
    return feed


@pytest.fixture
def feed() -> Backfilled:
    return feed_with_a_hole()


@pytest.fixture
def latest() -> Backfilled:
    """A feed that began at the ends of its logs, at orders-0@100 and orders-1@50, and has read nothing yet."""
    feed = Backfilled(settings=feed_settings(start_rules={"orders": Latest()}))
    feed.plan()
    return feed


def refused(feed: Backfilled, error: type[KafkaIngestError], *ranges: OffsetRange, **request: Any) -> str:
    """Return why a backfill is refused; neither a plan nor a dry run of it writes anything, and both say the same."""
    before = feed.control.state
    with pytest.raises(error) as shown:
        feed.dry_run(*ranges, **request)
    with pytest.raises(error) as found:
        feed.backfill(*ranges, **request)
    assert str(shown.value) == str(found.value)
    assert feed.control.state is before
    return str(found.value)


# ── What is planned ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hole_is_claimed_in_chunks_that_are_batches_of_the_feed(feed: Backfilled) -> None:
    newest = feed.control.feed("orders").newest_batch
    outcome = feed.backfill(span(0, 20, 60), max_records=30)

    assert [chunk.ranges for chunk in outcome.chunks] == [(span(0, 20, 50),), (span(0, 50, 60),)]
    assert [feed.control.batch(chunk.batch_id).plan for chunk in outcome.chunks] == list(outcome.chunks)
    ids = [newest, *(chunk.batch_id for chunk in outcome.chunks)]
    assert ids == sorted(set(ids))
    for chunk in outcome.chunks:
        assert (chunk.kind, chunk.output) == (BatchKind.BACKFILL, parquet_at(feed.sink.output_path))
        assert (chunk.isolation, chunk.offsets_policy) == (feed.settings.isolation, feed.settings.offsets_policy)
        assert (chunk.cluster_id, dict(chunk.topic_ids)) == (feed.kafka.id, {"orders": "topic-id-1"})
    assert feed.sink.is_prepared


def test_chunks_come_after_every_batch_there_is_even_where_the_clock_was_set_back(feed: Backfilled) -> None:
    from_the_future = UUID("fffffff0-0000-7000-8000-000000000001")
    snapshot = feed.control.feed("orders")
    copy = a_plan(span(0, 0, 5), kind=BatchKind.COPY, feed_id=feed.feed_id, batch_id=from_the_future)
    feed.control.record_backfill(snapshot, BackfillRecord([copy], [], {}), actor="ops")

    ids = [chunk.batch_id for chunk in feed.backfill(selection=OpenGaps(), max_records=5).chunks]
    assert [from_the_future, *ids] == sorted({from_the_future, *ids})
    assert len(ids) == 8


def test_what_was_asked_for_is_in_the_journal(feed: Backfilled) -> None:
    outcome = feed.backfill(selection=OpenGaps())

    [event] = feed.control.journal(feed.feed_id, kinds=["backfill_planned"], limit=1)
    assert event.detail["request"] == {"by": "a test"}
    assert event.detail["chunks"] == [str(chunk.batch_id) for chunk in outcome.chunks]


def test_chunks_that_are_written_and_committed_close_the_gap_and_move_nothing(feed: Backfilled) -> None:
    before, group = feed.stored_offsets(), dict(feed.kafka.groups["orders-ingest"])
    for chunk in feed.backfill(selection=OpenGaps(), max_records=15).chunks:
        feed.write(chunk.batch_id)
        feed.commit(chunk.batch_id)

    assert (feed.stored_offsets(), feed.kafka.groups["orders-ingest"]) == (before, group)
    assert {gap.state for gap in feed.control.gaps(feed.feed_id)} == {"closed"}
    assert [partition.problems for partition in coverage_of(feed.control.coverage("orders")).values()] == [[], []]
    assert feed.sink.published_ranges() == [
        *(span(0, 0, 20), span(0, 20, 35), span(0, 35, 50), span(0, 50, 60), span(0, 60, 200)),
        *(span(1, 0, 50), span(1, 50, 150)),
    ]


def test_what_lies_before_the_first_offset_is_read_up_to_it(latest: Backfilled) -> None:
    assert [chunk.ranges for chunk in latest.backfill(span(0, 0, 100), span(1, 10, 20)).chunks] == [
        (span(0, 0, 100), span(1, 10, 20))
    ]
    assert "orders-1[40, 51), stored offset 50" in refused(latest, InvalidBackfillError, span(1, 40, 51))


def test_open_gaps_are_narrowed_to_a_partition(feed: Backfilled) -> None:
    other = feed.dry_run(selection=OpenGaps(), only=[Place("orders", 1)])
    same = feed.dry_run(selection=OpenGaps(), only=[Place("orders", 0)])

    assert (list(other.chunks), list(same.chunks)) == ([], [(span(0, 20, 60),)])
    assert "found orders:7" in refused(feed, InvalidBackfillError, selection=OpenGaps(), only=[Place("orders", 7)])


def test_where_nothing_is_left_to_read_nothing_is_written(feed: Backfilled) -> None:
    before = feed.control.state
    outcome = feed.backfill(span(0, 0, 20), span(1, 0, 150))

    assert (list(outcome.chunks), outcome.decision.committed) == ([], [span(0, 0, 20), span(1, 0, 150)])
    assert feed.control.state is before


def test_a_dry_run_says_what_a_plan_would_do_and_writes_nothing(feed: Backfilled) -> None:
    before = feed.control.state
    shown = feed.dry_run(span(0, 0, 60), max_records=10)
    assert feed.control.state is before
    assert not feed.copies.is_prepared

    assert feed.backfill(span(0, 0, 60), max_records=10).decision == shown


def test_what_is_gone_is_a_gap_on_record_and_found_there_the_next_time(latest: Backfilled) -> None:
    latest.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))
    assert "orders-0[10, 30) (20 offsets)" in refused(latest, RecordsDeletedError, span(0, 10, 40))

    outcome = latest.backfill(span(0, 10, 40), on_missing=OnMissing.RECORD_GAP)
    assert [chunk.ranges for chunk in outcome.chunks] == [(span(0, 30, 40),)]
    assert [gap.offset_range for gap in latest.control.gaps(latest.feed_id)] == [span(0, 10, 30)]
    claimed = refused(latest, RangesTakenError, span(0, 5, 40), on_missing=OnMissing.RECORD_GAP)
    assert f"claimed by open backfills, {outcome.chunks[0].batch_id}: orders-0[30, 40)." in claimed
    again = latest.backfill(span(0, 5, 45), on_missing=OnMissing.RECORD_GAP)
    assert [gap.offset_range for gap in latest.control.gaps(latest.feed_id)] == [span(0, 5, 10), span(0, 10, 30)]
    assert [chunk.ranges for chunk in again.chunks] == [(span(0, 40, 45),)]
    assert [partition.problems for partition in coverage_of(latest.control.coverage("orders")).values()] == [[], []]


def test_where_all_is_gone_the_gap_is_recorded_without_chunks_and_no_output_is_made(latest: Backfilled) -> None:
    latest.kafka.topics["orders"] = topic(log(30, 100), log(0, 50))
    latest.sink.is_prepared = False
    outcome = latest.backfill(span(0, 10, 30), on_missing=OnMissing.RECORD_GAP)

    assert (list(outcome.chunks), [gap.offset_range for gap in outcome.decision.gaps]) == ([], [span(0, 10, 30)])
    assert [gap.state for gap in latest.control.gaps(latest.feed_id)] == ["open"]
    assert not latest.sink.is_prepared


# ── Between two times ─────────────────────────────────────────────────────────────────────────────────────────────────


def by_time(start: int | None, end: int | None) -> BetweenTimestamps:
    """Return the selection from an hour of the new year to another."""
    return BetweenTimestamps(*(None if hour is None else NEW_YEAR + timedelta(hours=hour) for hour in (start, end)))


@pytest.mark.parametrize(
    ("selection", "chunks"),
    [
        (by_time(2, 4), [(span(0, 20, 40),)]),
        (by_time(2, None), [(span(0, 20, 100),)]),
        (by_time(1, None), [(span(0, 10, 100), span(1, 49, 50))]),
        (by_time(None, 2), [(span(0, 0, 20), span(1, 0, 50))]),
        (by_time(None, 1), [(span(0, 0, 10), span(1, 0, 49))]),
        (by_time(8, 9), [(span(0, 80, 90),)]),
        (by_time(11, 12), []),
        (by_time(99, 100), []),
    ],
)
def test_times_mean_the_offsets_between_them_below_the_stored_offset(
    latest: Backfilled, selection: Selection, chunks: list[tuple[OffsetRange, ...]]
) -> None:
    """orders-0 has a record every six minutes, from midnight on; orders-1 only the given one, of one o'clock."""
    latest.kafka.topics["orders"] = topic(log(0, 130), log(0, 70))
    latest.kafka.times[partition(0)] = {offset: NEW_YEAR + timedelta(hours=offset / 10) for offset in range(130)}
    latest.kafka.times[partition(1)] = {49: NEW_YEAR + timedelta(hours=1)}

    assert list(latest.dry_run(selection=selection).chunks) == chunks


def test_kafka_is_asked_for_times_only_where_a_time_is_named(feed: Backfilled) -> None:
    for ranges, selection in (((span(0, 20, 60),), None), ((), OpenGaps())):
        feed.kafka.questions.clear()
        feed.dry_run(*ranges, selection=selection)
        assert "offsets_at" not in feed.kafka.questions


# ── Earlier batches and runs ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_abandoned_backfill_is_planned_again_by_naming_its_batch(feed: Backfilled) -> None:
    [first] = feed.backfill(span(0, 30, 40)).chunks
    feed.control.abandon(first.batch_id, reason="not wanted", actor="ops")

    [again] = feed.backfill(selection=OfBatch(first.batch_id)).chunks
    assert again.ranges == first.ranges
    assert again.batch_id != first.batch_id


def test_a_run_that_is_named_means_all_its_batches(feed: Backfilled) -> None:
    for ranges in (span(0, 20, 30), span(0, 40, 50)):
        [chunk] = feed.backfill(ranges, actor="airflow:backfill_offsets/manual__1").chunks
        feed.control.abandon(chunk.batch_id, reason="not wanted", actor="ops")

    [again] = feed.backfill(selection=OfDagRun("manual__1"), max_records=5).chunks[:1]
    assert feed.chunks() == [(span(0, 20, 25),), (span(0, 25, 30),), (span(0, 40, 45),), (span(0, 45, 50),)]
    assert again.ranges == (span(0, 20, 25),)


def test_a_batch_or_run_that_nobody_knows_is_refused(feed: Backfilled) -> None:
    refused(feed, UnknownBatchError, selection=OfBatch(FEED_ID))
    assert "'manual__2', which did neither" in refused(feed, InvalidBackfillError, selection=OfDagRun("manual__2"))


def test_a_batch_of_another_feed_is_refused(feed: Backfilled) -> None:
    refunds = replace(
        feed,
        settings=feed_settings(name="refunds", output=parquet_at(Path("/data/refunds"))),
        sink=InMemorySink(Path("/data/refunds")),
    )
    theirs = refunds.planned()

    message = refused(feed, UnknownBatchError, selection=OfBatch(theirs.batch_id))
    assert f"expected a batch of feed orders, found {theirs.batch_id}, which is feed refunds's" in message


def test_a_batch_of_a_topic_that_was_made_again_since_is_refused(feed: Backfilled) -> None:
    [old] = feed.backfill(span(0, 30, 40)).chunks
    feed.control.abandon(old.batch_id, reason="not wanted", actor="ops")
    made_again(feed)

    message = refused(feed, InvalidBackfillError, selection=OfBatch(old.batch_id))
    assert "when its id was topic-id-1; it is topic-id-2 now" in message


def made_again(feed: Backfilled, topic_id: str = "topic-id-2", *, same_records: bool = False) -> None:
    """Let the topic be made again, and an operator let the feed continue with it."""
    feed.kafka.topics["orders"] = replace(feed.kafka.topics["orders"], topic_id=topic_id)
    snapshot = feed.control.feed("orders")
    kept = [replace(row, topic_id=topic_id) for row in snapshot.stored.values()]
    begun = [replace(row, first_offset=0, next_offset=0) for row in kept]
    decided = StartOver("orders", topic_id, kept if same_records else begun, same_records=same_records)
    feed.control.start_over(snapshot, feed.kafka.id, [decided], reason="made again", actor="ops")


def test_a_batch_of_a_topic_that_holds_the_same_records_under_another_id_is_planned_again(feed: Backfilled) -> None:
    [old] = feed.backfill(span(0, 30, 40)).chunks
    feed.control.abandon(old.batch_id, reason="not wanted", actor="ops")
    made_again(feed, same_records=True)

    [again] = feed.backfill(selection=OfBatch(old.batch_id)).chunks
    assert (again.ranges, again.topic_ids) == (old.ranges, {"orders": "topic-id-2"})


# ── Another process at the same time ──────────────────────────────────────────────────────────────────────────────────


def test_of_two_runs_that_plan_the_same_hole_at_once_one_gets_it_and_the_other_learns_who_has_it(
    feed: Backfilled,
) -> None:
    rivals: list[BatchPlan] = []
    feed.kafka.interleaved = lambda: rivals.extend(feed.backfill(selection=OpenGaps(), actor="rival").chunks)
    with pytest.raises(RangesTakenError) as found:
        feed.backfill(selection=OpenGaps())

    assert f"found claimed by open backfills, {rivals[0].batch_id}: orders-0[20, 60)." in str(found.value)
    assert [batch.planned_by for batch in feed.control.open_backfills(feed.feed_id)] == ["rival"]


def test_a_hole_of_which_a_rival_took_some_is_planned_without_that(feed: Backfilled) -> None:
    feed.kafka.interleaved = lambda: feed.backfill(span(0, 30, 40), actor="rival")
    outcome = feed.backfill(selection=OpenGaps())

    assert [chunk.ranges for chunk in outcome.chunks] == [(span(0, 20, 30),), (span(0, 40, 60),)]
    assert outcome.decision.claimed == [span(0, 30, 40)]
    assert outcome.decision.records_at_most == 30


def test_a_rival_that_was_faster_is_an_overlap_where_that_is_refused(feed: Backfilled) -> None:
    rivals: list[BatchPlan] = []
    feed.kafka.interleaved = lambda: rivals.extend(feed.backfill(span(0, 30, 40), actor="rival").chunks)
    with pytest.raises(RangesTakenError) as found:
        feed.backfill(span(0, 20, 60), on_overlap=OnOverlap.REFUSE)

    assert f"found claimed by open backfills, {rivals[0].batch_id}: orders-0[30, 40)." in str(found.value)
    assert feed.chunks() == [(span(0, 30, 40),)]


def test_a_rivals_backfill_that_is_committed_concurrently_is_left_out_as_committed(feed: Backfilled) -> None:
    def rival() -> None:
        [chunk] = feed.backfill(span(0, 30, 40), actor="rival").chunks
        feed.write(chunk.batch_id)
        feed.commit(chunk.batch_id)

    feed.kafka.interleaved = rival
    outcome = feed.backfill(span(0, 20, 60))

    assert [chunk.ranges for chunk in outcome.chunks] == [(span(0, 20, 30),), (span(0, 40, 60),)]
    assert outcome.decision.committed == [span(0, 30, 40)]


def test_a_live_commit_in_between_takes_nothing_away(feed: Backfilled) -> None:
    feed.kafka.interleaved = feed.run_live
    outcome = feed.backfill(selection=OpenGaps())

    assert [chunk.ranges for chunk in outcome.chunks] == [(span(0, 20, 60),)]
    assert feed.stored_offsets() == {partition(0): 210, partition(1): 160}
    assert outcome.chunks[0].batch_id == feed.control.feed("orders").newest_batch


def test_two_copies_planned_at_once_into_one_output_take_every_offset_once(feed: Backfilled) -> None:
    feed.kafka.interleaved = lambda: feed.backfill(span(0, 0, 100), actor="rival", **COPY)
    outcome = feed.backfill(span(0, 50, 150), **COPY)

    assert [chunk.ranges for chunk in outcome.chunks] == [(span(0, 100, 150),)]
    assert sorted(feed.chunks()) == [(span(0, 0, 100),), (span(0, 100, 150),)]


def rival_at(feed: Backfilled, tries: int) -> Callable[[], None]:
    """Return a rival who writes to the feed at each question that Kafka is asked, in so many tries."""
    feed_id = feed.feed_id

    def write_again() -> None:
        with feed.control.transaction() as state:
            state.touch(feed_id)
        if feed.kafka.questions.count("log_bounds") < tries:
            feed.kafka.interleaved = write_again

    feed.kafka.questions.clear()
    return write_again


def test_a_plan_of_a_feed_that_another_process_writes_to_all_the_time_fails_after_a_few_tries(feed: Backfilled) -> None:
    feed.kafka.interleaved = rival_at(feed, 1_000)
    with pytest.raises(
        FeedChangedError, match="feed orders: another process wrote to it 5 times while the backfill was planned"
    ):
        feed.backfill(selection=OpenGaps())

    assert feed.kafka.questions.count("log_bounds") == 5
    assert feed.chunks() == []
    assert feed.control.journal(feed.feed_id, kinds=["backfill_planned"], limit=1) == []


def test_the_last_try_may_be_the_one_that_nobody_disturbs(feed: Backfilled) -> None:
    feed.kafka.interleaved = rival_at(feed, 4)
    feed.backfill(selection=OpenGaps())

    assert feed.kafka.questions.count("log_bounds") == 5
    assert feed.chunks() == [(span(0, 20, 60),)]


# ── The same run again ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_is_tried_again_continues_with_the_chunks_that_it_has_but_those_that_were_abandoned(
    feed: Backfilled,
) -> None:
    first = feed.backfill(selection=OpenGaps(), max_records=15, actor="run 1", once=True)
    feed.write(first.chunks[0].batch_id)
    feed.commit(first.chunks[0].batch_id)
    feed.control.abandon(first.chunks[1].batch_id, reason="not wanted", actor="ops")
    before = feed.control.state
    feed.kafka.is_down = feed.sink.is_down = True

    again = feed.backfill(selection=OpenGaps(), max_records=7, actor="run 1", once=True)

    assert (list(again.chunks), again.decision) == ([first.chunks[0], first.chunks[2]], None)
    assert feed.control.state is before


def test_another_request_under_a_run_id_that_comes_again_is_refused_and_changes_nothing(feed: Backfilled) -> None:
    first = feed.backfill(span(0, 20, 30), actor="run 1", once=True, asked={"offset_ranges": ["orders:0=20-30"]})
    feed.write(first.chunks[0].batch_id)
    feed.commit(first.chunks[0].batch_id)
    before = feed.control.state

    with pytest.raises(InvalidBackfillError, match=r"orders:0=20-30.* found another .*orders:0=30-40.* no run has had"):
        feed.backfill(span(0, 30, 40), actor="run 1", once=True, asked={"offset_ranges": ["orders:0=30-40"]})

    assert feed.control.state is before
    again = feed.backfill(span(0, 20, 30), actor="run 1", once=True, asked={"offset_ranges": ["orders:0=20-30"]})
    assert again.chunks == first.chunks


def test_a_run_whose_chunks_were_all_abandoned_plans_again(feed: Backfilled) -> None:
    first = feed.backfill(selection=OpenGaps(), max_records=20, actor="run 1", once=True)
    for chunk in first.chunks:
        feed.control.abandon(chunk.batch_id, reason="too small", actor="ops")
    again = feed.backfill(selection=OpenGaps(), actor="run 1", once=True)

    assert [chunk.ranges for chunk in again.chunks] == feed.chunks() == [(span(0, 20, 60),)]
    assert again.decision is not None


# ── The chunks that are open ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("once", [True, False])
def test_open_chunks_are_those_of_all_runs_that_are_not_over(feed: Backfilled, *, once: bool) -> None:
    done, left = feed.backfill(span(0, 20, 40), max_records=10, actor="run 1").chunks
    feed.write(done.batch_id)
    feed.commit(done.batch_id)
    dropped, written = feed.backfill(span(0, 40, 60), max_records=10, actor="run 2").chunks
    feed.control.abandon(dropped.batch_id, reason="not wanted", actor="ops")
    feed.write(written.batch_id)
    [copy] = feed.backfill(span(0, 0, 50), actor="run 3", **COPY).chunks
    before = feed.control.state
    feed.kafka.is_down = feed.sink.is_down = True
    outcome = feed.backfill(selection=OpenChunks(), actor="run 4", once=once)

    assert (list(outcome.chunks), outcome.decision) == ([left, written, copy], None)
    assert feed.control.state is before


def test_where_no_chunk_is_open_there_is_none_to_resume(feed: Backfilled) -> None:
    before = feed.control.state
    assert feed.backfill(selection=OpenChunks()) == BackfillOutcome([], None)
    assert feed.control.state is before


def test_a_feed_that_was_never_planned_has_no_open_chunks(feed: Backfilled) -> None:
    feed.settings = feed_settings(name="refunds")
    refused(feed, UnknownFeedError, selection=OpenChunks())


# ── What was committed before an operator went back ───────────────────────────────────────────────────────────────────


def went_back(feed: Backfilled, offset: int) -> None:
    """Let an operator put orders-0 back to an offset."""
    target, why = ToOffsets({partition(0): offset}), "bad deploy"
    decision = decide_reset(target, {}, feed.settings, feed.control, feed.kafka, reason=why)
    reset(decision, feed.control, reason=why, actor="ops")


def test_what_was_committed_before_an_operator_went_back_is_not_filled_where_a_gap_lies_over_it(
    feed: Backfilled,
) -> None:
    went_back(feed, 100)
    feed.kafka.topics["orders"] = topic(log(0, 220), log(0, 150))
    skip(decide_skip("orders", span(0, 100, 210), "poisoned", feed.control, feed.kafka), feed.control, actor="operator")
    feed.committed()
    assert feed.stored_offsets()[partition(0)] == 220
    decision = feed.dry_run(selection=OpenGaps(), only=[Place("orders", 0)])

    assert list(decision.chunks) == [(span(0, 20, 60),), (span(0, 200, 210),)]
    assert decision.committed == [span(0, 100, 200)]
    message = refused(feed, RangesTakenError, span(0, 90, 205), on_overlap=OnOverlap.REFUSE)
    assert "committed already: orders-0[90, 200)" in message


def test_what_a_backfill_committed_before_an_operator_went_back_is_not_filled_again(feed: Backfilled) -> None:
    [chunk] = feed.backfill(span(0, 20, 40)).chunks
    feed.write(chunk.batch_id)
    feed.commit(chunk.batch_id)
    went_back(feed, 10)
    skip(decide_skip("orders", span(0, 10, 60), "poisoned", feed.control, feed.kafka), feed.control, actor="operator")
    feed.committed()

    decision = feed.dry_run(span(0, 0, 60))
    assert (list(decision.chunks), decision.committed) == ([(span(0, 40, 60),)], [span(0, 0, 40)])


def test_another_run_plans_what_is_left(feed: Backfilled) -> None:
    feed.backfill(span(0, 20, 30), actor="run 1", once=True)
    other = feed.backfill(selection=OpenGaps(), actor="run 2", once=True)

    assert [chunk.ranges for chunk in other.chunks] == [(span(0, 30, 60),)]


def test_an_actor_that_is_not_a_run_plans_again_each_time(feed: Backfilled) -> None:
    feed.backfill(span(0, 20, 30))

    assert [chunk.ranges for chunk in feed.backfill(span(0, 20, 40)).chunks] == [(span(0, 30, 40),)]


def test_a_run_that_died_when_its_chunks_were_recorded_finds_them(feed: Backfilled) -> None:
    class Died(BaseException):
        pass

    def die(call: str) -> None:
        if call == "record_backfill":
            raise Died

    doomed = replace(feed, control=Watched(feed.control, lambda _call: None, die))
    with pytest.raises(Died):
        doomed.backfill(selection=OpenGaps(), max_records=30, actor="run 1", once=True)
    outcome = feed.backfill(selection=OpenGaps(), max_records=30, actor="run 1", once=True)

    assert [chunk.ranges for chunk in outcome.chunks] == feed.chunks() == [(span(0, 20, 50),), (span(0, 50, 60),)]


# ── Copies ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def copied(feed: Backfilled, *ranges: OffsetRange) -> None:
    """Copy ranges, to the end."""
    for chunk in feed.backfill(*ranges, **COPY).chunks:
        feed.copies.published[chunk.batch_id] = chunk
        with feed.control.transaction() as state:
            state.change(chunk.batch_id, state=BatchState.COMMITTED, committed_by="operator")


def test_a_copy_reads_what_the_feed_has_committed_into_an_output_of_its_own(feed: Backfilled) -> None:
    [plan] = feed.backfill(span(0, 0, 200), span(1, 140, 150), **COPY).chunks

    assert (plan.kind, plan.output.path) == (BatchKind.COPY, COPIES.path)
    assert plan.ranges == (span(0, 0, 200), span(1, 140, 150))
    assert feed.copies.is_prepared


def test_a_copy_leaves_out_what_is_copied_or_being_copied_into_the_same_output(feed: Backfilled) -> None:
    copied(feed, span(0, 0, 50))
    feed.backfill(span(0, 50, 80), **COPY)
    decision = feed.backfill(span(0, 0, 100), **COPY).decision

    assert (decision.committed, decision.claimed) == ([span(0, 0, 50)], [span(0, 50, 80)])
    assert list(decision.chunks) == [(span(0, 80, 100),)]
    elsewhere = parquet_at(Path("/data/third"))
    assert list(feed.dry_run(span(0, 0, 100), mode=Mode.COPY, output=elsewhere).chunks) == [(span(0, 0, 100),)]


def test_a_copy_into_an_output_with_other_batches_is_refused(feed: Backfilled) -> None:
    feed.copies.foreign_batches = [str(FEED_ID)]

    message = refused(feed, OutputConflictError, span(0, 0, 50), **COPY)
    assert f"found 1 other batch (the newest is {FEED_ID})" in message
    assert not feed.copies.is_prepared


def test_a_copy_into_an_output_whose_copies_are_not_there_any_more_is_refused(feed: Backfilled) -> None:
    copied(feed, span(0, 0, 50))
    feed.copies = InMemorySink(COPIES.path)

    assert "Is its storage mounted?" in refused(feed, OutputConflictError, span(0, 50, 60), **COPY)


def test_copies_in_two_directories_may_be_one_table() -> None:
    def table(path: str, name: str) -> OutputLocation:
        return OutputLocation.at("postgresql", path, {"conn_id": "warehouse", "table": name})

    assert is_one_table(table("/a/again", "shop.again"), table("/b/again", "shop.again"))
    assert not is_one_table(table("/a/again", "shop.again"), table("/b/other", "shop.other"))
    assert not is_one_table(parquet_at(Path("/a/again")), parquet_at(Path("/b/again")))


def test_a_copy_whose_output_cannot_be_read_is_not_planned(feed: Backfilled) -> None:
    feed.copies.is_down = True

    refused(feed, OutputUnavailableError, span(0, 0, 50), **COPY)


def test_a_copy_after_the_topic_was_made_again_counts_only_what_was_copied_since(feed: Backfilled) -> None:
    copied(feed, span(0, 0, 50))
    made_again(feed)

    assert list(feed.dry_run(span(0, 0, 50), **COPY).chunks) == [(span(0, 0, 50),)]


def test_what_was_copied_of_the_same_records_under_an_earlier_id_is_there(feed: Backfilled) -> None:
    copied(feed, span(0, 0, 50))
    made_again(feed, same_records=True)

    assert list(feed.dry_run(span(0, 0, 60), **COPY).chunks) == [(span(0, 50, 60),)]


def test_what_is_gone_is_left_out_of_a_copy_and_is_no_gap_of_the_feeds(feed: Backfilled) -> None:
    feed.kafka.topics["orders"] = topic(log(30, 200), log(0, 150))
    before = feed.control.gaps(feed.feed_id)
    outcome = feed.backfill(span(0, 10, 60), on_missing=OnMissing.RECORD_GAP, **COPY)

    assert [chunk.ranges for chunk in outcome.chunks] == [(span(0, 30, 60),)]
    assert (outcome.decision.deleted, list(outcome.decision.gaps)) == ([span(0, 10, 30)], [])
    assert feed.control.gaps(feed.feed_id) == before


# ── Refused: nothing is written ───────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_was_never_planned_has_nothing_to_fill(feed: Backfilled) -> None:
    feed.settings = feed_settings(name="refunds")
    assert "expected a feed that was planned before, found 'refunds'" in refused(
        feed, UnknownFeedError, span(0, 20, 60)
    )


def test_while_kafka_is_down_nothing_is_planned(feed: Backfilled) -> None:
    feed.kafka.is_down = True
    refused(feed, KafkaUnavailableError, span(0, 20, 60))
    refused(feed, KafkaUnavailableError, selection=OpenGaps())


def test_a_partition_that_kafka_cannot_answer_for_stops_a_backfill_that_means_it_and_no_other(feed: Backfilled) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), Unavailable("LEADER_NOT_AVAILABLE"))

    message = refused(feed, KafkaUnavailableError, span(0, 20, 60), span(1, 0, 10))
    assert "orders-1: LEADER_NOT_AVAILABLE" in message
    refused(feed, KafkaUnavailableError, selection=by_time(None, 5))
    assert list(feed.dry_run(selection=OpenGaps()).chunks) == [(span(0, 20, 60),)]


def test_a_time_that_kafka_cannot_look_up_in_a_partition_stops_the_backfill(
    feed: Backfilled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed.kafka, "offsets_at", lambda asked: dict.fromkeys(asked, Unavailable("NOT_LEADER")))

    assert "orders-0" in refused(feed, KafkaUnavailableError, selection=by_time(1, None), only=[Place("orders", 0)])


def test_another_cluster_is_never_read(feed: Backfilled) -> None:
    feed.kafka.id = "cluster-B"
    assert "cluster-A" in refused(feed, WrongClusterError, span(0, 20, 60))


def test_a_topic_that_was_made_again_is_never_read_and_one_that_is_gone_neither(feed: Backfilled) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), topic_id="topic-id-2")
    assert "expected topic id topic-id-1, found topic-id-2" in refused(feed, TopicRecreatedError, span(0, 20, 60))
    del feed.kafka.topics["orders"]
    refused(feed, TopicGoneError, span(0, 20, 60))


def test_a_topic_whose_id_the_brokers_do_not_know_is_read(feed: Backfilled) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), topic_id=None)
    assert list(feed.dry_run(span(0, 20, 60)).chunks) == [(span(0, 20, 60),)]


def test_a_partition_that_the_feed_has_not_is_refused(feed: Backfilled) -> None:
    message = refused(feed, InvalidBackfillError, span(0, 20, 60), span(2, 0, 5))
    assert "(orders: 0 to 1), found orders-2" in message
    assert "found refunds-0" in refused(feed, InvalidBackfillError, span(0, 0, 5, "refunds"))


def test_a_partition_whose_start_is_not_decided_yet_is_refused_where_it_is_named_and_passed_over_by_time() -> None:
    feed = Backfilled()
    pending = StoredOffset(partition(1), "topic-id-1", None, None, "latest")
    begun = StoredOffset(partition(0), "topic-id-1", 100, 100, "latest")
    feed.control.record_plan(
        NewFeed(FEED_ID, "orders"), PlanRecord("cluster-A", ["orders"], seeds=[begun, pending]), actor="run 1"
    )

    assert "orders-1: expected a partition that was planned before" in refused(
        feed, InvalidBackfillError, span(1, 0, 5)
    )
    assert list(feed.dry_run(selection=by_time(None, 1)).chunks) == [(span(0, 0, 100),)]


def test_a_partition_whose_log_ended_below_its_stored_offset_is_decided_on_first_and_no_other_waits(
    feed: Backfilled,
) -> None:
    feed.control.hold(feed.feed_id, beyond_log(partition(0), 200, 50, NEW_YEAR))

    message = refused(feed, StoredOffsetBeyondLogError, span(0, 20, 40), span(1, 0, 150))
    assert "found that orders-0 ended below the stored offset" in message
    assert "`kafka-ingest topic-changed orders`" in message
    refused(feed, StoredOffsetBeyondLogError, span(0, 20, 40), **COPY)
    refused(feed, StoredOffsetBeyondLogError, selection=OpenGaps())
    assert feed.dry_run(span(1, 0, 150)).committed == [span(1, 0, 150)]
    # It is known without Kafka, and no later try would mend it.
    feed.kafka.topics["orders"] = topic(log(0, 200), Unavailable("LEADER_NOT_AVAILABLE"))
    refused(feed, StoredOffsetBeyondLogError, span(0, 20, 40), span(1, 0, 150))


def test_ranges_that_share_an_offset_are_a_mistake(feed: Backfilled) -> None:
    message = refused(feed, InvalidBackfillError, span(0, 20, 40), span(0, 39, 60))
    assert "found orders-0[20, 40) and orders-0[39, 60)" in message


@pytest.mark.parametrize("actor", ["operator", None])
def test_an_output_that_cannot_be_written_claims_nothing(feed: Backfilled, actor: str | None) -> None:
    feed.sink.refusal = "read-only"
    before = feed.control.state
    with pytest.raises(OutputNotUsableError):
        feed.backfill(span(0, 20, 60), actor=actor)
    assert feed.control.state is before


@pytest.mark.parametrize("actor", ["operator", None])
def test_records_that_no_attempt_could_write_are_not_claimed_and_a_dry_run_says_so(
    feed: Backfilled, actor: str | None
) -> None:
    asked_about: list[tuple[OutputLocation, Collection[str]]] = []

    def check(output: OutputLocation, topics: Collection[str]) -> None:
        asked_about.append((output, topics))
        raise ColumnsChangedError("amount is a text now")

    asked, before = a_request(span(0, 20, 60)), feed.control.state
    with pytest.raises(ColumnsChangedError):
        plan_backfill(asked, feed.settings, feed, actor=actor, check_records=check)
    assert asked_about == [(feed.settings.output, {"orders"})]
    assert feed.control.state is before


def test_an_output_that_is_away_or_is_another_is_not_filled(feed: Backfilled) -> None:
    feed.sink = InMemorySink()
    assert "Is the storage mounted?" in refused(feed, OutputUnavailableError, span(0, 20, 60))
    feed.sink.is_down = True
    refused(feed, OutputUnavailableError, span(0, 20, 60))


def test_an_output_with_batches_that_the_control_tables_do_not_know_is_not_filled(feed: Backfilled) -> None:
    feed.sink.foreign_batches = [str(FEED_ID)]
    refused(feed, OutputUnknownError, span(0, 20, 60))
