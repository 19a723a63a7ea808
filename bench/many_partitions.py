"""A real broker with topics of many partitions, each of which holds some records."""

import resource
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic  # where they are defined: `admin` hides them from mypy
from talking import BenchmarkError

from embedded_broker import EmbeddedBroker

AT_ONCE: Final = 5_000
"""The controller makes up to some thousand partitions a request, and refuses 10,000."""

FILES_BESIDE_THE_LOGS: Final = 1_000
"""Jars, sockets, internal topics. Each partition's log is one open file of the broker."""

PATIENCE_S: Final = 120.0
_POLL_S: Final = 0.1


def topic_of(partitions: int) -> str:
    """Return the name of the topic that has this many partitions."""
    return f"bench-{partitions}"


def records_in(partition: int) -> int:
    """Return how many records a partition holds: uneven, as in life, and the same in every run."""
    return 8 + partition % 5


@contextmanager
def broker_with_topics(sizes: Collection[int], directory: Path, say: Callable[[str], None]) -> Iterator[str]:
    """Run a broker that holds a topic of each size; yield its bootstrap servers."""
    allow_open_files(sum(sizes) + FILES_BESIDE_THE_LOGS)
    with EmbeddedBroker(directory) as broker, _admin(broker.bootstrap_servers) as admin:
        for size in sizes:
            started = time.monotonic()
            create_topic(admin, topic_of(size), size)
            produce(broker.bootstrap_servers, topic_of(size), {number: records_in(number) for number in range(size)})
            say(f"a topic of {size:,} partitions, with records: {time.monotonic() - started:.1f} s")
        yield broker.bootstrap_servers


def allow_open_files(needed: int) -> None:
    """Raise this process's limit, which the broker inherits, where it may.

    Raises BenchmarkError where it is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BenchmarkError(
            f"expected a limit of at least {needed:,} open files for the broker, found {hard:,} (ulimit -Hn): raise "
            "it, or measure fewer partitions (--sizes)"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def create_topic(admin: AdminClient, topic: str, partitions: int) -> None:
    """Create a topic, some partitions at a time; on return every one has a leader that answers."""
    there = min(partitions, AT_ONCE)
    new = NewTopic(topic, num_partitions=there, replication_factor=1)
    admin.create_topics([new], operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S)[topic].result()
    wait_until_led(admin, topic, there)
    while there < partitions:
        there = min(partitions, there + AT_ONCE)
        more = NewPartitions(topic, there)
        admin.create_partitions([more], operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S)[topic].result()
        wait_until_led(admin, topic, there)


def produce(bootstrap_servers: str, topic: str, counts: Mapping[int, int], *, linger_ms: int = 1_000) -> None:
    """Produce this many records into each partition; raises BenchmarkError unless all are in the log."""
    failures: list[KafkaError] = []

    def remember(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    settings: dict[str, str | int] = {
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "linger.ms": linger_ms,  # one record batch a partition
        "queue.buffering.max.messages": sum(counts.values()) + 1,
    }
    with Producer(settings) as producer:
        for partition, count in counts.items():
            for number in range(count):
                producer.produce(topic, f"record {number}".encode(), partition=partition, on_delivery=remember)
            producer.poll(0)
        left = producer.flush(PATIENCE_S)
    if left or failures:
        raise BenchmarkError(
            f"expected all records in {topic}, {left:,} are left and {len(failures):,} failed: {failures[:1]}"
        )


def wait_until_led(admin: AdminClient, topic: str, partitions: int) -> None:
    """Return once every partition has a leader that answers; raises BenchmarkError where that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not _is_led(admin, topic, partitions):
        if time.monotonic() > deadline:
            raise BenchmarkError(
                f"expected {partitions:,} partitions of {topic} with a leader within {PATIENCE_S:.0f} s"
            )
        time.sleep(_POLL_S)


def _is_led(admin: AdminClient, topic: str, partitions: int) -> bool:
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=PATIENCE_S)[topic]
    try:
        leaders = [partition.leader for partition in described.result().partitions]
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # some milliseconds, for a new one
            return False
        raise
    if len(leaders) != partitions or None in leaders:
        return False
    # Metadata names a leader some moments before that node knows.
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    answers = admin.list_offsets(asked, request_timeout=PATIENCE_S).values()
    return all(answer.exception() is None for answer in answers)


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
