"""How old the records are that wait to be read, in Kafka's time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.fakes import FakeKafkaCluster, log, topic

from kafka_ingest.cluster.kafka_cluster import retention_of
from kafka_ingest.model.offsets import FirstRecord, Retention, TopicPartition, Unavailable
from kafka_ingest.observing.record_ages import NO_TIME, NOT_READ, OlderThan, age_of, older_records, oldest_ages

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORDERS = TopicPartition("orders", 0)
HALF_AN_HOUR = timedelta(minutes=30)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def asked(offset: int, limit: timedelta = HALF_AN_HOUR, partition: TopicPartition = ORDERS) -> OlderThan:
    return OlderThan(f"feed at {offset}, {limit}", partition, offset, 10, NOW - limit)


def kafka_with(times: dict[int, datetime]) -> FakeKafkaCluster:
    """Return a cluster whose log ``orders-0`` has a record at each of these offsets."""
    made = FakeKafkaCluster({"orders": topic(log(0, 1_000))})
    made.times[ORDERS] = times
    return made


def age(times: dict[int, datetime], offset: int) -> Any:
    [found] = older_records(kafka_with(times), [asked(offset)], NOW).values()
    return found


def test_a_record_that_is_older_than_the_limit_is_reported_with_its_age() -> None:
    assert age({4: ago(50), 5: ago(47), 6: ago(1)}, 5) == timedelta(minutes=47)


def test_no_record_is_read_where_a_younger_one_lies_at_or_below_the_stored_offset() -> None:
    kafka = kafka_with({5: ago(29), 6: ago(28)})
    assert list(older_records(kafka, [asked(5), asked(6)], NOW).values()) == [None, None]
    assert "first_records" not in kafka.questions


def test_a_straggler_behind_younger_records_that_were_read_is_not_behind() -> None:
    assert age({4: ago(2), 5: ago(3_000)}, 5) is None


@pytest.mark.parametrize("minutes", [1_000_000, 90])
def test_a_record_of_the_future_hides_nothing_behind_it(minutes: int) -> None:
    assert age({3: ago(-minutes), 5: ago(47)}, 5) == timedelta(minutes=47)
    assert age({3: ago(-minutes), 5: ago(29)}, 5) is None


def test_a_record_of_the_future_is_younger_than_every_limit() -> None:
    assert age({5: ago(-1_000)}, 5) is None


def oldest(times: dict[int, datetime], offset: int) -> timedelta | None:
    """Return the age of the oldest waiting record, as the page shows it."""
    return oldest_ages(kafka_with(times), {"feed": {ORDERS: (offset, 10)}}, NOW, most=3)["feed"]


@pytest.mark.parametrize("minutes", [0.5, 3, 47, 1_000, 900_000])
def test_the_oldest_waiting_record_is_found_by_its_time_whatever_its_age(minutes: float) -> None:
    times = {4: ago(minutes * 1.1), 5: ago(minutes), 6: ago(minutes / 2), 7: ago(0.01)}
    assert oldest(times, 5) == timedelta(minutes=minutes)
    assert oldest(times, 4) == timedelta(minutes=minutes * 1.1)


def test_of_old_records_that_are_a_second_apart_the_one_at_the_offset_counts() -> None:
    times = {offset: ago(1_600_000) + timedelta(seconds=offset) for offset in range(100)}
    for offset in (1, 60, 99):
        found = oldest(times, offset)
        assert found is not None
        assert found == pytest.approx(NOW - times[offset], rel=0.01)
    assert oldest(times, 100) == timedelta()


def test_only_behind_a_record_of_the_future_is_the_oldest_waiting_one_read() -> None:
    assert oldest({3: ago(-1_000), 5: ago(47)}, 5) == timedelta(minutes=47)
    assert oldest({5: ago(47), 6: ago(-1_000)}, 5) == timedelta(minutes=47)
    assert oldest({4: ago(47), 6: ago(-1_000)}, 5) == timedelta()


def test_where_only_markers_of_transactions_are_left_nothing_waits() -> None:
    assert oldest({4: ago(50)}, 5) == timedelta()


def test_where_only_markers_of_transactions_are_left_nothing_is_behind() -> None:
    assert age({4: ago(50)}, 5) is None


def test_after_compaction_the_next_record_there_is_counts() -> None:
    assert age({4: ago(50), 9: ago(40)}, 5) == timedelta(minutes=40)


@pytest.mark.parametrize("timestamp_ms", [None, 0, -1, 1_767_225_600])
def test_a_record_without_a_time_is_of_no_age(timestamp_ms: int | None) -> None:
    assert age_of(FirstRecord(timestamp_ms, by_broker=False), NOW) == NO_TIME


def test_a_time_of_any_number_of_64_bits_is_read() -> None:
    assert age_of(FirstRecord(2**63 - 1, by_broker=False), NOW) == timedelta()


def test_what_kafka_does_not_say_is_not_known() -> None:
    kafka = FakeKafkaCluster({"orders": topic(Unavailable("no leader"))})
    kafka.firsts[ORDERS] = Unavailable("no leader")
    assert list(older_records(kafka, [asked(5)], NOW).values()) == [Unavailable("no leader")]


def test_feeds_with_limits_and_offsets_of_their_own_in_one_partition_each_get_their_answer() -> None:
    times = {4: ago(120), 5: ago(47), 6: ago(40)}
    feeds = [asked(5), asked(6), asked(5, timedelta(hours=1)), asked(4, timedelta(hours=1))]
    found = older_records(kafka_with(times), feeds, NOW)
    assert [found[each] for each in feeds] == [
        timedelta(minutes=47),
        timedelta(minutes=40),
        None,
        timedelta(minutes=120),
    ]


def many(young: int, old: int) -> tuple[FakeKafkaCluster, list[OlderThan]]:
    """Return partitions that may be behind: those with the most to read hold no record any more."""
    partitions = [TopicPartition("orders", number) for number in range(young + old)]
    kafka = FakeKafkaCluster({"orders": topic(*[log(0, 100)] * len(partitions))})
    kafka.times = {each: {} if each.partition < young else {0: ago(60)} for each in partitions}
    return kafka, [OlderThan("orders", each, 0, 1_000 - each.partition, ago(30)) for each in partitions]


def test_of_a_feed_with_many_partitions_only_so_many_records_are_read_as_it_takes_to_find_one_that_is_too_old() -> None:
    kafka, asked_about = many(3, 20)
    found = older_records(kafka, asked_about, NOW)
    assert [found[each] for each in asked_about] == [None] * 3 + [timedelta(hours=1)] * 2 + [NOT_READ] * 18
    kafka, asked_about = many(20, 5)
    found = older_records(kafka, asked_about, NOW)
    assert [found[each] for each in asked_about] == [None] * 20 + [NOT_READ] * 5


def test_the_number_of_questions_does_not_grow_with_the_partitions() -> None:
    def questions(count: int) -> list[str]:
        partitions = [TopicPartition("orders", number) for number in range(count)]
        kafka = FakeKafkaCluster({"orders": topic(*[log(0, 100)] * count)})
        kafka.times = {each: {0: ago(each.partition)} for each in partitions}
        older_records(kafka, [OlderThan(str(each), each, 0, 1, ago(30)) for each in partitions], NOW)
        return kafka.questions

    assert questions(1_000) == questions(40)


@pytest.mark.parametrize(
    ("policy", "milliseconds", "size", "known"),
    [
        ("delete", "604800000", "-1", Retention(timedelta(days=7), by_size=False)),
        ("compact,delete", "60000", "1073741824", Retention(timedelta(minutes=1), by_size=True, compacts=True)),
        ("delete", "-1", "-1", Retention(None, by_size=False)),
        ("delete", str(2**63 - 1), "-1", Retention(None, by_size=False)),
        ("compact", "604800000", "5", Retention(None, by_size=False, compacts=True)),
    ],
)
def test_a_topics_settings_say_when_its_records_are_deleted(
    policy: str, milliseconds: str, size: str, known: Retention
) -> None:
    settings = {"cleanup.policy": policy, "retention.ms": milliseconds, "retention.bytes": size}
    assert retention_of(settings) == known
