"""An operator says what a topic or a cluster that changed means: nothing moves before, and only as it was shown."""

from collections.abc import Collection
from dataclasses import replace

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, a_receipt, feed_settings, log, partition, sinks, span, topic

from kafka_ingest.batches.plan_batch import PlanResult
from kafka_ingest.errors import (
    BatchStateError,
    FeedChangedError,
    KafkaUnavailableError,
    OutputUnavailableError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    TopicRecreatedError,
    UnknownFeedError,
    WrongClusterError,
    WrongUseError,
)
from kafka_ingest.model.batch import Attempt, AttemptState, Batch, BatchPlan, BatchState
from kafka_ingest.model.gap import GapCause, NewGap
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, Unavailable
from kafka_ingest.planning.settings import AtOffsets, Earliest, FromGroup, Latest, OnMissingTopic
from kafka_ingest.verbs.topic_changes import (
    Changes,
    Choice,
    accept_batch,
    apply_choice,
    changes_of,
    rows_after,
)

NO_LEADER = Unavailable("LEADER_NOT_AVAILABLE")
MADE_AGAIN = topic(log(0, 30), log(0, 20), topic_id="topic-id-2")


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that committed orders-0[0, 100) and orders-1[0, 50), and has nothing new to read."""
    feed = FeedInMemory()
    feed.committed()
    return feed


@pytest.fixture
def two_topics() -> FeedInMemory:
    """A feed of two topics that committed orders-0[0, 10) and refunds-0[0, 20)."""
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 10)), "refunds": topic(log(0, 20), topic_id="refunds-id")}),
        settings=feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()}),
    )
    feed.committed()
    return feed


def changes(feed: FeedInMemory, *named: str) -> Changes:
    """Look at what changed, of the feed or of the topics that are named."""
    return changes_of("orders", named, feed.settings, feed.control, feed.kafka)


def shown(feed: FeedInMemory, choice: Choice, *named: str) -> list[StoredOffset]:
    """Show the stored offsets that a choice comes to; nothing is written."""
    return [row for topic in rows_after(changes(feed, *named), choice, feed.settings) for row in topic.rows]


def choose(feed: FeedInMemory, choice: Choice, *named: str, discard_batch: bool = False) -> None:
    """Show what a choice comes to, and do it."""
    found = changes(feed, *named)
    after = rows_after(found, choice, feed.settings)
    apply_choice(found, after, feed.control, discard_batch=discard_batch, reason="made again", actor="operator")


def accept(feed: FeedInMemory, *named: str) -> Batch:
    """Say that what the open batch wrote was read before its topic changed."""
    return accept_batch(changes(feed, *named), feed.control, sinks(feed.sink), reason="read before", actor="operator")


def names_of(found: Changes) -> list[str]:
    return [change.topic for change in found.topics]


def refusal(feed: FeedInMemory, choice: Choice, *named: str, error: type[Exception] = WrongUseError) -> str:
    """Return why a choice is refused; nothing is written."""
    before = feed.control.state
    with pytest.raises(error) as found:
        choose(feed, choice, *named)
    assert feed.control.state is before
    return str(found.value)


def more_to_read(feed: FeedInMemory) -> BatchPlan:
    """Let records arrive and plan a batch of them."""
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150))
    return feed.planned()


def file_ahead(feed: FeedInMemory, offset_range: OffsetRange) -> None:
    """File a gap above the stored offset."""
    new = NewGap(offset_range, GapCause.SKIPPED, "poisoned")
    feed.control.file_gap(feed.control.feed("orders"), new, seed=None, actor="operator")


# ── What changed ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_where_nothing_changed_no_topic_is_shown(feed: FeedInMemory) -> None:
    found = changes(feed)
    assert (found.topics, found.affected, found.is_other_cluster) == ((), None, False)


def test_new_partitions_are_no_change(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50), log(0, 9))
    assert changes(feed).topics == ()


def test_a_topic_made_again_is_shown_with_both_ids_and_what_is_stored(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = MADE_AGAIN
    (change,) = changes(feed).topics
    assert (change.topic, change.known_id, change.found_id) == ("orders", "topic-id-1", "topic-id-2")
    assert [row.next_offset for row in change.stored] == [100, 50]


def test_a_topic_that_is_gone_is_shown_as_gone(feed: FeedInMemory) -> None:
    feed.kafka.topics.clear()
    (change,) = changes(feed).topics
    assert (change.topic, change.found, change.found_id) == ("orders", None, None)


@pytest.mark.parametrize("found_id", ["topic-id-1", None])
def test_a_topic_with_fewer_partitions_changed_whatever_its_id_says(feed: FeedInMemory, found_id: str | None) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), topic_id=found_id)
    assert names_of(changes(feed)) == ["orders"]


@pytest.mark.parametrize(("known_id", "found_id"), [(None, "topic-id-2"), ("topic-id-1", None), (None, None)])
def test_an_id_that_is_not_known_on_either_side_is_no_change(known_id: str | None, found_id: str | None) -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 9), topic_id=known_id)}))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 9), topic_id=found_id)
    assert changes(feed).topics == ()


def test_only_the_topics_that_changed_are_shown(two_topics: FeedInMemory) -> None:
    two_topics.kafka.topics["refunds"] = topic(log(0, 5), topic_id="refunds-id-2")
    assert names_of(changes(two_topics)) == ["refunds"]


def test_a_topic_that_was_taken_out_of_the_feed_file_is_asked_for_only_by_name(two_topics: FeedInMemory) -> None:
    two_topics.settings = feed_settings()
    del two_topics.kafka.topics["refunds"]
    assert names_of(changes(two_topics)) == []
    assert names_of(changes(two_topics, "refunds")) == ["refunds"]


def test_a_topic_that_the_pattern_matched_and_that_is_gone_is_shown(feed: FeedInMemory) -> None:
    feed.settings = replace(feed.settings, topic_pattern="ord.*", start_rules={})
    feed.kafka.topics.clear()
    assert names_of(changes(feed)) == ["orders"]


def test_another_cluster_changes_every_topic_although_the_ids_are_the_same(two_topics: FeedInMemory) -> None:
    two_topics.kafka.id = "cluster-B"
    found = changes(two_topics)
    assert (found.is_other_cluster, found.cluster_id, names_of(found)) == (True, "cluster-B", ["orders", "refunds"])


def test_on_another_cluster_topics_cannot_be_decided_one_by_one(two_topics: FeedInMemory) -> None:
    two_topics.kafka.id = "cluster-B"
    with pytest.raises(WrongUseError, match=r"cluster cluster-B, not cluster-A, so every topic changed\. Name no"):
        changes(two_topics, "orders")


def test_a_topic_without_stored_offsets_is_refused_with_those_that_have_some(two_topics: FeedInMemory) -> None:
    with pytest.raises(WrongUseError, match="in feed orders: orders, refunds; found returns"):
        changes(two_topics, "orders", "returns")


def test_a_feed_that_was_never_planned_is_refused() -> None:
    with pytest.raises(UnknownFeedError, match="found 'orders', which is not in the control tables"):
        changes(FeedInMemory())


def test_a_cluster_that_does_not_answer_says_nothing_of_its_topics(feed: FeedInMemory) -> None:
    feed.kafka.is_down = True
    with pytest.raises(KafkaUnavailableError):
        changes(feed)


def test_an_open_batch_is_affected_only_where_it_reads_a_topic_that_changed(two_topics: FeedInMemory) -> None:
    two_topics.kafka.topics["orders"] = topic(log(0, 15))
    plan = two_topics.planned()
    assert plan.topic_ids.keys() == {"orders"}
    two_topics.kafka.topics["refunds"] = topic(log(0, 5), topic_id="refunds-id-2")
    assert changes(two_topics).affected is None
    two_topics.kafka.topics["orders"] = topic(log(0, 15), topic_id="topic-id-2")
    affected = changes(two_topics).affected
    assert affected is not None
    assert affected.batch_id == plan.batch_id


@pytest.mark.parametrize("choice", [choice for choice in Choice if choice not in {Choice.START_RULE, Choice.BY_TIME}])
def test_showing_writes_nothing(feed: FeedInMemory, choice: Choice) -> None:
    changed_to = {
        Choice.START_OVER: topic(log(0, 200), log(0, 150), topic_id="topic-id-2"),
        Choice.SAME_RECORDS: topic(log(0, 200), log(0, 150), topic_id="topic-id-2"),
        Choice.REWIND: topic(log(0, 20), log(0, 50)),
    }
    feed.kafka.topics = {"orders": changed_to[choice]} if choice in changed_to else {}
    before = feed.control.state
    shown(feed, choice)
    assert feed.control.state is before


# ── Start over: other records ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_made_again_stops_the_feed_and_started_over_is_read_from_its_first_offset(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = MADE_AGAIN
    with pytest.raises(TopicRecreatedError, match="`kafka-ingest topic-changed orders` shows"):
        feed.plan()
    choose(feed, Choice.START_OVER)
    plan = feed.committed()
    assert plan.ranges == (span(0, 0, 30), span(1, 0, 20))
    assert plan.topic_ids == {"orders": "topic-id-2"}
    assert feed.stored_offsets() == {partition(0): 30, partition(1): 20}


def test_what_is_written_is_what_was_shown(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = MADE_AGAIN
    rows = shown(feed, Choice.START_OVER)
    choose(feed, Choice.START_OVER)
    stored = feed.control.feed("orders").stored.values()
    assert [replace(row, updated_at=None) for row in stored] == rows


def test_a_topic_made_again_begins_at_0_whatever_the_start_rule_says(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(start_rules={"orders": Latest()})
    feed.kafka.topics["orders"] = MADE_AGAIN
    assert [(row.first_offset, row.next_offset, row.seeded_by) for row in shown(feed, Choice.START_OVER)] == [
        (0, 0, "topic made again")
    ] * 2


@pytest.mark.parametrize(("found_id", "stop"), [("topic-id-2", TopicRecreatedError), (None, TopicGoneError)])
def test_a_topic_made_again_with_fewer_partitions_keeps_no_row_of_those_that_are_gone(
    feed: FeedInMemory, found_id: str | None, stop: type[Exception]
) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 30), topic_id=found_id)
    with pytest.raises(stop, match="`kafka-ingest topic-changed orders"):
        feed.plan()
    choose(feed, Choice.START_OVER, "orders")
    assert feed.stored_offsets() == {partition(0): 0}
    assert feed.planned().ranges == (span(0, 0, 30),)


def test_a_topic_that_did_not_change_is_not_started_over_although_it_is_named(feed: FeedInMemory) -> None:
    message = refusal(feed, Choice.START_OVER, "orders")
    assert "'orders' is the one its offsets were stored with (topic id topic-id-1)" in message
    assert "would read its records a second time. Nothing was changed." in message


@pytest.mark.parametrize("choice", Choice)
def test_where_nothing_changed_there_is_nothing_to_choose(feed: FeedInMemory, choice: Choice) -> None:
    message = refusal(feed, choice)
    assert message == "feed orders: expected a topic or cluster that changed, found none. Nothing was changed."


def test_the_other_topics_of_the_feed_keep_their_offsets(two_topics: FeedInMemory) -> None:
    two_topics.kafka.topics["refunds"] = topic(log(0, 5), topic_id="refunds-id-2")
    choose(two_topics, Choice.START_OVER)
    assert two_topics.stored_offsets() == {partition(0): 10, partition(0, "refunds"): 0}
    assert two_topics.planned().ranges == (span(0, 0, 5, "refunds"),)


def test_where_two_topics_changed_each_can_be_decided_by_name(two_topics: FeedInMemory) -> None:
    two_topics.kafka.topics = {
        "orders": topic(log(0, 12), topic_id="topic-id-2"),
        "refunds": topic(log(0, 25), topic_id="refunds-id-2"),
    }
    choose(two_topics, Choice.START_OVER, "orders")
    choose(two_topics, Choice.SAME_RECORDS, "refunds")
    assert two_topics.planned().ranges == (span(0, 0, 12), span(0, 20, 25, "refunds"))


def test_gaps_ahead_in_the_old_topic_do_not_reach_into_the_new_one(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    file_ahead(feed, span(0, 150, 160))
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50), topic_id="topic-id-2")
    choose(feed, Choice.START_OVER)
    assert feed.planned().ranges == (span(0, 0, 200), span(1, 0, 50))


def test_who_decided_and_why_is_in_the_journal_with_what_was_and_what_is(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 30), topic_id="topic-id-2")
    choose(feed, Choice.START_OVER)
    (event,) = feed.control.journal(feed.control.feed("orders").feed_id, kinds=["reset"], limit=1)
    assert (event.actor, event.detail["reason"], event.detail["same_records"]) == ("operator", "made again", [])
    old = [(row["partition"], row["topic_id"], row["next_offset"]) for row in event.detail["removed"]]
    new = [(row["partition"], row["topic_id"], row["next_offset"]) for row in event.detail["partitions"]]
    assert (old, new) == ([(0, "topic-id-1", 100), (1, "topic-id-1", 50)], [(0, "topic-id-2", 0)])


# ── Same records: under another id ────────────────────────────────────────────────────────────────────────────────────


def test_the_same_records_under_another_id_continue_at_the_stored_offsets(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50), topic_id="topic-id-2")
    choose(feed, Choice.SAME_RECORDS)
    plan = feed.committed()
    assert (plan.ranges, plan.topic_ids) == ((span(0, 100, 130),), {"orders": "topic-id-2"})


def test_the_same_records_keep_their_first_offset_and_the_rule_that_decided_it(feed: FeedInMemory) -> None:
    before = feed.control.feed("orders").stored
    made_again_under(feed)
    rows = shown(feed, Choice.SAME_RECORDS)
    assert rows == [replace(row, topic_id="topic-id-2") for row in before.values()]


def test_logs_that_end_below_the_stored_offsets_do_not_hold_the_same_records(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = MADE_AGAIN
    assert "orders-0: stored offset 100, log end 30" in refusal(feed, Choice.SAME_RECORDS)


def test_gaps_ahead_stay_where_the_records_are_the_same(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    file_ahead(feed, span(0, 150, 160))
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50), topic_id="topic-id-2")
    choose(feed, Choice.SAME_RECORDS)
    assert feed.committed().ranges == (span(0, 100, 150),)
    assert feed.planned().ranges == (span(0, 160, 200),)


def test_fewer_partitions_do_not_hold_the_same_records(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), topic_id="topic-id-2")
    message = refusal(feed, Choice.SAME_RECORDS)
    assert "missing: orders-1. It does not hold the same records." in message


def test_partitions_that_the_same_records_gained_begin_at_0_at_the_next_plan(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50), log(0, 7), topic_id="topic-id-2")
    choose(feed, Choice.SAME_RECORDS)
    assert feed.planned().ranges == (span(2, 0, 7),)


# ── Forget: gone for good ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_forgotten_topic_has_no_stored_offsets_and_the_others_continue(two_topics: FeedInMemory) -> None:
    del two_topics.kafka.topics["refunds"]
    with pytest.raises(TopicGoneError, match="--topic refunds --choice forget"):
        two_topics.plan()
    choose(two_topics, Choice.FORGET, "refunds")
    assert two_topics.stored_offsets() == {partition(0): 10}
    two_topics.settings = feed_settings()
    two_topics.kafka.topics["orders"] = topic(log(0, 15))
    assert two_topics.planned().ranges == (span(0, 10, 15),)


def test_a_topic_that_is_there_is_not_forgotten(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = MADE_AGAIN
    assert "expected the choice start-over, rewind or same-records, because it exists" in refusal(feed, Choice.FORGET)


@pytest.mark.parametrize("choice", [Choice.START_OVER, Choice.SAME_RECORDS])
def test_a_topic_that_is_gone_can_only_be_forgotten(feed: FeedInMemory, choice: Choice) -> None:
    feed.kafka.topics.clear()
    assert "topic 'orders': expected the choice forget, because it was deleted" in refusal(feed, choice)


@pytest.mark.parametrize("choice", [Choice.START_OVER, Choice.SAME_RECORDS, Choice.FORGET])
def test_one_choice_for_a_topic_that_is_gone_and_one_that_was_made_again_is_refused(
    two_topics: FeedInMemory, choice: Choice
) -> None:
    two_topics.kafka.topics = {"orders": topic(log(0, 30), topic_id="topic-id-2")}
    assert "Where several topics changed, name those that are meant." in refusal(two_topics, choice)


# ── Another cluster ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_cluster_stops_the_feed_and_starting_over_applies_the_start_rule_there(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(start_rules={"orders": Latest()})
    feed.kafka.id = "cluster-B"
    feed.kafka.topics["orders"] = topic(log(40, 80), log(0, 5), topic_id="topic-id-B")
    with pytest.raises(WrongClusterError, match="topic-changed orders` shows the choices"):
        feed.plan()
    choose(feed, Choice.START_OVER)
    assert feed.stored_offsets() == {partition(0): None, partition(1): None}
    feed.plan()
    assert feed.stored_offsets() == {partition(0): 80, partition(1): 5}
    assert feed.control.feed("orders").cluster_id == "cluster-B"


def test_on_another_cluster_the_next_plan_reads_from_where_the_log_begins_there(feed: FeedInMemory) -> None:
    feed.kafka.id = "cluster-B"
    feed.kafka.topics["orders"] = topic(log(40, 80), log(0, 5), log(2, 3))
    choose(feed, Choice.START_OVER)
    assert feed.planned().ranges == (span(0, 40, 80), span(1, 0, 5), span(2, 2, 3))


def test_a_start_rule_that_names_offsets_is_shown_for_each_partition(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(start_rules={"orders": AtOffsets({1: 7}, Earliest())})
    feed.kafka.id = "cluster-B"
    rows = shown(feed, Choice.START_OVER)
    assert [(row.next_offset, row.seeded_by) for row in rows] == [(None, "earliest"), (None, "offset 7")]


def test_a_group_that_names_the_start_on_the_other_cluster_is_asked_there_by_the_next_plan(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(start_rules={"orders": FromGroup("copied", Earliest())})
    feed.kafka.id = "cluster-B"
    choose(feed, Choice.START_OVER)
    feed.kafka.groups["copied"] = {partition(0): 90}
    assert feed.planned().ranges == (span(0, 90, 100), span(1, 0, 50))


def test_a_topic_that_the_other_cluster_does_not_have_has_no_stored_offsets_after_starting_over(
    two_topics: FeedInMemory,
) -> None:
    two_topics.kafka.id = "cluster-B"
    two_topics.kafka.topics = {"orders": topic(log(0, 4), topic_id="topic-id-B")}
    choose(two_topics, Choice.START_OVER)
    assert two_topics.stored_offsets() == {partition(0): None}


def test_a_cluster_that_took_the_logs_over_continues_at_the_stored_offsets(feed: FeedInMemory) -> None:
    feed.kafka.id = "cluster-B"
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50), topic_id="topic-id-B")
    choose(feed, Choice.SAME_RECORDS)
    plan = feed.planned()
    assert (plan.ranges, plan.cluster_id, plan.topic_ids) == (
        (span(0, 100, 130),),
        "cluster-B",
        {"orders": "topic-id-B"},
    )


def test_a_cluster_without_one_of_the_topics_did_not_take_the_logs_over(two_topics: FeedInMemory) -> None:
    two_topics.kafka.id = "cluster-B"
    del two_topics.kafka.topics["refunds"]
    assert "topic 'refunds': expected the choice forget" in refusal(two_topics, Choice.SAME_RECORDS)


# ── An open batch over a topic that changed ───────────────────────────────────────────────────────────────────────────


def made_again_under(feed: FeedInMemory) -> None:
    """Make the topic again with the same numbers, so that only its id differs."""
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), topic_id="topic-id-2")


def test_a_planned_batch_stands_in_the_way_until_an_operator_says_what_becomes_of_it(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    made_again_under(feed)
    message = refusal(feed, Choice.START_OVER, error=BatchStateError)
    assert f"batch {plan.batch_id} is PLANNED over a topic that changed" in message
    assert "discard abandons it; accept commits what it wrote" in message


def test_a_discarded_batch_is_abandoned_with_the_reason_and_the_topic_starts_over(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    made_again_under(feed)
    choose(feed, Choice.START_OVER, discard_batch=True)
    batch = feed.control.batch(plan.batch_id)
    assert (batch.state, batch.reason) == (BatchState.ABANDONED, "made again")
    assert feed.committed().ranges == (span(0, 0, 200), span(1, 0, 150))


def test_what_a_discarded_batch_wrote_stays_invisible(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    attempt = feed.open_attempt(plan.batch_id)
    feed.spark_writes(attempt)
    made_again_under(feed)
    choose(feed, Choice.START_OVER, discard_batch=True)
    assert str(plan.batch_id) not in feed.sink.publisher.known_batches()
    with pytest.raises(BatchStateError, match="the receipt of attempt 1 is refused: the batch was abandoned"):
        feed.pin(attempt)


@pytest.mark.parametrize("discard_batch", [True, False])
@pytest.mark.parametrize("state", [BatchState.WRITTEN, BatchState.COMMITTING])
def test_a_batch_that_is_written_is_committed_first_and_never_discarded(
    feed: FeedInMemory, state: BatchState, *, discard_batch: bool
) -> None:
    plan = more_to_read(feed)
    feed.write(plan.batch_id)
    if state is BatchState.COMMITTING:
        feed.control.begin_commit(plan.batch_id, 1)
    made_again_under(feed)
    with pytest.raises(BatchStateError, match=rf"is {state}: .* Commit it first: `kafka-ingest run orders`"):
        choose(feed, Choice.START_OVER, discard_batch=discard_batch)
    feed.commit(plan.batch_id)
    assert feed.stored_offsets() == {partition(0): 200, partition(1): 150}
    choose(feed, Choice.START_OVER)
    assert feed.stored_offsets() == {partition(0): 0, partition(1): 0}


def test_a_batch_that_was_written_since_it_was_shown_as_planned_is_not_discarded(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    attempt = feed.open_attempt(plan.batch_id)
    made_again_under(feed)
    found = changes(feed)
    after = rows_after(found, Choice.START_OVER, feed.settings)
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150))
    feed.spark_writes(attempt)
    feed.pin(attempt)
    with pytest.raises(FeedChangedError):
        apply_choice(found, after, feed.control, discard_batch=True, reason="made again", actor="operator")
    assert feed.control.batch(plan.batch_id).state is BatchState.WRITTEN
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}


def test_a_batch_of_another_topic_is_not_in_the_way_and_commits(two_topics: FeedInMemory) -> None:
    two_topics.kafka.topics["orders"] = topic(log(0, 15))
    plan = two_topics.planned()
    two_topics.kafka.topics["refunds"] = topic(log(0, 5), topic_id="refunds-id-2")
    choose(two_topics, Choice.START_OVER)
    two_topics.write(plan.batch_id)
    two_topics.commit(plan.batch_id)
    assert two_topics.stored_offsets() == {partition(0): 15, partition(0, "refunds"): 0}


def test_a_feed_that_was_planned_since_the_choice_was_shown_refuses_it(two_topics: FeedInMemory) -> None:
    two_topics.kafka.topics["orders"] = topic(log(0, 15))
    two_topics.kafka.topics["refunds"] = topic(log(0, 5), topic_id="refunds-id-2")
    found = changes(two_topics)
    after = rows_after(found, Choice.START_OVER, two_topics.settings)
    two_topics.settings = feed_settings()
    two_topics.planned()
    with pytest.raises(FeedChangedError):
        apply_choice(found, after, two_topics.control, discard_batch=False, reason="made again", actor="operator")
    assert two_topics.stored_offsets() == {partition(0): 10, partition(0, "refunds"): 20}


# ── Accepting what was read across the change ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def read_across(feed: FeedInMemory) -> Attempt:
    """An attempt that wrote all of the feed's next batch, whose topic was made again before the receipt was taken."""
    attempt = feed.open_attempt(more_to_read(feed).batch_id)
    feed.spark_writes(attempt)
    made_again_under(feed)
    return attempt


def test_what_was_read_across_the_change_is_not_pinned_until_it_is_accepted(
    feed: FeedInMemory, read_across: Attempt
) -> None:
    with pytest.raises(TopicRecreatedError):
        feed.pin(read_across)
    batch = accept(feed)
    assert (batch.batch_id, batch.state, batch.pinned_attempt) == (read_across.batch_id, BatchState.WRITTEN, 1)


def test_an_accepted_batch_commits_and_the_new_topic_is_started_over_after_that(
    feed: FeedInMemory, read_across: Attempt
) -> None:
    accept(feed)
    feed.commit(read_across.batch_id)
    assert feed.stored_offsets() == {partition(0): 200, partition(1): 150}
    choose(feed, Choice.START_OVER)
    assert feed.planned().ranges == (span(0, 0, 200), span(1, 0, 150))


def test_a_batch_whose_topic_is_gone_since_can_be_accepted(feed: FeedInMemory, read_across: Attempt) -> None:
    feed.kafka.topics.clear()
    assert accept(feed).batch_id == read_across.batch_id


def test_a_batch_read_before_the_connection_led_elsewhere_can_be_accepted(
    feed: FeedInMemory, read_across: Attempt
) -> None:
    feed.kafka.id = "cluster-B"
    assert accept(feed).batch_id == read_across.batch_id


@pytest.mark.usefixtures("read_across")
def test_who_accepted_and_why_is_in_the_journal(feed: FeedInMemory) -> None:
    batch = accept(feed)
    (event,) = feed.control.journal(batch.plan.feed_id, kinds=["receipt_accepted"], limit=1)
    assert (event.actor, event.batch_id) == ("operator", batch.batch_id)
    assert event.detail == {"attempt": 1, "reason": "read before"}


def test_of_several_attempts_the_first_that_finished_well_is_accepted(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    attempts = [feed.open_attempt(plan.batch_id) for _ in range(4)]
    feed.sink.receipts[attempts[1].directory] = b"{"
    for finished in attempts[2:]:
        feed.spark_writes(finished)
    made_again_under(feed)
    assert accept(feed).pinned_attempt == 3


def test_an_attempt_that_was_discarded_is_not_accepted(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    feed.write(plan.batch_id)
    feed.control.discard_written(plan.batch_id, 1, reason="part-00000 is short", actor="run 1")
    made_again_under(feed)
    before = feed.control.state
    with pytest.raises(WrongUseError, match="found no usable one"):
        accept(feed)
    assert feed.control.state is before
    assert [attempt.state for attempt in feed.control.attempts(plan.batch_id)] == [AttemptState.DISCARDED]


def test_a_batch_that_wrote_nothing_cannot_be_accepted(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    feed.open_attempt(plan.batch_id)
    made_again_under(feed)
    with pytest.raises(WrongUseError, match="deleted with the topic: the open batch's choice discard"):
        accept(feed)
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED


def test_what_an_operator_accepts_has_to_fit_the_plan_all_the_same(feed: FeedInMemory, read_across: Attempt) -> None:
    plan = feed.control.batch(read_across.batch_id).plan
    short = a_receipt(plan, document_sha256=read_across.document_sha256, rows_read=1)
    feed.sink.receipts[read_across.directory] = short.as_bytes()
    with pytest.raises(WrongUseError, match="Spark read 1 record, the files hold 200"):
        accept(feed)
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED


def test_a_batch_whose_topics_are_what_they_were_needs_nobody_to_accept_it(feed: FeedInMemory) -> None:
    attempt = feed.open_attempt(more_to_read(feed).batch_id)
    feed.spark_writes(attempt)
    with pytest.raises(BatchStateError, match="expected a PLANNED batch over a topic that changed, found none"):
        accept(feed)


def test_a_batch_that_is_written_needs_nobody_to_accept_it(feed: FeedInMemory) -> None:
    plan = more_to_read(feed)
    feed.write(plan.batch_id)
    made_again_under(feed)
    with pytest.raises(BatchStateError, match=f"found batch {plan.batch_id}, which is WRITTEN"):
        accept(feed)


@pytest.mark.usefixtures("read_across")
def test_an_output_that_cannot_be_read_is_not_a_batch_that_wrote_nothing(feed: FeedInMemory) -> None:
    feed.sink.is_down = True
    with pytest.raises(OutputUnavailableError):
        accept(feed)


# ── What no plan could resolve yet ────────────────────────────────────────────────────────────────────────────────────


def pending(rows: Collection[StoredOffset]) -> list[bool]:
    return [row.is_pending for row in rows]


def test_a_start_that_is_still_to_be_resolved_stays_so_where_the_records_are_the_same() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, log(0, 50))}))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(3, 9), log(0, 50), topic_id="topic-id-2")
    assert pending(shown(feed, Choice.SAME_RECORDS)) == [True, False]
    choose(feed, Choice.SAME_RECORDS)
    assert feed.planned().ranges == (span(0, 3, 9),)


def test_a_start_that_is_still_to_be_resolved_is_offset_0_where_the_topic_was_made_again() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(NO_LEADER, log(0, 50))}))
    feed.committed()
    feed.kafka.topics["orders"] = MADE_AGAIN
    assert pending(shown(feed, Choice.START_OVER)) == [False, False]


def test_a_choice_that_discards_a_batch_is_refused_too_where_the_feed_changed_since_it_was_shown(
    feed: FeedInMemory,
) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    feed.planned()
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 150), topic_id="topic-id-2")
    found = changes(feed)
    after = rows_after(found, Choice.SAME_RECORDS, feed.settings)
    file_ahead(
        feed, span(1, 50, 60)
    )  # a rival skips from the stored offset of a partition that the batch does not read
    with pytest.raises(FeedChangedError):
        apply_choice(found, after, feed.control, discard_batch=True, reason="made again", actor="operator")
    assert feed.stored_offsets()[partition(1)] == 60


def test_a_receipt_that_was_not_pinned_is_not_in_the_journal_as_accepted(
    feed: FeedInMemory, read_across: Attempt
) -> None:
    batch_id = read_across.batch_id
    feed.sink.interleaved = lambda: feed.control.abandon(batch_id, reason="rival", actor="rival")
    with pytest.raises(BatchStateError):
        accept(feed)
    assert feed.control.journal(feed.control.feed("orders").feed_id, kinds=["receipt_accepted"], limit=1) == []


def test_a_cluster_whose_leaders_count_anew_is_not_taken_for_one_that_lost_what_was_read() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 100, leader_epoch=7))}))
    feed.committed()
    feed.kafka.topics = {"orders": topic(log(0, 100, leader_epoch=0), topic_id="topic-id-2")}
    choose(feed, Choice.SAME_RECORDS)
    assert feed.plan().result is PlanResult.NOTHING_NEW


# ── A log that was truncated ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def truncated(feed: FeedInMemory) -> FeedInMemory:
    """The feed whose orders-0, stored at 130, was seen to end at 80; orders-1 has a gap ahead and another hold."""
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 90))
    file_ahead(feed, span(1, 60, 65))
    feed.settings = feed_settings(max_records_per_partition=1)
    feed.kafka.topics["orders"] = topic(log(0, 80), log(0, 90))
    with pytest.raises(StoredOffsetBeyondLogError):
        feed.plan()
    feed.settings = feed_settings()
    return feed


def test_a_truncated_log_is_read_on_from_where_it_ended_and_its_siblings_keep_what_was_decided_on_them(
    truncated: FeedInMemory,
) -> None:
    truncated.kafka.topics["orders"] = topic(log(0, 500), log(0, 90))
    choose(truncated, Choice.REWIND)
    assert truncated.committed().ranges == (span(0, 80, 500), span(1, 50, 60))
    assert truncated.committed().ranges == (span(1, 65, 90),)
    assert truncated.control.feed("orders").holds == []


def test_the_lowest_end_that_was_seen_counts(truncated: FeedInMemory) -> None:
    for end in (60, 40, 50):
        truncated.kafka.topics["orders"] = topic(log(0, end), log(0, 90))
        with pytest.raises(StoredOffsetBeyondLogError, match=f"log end {end}"):
            truncated.plan()
    truncated.kafka.topics["orders"] = topic(log(0, 500), log(0, 90))
    choose(truncated, Choice.REWIND)
    assert truncated.stored_offsets()[partition(0)] == 40


@pytest.mark.parametrize(("seen", "end"), [(40, 50), (60, 40)])
def test_the_lowest_end_counts_also_where_the_log_is_still_short(truncated: FeedInMemory, seen: int, end: int) -> None:
    truncated.kafka.topics["orders"] = topic(log(0, seen), log(0, 90))
    with pytest.raises(StoredOffsetBeyondLogError):
        truncated.plan()
    truncated.kafka.topics["orders"] = topic(log(0, end), log(0, 90))
    choose(truncated, Choice.REWIND)
    assert truncated.stored_offsets()[partition(0)] == 40


def test_an_end_that_no_plan_has_seen_counts_too(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 80), log(0, 50))
    choose(feed, Choice.REWIND)
    assert feed.stored_offsets() == {partition(0): 80, partition(1): 50}


def test_a_truncated_log_is_not_started_over(truncated: FeedInMemory) -> None:
    assert "choose rewind" in refusal(truncated, Choice.START_OVER)


def test_a_topic_made_again_is_not_rewound(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = MADE_AGAIN
    assert "found another topic" in refusal(feed, Choice.REWIND)


def test_another_cluster_starts_topics_by_the_start_rule_that_the_old_one_did_not_have(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(
        start_rules={"orders": Latest(), "refunds": Latest()}, on_missing_topic=OnMissingTopic.HOLD
    )
    feed.plan()
    feed.kafka.id = "cluster-B"
    feed.kafka.topics = {"orders": topic(log(0, 9), topic_id="b"), "refunds": topic(log(3, 900), topic_id="c")}
    choose(feed, Choice.START_OVER)
    feed.plan()
    assert feed.stored_offsets() == {partition(0): 9, partition(0, "refunds"): 900}


def test_another_cluster_ends_the_offsets_of_topics_that_nobody_reads_and_that_do_not_fit(
    two_topics: FeedInMemory,
) -> None:
    two_topics.settings = feed_settings()
    two_topics.kafka.id = "cluster-B"
    two_topics.kafka.topics = {
        "orders": topic(log(0, 15), topic_id="orders-on-B"),
        "refunds": topic(log(0, 1), topic_id="refunds-on-B"),
    }
    choose(two_topics, Choice.SAME_RECORDS)
    assert {tp.topic for tp in two_topics.stored_offsets()} == {"orders"}


# ── Stored without an id ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_stored_without_an_id_gets_the_one_that_kafka_names_now_if_an_operator_says_it_is_the_same() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 100), topic_id=None)}))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 100), topic_id="its-id")
    feed.plan()
    assert feed.control.feed("orders").stored[partition(0)].topic_id is None

    choose(feed, Choice.SAME_RECORDS, "orders")
    assert feed.control.feed("orders").stored[partition(0)].topic_id == "its-id"
    assert feed.stored_offsets() == {partition(0): 100}
    feed.kafka.topics["orders"] = topic(log(0, 120), topic_id="another-id")
    with pytest.raises(TopicRecreatedError):
        feed.plan()
