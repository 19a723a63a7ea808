"""The commit task on fakes: verify, COMMITTING, publish, move the stored offsets, then mirror the group."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import (
    GROUP,
    FakeKafkaCluster,
    FeedInMemory,
    feed_settings,
    log,
    partition,
    sinks,
    span,
    topic,
    watched,
)

from kafka_ingest.batches.known_feed import whole_plan
from kafka_ingest.batches.mirror_group import Mirrored
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.plan_batch import PlanResult
from kafka_ingest.errors import (
    BatchStateError,
    ColumnsChangedError,
    KafkaIngestError,
    KafkaUnavailableError,
    OffsetsMissingError,
    OffsetsMovedError,
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    RecordsFilteredError,
    StagedOutputUnusableError,
    UnknownBatchError,
)
from kafka_ingest.model.batch import AttemptState, BatchPlan, BatchState
from kafka_ingest.model.offsets import OffsetsPolicy, Unavailable
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.planning.settings import Earliest

P0, P1 = partition(0), partition(1)
BEFORE = {P0: 0, P1: 0}
AFTER = {P0: 100, P1: 50}


@pytest.fixture
def plan(feed: FeedInMemory) -> BatchPlan:
    """The feed's batch of all there is, WRITTEN by attempt 1."""
    return feed.written()


def assert_nothing_happened(feed: FeedInMemory, plan: BatchPlan, state: BatchState = BatchState.WRITTEN) -> None:
    assert feed.control.batch(plan.batch_id).state is state
    assert feed.sink.published == {}
    assert feed.stored_offsets() == BEFORE
    assert feed.kafka.groups == {}


def assert_committed(feed: FeedInMemory, plan: BatchPlan) -> None:
    assert feed.control.batch(plan.batch_id).state is BatchState.COMMITTED
    assert feed.sink.published_ranges() == [span(0, 0, 100), span(1, 0, 50)]
    assert feed.stored_offsets() == AFTER


def directory_of(feed: FeedInMemory, plan: BatchPlan) -> object:
    return feed.sink.staging.attempt_directory(plan.batch_id, 1)


def move_by_hand(feed: FeedInMemory, plan: BatchPlan, number: int, next_offset: int) -> None:
    """Move a stored offset past the protocol."""
    with feed.control.transaction() as state:
        key = (plan.feed_id, partition(number))
        state.stored[key] = replace(state.stored[key], next_offset=next_offset)


def more_arrives(feed: FeedInMemory, *ends: int) -> None:
    """Let both logs grow to these ends."""
    feed.kafka.topics["orders"] = topic(*(log(0, end) for end in ends))


# ── The order ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_order_of_the_commit(feed: FeedInMemory, plan: BatchPlan) -> None:
    calls: list[str] = []
    watched(feed, calls.append).commit(plan.batch_id)
    steps = ("can_take", "verify", "begin_commit", "publish", "complete_commit", "set_group_offsets")
    assert [call for call in calls if call in steps] == list(steps)


@pytest.mark.parametrize("one_database", [True, False], ids=["one database", "two databases"])
def test_an_output_whose_transaction_may_complete_the_batch_is_handed_that_step(
    feed: FeedInMemory, plan: BatchPlan, monkeypatch: pytest.MonkeyPatch, *, one_database: bool
) -> None:
    calls: list[str] = []
    transaction = object()

    def complete(found: object, batch_id: UUID, *, actor: str) -> bool:
        assert found is transaction
        feed.control.complete_commit(batch_id, actor=actor)
        return True

    def publish_within(directory: Path, published: PublishedReceipt, complete_within: Callable[[object], bool]) -> None:
        feed.sink.publish(directory, published)
        assert complete_within(transaction) is one_database
        calls.append(feed.control.batch(plan.batch_id).state)

    monkeypatch.setattr(feed.control, "are_in", lambda found: found is transaction and one_database)
    monkeypatch.setattr(feed.control, "complete_commit_within", complete)
    monkeypatch.setattr(feed.sink, "publish_within", publish_within)
    committed = watched(feed, calls.append).commit(plan.batch_id)
    assert (committed.by_us, committed.in_one) == (True, one_database)
    assert_committed(feed, plan)
    assert "publish" not in calls
    assert (BatchState.COMMITTED if one_database else BatchState.COMMITTING) in calls


def test_a_commit_publishes_the_batch_moves_the_offsets_and_brings_the_group_after_them(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    committed = feed.commit(plan.batch_id, actor="run 1")
    assert_committed(feed, plan)
    assert feed.kafka.groups == {GROUP: AFTER}
    assert committed.batch.state is BatchState.COMMITTED
    assert (committed.by_us, committed.mirrored) == (True, Mirrored(GROUP))
    assert [(str(count.offset_range), count.rows) for count in committed.counts] == [
        ("orders-0[0, 100)", 100),
        ("orders-1[0, 50)", 50),
    ]


def test_nothing_is_asked_of_kafka_before_the_stored_offsets_have_moved(feed: FeedInMemory, plan: BatchPlan) -> None:
    offsets_then: list[object] = []
    feed.kafka.questions.clear()
    feed.kafka.interleaved = lambda: offsets_then.append(feed.stored_offsets())
    feed.commit(plan.batch_id)
    assert offsets_then == [AFTER]
    assert feed.kafka.questions == ["cluster_id", "describe_topics", "set_group_offsets"]


def test_the_published_receipt_carries_the_plan_the_receipt_and_where_the_offsets_began(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    feed.commit(plan.batch_id)
    kept = feed.sink.published[plan.batch_id]
    assert (kept.plan, kept.receipt.rows) == (plan, 150)
    (seeded,) = kept.ledger
    assert (seeded.kind, [entry["offset"] for entry in seeded.detail["partitions"]]) == ("seeded", [0, 0])


def test_a_published_receipt_does_not_repeat_the_ledger_of_the_one_before(feed: FeedInMemory) -> None:
    feed.committed()
    more_arrives(feed, 120, 50)
    second = feed.committed()
    assert feed.sink.published[second.batch_id].ledger == []


def test_a_batch_without_a_single_record_is_committed_like_any_other(feed: FeedInMemory) -> None:
    plan = feed.written(missing=100)
    committed = feed.commit(plan.batch_id)
    assert_committed(feed, plan)
    assert feed.sink.published[plan.batch_id].receipt.files == ()
    assert [count.invisible for count in committed.counts] == [100, 50]


# ── Again ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_that_is_run_again_does_nothing(feed: FeedInMemory, plan: BatchPlan) -> None:
    first = feed.commit(plan.batch_id)
    calls: list[str] = []
    again = watched(feed, calls.append).commit(plan.batch_id)
    assert again == first
    assert not {"publish", "begin_commit", "complete_commit", "verify"} & set(calls)
    assert_committed(feed, plan)


def test_a_commit_by_another_run_is_not_ours(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.commit(plan.batch_id, actor="run 1")
    assert feed.commit(plan.batch_id, actor="run 2").by_us is False


def test_a_retry_of_the_run_that_committed_still_calls_the_batch_its_own(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.commit(plan.batch_id, actor="run 1")
    assert feed.commit(plan.batch_id, actor="run 1").by_us is True


def fold(feed: FeedInMemory, plan: BatchPlan) -> None:
    """Leave of a committed batch what folding does."""
    with feed.control.transaction() as state:
        folded = replace(state.batch(plan.batch_id), plan=plan.without_ranges(), pinned_attempt=None)
        state.batches[plan.batch_id] = folded
        state.attempts.clear()
        state.counts.clear()


def test_a_cleared_commit_of_a_folded_batch_succeeds_and_announces_nothing_again(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    feed.commit(plan.batch_id, actor="run 1")
    fold(feed, plan)
    feed.sink.is_down = True
    again = feed.commit(plan.batch_id, actor="run 1")
    assert (again.batch.state, again.by_us, again.counts) == (BatchState.COMMITTED, False, ())
    assert feed.stored_offsets() == AFTER


def test_a_cleared_write_of_a_folded_batch_reads_nothing_again(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.commit(plan.batch_id)
    fold(feed, plan)
    assert open_attempt(plan.batch_id, feed, actor="run") is None


def test_a_folded_batchs_plan_is_read_back_from_its_receipt_and_from_no_other(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    feed.commit(plan.batch_id)
    fold(feed, plan)
    folded = feed.control.batch(plan.batch_id).plan
    assert folded.ranges == ()
    assert whole_plan(folded, sinks(feed.sink)) == plan
    assert whole_plan(plan, sinks()) == plan, "one that is not folded is not looked for"

    published = feed.sink.published.pop(plan.batch_id)
    with pytest.raises(OutputUnavailableError, match="expected its receipt"):
        whole_plan(folded, sinks(feed.sink))
    feed.sink.published[plan.batch_id] = replace(published, plan=replace(plan, capped=not plan.capped))
    with pytest.raises(OutputConflictError, match="found that of another"):
        whole_plan(folded, sinks(feed.sink))


def test_a_cleared_commit_of_an_older_batch_moves_nothing_back(feed: FeedInMemory) -> None:
    older = feed.committed()
    more_arrives(feed, 120, 50)
    feed.committed()
    feed.commit(older.batch_id)
    assert feed.stored_offsets() == {P0: 120, P1: 50}
    assert feed.kafka.groups == {GROUP: {P0: 120, P1: 50}}


def test_a_committing_batch_is_finished_without_a_look_at_its_staged_files(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.control.begin_commit(plan.batch_id, 1)
    feed.sink.damaged.add(directory_of(feed, plan))
    calls: list[str] = []
    watched(feed, calls.append).commit(plan.batch_id)
    assert "verify" not in calls
    assert_committed(feed, plan)


def test_a_batch_that_was_published_before_a_crash_is_not_published_twice(feed: FeedInMemory, plan: BatchPlan) -> None:
    class Crash(BaseException):
        """The machine is gone."""

    def crash_after_publishing(name: str) -> None:
        if name == "publish":
            raise Crash

    with pytest.raises(Crash):
        watched(feed, lambda _: None, crash_after_publishing).commit(plan.batch_id)
    assert feed.control.batch(plan.batch_id).state is BatchState.COMMITTING
    assert feed.stored_offsets() == BEFORE
    assert feed.plan().result is PlanResult.RESUMED
    feed.commit(plan.batch_id)
    assert_committed(feed, plan)


def test_a_published_batch_is_finished_although_its_attempts_directory_was_cleaned_up(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    rival_publishes_and_crashes(feed, plan)
    feed.sink.receipts.clear()
    feed.commit(plan.batch_id)
    assert_committed(feed, plan)


def test_a_committing_batch_whose_receipt_is_gone_stays_committing(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.control.begin_commit(plan.batch_id, 1)
    feed.sink.receipts.clear()
    with pytest.raises(OutputConflictError, match=r"expected a receipt, found none.*kafka-ingest abandon"):
        feed.commit(plan.batch_id)
    assert_nothing_happened(feed, plan, BatchState.COMMITTING)


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_planned_batch_is_refused(feed: FeedInMemory) -> None:
    plan = feed.planned()
    with pytest.raises(BatchStateError, match=rf"batch {plan.batch_id} is PLANNED: expected a pinned receipt"):
        feed.commit(plan.batch_id)
    assert_nothing_happened(feed, plan, BatchState.PLANNED)


def test_an_abandoned_batch_is_refused_with_the_reason(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    with pytest.raises(BatchStateError, match=rf"batch {plan.batch_id} was abandoned by operator \(not wanted\)"):
        feed.commit(plan.batch_id)
    assert_nothing_happened(feed, plan, BatchState.ABANDONED)


def test_an_unknown_batch_is_refused(feed: FeedInMemory) -> None:
    with pytest.raises(UnknownBatchError):
        feed.commit(UUID(int=7))


def test_an_output_that_cannot_take_the_batch_is_refused_before_committing(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.sink.refusal = "permission denied"
    with pytest.raises(OutputNotUsableError, match="permission denied"):
        feed.commit(plan.batch_id)
    assert_nothing_happened(feed, plan)


def test_something_else_where_the_batch_is_to_be_published_is_refused_before_committing(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    def conflict(_directory: Path, receipt: Receipt) -> None:
        raise OutputConflictError(f"kafka_batch={receipt.batch_id} exists")

    feed.sink.publisher.can_take = conflict
    with pytest.raises(OutputConflictError):
        feed.commit(plan.batch_id)
    assert_nothing_happened(feed, plan)


def test_offsets_that_were_moved_by_hand_are_refused_before_anything_is_visible(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    move_by_hand(feed, plan, 1, 7)
    with pytest.raises(OffsetsMovedError, match="orders-1"):
        feed.commit(plan.batch_id)
    assert feed.sink.published == {}
    assert feed.stored_offsets() == {P0: 0, P1: 7}


def test_of_offsets_that_moved_after_the_check_none_moves(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.control.begin_commit(plan.batch_id, 1)
    move_by_hand(feed, plan, 1, 7)
    with pytest.raises(OffsetsMovedError, match="orders-1"):
        feed.commit(plan.batch_id)
    assert feed.stored_offsets() == {P0: 0, P1: 7}
    assert feed.control.batch(plan.batch_id).state is BatchState.COMMITTING


# ── Dense feeds ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dense_feed_with_missing_records_is_refused_with_partition_and_counts() -> None:
    feed = FeedInMemory(settings=feed_settings(offsets_policy=OffsetsPolicy.DENSE))
    plan = feed.written(missing=2)
    message = r"orders-0\[0, 100\): 98 records, 2 offsets without one, orders-1\[0, 50\): 48 records, 2 offsets"
    with pytest.raises(OffsetsMissingError, match=message) as error:
        feed.commit(plan.batch_id)
    assert error.value.exit_code == 3
    assert_nothing_happened(feed, plan)


def test_a_dense_feed_with_every_record_is_committed() -> None:
    feed = FeedInMemory(settings=feed_settings(offsets_policy=OffsetsPolicy.DENSE))
    plan = feed.written()
    feed.commit(plan.batch_id)
    assert_committed(feed, plan)


def test_a_feed_that_is_not_dense_counts_what_is_missing_and_continues(feed: FeedInMemory) -> None:
    committed = feed.commit(feed.written(missing=2).batch_id)
    assert [(count.rows, count.invisible) for count in committed.counts] == [(98, 2), (48, 2)]


# ── Staged output that cannot be used ─────────────────────────────────────────────────────────────────────────────────


def damage_files(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.sink.damaged.add(directory_of(feed, plan))


def remove_files(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.sink.staged.remove(directory_of(feed, plan))


def remove_receipt(feed: FeedInMemory, plan: BatchPlan) -> None:
    del feed.sink.receipts[directory_of(feed, plan)]


def cut_receipt(feed: FeedInMemory, plan: BatchPlan) -> None:
    directory = directory_of(feed, plan)
    feed.sink.receipts[directory] = feed.sink.receipts[directory][:50]


def change_receipt(feed: FeedInMemory, plan: BatchPlan) -> None:
    directory = directory_of(feed, plan)
    feed.sink.receipts[directory] = feed.sink.receipts[directory].replace(b"spark local-1", b"spark local-2")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (damage_files, "is damaged"),
        (remove_files, "is damaged"),
        (remove_receipt, "expected a receipt, found none"),
        (cut_receipt, "cannot be read"),
        (change_receipt, "was changed after it was pinned"),
    ],
)
def test_a_written_batch_that_is_proven_unusable_is_planned_again(
    feed: FeedInMemory, plan: BatchPlan, harm: Callable[[FeedInMemory, BatchPlan], None], why: str
) -> None:
    harm(feed, plan)
    with pytest.raises(StagedOutputUnusableError, match=rf"{why}.*is PLANNED again and its attempts are discarded"):
        feed.commit(plan.batch_id)
    assert_nothing_happened(feed, plan, BatchState.PLANNED)
    (attempt,) = feed.control.attempts(plan.batch_id)
    assert attempt.state is AttemptState.DISCARDED
    assert why in str(attempt.reason)


@pytest.mark.parametrize("error", [ColumnsChangedError, RecordsFilteredError])
def test_a_written_batch_whose_columns_or_records_do_not_go_with_the_table_is_planned_again_and_stops_the_feed(
    feed: FeedInMemory, plan: BatchPlan, monkeypatch: pytest.MonkeyPatch, error: type[KafkaIngestError]
) -> None:
    def does_not_fit(*_arguments: object) -> None:
        raise error("value.id  bigint  int")

    with monkeypatch.context() as patched:
        patched.setattr(feed.sink, "can_take", does_not_fit)
        with pytest.raises(error) as stopped:
            feed.commit(plan.batch_id)
    assert stopped.value.exit_code == 3
    assert_nothing_happened(feed, plan, BatchState.PLANNED)
    assert [attempt.reason for attempt in feed.control.attempts(plan.batch_id)] == ["value.id  bigint  int"]


def test_after_the_discard_the_next_run_writes_the_same_ranges_again(feed: FeedInMemory, plan: BatchPlan) -> None:
    damage_files(feed, plan)
    with pytest.raises(StagedOutputUnusableError):
        feed.commit(plan.batch_id)
    assert feed.planned(actor="run 2") == plan
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    assert feed.control.batch(plan.batch_id).pinned_attempt == 2
    assert_committed(feed, plan)


def test_an_input_output_error_proves_nothing_and_leaves_the_batch_written(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.sink.is_down = True
    with pytest.raises(OutputUnavailableError):
        feed.commit(plan.batch_id)
    assert_nothing_happened(feed, plan)
    feed.sink.is_down = False
    feed.commit(plan.batch_id)
    assert_committed(feed, plan)


# ── A second committer ────────────────────────────────────────────────────────────────────────────────────────────────


def rival_commits(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.commit(plan.batch_id, actor="rival")


def rival_publishes_and_crashes(feed: FeedInMemory, plan: BatchPlan) -> None:
    def crash(name: str) -> None:
        if name == "complete_commit":
            raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        watched(feed, crash).commit(plan.batch_id, actor="rival")


@pytest.mark.parametrize(
    "step",
    ["attempts", "read_receipt", "can_take", "verify", "begin_commit", "ledger", "publish", "complete_commit"],
)
@pytest.mark.parametrize(("rival", "ours"), [(rival_commits, False), (rival_publishes_and_crashes, True)])
def test_a_second_committer_that_is_faster_at_any_step_is_harmless(
    feed: FeedInMemory,
    plan: BatchPlan,
    step: str,
    rival: Callable[[FeedInMemory, BatchPlan], None],
    *,
    ours: bool,
) -> None:
    steps_left = [step]

    def let_the_rival_go_first(name: str) -> None:
        if name in steps_left:
            steps_left.clear()
            rival(feed, plan)

    committed = watched(feed, let_the_rival_go_first).commit(plan.batch_id, actor="run 1")
    assert steps_left == []
    assert committed.by_us is ours
    assert_committed(feed, plan)


# ── The mirror ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_group_kafka_is_only_read(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.kafka.questions.clear()
    committed = feed.commit(plan.batch_id, group=None)
    assert committed.mirrored == Mirrored(None)
    assert feed.kafka.questions == []


def kafka_goes_down(kafka: FakeKafkaCluster) -> None:
    kafka.is_down = True


def test_a_mirror_never_writes_into_another_cluster_than_the_offsets_were_read_in(
    feed: FeedInMemory, plan: BatchPlan
) -> None:
    feed.kafka.id = "cluster-B"
    committed = feed.commit(plan.batch_id)
    assert "cluster-B" in str(committed.mirrored.failure)
    assert feed.kafka.groups == {}
    assert_committed(feed, plan)


def test_a_mirror_never_sets_offsets_of_a_topic_that_was_made_again(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 10), log(0, 5), topic_id="made-again")
    committed = feed.commit(plan.batch_id)
    assert "made-again" in str(committed.mirrored.failure)
    assert feed.kafka.groups == {}


def kafka_refuses(kafka: FakeKafkaCluster) -> None:
    kafka.refusal = "the group has live members"


@pytest.mark.parametrize(
    ("fail", "reason"), [(kafka_goes_down, "the brokers did not answer"), (kafka_refuses, "the group has live members")]
)
def test_a_mirror_that_fails_is_recorded_and_never_fails_the_commit(
    feed: FeedInMemory, plan: BatchPlan, fail: Callable[[FakeKafkaCluster], None], reason: str
) -> None:
    fail(feed.kafka)
    committed = feed.commit(plan.batch_id, actor="run 1")
    assert committed.mirrored == Mirrored(GROUP, reason)
    assert_committed(feed, plan)
    (event,) = feed.control.journal(plan.feed_id, kinds=["mirror_failed"], limit=1)
    assert (event.actor, event.batch_id, event.detail) == ("run 1", plan.batch_id, {"group": GROUP, "reason": reason})


def test_an_answer_that_is_lost_after_kafka_set_the_group_is_no_failure(
    feed: FeedInMemory, plan: BatchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = feed.kafka.set_group_offsets

    def answer_is_lost(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        raise KafkaUnavailableError("the group's coordinator did not answer within 30 s")

    monkeypatch.setattr(feed.kafka, "set_group_offsets", answer_is_lost)

    assert feed.commit(plan.batch_id).mirrored.failure is None
    assert feed.control.journal(plan.feed_id, kinds=["mirror_failed"], limit=1) == []


def test_a_request_that_never_arrived_is_a_failure_that_is_recorded(
    feed: FeedInMemory, plan: BatchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_arrives(*_: Any, **__: Any) -> None:
        raise KafkaUnavailableError("the group's coordinator did not answer within 30 s")

    monkeypatch.setattr(feed.kafka, "set_group_offsets", never_arrives)

    assert "did not answer" in str(feed.commit(plan.batch_id).mirrored.failure)
    [event] = feed.control.journal(plan.feed_id, kinds=["mirror_failed"], limit=1)
    assert "did not answer" in event.detail["reason"]


def another_cluster(kafka: FakeKafkaCluster) -> None:
    kafka.id = "cluster-B"


def topic_made_again(kafka: FakeKafkaCluster) -> None:
    kafka.topics["orders"] = topic(log(0, 3), log(0, 3), topic_id="topic-id-2")


def topic_deleted(kafka: FakeKafkaCluster) -> None:
    kafka.topics.clear()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another_cluster, "leads to cluster cluster-B"),
        (topic_made_again, "was deleted and created again"),
        (topic_deleted, "does not exist any more"),
    ],
)
def test_the_group_is_not_given_offsets_that_mean_something_else_there(
    feed: FeedInMemory, plan: BatchPlan, change: Callable[[FakeKafkaCluster], None], reason: str
) -> None:
    change(feed.kafka)
    committed = feed.commit(plan.batch_id)
    assert reason in str(committed.mirrored.failure)
    assert feed.kafka.groups == {}
    assert_committed(feed, plan)


def test_a_topic_that_the_feed_no_longer_names_is_left_to_the_feed_that_reads_it_now() -> None:
    feed = FeedInMemory(
        kafka=FakeKafkaCluster({"orders": topic(log(0, 100)), "refunds": topic(log(0, 20))}),
        settings=feed_settings(start_rules={"orders": Earliest(), "refunds": Earliest()}),
    )
    feed.committed()
    feed.kafka.groups.clear()
    del feed.kafka.topics["refunds"]
    feed.kafka.topics["orders"] = topic(log(0, 120))
    feed.settings = feed_settings()
    assert feed.commit(feed.written().batch_id).mirrored == Mirrored(GROUP)
    assert feed.kafka.groups == {GROUP: {P0: 120}}


def test_a_mirror_that_failed_is_repaired_by_the_next_commit(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.kafka.refusal = "the group has live members"
    feed.commit(plan.batch_id)
    feed.kafka.refusal = None
    more_arrives(feed, 120, 50)
    feed.committed()
    assert feed.kafka.groups == {GROUP: {P0: 120, P1: 50}}


@pytest.mark.parametrize("drift", [3, 100_000])
def test_a_group_that_drifted_in_either_direction_is_brought_back(
    feed: FeedInMemory, plan: BatchPlan, drift: int
) -> None:
    feed.kafka.groups[GROUP] = {P0: drift, P1: drift}
    feed.commit(plan.batch_id)
    assert feed.kafka.groups == {GROUP: AFTER}


def test_the_group_follows_every_partition_and_not_only_those_of_the_batch(feed: FeedInMemory) -> None:
    feed.committed()
    more_arrives(feed, 120, 50)
    feed.kafka.groups.clear()
    assert feed.committed().ranges == (span(0, 100, 120),)
    assert feed.kafka.groups == {GROUP: {P0: 120, P1: 50}}


def test_a_pending_partition_has_no_offset_for_the_group(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 100), Unavailable("LEADER_NOT_AVAILABLE"))
    feed.committed()
    assert feed.kafka.groups == {GROUP: {P0: 100}}


def test_a_rival_that_commits_the_next_batch_concurrently_is_not_set_back(feed: FeedInMemory, plan: BatchPlan) -> None:
    more_arrives(feed, 120, 50)
    feed.kafka.interleaved = feed.committed
    feed.commit(plan.batch_id)
    assert feed.kafka.groups == {GROUP: {P0: 120, P1: 50}}


# ── Topic ids ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("at_first", "later"), [(None, "topic-id-1"), ("topic-id-1", None)])
def test_brokers_that_learn_or_forget_topic_ids_between_two_batches_do_not_wedge_the_feed(
    at_first: str | None, later: str | None
) -> None:
    # An upgrade over KIP-516: an id that is not known, on either side, says nothing either way.
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 100), topic_id=at_first)}))
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 120), topic_id=later)
    feed.committed()
    assert feed.stored_offsets() == {P0: 120}


def test_brokers_without_topic_ids_are_served_like_any_other() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 100), topic_id=None)}))
    feed.committed()
    assert feed.stored_offsets() == {P0: 100}
