"""An operator jumps over an interval of offsets: now, or when the stored offset gets there."""

from dataclasses import replace

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, feed_settings, log, partition, span, topic

from kafka_ingest.errors import (
    BatchStateError,
    FeedChangedError,
    InvalidRangeError,
    KafkaUnavailableError,
    OffsetsLostError,
    TopicGoneError,
    TopicRecreatedError,
    UnknownFeedError,
    WrongClusterError,
)
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.offsets import OffsetRange, Unavailable
from kafka_ingest.planning.settings import Earliest, OnDataLoss
from kafka_ingest.verbs.skip import SkipDecision, decide_skip, skip

NO_LEADER = Unavailable("LEADER_NOT_AVAILABLE")


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that committed orders-0[0, 100) and orders-1[0, 50); each partition has 100 more records by now."""
    feed = FeedInMemory()
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150))
    return feed


def decided(feed: FeedInMemory, offset_range: OffsetRange) -> SkipDecision:
    """Decide to skip an interval; nothing is written."""
    return decide_skip("orders", offset_range, "poisoned", feed.control, feed.kafka)


def skipped(feed: FeedInMemory, offset_range: OffsetRange) -> Gap:
    """Skip an interval."""
    return skip(decided(feed, offset_range), feed.control, actor="operator")


def refusal(feed: FeedInMemory, offset_range: OffsetRange, error: type[Exception]) -> str:
    """Return why an interval is not skipped; nothing is written."""
    before = feed.control.state
    with pytest.raises(error) as found:
        skipped(feed, offset_range)
    assert feed.control.state is before
    return str(found.value)


# ── From the stored offset: now ───────────────────────────────────────────────────────────────────────────────────────


def test_an_interval_that_begins_at_the_stored_offset_moves_it(feed: FeedInMemory) -> None:
    assert decided(feed, span(0, 100, 120)).moves_stored_offset
    gap = skipped(feed, span(0, 100, 120))
    assert (gap.offset_range, gap.cause, gap.state) == (span(0, 100, 120), GapCause.SKIPPED, "open")
    assert (gap.reason, gap.decided_by, gap.topic_id) == ("poisoned", "operator", "topic-id-1")
    assert feed.stored_offsets() == {partition(0): 120, partition(1): 50}


def test_the_next_batch_begins_behind_what_was_skipped(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 100, 120))
    assert feed.planned().ranges == (span(0, 120, 200), span(1, 50, 150))


def test_everything_up_to_the_log_end_can_be_skipped(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 100, 200))
    assert feed.planned().ranges == (span(1, 50, 150),)


def test_a_skip_is_in_the_audit_journal_with_who_and_why(feed: FeedInMemory) -> None:
    gap = skipped(feed, span(0, 100, 120))
    (event,) = feed.control.journal(decided(feed, span(0, 120, 121)).feed.feed_id, kinds=["gap"], limit=1)
    assert event.actor == "operator"
    assert event.detail == {"gaps": [gap.as_document()]}


def test_deciding_alone_writes_nothing(feed: FeedInMemory) -> None:
    before = feed.control.state
    decided(feed, span(0, 100, 120))
    assert feed.control.state is before


def test_what_retention_took_can_be_skipped_partition_by_partition_and_the_feed_continues(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(130, 200), log(0, 150))
    with pytest.raises(OffsetsLostError, match="kafka-ingest skip orders orders 0 100-130 --reason"):
        feed.plan()
    skipped(feed, span(0, 100, 130))
    assert feed.planned().ranges == (span(0, 130, 200), span(1, 50, 150))


# ── Above the stored offset: when a plan gets there ───────────────────────────────────────────────────────────────────


def test_an_interval_above_the_stored_offset_is_filed_and_moves_nothing_yet(feed: FeedInMemory) -> None:
    assert not decided(feed, span(0, 150, 160)).moves_stored_offset
    assert skipped(feed, span(0, 150, 160)).state == "ahead"
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_a_batch_ends_at_the_gap_and_the_plan_that_starts_there_jumps(feed: FeedInMemory) -> None:
    filed = skipped(feed, span(0, 150, 160))
    first = feed.committed()
    assert (first.ranges, first.capped) == ((span(0, 100, 150), span(1, 50, 150)), True)
    assert feed.control.gaps(first.feed_id)[0].state == "ahead"
    second = feed.planned(actor="run 2")
    assert second.ranges == (span(0, 160, 200),)
    (gap,) = feed.control.gaps(first.feed_id)
    assert (gap.gap_id, gap.state, gap.decided_by) == (filed.gap_id, "open", "operator")


def test_every_offset_is_read_once_or_lies_in_a_gap(feed: FeedInMemory) -> None:
    for offset_range in (span(0, 150, 160), span(0, 160, 165), span(1, 50, 60), span(0, 190, 200)):
        skipped(feed, offset_range)
    while (batch := feed.plan().batch) is not None:
        feed.write(batch.batch_id)
        feed.commit(batch.batch_id)
    feed_id = feed.control.feed("orders").feed_id
    accounted = sorted([*feed.sink.published_ranges(), *(gap.offset_range for gap in feed.control.gaps(feed_id))])
    assert accounted == [
        span(0, 0, 100),
        span(0, 100, 150),
        span(0, 150, 160),
        span(0, 160, 165),
        span(0, 165, 190),
        span(0, 190, 200),
        span(1, 0, 50),
        span(1, 50, 60),
        span(1, 60, 150),
    ]
    assert {gap.state for gap in feed.control.gaps(feed_id)} == {"open"}


def test_a_skip_that_reaches_the_gap_filed_ahead_of_it_is_carried_on_by_the_next_plan(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 150, 160))
    skipped(feed, span(0, 100, 150))
    assert feed.stored_offsets()[partition(0)] == 150
    assert feed.planned().ranges == (span(0, 160, 200), span(1, 50, 150))


def test_a_record_that_nobody_could_read_is_skipped_and_the_partition_continues(feed: FeedInMemory) -> None:
    feed.kafka.damaged[partition(0)] = 100
    skipped(feed, span(0, 100, 101))
    assert feed.planned().ranges[0] == span(0, 101, 200)


# ── A partition that no plan could seed ───────────────────────────────────────────────────────────────────────────────


def test_a_new_partition_whose_first_records_are_gone_is_seeded_by_the_skip(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), log(30, 90))
    decision = decided(feed, span(2, 0, 30))
    assert (decision.seed is not None, decision.moves_stored_offset) == (True, True)
    skipped(feed, span(2, 0, 30))
    row = feed.control.feed("orders").stored[partition(2)]
    assert (row.first_offset, row.next_offset, row.seeded_by) == (0, 30, "new partition")
    assert feed.planned().ranges[-1] == span(2, 30, 90)


def test_a_new_partition_is_skipped_from_0_or_not_at_all(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), log(30, 90))
    message = refusal(feed, span(2, 10, 30), InvalidRangeError)
    assert "orders-2: expected FROM at or above the stored offset 0, where a new partition begins, found 10" in message


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_was_never_planned_is_refused() -> None:
    feed = FeedInMemory()
    assert "found 'orders', which is not in the control tables" in refusal(feed, span(0, 0, 1), UnknownFeedError)


def test_an_empty_interval_is_refused(feed: FeedInMemory) -> None:
    assert refusal(feed, span(0, 100, 100), InvalidRangeError) == "expected FROM-TO with FROM below TO, found 100-100"


def test_a_topic_without_stored_offsets_is_refused(feed: FeedInMemory) -> None:
    message = refusal(feed, span(0, 0, 9, "refunds"), InvalidRangeError)
    assert message == "feed orders has no stored offsets of topic 'refunds'"


def test_what_was_read_already_is_not_skipped(feed: FeedInMemory) -> None:
    message = refusal(feed, span(0, 99, 120), InvalidRangeError)
    assert "orders-0: expected FROM at or above the stored offset 100" in message
    assert "offsets below it were read or skipped already, found 99" in message


def test_records_that_were_never_written_are_not_skipped(feed: FeedInMemory) -> None:
    message = refusal(feed, span(0, 100, 201), InvalidRangeError)
    assert "expected TO up to the log's end 200, found 201: records that were never written" in message


def test_what_lies_behind_an_open_transaction_may_be_skipped(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200, lso=120), log(0, 150))
    assert skipped(feed, span(0, 120, 200)).state == "ahead"


def test_where_kafka_cannot_say_the_log_end_it_may_be_tried_again(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(NO_LEADER, log(0, 150))
    message = refusal(feed, span(0, 100, 120), KafkaUnavailableError)
    assert "orders-0: Kafka cannot report now where its log ends (LEADER_NOT_AVAILABLE)" in message
    assert "100-120" in message


def test_a_partition_whose_start_is_not_decided_yet_has_nothing_to_skip() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, log(0, 50))}))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50))
    message = refusal(feed, span(0, 0, 10), InvalidRangeError)
    assert message == "orders-0: its start is not decided yet (earliest); plan the feed first"


def test_another_cluster_is_refused(feed: FeedInMemory) -> None:
    feed.kafka.id = "cluster-B"
    assert "cluster-A, but the connection leads to cluster cluster-B" in refusal(
        feed, span(0, 100, 120), WrongClusterError
    )


def test_a_topic_that_was_made_again_is_refused_because_its_offsets_mean_other_records(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), topic_id="topic-id-2")
    assert "expected topic id topic-id-1, found topic-id-2" in refusal(feed, span(0, 100, 120), TopicRecreatedError)


def test_a_topic_that_is_gone_is_refused(feed: FeedInMemory) -> None:
    feed.kafka.topics.clear()
    assert "'orders' (topic id topic-id-1) does not exist any more" in refusal(feed, span(0, 100, 120), TopicGoneError)


def test_an_interval_that_is_filed_already_is_refused_with_its_reason(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 150, 160))
    message = refusal(feed, span(0, 155, 170), InvalidRangeError)
    assert message == (
        "orders-0[155, 170) overlaps orders-0[150, 160), which is a gap already (poisoned). Nothing was changed."
    )


@pytest.mark.parametrize("neighbour", [span(0, 140, 150), span(0, 160, 170), span(1, 140, 150)])
def test_an_interval_beside_a_filed_one_or_of_another_partition_is_not_refused(
    feed: FeedInMemory, neighbour: OffsetRange
) -> None:
    skipped(feed, span(0, 150, 160))
    assert skipped(feed, neighbour).offset_range == neighbour


# ── An open batch is in the way ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("inside", [span(0, 100, 101), span(0, 199, 200), span(1, 60, 70)])
def test_what_an_open_batch_reads_is_not_skipped(feed: FeedInMemory, inside: OffsetRange) -> None:
    plan = feed.planned()
    message = refusal(feed, inside, BatchStateError)
    assert f"{inside} overlaps " in message
    assert f"of open batch {plan.batch_id}. Finish that batch (run the feed), or abandon it" in message


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING])
def test_an_open_batch_is_in_the_way_in_each_of_its_states(feed: FeedInMemory, state: BatchState) -> None:
    plan = feed.open_in(state)
    refusal(feed, span(0, 100, 120), BatchStateError)
    assert feed.control.batch(plan.batch_id).state is state


def test_what_lies_behind_an_open_batch_is_filed_ahead_and_jumped_over_after_its_commit() -> None:
    feed = FeedInMemory(settings=feed_settings(max_records=60))
    plan = feed.planned()
    ends = {planned.topic_partition: planned.end_offset for planned in plan.ranges}
    assert skipped(feed, span(0, ends[partition(0)], ends[partition(0)] + 5)).state == "ahead"
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    assert feed.planned().ranges[0].start_offset == ends[partition(0)] + 5


def test_a_partition_that_the_open_batch_does_not_read_may_be_skipped_at_once(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    plan = feed.planned()
    assert plan.ranges == (span(0, 100, 200),)
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150))
    assert skipped(feed, span(1, 50, 60)).state == "open"
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    assert feed.stored_offsets() == {partition(0): 200, partition(1): 60}


def test_an_abandoned_batch_is_not_in_the_way(feed: FeedInMemory) -> None:
    feed.control.abandon(feed.planned().batch_id, reason="not wanted", actor="operator")
    assert skipped(feed, span(0, 100, 120)).state == "open"


# ── Another process was faster ────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_that_was_planned_since_the_skip_was_shown_refuses_it(feed: FeedInMemory) -> None:
    decision = decided(feed, span(0, 100, 120))
    feed.planned()
    with pytest.raises(FeedChangedError):
        skip(decision, feed.control, actor="operator")
    assert feed.stored_offsets()[partition(0)] == 100


def test_the_same_skip_twice_is_refused_the_second_time(feed: FeedInMemory) -> None:
    decision = decided(feed, span(0, 100, 120))
    skip(decision, feed.control, actor="operator")
    with pytest.raises(FeedChangedError):
        skip(decision, feed.control, actor="operator")
    assert len(feed.control.gaps(decision.feed.feed_id)) == 1


def test_topics_of_a_feed_are_skipped_apart() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 10)), "refunds": topic(log(0, 10))}),
        settings=feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()}),
    )
    feed.committed()
    feed.kafka.topics |= {"orders": topic(log(0, 20)), "refunds": topic(log(0, 20))}
    skipped(feed, span(0, 10, 15, "refunds"))
    assert feed.planned().ranges == (span(0, 10, 20), span(0, 15, 20, "refunds"))


# ── What was passed over already: acknowledged ───────────────────────────────────────────────────────────────────────


def test_a_gap_that_nobody_decided_is_acknowledged_and_stays_what_it_is(feed: FeedInMemory) -> None:
    feed.settings = replace(feed.settings, on_data_loss=OnDataLoss.RECORD_GAP)
    feed.kafka.topics["orders"] = topic(log(130, 200), log(0, 150))
    feed_id = feed.committed().feed_id
    [lost] = feed.control.gaps(feed_id)
    assert (lost.cause, lost.is_decided(())) == (GapCause.RETENTION, False)
    stored = feed.stored_offsets()
    assert not decided(feed, span(0, 100, 130)).moves_stored_offset
    assert "offsets below it were read or skipped" in refusal(feed, span(0, 100, 110), InvalidRangeError)

    assert skipped(feed, span(0, 100, 130)) == lost

    assert (feed.control.gaps(feed_id), feed.stored_offsets()) == ([lost], stored)
    [event] = [event for _, event in feed.control.state.events if event.kind == "gap_acknowledged"]
    assert (event.actor, event.detail["reason"]) == ("operator", "poisoned")


def test_only_the_whole_of_an_open_gap_is_acknowledged_and_a_skipped_one_needs_it_not(feed: FeedInMemory) -> None:
    skipped(feed, span(0, 100, 120))
    for wanted in (span(0, 100, 120), span(0, 100, 110)):
        assert "offsets below it were read or skipped already" in refusal(feed, wanted, InvalidRangeError)


def test_a_piece_of_an_acknowledged_gap_is_decided_too_but_not_one_of_another_topic_id(feed: FeedInMemory) -> None:
    gap = replace(skipped(feed, span(0, 100, 120)), cause=GapCause.RETENTION)
    piece = replace(gap, offset_range=span(0, 105, 120))
    assert piece.is_decided([gap])
    assert not gap.is_decided([piece])
    assert not replace(piece, topic_id="another").is_decided([gap])
