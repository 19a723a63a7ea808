"""How old the newest record is that a feed has committed."""

from datetime import UTC, datetime, timedelta

from tests.fakes import FakeKafkaCluster, log, topic

from kafka_ingest.model.offsets import FirstRecord, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.observing.record_ages import newest_committed_ages

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def kafka_with(*logs: dict[int, int]) -> FakeKafkaCluster:
    """Return a cluster whose partitions have records at these offsets, of so many minutes each."""
    made = FakeKafkaCluster({"orders": topic(*[log(0, 1_000)] * len(logs))})
    for number, records in enumerate(logs):
        partition = TopicPartition("orders", number)
        made.times[partition] = {offset: NOW - timedelta(minutes=minutes) for offset, minutes in records.items()}
    return made


def rows(*stored: int | None) -> list[StoredOffset]:
    return [
        StoredOffset(TopicPartition("orders", number), "id", None if offset is None else 0, offset, "earliest")
        for number, offset in enumerate(stored)
    ]


def minutes(kafka: FakeKafkaCluster, *stored: int | None, most: int = 3) -> float | None:
    found = newest_committed_ages(kafka, {"orders": rows(*stored)}, NOW, most=most)["orders"]
    return None if found is None else found.total_seconds() / 60


def test_where_all_is_read_kafka_says_the_newest_time_and_no_record_is_read() -> None:
    kafka = kafka_with({7: 40, 8: 30}, {5: 90})
    assert minutes(kafka, 9, 6) == 30
    assert "first_records" not in kafka.questions


def test_of_a_partition_with_something_to_read_the_record_before_the_stored_offset_counts() -> None:
    kafka = kafka_with({7: 40, 8: 30, 9: 5}, {5: 90})
    assert minutes(kafka, 9, 6) == 30
    # Not where nothing in it is as young as what is known.
    quiet = kafka_with({7: 300, 8: 200}, {5: 90})
    assert minutes(quiet, 8, 6) == 90
    assert "first_records" not in quiet.questions


def test_a_marker_of_a_transaction_before_the_stored_offset_is_no_record() -> None:
    assert minutes(kafka_with({3: 50, 9: 5}), 9) == 50


def test_records_are_read_of_the_partitions_with_the_newest_ones() -> None:
    kafka = kafka_with({1: 80, 5: 4}, {1: 70, 5: 2}, {1: 60, 5: 3})
    assert minutes(kafka, 5, 5, 5, most=1) == 70
    assert minutes(kafka, 5, 5, 5) == 60


def test_two_feeds_that_stand_at_different_offsets_of_one_partition_have_their_own_ages() -> None:
    kafka = kafka_with({3: 50, 6: 20, 9: 5})
    found = newest_committed_ages(kafka, {"a": rows(4), "b": rows(7)}, NOW, most=3)
    assert found == {"a": timedelta(minutes=50), "b": timedelta(minutes=20)}


def test_without_a_commit_an_answer_or_a_time_there_is_no_age() -> None:
    assert minutes(kafka_with({5: 4}), 0) is None
    assert minutes(kafka_with({5: 4}), None) is None
    silent = FakeKafkaCluster({"orders": topic(Unavailable("no leader"))})
    assert minutes(silent, 5) is None
    timeless = kafka_with({3: 9, 9: 5})
    timeless.firsts[TopicPartition("orders", 0)] = FirstRecord(None, by_broker=False, offset=3)
    assert minutes(timeless, 5) is None
