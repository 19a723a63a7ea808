"""The write task on fakes, around Spark: open an attempt only where one is needed, and pin the first valid receipt."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, a_receipt, log, topic

from kafka_ingest.batches.pin_receipt import pin_first_valid_receipt, valid_receipt
from kafka_ingest.errors import (
    BatchStateError,
    FeedChangedError,
    InvalidReceiptError,
    TopicGoneError,
    TopicRecreatedError,
    UnknownBatchError,
    WrongClusterError,
)
from kafka_ingest.model.batch import Attempt, AttemptDocument, AttemptState, BatchPlan, BatchState, sha256

RECREATED = topic(log(0, 100), log(0, 50), topic_id="topic-id-2")


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed with the PLANNED batch orders-0[0, 100), orders-1[0, 50)."""
    feed = FeedInMemory()
    feed.plan()
    return feed


@pytest.fixture
def plan(feed: FeedInMemory) -> BatchPlan:
    return feed.control.feed("orders").open_batch.plan


@pytest.fixture
def attempt(feed: FeedInMemory, plan: BatchPlan) -> Attempt:
    """The batch's first attempt, open, without a receipt."""
    return feed.open_attempt(plan.batch_id)


def pin_first(feed: FeedInMemory, plan: BatchPlan, actor: str = "run 2") -> bool:
    """Look through the attempts as every task does that meets a PLANNED batch."""
    batch = feed.control.batch(plan.batch_id)
    return pin_first_valid_receipt(batch, feed, actor=actor)


def change_receipt(feed: FeedInMemory, attempt: Attempt, changes: dict[str, Any]) -> None:
    """Let Spark write a receipt, and replace some of its keys."""
    document = feed.spark_writes(attempt).as_document() | changes
    feed.sink.receipts[attempt.directory] = json.dumps(document).encode()


def state_of(feed: FeedInMemory, plan: BatchPlan) -> BatchState:
    return feed.control.batch(plan.batch_id).state


# ── Opening an attempt ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_attempt_is_in_the_control_tables_and_its_document_in_its_directory(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    assert feed.control.attempts(plan.batch_id) == [attempt]
    document = AttemptDocument.from_bytes(feed.sink.documents[attempt.directory], attempt.document_sha256)
    assert document == AttemptDocument(plan, 1)


def test_an_attempts_row_is_there_before_its_directory(feed: FeedInMemory, plan: BatchPlan) -> None:
    rows_then: list[list[Attempt]] = []
    made = feed.sink.staging.open_attempt
    feed.sink.staging.open_attempt = lambda *arguments: (
        rows_then.append(feed.control.attempts(plan.batch_id)),
        made(*arguments),
    )
    attempt = feed.open_attempt(plan.batch_id)
    assert rows_then == [[attempt]]


def test_each_attempt_has_a_number_and_a_directory_of_its_own(feed: FeedInMemory, plan: BatchPlan) -> None:
    first, second = feed.open_attempt(plan.batch_id), feed.open_attempt(plan.batch_id)
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.directory != second.directory


def test_an_attempt_after_discarded_ones_gets_the_next_number(feed: FeedInMemory) -> None:
    written = feed.written()
    feed.control.discard_written(written.batch_id, 1, reason="damaged", actor="operator")
    assert feed.open_attempt(written.batch_id).attempt == 2


def test_a_valid_receipt_that_is_there_already_needs_no_spark(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    feed.spark_writes(attempt)
    assert feed.ask_for_attempt(plan.batch_id) is None
    assert state_of(feed, plan) is BatchState.WRITTEN


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_batch_that_is_written_or_further_needs_no_spark_and_no_kafka(feed: FeedInMemory, steps: int) -> None:
    plan = feed.written()
    if steps > 0:
        feed.control.begin_commit(plan.batch_id, 1)
    if steps > 1:
        feed.control.complete_commit(plan.batch_id, actor="run 1")
    feed.kafka.is_down = True
    assert feed.ask_for_attempt(plan.batch_id) is None


def test_an_abandoned_batch_is_not_written(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    with pytest.raises(BatchStateError, match=r"was abandoned by operator \(not wanted\)"):
        feed.open_attempt(plan.batch_id)
    assert feed.sink.documents == {}


def test_an_unknown_batch_is_not_written(feed: FeedInMemory) -> None:
    with pytest.raises(UnknownBatchError, match="no batch 00000000-0000-0000-0000-000000000007"):
        feed.open_attempt(UUID(int=7))


def test_a_topic_that_was_made_again_since_the_plan_is_not_read(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.kafka.topics["orders"] = RECREATED
    with pytest.raises(TopicRecreatedError, match="expected topic id topic-id-1, found topic-id-2"):
        feed.open_attempt(plan.batch_id)
    assert feed.control.attempts(plan.batch_id) == []


def test_a_topic_that_is_gone_since_the_plan_is_not_read(feed: FeedInMemory, plan: BatchPlan) -> None:
    feed.kafka.topics.clear()
    with pytest.raises(TopicGoneError, match=r"'orders' \(topic id topic-id-1\) does not exist any more"):
        feed.open_attempt(plan.batch_id)


def test_a_topic_is_not_read_from_another_cluster_whose_brokers_know_no_topic_ids() -> None:
    feed = FeedInMemory(kafka=FakeKafkaCluster({"orders": topic(log(0, 100), topic_id=None)}))
    plan = feed.planned()
    feed.kafka.id = "cluster-B"
    with pytest.raises(WrongClusterError, match=r"cluster-A.*cluster-B"):
        feed.open_attempt(plan.batch_id)


def test_two_tasks_that_open_an_attempt_at_once_get_one_each(feed: FeedInMemory, plan: BatchPlan) -> None:
    rivals: list[Attempt] = []
    opened = feed.control.open_attempt

    def rival_first(mine: Attempt) -> None:
        feed.control.open_attempt = opened
        rivals.append(feed.open_attempt(plan.batch_id))
        opened(mine)

    feed.control.open_attempt = rival_first
    attempt = feed.open_attempt(plan.batch_id)
    assert (rivals[0].attempt, attempt.attempt) == (1, 2)


def test_opening_gives_up_where_a_rival_is_always_faster(feed: FeedInMemory, plan: BatchPlan) -> None:
    def always_faster(mine: Attempt) -> None:
        raise FeedChangedError(f"attempt {mine.attempt} was opened by another process")

    feed.control.open_attempt = always_faster
    with pytest.raises(FeedChangedError, match="5 times another process opened an attempt"):
        feed.open_attempt(plan.batch_id)


def test_a_batch_that_a_rival_writes_while_kafka_is_asked_needs_no_spark(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    def rival_writes() -> None:
        feed.spark_writes(attempt)
        feed.pin(attempt)

    feed.kafka.interleaved = rival_writes
    assert feed.ask_for_attempt(plan.batch_id) is None


def test_a_batch_that_is_abandoned_while_its_receipt_is_pinned_is_not_called_written(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    feed.spark_writes(attempt)
    feed.kafka.interleaved = lambda: feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    with pytest.raises(BatchStateError, match=r"was abandoned by operator \(not wanted\)"):
        feed.ask_for_attempt(plan.batch_id)


# ── Pinning ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pinned_receipt_makes_the_batch_written(feed: FeedInMemory, plan: BatchPlan, attempt: Attempt) -> None:
    receipt = feed.spark_writes(attempt)
    batch = feed.pin(attempt)
    assert (batch.state, batch.pinned_attempt, batch.rows, batch.size_bytes) == (BatchState.WRITTEN, 1, 150, 2_000)
    (row,) = feed.control.attempts(plan.batch_id)
    assert (row.state, row.receipt_sha256) == (AttemptState.PINNED, sha256(receipt.as_bytes()))
    assert [count.rows for count in feed.control.range_counts(plan.batch_id)] == [100, 50]


def test_a_receipt_that_is_missing_is_refused_and_the_batch_stays_planned(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    with pytest.raises(
        InvalidReceiptError, match=rf"attempt 1 of batch {plan.batch_id} .*expected a receipt, found none"
    ):
        feed.pin(attempt)
    assert state_of(feed, plan) is BatchState.PLANNED


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"{}", b'{"version": 1}', b"\xff\xfe", b'{"version": 1, "files": 3}']
)
def test_a_receipt_that_cannot_be_read_is_refused(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt, content: bytes
) -> None:
    feed.sink.receipts[attempt.directory] = content
    with pytest.raises(InvalidReceiptError, match=rf"attempt 1 of batch {plan.batch_id} .*its receipt cannot be read"):
        feed.pin(attempt)
    assert state_of(feed, plan) is BatchState.PLANNED


def test_every_truncation_of_a_receipt_is_refused(feed: FeedInMemory, plan: BatchPlan, attempt: Attempt) -> None:
    whole = feed.spark_writes(attempt).as_bytes()
    for length in range(len(whole)):
        with pytest.raises(InvalidReceiptError):
            valid_receipt(plan, attempt, whole[:length])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 6}, "expected a receipt of format version 1 or 2 or 3 or 4 or 5, found 6"),
        ({"batch_id": str(UUID(int=7))}, r"expected batch .*, found 00000000-0000-0000-0000-000000000007"),
        ({"plan_fingerprint": "abc"}, r"expected the plan with fingerprint .*, found abc"),
        ({"attempt": 2}, "expected attempt 1, found 2"),
        ({"document_sha256": "abc"}, r"expected the attempt document .*, found abc"),
        ({"rows_read": 151}, "Spark read 151 records, the files hold 150"),
        ({"files": [], "rows_read": 150}, "Spark read 150 records, the files hold 0"),
    ],
)
def test_a_receipt_that_does_not_belong_to_its_attempt_is_refused_and_says_why(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt, changes: dict[str, Any], message: str
) -> None:
    change_receipt(feed, attempt, changes)
    with pytest.raises(InvalidReceiptError, match=message):
        feed.pin(attempt)
    assert state_of(feed, plan) is BatchState.PLANNED


def test_a_receipt_of_another_plan_of_the_same_batch_is_refused(plan: BatchPlan, attempt: Attempt) -> None:
    content = a_receipt(replace(plan, capped=True), document_sha256=attempt.document_sha256).as_bytes()
    with pytest.raises(InvalidReceiptError, match="does not belong to its plan"):
        valid_receipt(plan, attempt, content)


def test_the_first_valid_receipt_in_attempt_order_wins(feed: FeedInMemory, plan: BatchPlan, attempt: Attempt) -> None:
    second = feed.open_attempt(plan.batch_id)
    feed.spark_writes(second)
    feed.spark_writes(attempt)
    assert pin_first(feed, plan) is True
    assert feed.control.batch(plan.batch_id).pinned_attempt == 1


def test_an_invalid_receipt_does_not_hide_a_later_valid_one(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    second = feed.open_attempt(plan.batch_id)
    feed.sink.receipts[attempt.directory] = b"{"
    feed.spark_writes(second)
    assert pin_first(feed, plan) is True
    assert feed.control.batch(plan.batch_id).pinned_attempt == 2
    assert len(feed.control.journal(plan.feed_id, kinds=["receipt_refused"], limit=10)) == 1


def test_attempts_without_a_receipt_are_no_news(feed: FeedInMemory, plan: BatchPlan, attempt: Attempt) -> None:
    assert attempt.attempt == 1
    assert pin_first(feed, plan) is False
    assert feed.control.journal(plan.feed_id, kinds=["receipt_refused"], limit=1) == []


def test_nothing_is_asked_of_kafka_while_there_is_no_receipt(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    assert attempt.attempt == 1
    feed.kafka.questions.clear()
    pin_first(feed, plan)
    assert feed.kafka.questions == []


def test_a_task_whose_rival_pinned_first_continues_with_the_rivals_receipt(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    second = feed.open_attempt(plan.batch_id)
    feed.spark_writes(attempt)
    feed.pin(attempt)
    feed.spark_writes(second)
    assert feed.pin(second).pinned_attempt == 1


def test_a_task_whose_rival_pins_while_kafka_is_asked_continues_with_the_rivals_receipt(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    second = feed.open_attempt(plan.batch_id)
    feed.spark_writes(attempt)
    feed.spark_writes(second)
    feed.kafka.interleaved = lambda: feed.pin(second)
    assert feed.pin(attempt).pinned_attempt == 2


def test_a_zombies_receipt_is_refused_after_its_batch_was_discarded(feed: FeedInMemory, plan: BatchPlan) -> None:
    zombie = feed.open_attempt(plan.batch_id)
    feed.write(plan.batch_id)
    feed.control.discard_written(plan.batch_id, 2, reason="damaged", actor="run 1")
    feed.spark_writes(zombie)
    with pytest.raises(BatchStateError, match=r"the receipt of attempt 1 is refused: the batch is PLANNED \(damaged\)"):
        feed.pin(zombie)
    assert pin_first(feed, plan) is False
    assert state_of(feed, plan) is BatchState.PLANNED


def test_a_zombies_receipt_is_refused_after_its_batch_was_abandoned(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    feed.spark_writes(attempt)
    with pytest.raises(BatchStateError, match=r"refused: the batch was abandoned by operator \(not wanted\)"):
        feed.pin(attempt)


def test_a_topic_made_again_between_read_and_pin_leaves_the_batch_planned_and_its_files_kept(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    feed.spark_writes(attempt)
    feed.kafka.topics["orders"] = RECREATED
    with pytest.raises(TopicRecreatedError):
        feed.pin(attempt)
    assert state_of(feed, plan) is BatchState.PLANNED
    assert feed.control.attempts(plan.batch_id)[0].state is AttemptState.OPEN
    assert attempt.directory in feed.sink.staged


def test_a_topic_deleted_between_read_and_pin_leaves_the_batch_planned(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    feed.spark_writes(attempt)
    feed.kafka.topics.clear()
    with pytest.raises(TopicGoneError):
        feed.pin(attempt)
    assert state_of(feed, plan) is BatchState.PLANNED


def test_every_way_to_written_asks_kafka_for_the_cluster_and_the_topic_ids(
    feed: FeedInMemory, plan: BatchPlan, attempt: Attempt
) -> None:
    feed.spark_writes(attempt)
    feed.kafka.questions.clear()
    feed.pin(attempt)
    assert feed.kafka.questions == ["describe_topics", "cluster_id"]
    feed.control.discard_written(plan.batch_id, 1, reason="damaged", actor="run 1")
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    feed.kafka.questions.clear()
    assert pin_first(feed, plan) is True
    assert feed.kafka.questions == ["describe_topics", "cluster_id"]
