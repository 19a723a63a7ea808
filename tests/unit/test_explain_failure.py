"""Why a Spark run failed: what Kafka says of the batch's ranges, then what Spark's consumer stumbled over."""

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, feed_settings, log, partition, span, topic

from kafka_ingest.batches.explain_failure import explain_failure, unreadable_position
from kafka_ingest.errors import (
    InstallationError,
    InvalidExpressionError,
    InvalidSchemaError,
    KafkaAccessDeniedError,
    KafkaLoginRefusedError,
    KafkaTlsRefusedError,
    KafkaUnavailableError,
    OffsetsLostError,
    OutputUnavailableError,
    PartitionUnreadableError,
    RangeNotInLogError,
    SchemaIdsUnknownError,
    TooManyTablePartitionsError,
    TopicGoneError,
    TopicRecreatedError,
    WrongClusterError,
)
from kafka_ingest.model.batch import Attempt, BatchPlan, BatchState
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import Isolation, TopicPartition, Unavailable
from kafka_ingest.planning.settings import Earliest

NO_LEADER = Unavailable("LEADER_NOT_AVAILABLE")


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed whose first batch orders-0[0, 100), orders-1[0, 50) is PLANNED."""
    feed = FeedInMemory()
    feed.plan()
    return feed


@pytest.fixture
def attempt(feed: FeedInMemory) -> Attempt:
    """The batch's first attempt, which Spark did not finish."""
    return feed.open_attempt(feed.planned().batch_id)


def batch_is_invalid(position: TopicPartition, offset: int) -> str:
    """Return what Spark says of a damaged batch: the consumer's message, inside its own and its stack trace."""
    return (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0:\n"
        "org.apache.kafka.common.KafkaException: Received exception when fetching the next record from "
        f"{position}. If needed, please seek past the record to continue consumption.\n"
        "\tat org.apache.kafka.clients.consumer.internals.CompletedFetch.fetchRecords(CompletedFetch.java:322)\n"
        "Caused by: org.apache.kafka.common.errors.CorruptRecordException: Record batch for partition "
        f"{position} at offset {offset} is invalid, cause: Record is corrupt (stored crc = 1, computed crc = 2)\n"
    )


def stumbled(feed: FeedInMemory, attempt: Attempt, position: TopicPartition, offset: int) -> None:
    """Let Spark end over a record that nobody can read."""
    feed.kafka.damaged[position] = offset
    feed.sink.failures[attempt.directory] = batch_is_invalid(position, offset)


def explain(feed: FeedInMemory, attempt: Attempt) -> None:
    """Look for the reason, as the write task does once Spark ended without success."""
    explain_failure(attempt, feed)


def explanation(feed: FeedInMemory, attempt: Attempt, error: type[Exception]) -> str:
    """Return the reason that was found."""
    with pytest.raises(error) as found:
        explain(feed, attempt)
    return str(found.value)


# ── What the job itself says ──────────────────────────────────────────────────────────────────────────────────────────


def test_schema_ids_that_nobody_asked_for_are_for_a_later_try(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.failures[attempt.directory] = 'UNKNOWN_SCHEMA_IDS: {"value": [7, 8]}'

    said = explanation(feed, attempt, SchemaIdsUnknownError)
    assert 'found others: {"value": [7, 8]}. Nothing was moved; the next try asks for them' in said


def test_a_package_that_sparks_workers_lack_is_named(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.failures[attempt.directory] = (
        "Job aborted due to stage failure: org.apache.spark.api.python.PythonException: Traceback (most recent call "
        "last):\n  File \"worker.py\", line 1, in main\nModuleNotFoundError: No module named 'ptars'\n"
    )

    assert "expected the Python package of ptars where Spark's workers run" in explanation(
        feed, attempt, InstallationError
    )


@pytest.mark.parametrize(
    "exception",
    [
        "org.apache.avro.SchemaParseException: Illegal character in: a-b",
        "org.apache.avro.AvroTypeException: Invalid default for field id: not a int",
        "org.apache.spark.sql.avro.IncompatibleSchemaException: Illegal character in: a-b",
    ],
)
def test_a_schema_that_only_java_refuses_has_to_be_corrected(
    feed: FeedInMemory, attempt: Attempt, exception: str
) -> None:
    feed.sink.failures[attempt.directory] = f"An error occurred while calling o1.selectExpr.\n: {exception}\n\tat x"

    said = explanation(feed, attempt, InvalidSchemaError)
    assert f"one that it refuses: {exception.partition(': ')[2]}. Nothing was moved" in said


def test_an_expression_that_spark_refuses_has_to_be_corrected(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.failures[attempt.directory] = "EXPRESSION_REFUSED: where: [UNRESOLVED_COLUMN] A column `nope`"
    said = explanation(feed, attempt, InvalidExpressionError)
    assert said.endswith(
        f"of batch {attempt.batch_id}: where: [UNRESOLVED_COLUMN] A column `nope`. Nothing was moved. Correct the feed "
        "file; `kafka-ingest preview` shows what is made of real records."
    )


def test_too_many_partitions_of_a_table_are_named_with_what_to_do(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.failures[attempt.directory] = "TOO_MANY_TABLE_PARTITIONS: expected at most 10,000, found 10,001"
    said = explanation(feed, attempt, TooManyTablePartitionsError)
    assert "of batch" in said
    assert "expected at most 10,000, found 10,001. Nothing was staged and no offset was moved." in said
    assert f"kafka-ingest abandon {attempt.batch_id}" in said


# ── What Kafka says of the ranges ─────────────────────────────────────────────────────────────────────────────────────


def test_where_all_is_as_planned_and_spark_said_nothing_no_reason_is_found(
    feed: FeedInMemory, attempt: Attempt
) -> None:
    before = feed.control.state
    explain(feed, attempt)
    assert feed.control.state is before


def test_a_failure_of_sparks_own_is_not_kafkas(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.failures[attempt.directory] = "java.lang.OutOfMemoryError: Java heap space"
    explain(feed, attempt)


def test_what_retention_took_while_spark_read_is_named_with_both_numbers(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.topics["orders"] = topic(log(40, 100), log(10, 50))
    message = explanation(feed, attempt, RangeNotInLogError)
    assert (
        f"batch {attempt.batch_id} cannot be read as planned: orders-0[0, 100) begins below the log start 40, "
        "orders-1[0, 50) begins below the log start 10. " in message
    )
    assert "No offset was moved. Run the feed again" in message


def test_a_live_batch_of_which_one_range_lost_its_beginning_can_be_read_without_it(
    feed: FeedInMemory, attempt: Attempt
) -> None:
    feed.kafka.topics["orders"] = topic(log(40, 100), log(0, 50))
    explain(feed, attempt)
    assert feed.ask_for_attempt(attempt.batch_id) is not None


def test_what_is_wrong_with_the_ranges_that_lost_nothing_is_named_as_ever(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.topics["orders"] = topic(log(40, 100), log(0, 45))
    message = explanation(feed, attempt, RangeNotInLogError)
    assert "as planned: orders-1[0, 50) ends above the log end 45. " in message
    feed.kafka.topics["orders"] = topic(log(40, 100), NO_LEADER)
    assert "LEADER_NOT_AVAILABLE" in explanation(feed, attempt, KafkaUnavailableError)


def test_what_a_truncated_log_lost_while_spark_read_is_named(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 90), log(0, 50))
    assert "orders-0[0, 100) ends above the log end 90" in explanation(feed, attempt, RangeNotInLogError)


def test_a_range_above_the_last_stable_offset_cannot_be_read_by_a_read_committed_feed_alone() -> None:
    for isolation, error in ((Isolation.READ_COMMITTED, RangeNotInLogError), (Isolation.READ_UNCOMMITTED, None)):
        feed = FeedInMemory(settings=feed_settings(isolation=isolation))
        attempt = feed.open_attempt(feed.planned().batch_id)
        feed.kafka.topics["orders"] = topic(log(0, 100, lso=80), log(0, 50))
        if error is None:
            explain(feed, attempt)
        else:
            assert "ends above the log end 80" in explanation(feed, attempt, error)


def test_a_topic_made_again_while_spark_read_is_named_before_its_numbers_are_looked_at(
    feed: FeedInMemory, attempt: Attempt
) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 3), log(0, 3), topic_id="topic-id-2")
    assert "expected topic id topic-id-1, found topic-id-2" in explanation(feed, attempt, TopicRecreatedError)


def test_a_topic_that_is_gone_is_named(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.topics.clear()
    assert "'orders' (topic id topic-id-1) does not exist any more" in explanation(feed, attempt, TopicGoneError)


def test_another_cluster_is_named(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.id = "cluster-B"
    explanation(feed, attempt, WrongClusterError)


def test_brokers_that_do_not_answer_are_the_reason(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.is_down = True
    explanation(feed, attempt, KafkaUnavailableError)


def test_a_partition_that_kafka_cannot_answer_for_is_not_taken_for_lost(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.topics["orders"] = topic(NO_LEADER, log(0, 50))
    assert "Kafka cannot answer for orders-0" in explanation(feed, attempt, KafkaUnavailableError)


def test_what_is_lost_stops_the_next_attempt_before_spark_starts(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.topics["orders"] = topic(log(40, 100), log(10, 50))
    with pytest.raises(RangeNotInLogError):
        feed.ask_for_attempt(attempt.batch_id)
    assert len(feed.control.attempts(attempt.batch_id)) == 1


def test_after_retention_the_next_plan_gives_the_batch_up_and_decides(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.kafka.topics["orders"] = topic(log(40, 100), log(10, 50))
    explanation(feed, attempt, RangeNotInLogError)
    with pytest.raises(OffsetsLostError):
        feed.plan()
    assert feed.control.batch(attempt.batch_id).state is BatchState.ABANDONED


# ── What Spark's consumer stumbled over ───────────────────────────────────────────────────────────────────────────────


def test_a_record_that_nobody_can_read_is_named_with_what_can_be_done(feed: FeedInMemory, attempt: Attempt) -> None:
    stumbled(feed, attempt, partition(0), 34)
    message = explanation(feed, attempt, PartitionUnreadableError)
    assert "orders-0: the record at offset 34 cannot be read (BAD_MSG: damaged). No offset was moved." in message
    assert "`kafka-ingest skip orders orders 0 34-TO --reason …`" in message


def test_a_record_that_nobody_can_read_is_held(feed: FeedInMemory, attempt: Attempt) -> None:
    stumbled(feed, attempt, partition(0), 34)
    explanation(feed, attempt, PartitionUnreadableError)
    (hold,) = feed.control.feed("orders").holds
    assert (hold.topic_partition, hold.cause, hold.at_offset) == (partition(0), HoldCause.UNREADABLE, 34)
    assert hold.reason == "the record at offset 34 cannot be read (BAD_MSG: damaged)"


def test_the_next_plan_ends_before_a_record_that_nobody_can_read_and_the_others_continue(
    feed: FeedInMemory, attempt: Attempt
) -> None:
    stumbled(feed, attempt, partition(0), 34)
    explanation(feed, attempt, PartitionUnreadableError)
    assert feed.planned(actor="run 2").ranges == (span(0, 0, 34), span(1, 0, 50))
    assert feed.control.batch(attempt.batch_id).state is BatchState.ABANDONED


def test_a_log_that_was_mended_is_read_to_its_end_without_a_decision(feed: FeedInMemory, attempt: Attempt) -> None:
    stumbled(feed, attempt, partition(0), 34)
    explanation(feed, attempt, PartitionUnreadableError)
    feed.kafka.damaged.clear()
    feed.committed()
    assert feed.stored_offsets() == {partition(0): 100, partition(1): 50}
    feed.plan()
    assert feed.control.feed("orders").holds == []


def test_what_kafka_can_read_by_now_is_not_held(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.failures[attempt.directory] = batch_is_invalid(partition(0), 34)
    explain(feed, attempt)
    assert feed.control.feed("orders").holds == []


def test_no_answer_in_time_is_not_taken_for_a_damaged_record(feed: FeedInMemory, attempt: Attempt) -> None:
    stumbled(feed, attempt, partition(0), 34)
    feed.kafka.reads_nothing = True
    explain(feed, attempt)
    assert feed.control.feed("orders").holds == []


def test_a_record_that_is_known_to_be_damaged_stays_held_while_nobody_answers_for_it(
    feed: FeedInMemory, attempt: Attempt
) -> None:
    stumbled(feed, attempt, partition(0), 34)
    explanation(feed, attempt, PartitionUnreadableError)
    feed.kafka.damaged.clear()
    feed.kafka.reads_nothing = True
    feed.committed()
    assert feed.stored_offsets() == {partition(0): 34, partition(1): 50}
    assert [hold.at_offset for hold in feed.control.feed("orders").holds] == [34]


def test_an_earlier_attempts_failure_says_nothing_of_this_one(feed: FeedInMemory, attempt: Attempt) -> None:
    stumbled(feed, attempt, partition(0), 34)
    explain(feed, feed.open_attempt(attempt.batch_id))


def test_a_position_that_the_batch_does_not_read_is_not_asked_for(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.failures[attempt.directory] = batch_is_invalid(partition(0), 100)
    explain(feed, attempt)
    assert "unreadable_at" not in feed.kafka.questions


def test_a_failure_that_cannot_be_read_is_not_one_that_says_nothing(feed: FeedInMemory, attempt: Attempt) -> None:
    feed.sink.is_down = True
    explanation(feed, attempt, OutputUnavailableError)


# ── How the consumer says it ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def plan() -> BatchPlan:
    """A plan of orders-0[100, 200) and orders-eu.v1-2-3[0, 50), a topic whose name ends like a partition's."""
    name = "orders-eu.v1-2"
    feed = FeedInMemory(
        FakeKafkaCluster({"orders": topic(log(100, 200)), name: topic(log(0, 0), log(0, 0), log(0, 0), log(0, 50))}),
        settings=feed_settings(start_rules={"orders": Earliest(), name: Earliest()}),
    )
    return feed.planned()


@pytest.mark.parametrize(
    "failure",
    [
        "Record for partition orders-0 at offset 150 is invalid, cause: Record is corrupt",
        "Record batch for partition orders-0 at offset 150 is invalid, cause: Record is corrupt",
        "Error deserializing VALUE for partition orders-0 at offset 150. If needed, please seek past the record",
    ],
)
def test_each_message_of_the_java_consumer_names_the_position(plan: BatchPlan, failure: str) -> None:
    assert unreadable_position(failure, plan) == (partition(0), 150)


def test_a_topic_whose_name_ends_in_a_number_is_distinguished_from_its_partition(plan: BatchPlan) -> None:
    position = partition(3, "orders-eu.v1-2")
    assert unreadable_position(batch_is_invalid(position, 7), plan) == (position, 7)


def test_a_damaged_batch_that_begins_below_the_range_is_unreadable_from_the_ranges_start_on(plan: BatchPlan) -> None:
    # A consumer names a batch by its first offset; the range may begin inside it.
    assert unreadable_position(batch_is_invalid(partition(0), 90), plan) == (partition(0), 100)


@pytest.mark.parametrize("position", [partition(1), partition(0, "refunds"), partition(2, "orders-eu.v1")])
def test_a_partition_that_is_not_of_the_plan_is_passed_over(plan: BatchPlan, position: TopicPartition) -> None:
    assert unreadable_position(batch_is_invalid(position, 150), plan) is None


def test_the_end_of_a_range_is_not_read(plan: BatchPlan) -> None:
    assert unreadable_position(batch_is_invalid(partition(0), 199), plan) == (partition(0), 199)
    assert unreadable_position(batch_is_invalid(partition(0), 200), plan) is None


def test_of_several_positions_the_first_of_the_plan_counts(plan: BatchPlan) -> None:
    failure = (
        batch_is_invalid(partition(9), 1) + batch_is_invalid(partition(0), 160) + batch_is_invalid(partition(0), 150)
    )
    assert unreadable_position(failure, plan) == (partition(0), 160)


@pytest.mark.parametrize("failure", ["", "at offset 150", "partition orders-0 is fine", "partition orders at offset 5"])
def test_a_message_without_a_position_names_none(plan: BatchPlan, failure: str) -> None:
    assert unreadable_position(failure, plan) is None


def test_what_a_broker_itself_finds_corrupt_names_the_position_too(plan: BatchPlan) -> None:
    # org.apache.kafka.clients.consumer.internals.FetchCollector 3.9.1, for Errors.CORRUPT_MESSAGE.
    failure = "KafkaException: Encountered corrupt message when fetching offset 150 for topic-partition orders-0"
    assert unreadable_position(failure, plan) == (partition(0), 150)


# ── What Kafka refused to Spark's client ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cause", "error", "expected"),
    [
        (
            "TopicAuthorizationException: Not authorized to access topics: [orders]",
            KafkaAccessDeniedError,
            "right READ",
        ),
        (
            "GroupAuthorizationException: Not authorized to access group: g",
            KafkaAccessDeniedError,
            "right READ on this",
        ),
        ("SaslAuthenticationException: Authentication failed", KafkaLoginRefusedError, "the user and the password"),
        ("SslAuthenticationException: SSL handshake failed", KafkaTlsRefusedError, "an authority"),
    ],
)
def test_what_kafka_refused_to_sparks_client_is_named_and_no_reason_to_try_again(
    feed: FeedInMemory, attempt: Attempt, cause: str, error: type[Exception], expected: str
) -> None:
    feed.sink.failures[attempt.directory] = (
        "An error occurred while calling o1.parquet.\n: java.util.concurrent.ExecutionException\n"
        f"Caused by: org.apache.kafka.common.errors.{cause}\n\tat org.apache.kafka.clients\n"
    )
    message = explanation(feed, attempt, error)
    assert f"Kafka refused Spark's client: {cause.partition(': ')[2]}. Expected" in message
    assert expected in message
