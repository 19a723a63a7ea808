"""The questions that planning asks, answered by a real broker: in bulk, with -1 and its like never past the edge."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.integration.conftest import MoveGroup
from tests.kafka_faults import (
    Record,
    aborted_transaction,
    committed_transaction,
    corrupt_batch,
    create_topic,
    delete_records,
    hidden_by_deleted_records,
    hidden_for_good,
    live_member,
    open_transaction,
    plain_records,
    produce,
    range_without_records,
    topic_id,
)
from tests.killing import wait_for

from embedded_broker import EmbeddedBroker
from kafka_ingest.cluster import first_answers
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.first_answers import MEMORY_BYTES, MEMORY_MIB
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.errors import InvalidConnectionError, KafkaIngestError, KafkaUnavailableError
from kafka_ingest.model.offsets import (
    FirstRecord,
    Isolation,
    LogBounds,
    NewestRecord,
    OffsetRange,
    Retention,
    TopicPartition,
    Unavailable,
)
from kafka_ingest.model.spark_settings import LargeRecord
from kafka_ingest.observing.record_ages import OlderThan, older_records
from kafka_ingest.observing.times_around import Around, times_around
from kafka_ingest.ports.cluster import MirrorRefusedError

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(servers: str, **settings: str) -> ConfluentKafkaCluster:
    """Return the cluster behind a connection."""
    found = KafkaClientSettings("kafka_default", {"bootstrap.servers": servers} | settings)
    return ConfluentKafkaCluster(lambda: found)


@pytest.fixture
def kafka(servers: str) -> ConfluentKafkaCluster:
    return cluster(servers)


def bounds_of(kafka: ConfluentKafkaCluster, topic: str, partition: int = 0) -> tuple[int, int, int]:
    """Return log start, last stable offset and high watermark."""
    [found] = kafka.log_bounds([TopicPartition(topic, partition)]).values()
    assert isinstance(found, LogBounds)
    return found.log_start_offset, found.last_stable_offset, found.high_watermark


# ── Topics ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_is_described_with_its_id_and_partitions_and_a_missing_one_is_left_out_and_not_made(
    kafka: ConfluentKafkaCluster, servers: str, orders: str
) -> None:
    found = kafka.describe_topics([orders, f"{orders}-missing"])
    assert found.keys() == {orders}
    assert (found[orders].topic_id, found[orders].partitions) == (topic_id(servers, orders), (0, 1, 2))
    assert f"{orders}-missing" not in kafka.topic_names()
    assert kafka.describe_topics([]) == {}


def test_the_cluster_says_its_id(kafka: ConfluentKafkaCluster, broker: EmbeddedBroker) -> None:
    assert kafka.cluster_id() == broker.cluster_id


# ── Bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bounds_of_a_plain_an_empty_and_a_shortened_log(
    kafka: ConfluentKafkaCluster, servers: str, orders: str
) -> None:
    delete_records(servers, orders, 1, 3)
    assert [bounds_of(kafka, orders, partition) for partition in (0, 1, 2)] == [(0, 10, 10), (3, 5, 5), (0, 0, 0)]


def test_an_open_transaction_parts_the_last_stable_offset_from_the_high_watermark(
    kafka: ConfluentKafkaCluster, servers: str, orders: str
) -> None:
    with open_transaction(servers, orders, 0, plain_records(3)):
        assert bounds_of(kafka, orders) == (0, 10, 13)
    assert bounds_of(kafka, orders) == (0, 14, 14)


def test_a_log_of_aborted_transactions_only_has_bounds_like_any_other(
    kafka: ConfluentKafkaCluster, servers: str, name: str
) -> None:
    create_topic(servers, name)
    start, end = range_without_records(servers, name, 0)
    assert bounds_of(kafka, name) == (start, end, end)


def test_a_log_of_which_everything_is_deleted_is_empty_at_its_end(
    kafka: ConfluentKafkaCluster, servers: str, orders: str
) -> None:
    delete_records(servers, orders, 0, 10)
    assert bounds_of(kafka, orders) == (10, 10, 10)


def test_a_partition_that_does_not_exist_has_no_bounds_and_the_others_are_answered(
    kafka: ConfluentKafkaCluster, orders: str
) -> None:
    found = kafka.log_bounds([TopicPartition(orders, 0), TopicPartition(orders, 9), TopicPartition("elsewhere", 0)])
    assert isinstance(found[TopicPartition(orders, 0)], LogBounds)
    assert isinstance(found[TopicPartition(orders, 9)], Unavailable)
    assert isinstance(found[TopicPartition("elsewhere", 0)], Unavailable)
    assert kafka.log_bounds([]) == {}


def test_a_client_has_heard_of_topics_before_it_asks_for_their_offsets(
    kafka: ConfluentKafkaCluster, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.cluster_id()
    asked: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        ask = getattr(AdminClient, name)
        return lambda *args, **kwargs: (asked.append(name), ask(*args, **kwargs))[1]

    for name in ("describe_topics", "list_offsets"):
        monkeypatch.setattr(AdminClient, name, noted(name))
    bounds_of(kafka, orders)
    bounds_of(kafka, orders)
    assert asked == ["describe_topics", *6 * ["list_offsets"]]


# ── Offsets at a time ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seconds", "offset"), [(-10, 0), (0, 0), (2.5, 3), (2.9999995, 3), (9, 9), (9.0000005, None), (60, None)]
)
def test_the_offset_at_a_time_is_of_the_first_record_that_is_not_earlier_and_none_where_there_is_none(
    kafka: ConfluentKafkaCluster, orders: str, seconds: float, offset: int | None
) -> None:
    partition = TopicPartition(orders, 0)
    assert kafka.offsets_at({partition: FIRST + timedelta(seconds=seconds)}) == {partition: offset}


def test_an_empty_partition_has_no_offset_at_any_time_and_each_partition_has_its_own_time(
    kafka: ConfluentKafkaCluster, orders: str
) -> None:
    first, second, empty = (TopicPartition(orders, number) for number in range(3))
    times = {first: FIRST + timedelta(seconds=7), second: FIRST + timedelta(seconds=2), empty: FIRST}
    assert kafka.offsets_at(times) == {first: 7, second: 2, empty: None}


def test_the_newest_record_of_a_log_is_known_by_its_offset_and_time(kafka: ConfluentKafkaCluster, orders: str) -> None:
    first, second, empty = (TopicPartition(orders, number) for number in range(3))
    times = [round((FIRST + timedelta(seconds=seconds)).timestamp() * 1000) for seconds in (9, 4)]
    found = kafka.newest_records([first, second, empty])
    assert found == {first: NewestRecord(9, times[0]), second: NewestRecord(4, times[1]), empty: None}
    record = kafka.first_records({first: 9})[first]
    assert isinstance(record, FirstRecord)
    assert (record.offset, record.timestamp_ms) == (9, times[0])


def test_an_offset_at_a_time_may_lie_in_a_transaction_that_is_open_or_was_aborted(
    kafka: ConfluentKafkaCluster, servers: str, orders: str
) -> None:
    late = int(FIRST.timestamp() * 1000) + 60_000
    aborted_transaction(servers, orders, 0, [Record(timestamp_ms=late)])
    with open_transaction(servers, orders, 1, [Record(timestamp_ms=late)]):
        found = kafka.offsets_at({TopicPartition(orders, number): FIRST + timedelta(seconds=30) for number in range(2)})
    assert list(found.values()) == [10, 5]
    first = TopicPartition(orders, 0)
    record = kafka.first_records({first: 10})[first]
    assert isinstance(record, FirstRecord)
    assert record.offset == 10
    assert kafka.first_records({first: 10}, Isolation.READ_COMMITTED) == {first: None}, "as its readers see it"


@pytest.mark.parametrize(("seconds", "offset"), [(-10, 12), (0, 12), (7, 12), (12, 12), (13, 13), (29, 29), (30, None)])
def test_deleted_records_that_still_lie_in_their_files_hide_no_other_from_a_time(
    kafka: ConfluentKafkaCluster, servers: str, name: str, seconds: float, offset: int | None
) -> None:
    hidden_by_deleted_records(servers, name)
    partition = TopicPartition(name, 0)
    assert kafka.offsets_at({partition: FIRST + timedelta(seconds=seconds)}) == {partition: offset}


def test_a_log_of_which_everything_is_deleted_has_no_record_of_any_time(
    kafka: ConfluentKafkaCluster, servers: str, name: str
) -> None:
    hidden_by_deleted_records(servers, name)
    delete_records(servers, name, 0, 30)
    partition = TopicPartition(name, 0)
    assert kafka.offsets_at({partition: FIRST}) == {partition: None}


def test_where_kafka_s_answers_contradict_each_other_the_offset_at_a_time_is_not_known(
    kafka: ConfluentKafkaCluster, servers: str, name: str
) -> None:
    hidden_for_good(servers, name)
    partition = TopicPartition(name, 0)
    [found] = kafka.offsets_at({partition: FIRST + timedelta(seconds=20)}).values()
    assert isinstance(found, Unavailable)
    assert found.reason.startswith("NO_OFFSET_AT_TIME: Kafka finds no record of 2026-01-01T00:00:20+00:00 or later")
    delete_records(servers, name, 0, 3)
    assert kafka.offsets_at({partition: FIRST + timedelta(seconds=20)}) == {partition: 3}


# ── Records that cannot be read ───────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_batch_is_unreadable_at_each_of_its_offsets_and_at_no_other(
    kafka: ConfluentKafkaCluster, broker: EmbeddedBroker, servers: str, name: str
) -> None:
    create_topic(servers, name)
    for _ in range(3):
        produce(servers, name, 0, plain_records(4))
    corrupt_batch(broker, name, 0, 5)
    partition = TopicPartition(name, 0)
    assert {offset for offset in range(12) if kafka.unreadable_at({partition: offset})} == {4, 5, 6, 7}
    assert "CRC" in kafka.unreadable_at({partition: 4})[partition]
    corrupt_batch(broker, name, 0, 5)
    assert kafka.unreadable_at({partition: 5}) == {}


def test_a_record_batch_that_becomes_too_large_for_memory_is_named_and_hides_no_other_partition(
    servers: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # librdkafka ends its process where it gets no memory for it. Of zstd it refuses what is so large.
    monkeypatch.setattr(first_answers, "LIMITED", first_answers.LIMITED.replace(str(MEMORY_MIB * 1024), "131072"))
    create_topic(servers, name, partitions=4)
    for partition in range(4):
        produce(servers, name, partition, plain_records(2))
    produce_one(servers, name, 2, bytes(200_000_000), "lz4")
    kafka = cluster(servers)
    partitions = [TopicPartition(name, partition) for partition in range(4)]
    too_large = f"its record batch takes more than {MEMORY_MIB} MiB of memory once it is decompressed"

    firsts = kafka.first_records(dict.fromkeys(partitions, 1) | {partitions[2]: 2})

    assert firsts[partitions[2]] == Unavailable(too_large)
    assert [firsts[partitions[number]].offset for number in (0, 1, 3)] == [1, 1, 1]
    assert kafka.unreadable_at({partitions[1]: 0, partitions[2]: 2}) == {partitions[2]: too_large}
    assert kafka.unreadable_at({partitions[2]: 1}) == {}, "what is before it can be read"
    assert kafka.unreadable_at({partitions[2]: 2}, MEMORY_BYTES) == {}, "where records may be as large, nobody knows"
    assert kafka.unreadable_at({partitions[0]: 1}, 11) == {partitions[0]: "it has 12 bytes"}
    assert kafka.unreadable_at({partitions[0]: 1}, 12) == {}
    ranges = [OffsetRange(partitions[0], 0, 2), OffsetRange(partitions[2], 1, 3)]
    assert kafka.large_records(ranges, Isolation.READ_COMMITTED) == {
        partitions[0]: [LargeRecord(0, 12)],
        partitions[2]: [LargeRecord(1, 12), LargeRecord(2, MEMORY_BYTES, of_batch=True)],
    }


def produce_one(servers: str, topic: str, partition: int, value: bytes, codec: str) -> None:
    """Produce one record of any size."""
    settings = {"bootstrap.servers": servers, "compression.type": codec, "message.max.bytes": 1_000_000_000}
    producer, failed = Producer(settings), []
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error))
    assert (producer.flush(60), failed) == (0, [None])


def test_a_healthy_record_the_log_s_end_and_an_open_transaction_are_all_readable(
    kafka: ConfluentKafkaCluster, servers: str, orders: str
) -> None:
    partitions = {TopicPartition(orders, 0): 3, TopicPartition(orders, 1): 5, TopicPartition(orders, 2): 0}
    with open_transaction(servers, orders, 2, plain_records(1)):
        assert kafka.unreadable_at(partitions) == {}


# ── Leader epochs ──


def test_epochs_end_where_a_later_leader_began_and_an_epoch_that_no_leader_knows_has_no_end(
    kafka: ConfluentKafkaCluster, orders: str
) -> None:
    first, second, empty = (TopicPartition(orders, number) for number in range(3))
    assert kafka.epoch_ends({first: 0, second: 0, empty: 0}) == {first: 10, second: 5, empty: 0}
    assert kafka.epoch_ends({first: 7}) == {first: None}


def test_a_partition_that_does_not_exist_does_not_keep_the_others_from_being_answered(
    orders: str, servers: str
) -> None:
    kafka = cluster(servers, **{"socket.timeout.ms": "3000"})
    first, absent = TopicPartition(orders, 0), TopicPartition(orders, 9)
    found = kafka.epoch_ends({first: 0, absent: 0})
    assert found[first] == 10
    assert isinstance(found[absent], Unavailable)


# ── Records that wait ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_whether_records_wait_that_are_older_than_a_limit_is_known_whatever_their_producers_wrote(
    kafka: ConfluentKafkaCluster, servers: str, name: str
) -> None:
    now = datetime.now(UTC)

    def at(minutes: float) -> Record:
        return Record(timestamp_ms=round((now - timedelta(minutes=minutes)).timestamp() * 1000))

    # Kafka 4 takes no record of more than an hour in the future, unless a topic says otherwise.
    create_topic(servers, name, 7, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    old, young, future, late, without_time, marker, empty = (TopicPartition(name, number) for number in range(7))
    produce(servers, name, old.partition, [at(60), at(47)])
    produce(servers, name, young.partition, [at(60), at(20)])
    produce(servers, name, future.partition, [at(-1_000_000), at(47)])
    produce(servers, name, late.partition, [at(1), at(1_000)])
    produce(servers, name, without_time.partition, [at(60), Record(timestamp_ms=1_767_225_600)])
    committed_transaction(servers, name, marker.partition, [at(60)])
    partitions = [old, young, future, late, without_time, marker, empty]
    limit = now - timedelta(minutes=30)
    asked = {tp: OlderThan(str(tp), tp, 0 if tp is empty else 1, 1, limit) for tp in partitions}

    found = older_records(kafka, asked.values(), now)

    ages = [found[asked[tp]] for tp in partitions]
    assert [age is None or isinstance(age, Unavailable) or round(age / timedelta(minutes=1)) for age in ages] == [
        47,
        True,
        47,
        True,
        True,
        True,
        True,
    ]
    assert [tp for tp, age in zip(partitions, ages, strict=True) if isinstance(age, Unavailable)] == [without_time]


def test_large_record_batches_keep_no_partition_from_being_looked_at(
    kafka: ConfluentKafkaCluster, servers: str, name: str
) -> None:
    create_topic(servers, name, 20)
    for number in range(20):
        produce(servers, name, number, [Record(value=b"x" * 10_000)] * 20)
    found = kafka.first_records({TopicPartition(name, number): 3 for number in range(20)})
    assert {type(record) for record in found.values()} == {FirstRecord}


@pytest.mark.parametrize(
    ("offset", "around"),
    [(0, Around(None, 0)), (1, Around(0, 1)), (6, Around(5, 6)), (9, Around(8, 9)), (10, Around(9, None))],
)
def test_the_times_around_an_offset_are_found_without_reading_a_record(
    kafka: ConfluentKafkaCluster, orders: str, offset: int, around: Around
) -> None:
    """Of records that are a second apart each is found, where the ages are of seconds, too."""
    partition, epoch = TopicPartition(orders, 0), datetime.fromtimestamp(0, UTC)
    found = times_around(kafka, {partition: offset}, FIRST + timedelta(seconds=10))[partition]
    assert isinstance(found, Around)

    def seconds(time_ms: int | None) -> float | None:
        return None if time_ms is None else (epoch + timedelta(milliseconds=time_ms) - FIRST).total_seconds()

    assert Around(seconds(found.before_ms), seconds(found.after_ms)) == around  # type: ignore[arg-type]


def test_no_question_makes_a_topic_that_is_not_there(another_broker: EmbeddedBroker, name: str) -> None:
    servers = another_broker.bootstrap_servers
    kafka = cluster(servers)
    asked = cluster(servers, **{"socket.timeout.ms": "1000"})  # some wait for the topic until then
    missing, now = TopicPartition(name, 0), datetime.now(UTC)
    questions: list[Callable[[], object]] = [
        lambda: asked.describe_topics([missing.topic]),
        lambda: asked.visible_topics([missing.topic]),
        lambda: asked.log_bounds([missing]),
        lambda: asked.offsets_at({missing: now}),
        lambda: asked.records_from({missing: now}),
        lambda: asked.newest_records([missing]),
        lambda: asked.first_records({missing: 0}),
        lambda: asked.unreadable_at({missing: 0}),
        lambda: asked.epoch_ends({missing: 0}),
        lambda: asked.retentions([missing.topic]),
        lambda: asked.group_offsets("nobody", [missing]),
        lambda: asked.set_group_offsets("nobody", {missing: 0}, ""),
        lambda: asked.missing_rights([missing.topic], None),
    ]
    for ask in questions:
        with contextlib.suppress(KafkaIngestError, MirrorRefusedError, KafkaException):
            ask()
        assert missing.topic not in kafka.topic_names()
    # What the last one made would come before this one.
    create_topic(servers, f"{name}-later")
    assert missing.topic not in kafka.topic_names()


def test_a_topic_says_when_its_records_are_deleted_and_one_that_is_not_there_says_why_not(
    kafka: ConfluentKafkaCluster, servers: str, name: str
) -> None:
    create_topic(servers, name, config={"retention.ms": "3600000", "retention.bytes": "1048576"})
    found = kafka.retentions([name, f"{name}-missing"])
    assert found[name] == Retention(timedelta(hours=1), by_size=True)
    assert "UNKNOWN_TOPIC_OR_PART" in str(found[f"{name}-missing"])


# ── Groups ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_record_says_when_it_was_written_and_by_whose_clock(
    kafka: ConfluentKafkaCluster, servers: str, orders: str
) -> None:
    appended = f"{orders}-appended"
    create_topic(servers, appended, 4, config={"message.timestamp.type": "LogAppendTime"})
    before = datetime.now(UTC)
    produce(servers, appended, 0, plain_records(2))
    range_without_records(servers, appended, 1)
    produce(servers, appended, 2, plain_records(2))
    delete_records(servers, appended, 2, 2)
    delete_records(servers, orders, 1, 3)
    of_producer, trimmed, *of_broker = [
        TopicPartition(orders, 0),
        TopicPartition(orders, 1),
        *(TopicPartition(appended, number) for number in range(4)),
    ]
    found = kafka.first_records({of_producer: 0, trimmed: 3, **dict(zip(of_broker, (0, 0, 2, 0), strict=True))})

    first_ms = round(FIRST.timestamp() * 1000)
    assert found[of_producer] == FirstRecord(first_ms, by_broker=False)
    assert found[trimmed] == FirstRecord(first_ms + 3_000, by_broker=False)
    for written in (found[of_broker[0]], found[of_broker[1]]):
        assert isinstance(written, FirstRecord)
        assert written.by_broker
        assert written.timestamp_ms is not None
        assert written.timestamp_ms / 1000 > before.timestamp() - 60
    assert (found[of_broker[2]], found[of_broker[3]]) == (None, None)


def test_a_group_s_offsets_are_reported_and_none_where_it_has_none(
    kafka: ConfluentKafkaCluster, orders: str, move_group: MoveGroup
) -> None:
    move_group(f"{orders}-group", orders, {0: 7, 2: 0})
    partitions = [TopicPartition(orders, number) for number in range(3)]
    assert list(kafka.group_offsets(f"{orders}-group", partitions).values()) == [7, None, 0]
    assert kafka.group_offsets(f"{orders}-group", []) == {}
    assert list(kafka.group_offsets(f"{orders}-unknown", partitions).values()) == [None, None, None]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_setting_a_group_s_offsets_is_refused_by_name_while_a_member_lives(
    kafka: ConfluentKafkaCluster, servers: str, orders: str, protocol: str
) -> None:
    offsets = {TopicPartition(orders, 0): 3}
    with (
        live_member(servers, f"{orders}-group", orders, protocol),
        pytest.raises(MirrorRefusedError, match=r"UNKNOWN_MEMBER_ID: consumer group .* has live members.*Stop these"),
    ):
        kafka.set_group_offsets(f"{orders}-group", offsets, "who")
    kafka.set_group_offsets(f"{orders}-group", offsets, "who")
    assert kafka.group_offsets(f"{orders}-group", offsets) == offsets


# ── A broker that is not among the living ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def often_fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A cluster whose only broker always answers, but is left out of the cluster's list three seconds out of six."""
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "6000"}
    with EmbeddedBroker(tmp_path_factory.mktemp("fenced"), extra=settings) as running:
        yield running


@pytest.fixture
def kept_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, two questions of a test are asked by one client, as within a step."""
    monkeypatch.setattr("kafka_ingest.cluster.kafka_client.CLIENT_IDLE_S", float("inf"))


def wait_until_fenced(broker: EmbeddedBroker) -> None:
    wait_for(lambda: brokers_listed(broker) == [], "the broker to be fenced")


def brokers_listed(broker: EmbeddedBroker) -> list[int] | None:
    """Return the cluster's list, None where the client lost its broker over an empty one."""
    with AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}) as client:
        try:
            return list(client.list_topics("no topic: who is there?", timeout=1.0).brokers)
        except KafkaException:
            return None


def answers(kafka: ConfluentKafkaCluster, broker: EmbeddedBroker) -> bool:
    """Whether the cluster says its id; a client that is new while the broker is fenced may not find it."""
    with contextlib.suppress(KafkaUnavailableError):
        return kafka.cluster_id() == broker.cluster_id
    return False


def client_that_met(broker: EmbeddedBroker, **settings: str) -> ConfluentKafkaCluster:
    """Return a client that has asked the broker once."""
    tried: list[ConfluentKafkaCluster] = []

    def met() -> bool:
        tried.append(cluster(broker.bootstrap_servers, **{"socket.timeout.ms": "1000", **settings}))
        return answers(tried[-1], broker)

    wait_for(met, "a client to find the broker while it is let in")
    return tried[-1]


@pytest.mark.usefixtures("kept_client")
def test_a_cluster_without_a_living_broker_says_its_id(often_fenced: EmbeddedBroker) -> None:
    def says_its_id_while_fenced() -> bool:
        kafka = client_that_met(often_fenced)
        wait_until_fenced(often_fenced)
        # A client that librdkafka has shown the empty list before has lost its broker: that is the next test.
        return answers(kafka, often_fenced)

    wait_for(says_its_id_while_fenced, "a client that knows its broker while that is fenced")


def test_the_next_step_finds_a_broker_again_that_the_step_before_it_lost(
    often_fenced: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("kafka_ingest.cluster.kafka_client.CLIENT_IDLE_S", float("inf"))
        # Without recovery librdkafka loses its brokers at the first empty list; with it, after some.
        kafka = client_that_met(often_fenced, **{"metadata.recovery.strategy": "none"})
        wait_until_fenced(often_fenced)
        with contextlib.suppress(KafkaUnavailableError):
            kafka.cluster_id()
    for limit in ("CLIENT_IDLE_S", "REFUSED_S"):
        monkeypatch.setattr(f"kafka_ingest.cluster.kafka_client.{limit}", 0.0)
    wait_for(lambda: answers(kafka, often_fenced), "the next step to find the broker")


def test_an_idle_client_is_closed_and_not_left_to_the_garbage_collector(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_ingest.cluster.kafka_client.CLIENT_IDLE_S", 0.0)
    made: list[AdminClient] = []

    def remember(*settings: Any) -> AdminClient:
        made.append(AdminClient(*settings))
        return made[-1]

    monkeypatch.setattr("kafka_ingest.cluster.kafka_client.AdminClient", remember)
    kafka = cluster(broker.bootstrap_servers)
    kafka.cluster_id()
    # Its question asks another one, by the same client, which is not idle by then.
    assert kafka.offsets_at({TopicPartition(topic, 0): FIRST})
    assert len(made) == 2
    with pytest.raises(RuntimeError, match="closed"):
        made[0].list_topics(timeout=1)
    assert made[1].list_topics(timeout=10).topics


# ── No broker there ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_question_without_a_broker_names_the_address_and_the_connection() -> None:
    unreachable = cluster("127.0.0.1:1", **{"socket.timeout.ms": "300"})
    partition = TopicPartition("orders", 0)
    questions = (
        unreachable.cluster_id,
        unreachable.topic_names,
        lambda: unreachable.describe_topics(["orders"]),
        lambda: unreachable.log_bounds([partition]),
        lambda: unreachable.offsets_at({partition: FIRST}),
        lambda: unreachable.group_offsets("group", [partition]),
        lambda: unreachable.set_group_offsets("group", {partition: 1}, "who"),
    )
    for question in questions:
        with pytest.raises(KafkaUnavailableError, match=r"127\.0\.0\.1:1 \(connection 'kafka_default'\)"):
            question()


def test_a_connection_that_librdkafka_refuses_is_named_with_its_reason(servers: str) -> None:
    with pytest.raises(InvalidConnectionError, match=r"socket\.timeout\.ms"):
        cluster(servers, **{"socket.timeout.ms": "1"}).cluster_id()
