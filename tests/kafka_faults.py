"""Real situations in Kafka that a reader of it has to survive, made on the embedded broker.

All records are uncompressed and without headers, and those of one call become one record batch (up to a megabyte).
"""

import contextlib
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic  # where they are defined: `admin` hides them from mypy

from embedded_broker import EmbeddedBroker

FIRST_TIMESTAMP_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.02

_PRODUCER: Final[Mapping[str, str | int]] = {
    "acks": "all",
    # Keeps the order over a retry, as an idempotent producer would, who needs half a second for its id first.
    "max.in.flight.requests.per.connection": 1,
    "compression.type": "none",
    # Records wait for flush(), so that one call's records are one batch.
    "linger.ms": 30_000,
    "log_level": 0,
}


_IDLE_PRODUCERS: Final[dict[str, list[Producer]]] = {}
"""Transactional ones, by the addresses of their brokers."""


class SituationError(RuntimeError):
    """Kafka did not come into the situation that was asked for."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is produced. `value` None: a tombstone."""

    value: bytes | None = b"value"
    key: bytes | None = None
    timestamp_ms: int = FIRST_TIMESTAMP_MS
    headers: tuple[tuple[str, bytes], ...] = ()


def plain_records(count: int, first_timestamp_ms: int = FIRST_TIMESTAMP_MS, step_ms: int = 1_000) -> list[Record]:
    """`count` records with values `value 0`, `value 1` …, their timestamps `step_ms` apart."""
    return [Record(f"value {n}".encode(), f"key {n}".encode(), first_timestamp_ms + n * step_ms) for n in range(count)]


# Topics


def create_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: int = 1,
    *,
    config: Mapping[str, str] | None = None,
    nodes: Sequence[int] | None = None,
) -> str:
    """Create a topic and return its id; on return every partition has a leader.

    `nodes` names, in place of `partitions`, the node that each partition's one replica lives on. Of `config`, note that
    Kafka 4 refuses a `segment.bytes` below 1 MiB; `internal.segment.bytes` and `segment.ms` are the way to less.
    """
    assignment = {"replica_assignment": [[node] for node in nodes]} if nodes else {"replication_factor": 1}
    new = NewTopic(topic, num_partitions=len(nodes or ()) or partitions, config=dict(config or {}), **assignment)
    with _admin(bootstrap_servers) as admin:
        admin.create_topics([new], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
        _wait_until_led(admin, topic, new.num_partitions)
        found = _topic_id(admin, topic)
    assert found is not None
    return found


def topic_id(bootstrap_servers: str, topic: str) -> str | None:
    """The topic's id, None where there is no such topic."""
    with _admin(bootstrap_servers) as admin:
        return _topic_id(admin, topic)


def leaders(bootstrap_servers: str, topic: str, *, timeout_s: float = PATIENCE_S) -> dict[int, int | None]:
    """The node that leads each partition, None where none does."""
    with _admin(bootstrap_servers) as admin:
        return _leaders(admin, topic, timeout_s)


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic; on return no metadata names it any more."""
    with _admin(bootstrap_servers) as admin:
        admin.delete_topics([topic], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
        _wait(lambda: _topic_id(admin, topic) is None, f"topic {topic} to be gone")


def recreate_topic(
    bootstrap_servers: str, topic: str, partitions: int = 1, *, config: Mapping[str, str] | None = None
) -> str:
    """Delete a topic and create one of its name; return the new topic's id, which differs from the old one's."""
    old = topic_id(bootstrap_servers, topic)
    delete_topic(bootstrap_servers, topic)
    new = create_topic(bootstrap_servers, topic, partitions, config=config)
    if new == old:
        raise SituationError(f"expected another id of the new topic {topic}, found {new} again")
    return new


def add_partitions(bootstrap_servers: str, topic: str, total: int) -> None:
    """Let the topic have `total` partitions; on return every one has a leader."""
    with _admin(bootstrap_servers) as admin:
        admin.create_partitions([NewPartitions(topic, total)], operation_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
        _wait_until_led(admin, topic, total)


# Records


def produce(bootstrap_servers: str, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
    """Send the records and return their offsets, in their order."""
    with Producer({"bootstrap.servers": bootstrap_servers, **_PRODUCER}) as producer:
        return _send(producer, topic, partition, records)


def log_end(bootstrap_servers: str, topic: str, partition: int, *, committed: bool = False) -> int:
    """The high watermark, or with `committed` the last stable offset."""
    with _admin(bootstrap_servers) as admin:
        return _log_end(admin, topic, partition, committed=committed)


def delete_records(bootstrap_servers: str, topic: str, partition: int, before_offset: int) -> int:
    """Move the log start offset, as retention does, to `before_offset`; return where it is then."""
    with _admin(bootstrap_servers) as admin:
        wanted = TopicPartition(topic, partition, before_offset)
        [answer] = admin.delete_records([wanted], request_timeout=PATIENCE_S).values()
        return int(answer.result(PATIENCE_S).low_watermark)


def hidden_by_deleted_records(bootstrap_servers: str, topic: str) -> None:
    """Create a topic of records 0 to 29, a second apart; the first 12 are deleted and still lie in their files.

    Of a time that they have, the broker says that no record is of it or later, until it removes the files (minutes).
    """
    create_topic(bootstrap_servers, topic, config={"segment.ms": "1"})
    for number in range(0, 30, 5):  # a segment each
        produce(bootstrap_servers, topic, 0, plain_records(5, FIRST_TIMESTAMP_MS + number * 1_000))
    delete_records(bootstrap_servers, topic, 0, 12)


def hidden_for_good(bootstrap_servers: str, topic: str) -> None:
    """Create a topic whose records 1 and 2 are of the first second, and 3 and 4 of the hundredth.

    0, deleted, of the fiftieth.

    0 lies in one batch with 1 and 2, so its file stays, and hides 3 and 4 from a request for the twentieth second.
    """
    create_topic(bootstrap_servers, topic, config={"segment.ms": "1"})
    first = [Record(timestamp_ms=FIRST_TIMESTAMP_MS + second * 1_000) for second in (50, 1, 1)]
    produce(bootstrap_servers, topic, 0, first)
    produce(bootstrap_servers, topic, 0, plain_records(2, FIRST_TIMESTAMP_MS + 100_000))
    delete_records(bootstrap_servers, topic, 0, 1)


def read(
    bootstrap_servers: str, topic: str, partition: int, *, committed: bool = True
) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record that a consumer gets now; raises KafkaException where it gets an error."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"reader-{uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # otherwise the end is reported half a second late
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(PATIENCE_S)) is not None:
            error = message.error()
            if error is None:
                offset = message.offset()
                assert offset is not None
                found.append((offset, message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    raise SituationError(f"expected the end of {topic}-{partition} within {PATIENCE_S:.0f} s")


# Transactions


@contextlib.contextmanager
def open_transaction(
    bootstrap_servers: str, topic: str, partition: int, records: Sequence[Record], *, commit: bool = True
) -> Iterator[list[int]]:
    """Hold a transaction with these records open, and commit or abort it at the end; yield their offsets.

    While it is open the last stable offset stays at the first of them. Its end adds one control record.
    """
    with _transactional_producer(bootstrap_servers) as producer, _admin(bootstrap_servers) as admin:
        producer.begin_transaction()
        try:
            yield _send(producer, topic, partition, records)
        finally:
            end = _log_end(admin, topic, partition)
            (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
            # The coordinator answers before it has written the control record.
            _wait(
                lambda: _log_end(admin, topic, partition) > end,
                f"a control record at offset {end} of {topic}-{partition}",
            )


@contextlib.contextmanager
def _transactional_producer(bootstrap_servers: str) -> Iterator[Producer]:
    """A producer between two transactions: one that an earlier one is through with, or a new one.

    A new one looks for its coordinator for up to half a second.
    """
    idle = _IDLE_PRODUCERS.setdefault(bootstrap_servers, [])
    if idle:
        producer = idle.pop()
    else:
        settings = {"transactional.id": f"faults-{uuid4().hex}", "transaction.timeout.ms": 300_000}
        producer = Producer({"bootstrap.servers": bootstrap_servers, **_PRODUCER, **settings})
        producer.init_transactions(PATIENCE_S)
    yield producer
    idle.append(producer)


def committed_transaction(bootstrap_servers: str, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
    """Write the records in a transaction and return their offsets; a control record follows the last of them."""
    with open_transaction(bootstrap_servers, topic, partition, records, commit=True) as offsets:
        pass
    return offsets


def aborted_transaction(bootstrap_servers: str, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
    """Write the records in a transaction that is aborted, and return their offsets; a control record follows."""
    with open_transaction(bootstrap_servers, topic, partition, records, commit=False) as offsets:
        pass
    return offsets


def range_without_records(
    bootstrap_servers: str, topic: str, partition: int, transactions: int = 2, records_each: int = 3
) -> tuple[int, int]:
    """Write aborted transactions only; return the range `[start, end)` of their records and markers."""
    offsets = [
        offset
        for _ in range(transactions)
        for offset in aborted_transaction(bootstrap_servers, topic, partition, plain_records(records_each))
    ]
    return offsets[0], offsets[-1] + 2


# Compaction


def compacted_topic(
    broker: EmbeddedBroker, topic: str, keys: int = 4, rounds: int = 5, partitions: int = 1
) -> list[int]:
    """Create a topic that the cleaner has been through; return the offsets of each partition that still hold a record.

    The first record's key is written once, at offset 0. Each round then writes all the keys again, so that what the
    rounds before the last wrote becomes a hole: offsets 1 to `keys * (rounds - 1)`. Another record ends the log.
    """
    servers = broker.bootstrap_servers
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": "0",
        "segment.ms": "1",
    }
    with _eager_cleaner(broker):
        create_topic(servers, topic, partitions, config=config)
        expected = [_write_to_compact(servers, topic, partition, keys, rounds) for partition in range(partitions)]
        _wait(
            lambda: [[at for at, _, _ in read(servers, topic, each)] for each in range(partitions)] == expected,
            f"the cleaner to leave only the offsets {expected[0]} of {topic}",
        )
    return expected[0]


def _write_to_compact(servers: str, topic: str, partition: int, keys: int, rounds: int) -> list[int]:
    """Write what the cleaner leaves a part of, and return the offsets of that."""
    produce(servers, topic, partition, [Record(b"stays", b"written once")])
    stamp, last = FIRST_TIMESTAMP_MS, list[int]()
    for number in range(1, rounds + 1):
        # A segment is closed by a record whose timestamp is later than its first one's by more than segment.ms.
        stamp = FIRST_TIMESTAMP_MS + number * 1_000
        values = [Record(f"round {number}".encode(), f"key {key}".encode(), stamp) for key in range(keys)]
        last = produce(servers, topic, partition, values)
    # The cleaner leaves the active segment alone; this one record becomes it.
    [end] = produce(servers, topic, partition, [Record(b"active segment", b"written last", stamp + 1_000)])
    return [0, *last, end]


@contextlib.contextmanager
def _eager_cleaner(broker: EmbeddedBroker) -> Iterator[None]:
    """Let the running broker's cleaner look for work ten times a second; by default it sleeps for 15 s."""

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker.node_id), incremental_configs=[entry])
        [answer] = admin.incremental_alter_configs([resource]).values()
        answer.result(PATIENCE_S)

    with _admin(broker.bootstrap_servers) as admin:
        alter(AlterConfigOpType.SET, "100")
        try:
            yield
        finally:
            alter(AlterConfigOpType.DELETE, None)


# Nodes


def stop_leader(broker: EmbeddedBroker, node: EmbeddedBroker, topic: str, partition: int) -> None:
    """Stop a second node; on return the first one says that the partition has no leader."""
    node.stop()

    def without_leader() -> bool:
        try:
            return leaders(broker.bootstrap_servers, topic, timeout_s=1)[partition] is None
        except KafkaException as error:  # the metadata may still name the stopped node as the one to ask
            if error.args[0].code() == KafkaError._TIMED_OUT:
                return False
            raise

    _wait(without_leader, f"no leader of {topic}-{partition} any more")


# Damage


@dataclass(frozen=True, slots=True)
class DamagedBatch:
    """A record batch whose checksum no longer fits: its offsets, both inclusive, and where it lies on the disk."""

    base_offset: int
    last_offset: int
    segment: Path
    position: int


def corrupt_batch(broker: EmbeddedBroker, topic: str, partition: int, offset: int) -> DamagedBatch:
    """Flip the bits of one byte in the batch that holds `offset`, in the file that the running broker serves from.

    The byte is of the last record's value. The batches before and after it stay as they are: `produce` makes one batch
    a call. Kafka checks no sums when it serves consumers, so they get the batch, and those that check refuse it. Called
    for the same offset again it mends the batch.
    """
    segments = sorted((broker.directory / "data" / f"{topic}-{partition}").glob("*.log"))
    at_or_before = [segment for segment in segments if int(segment.stem) <= offset]
    for segment in at_or_before[-1:]:
        with segment.open("r+b") as file:
            for position, size, base_offset, last_offset in _batches(segment):
                if base_offset <= offset <= last_offset:
                    # The last byte says that the record has no headers; the one before is the end of its value.
                    file.seek(position + size - 2)
                    [byte] = file.read(1)
                    file.seek(position + size - 2)
                    file.write(bytes([byte ^ 0xFF]))
                    return DamagedBatch(base_offset, last_offset, segment, position)
    raise SituationError(f"expected a batch with offset {offset} of {topic}-{partition} in {segments}, found none")


def truncate_log(broker: EmbeddedBroker, topic: str, partition: int, end_offset: int) -> None:
    """Let the log end at `end_offset`, as after an unclean leader election.

    The topic keeps its id, the records are gone.

    `end_offset` is where one of the log's batches begins. The broker is stopped for it and started again, so use one
    that nobody else uses now.
    """
    truncate_logs(broker, {(topic, partition): end_offset})


def truncate_logs(broker: EmbeddedBroker, end_offsets: Mapping[tuple[str, int], int]) -> None:
    """Let several logs end at an offset, by topic and partition, with one stop and start of the broker."""
    partitions = {topic: len(leaders(broker.bootstrap_servers, topic)) for topic, _ in end_offsets}
    broker.stop()
    data = broker.directory / "data"
    # Without it the broker reads its logs through at the start, instead of believing what it noted at the stop.
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for (topic, partition), end_offset in end_offsets.items():
        _truncate_files(data / f"{topic}-{partition}", end_offset)
    broker.start()
    with _admin(broker.bootstrap_servers) as admin:
        for topic, count in partitions.items():
            _wait_until_led(admin, topic, count)
    for (topic, partition), end_offset in end_offsets.items():
        _wait(
            lambda of=(topic, partition), end=end_offset: log_end(broker.bootstrap_servers, *of) == end,
            f"{topic}-{partition} to end at {end_offset}",
        )


def _truncate_files(directory: Path, end_offset: int) -> None:
    for segment in sorted(directory.glob("*.log")):
        size = min((at for at, _, base_offset, _ in _batches(segment) if base_offset >= end_offset), default=None)
        if size is not None:
            with segment.open("r+b") as file:
                file.truncate(size)
    for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        for file_beside in directory.glob(pattern):
            file_beside.unlink()


def _batches(segment: Path) -> Iterator[tuple[int, int, int, int]]:
    """Position, size, first and last offset of each record batch (format v2) in a segment's file."""
    content, position = segment.read_bytes(), 0
    while position + 61 <= len(content):
        base_offset, length = struct.unpack_from(">qi", content, position)
        if length <= 0:  # a file that was allocated in advance
            return
        [last_offset_delta] = struct.unpack_from(">i", content, position + 23)
        yield position, 12 + length, base_offset, base_offset + last_offset_delta
        position += 12 + length


# Consumer groups


@contextlib.contextmanager
def live_member(bootstrap_servers: str, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """Keep a consumer in the group, with all of the topic's partitions assigned to it; it commits nothing by itself."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        | {"group.protocol": protocol}
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.assignment():
            if time.monotonic() > deadline:
                raise SituationError(f"expected a member of {group} to be assigned {topic} within {PATIENCE_S:.0f} s")
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()


def forget_group(bootstrap_servers: str, group: str) -> None:
    """Delete the group with all its offsets, as if they had expired; it may have no live member."""
    with _admin(bootstrap_servers) as admin:
        admin.delete_consumer_groups([group], request_timeout=PATIENCE_S)[group].result(PATIENCE_S)


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def _wait_until_led(admin: AdminClient, topic: str, partitions: int) -> None:
    def led() -> bool:
        found = _leaders(admin, topic)
        if len(found) != partitions or None in found.values():
            return False
        # Metadata names a leader some moments before that node knows; with many partitions, some hundred milliseconds.
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in found}
        answers = admin.list_offsets(asked, request_timeout=PATIENCE_S).values()
        return all(answer.exception(PATIENCE_S) is None for answer in answers)

    _wait(led, f"{partitions} partitions of {topic}, each with a leader that answers")


def _topic_id(admin: AdminClient, topic: str) -> str | None:
    answer = admin.describe_topics(TopicCollection([topic]), request_timeout=PATIENCE_S)[topic]
    try:
        return str(answer.result(PATIENCE_S).topic_id)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _log_end(admin: AdminClient, topic: str, partition: int, *, committed: bool = False) -> int:
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(topic, partition): OffsetSpec.latest()}
    [answer] = admin.list_offsets(asked, isolation_level=isolation, request_timeout=PATIENCE_S).values()
    return int(answer.result(PATIENCE_S).offset)


def _leaders(admin: AdminClient, topic: str, timeout_s: float = PATIENCE_S) -> dict[int, int | None]:
    answer = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic]
    try:
        partitions = answer.result(PATIENCE_S).partitions
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # some milliseconds, for a new one
            return {}
        raise
    return {partition.id: partition.leader.id if partition.leader else None for partition in partitions}


def _send(producer: Producer, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
    delivered: list[int] = []
    failures: list[KafkaError] = []

    def remember(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        elif (offset := message.offset()) is not None:
            delivered.append(offset)

    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            on_delivery=remember,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    producer.flush(PATIENCE_S)
    if failures or len(delivered) != len(records):
        raise SituationError(
            f"expected {len(records)} records in {topic}-{partition}, found {len(delivered)}: {failures}"
        )
    return delivered


def _wait(condition: Callable[[], bool], expected: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SituationError(f"expected {expected} within {PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)
