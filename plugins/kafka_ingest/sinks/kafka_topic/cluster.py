"""The cluster of an output topic: its clients, what it says of topics, and its errors by name."""

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from kafka_ingest.errors import KafkaIngestError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.model.topics import known_topic_id
from kafka_ingest.sinks.kafka_topic.topic_rows import Records, SeenMarks

NO_TOPIC: Final = "no topic: the brokers are asked"
"""No topic can have this name, so asking for it creates none. ``describe_cluster`` may abort the process."""
DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Answers that the same records get again."""
ADVICE: Final = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Grant WRITE and DESCRIBE on transactional ids with the prefix 'kafka_ingest.', and run the commit again."
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "Set the same transaction.max.timeout.ms on all brokers of the cluster, and run the commit again."
    ),
    KafkaError.POLICY_VIOLATION: (
        "The cluster's policy does not let this user make the topic of marks: make it with one partition and "
        "cleanup.policy=compact, and run the commit again."
    ),
}
"""What to do after some of these."""
CLOSED_WITHIN_S: Final = 30.0
READ_AT_ONCE: Final = 10_000
PATIENCE_S: Final = 60.0
"""So long a record is waited for, or the end of a partition."""
SOCKET_TIMEOUT_MS: Final = 60_000
"""What librdkafka takes for other clients; to producers of transactions it gives nearly all of their time."""
MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


class KafkaSettings(Protocol):
    """How a cluster is reached, by one connection."""

    @property
    def conn_id(self) -> str:
        """The connection."""

    @property
    def request_timeout_s(self) -> float:
        """How long a question may take."""

    def admin_settings(self) -> dict[str, Any]:
        """Return librdkafka's settings that all kinds of clients have; they may hold secrets."""

    def redacted(self, text: str) -> str:
        """Return a text without what the connection keeps."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its cluster describes it."""

    name: str
    topic_id: str | None
    partitions: int
    replicas: int
    settings: Mapping[str, str]

    @property
    def largest_record_bytes(self) -> int:
        """How large a batch of records may be, and so a record."""
        return int(self.setting("max.message.bytes"))

    @property
    def is_compacted(self) -> bool:
        """Whether a record needs a key."""
        return "compact" in self.setting("cleanup.policy")

    @property
    def deletes(self) -> bool:
        """Whether Kafka deletes a segment once its newest record is old."""
        return "delete" in self.setting("cleanup.policy")

    def setting(self, name: str) -> str:
        """Return a setting; raises OutputNotUsableError where the cluster does not list it."""
        return listed(self.settings, name, f"topic {self.name}")


class OutputCluster:
    """One cluster by its connection. The clients' own lines on stderr are silenced: failures are raised by name."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.timeout_s = settings.request_timeout_s
        self.socket_timeout_ms = int(settings.admin_settings().get("socket.timeout.ms", SOCKET_TIMEOUT_MS))
        self.seen_marks: defaultdict[str, SeenMarks] = defaultdict(SeenMarks)
        """What was read of topics of marks, by their names."""
        self._settings = settings
        self._said = ""

    @contextmanager
    def named_errors(self, what: str) -> Iterator[None]:
        """Give the client's errors their names."""
        try:
            yield
        except KafkaException as error:
            raise self.named(what, error) from None

    def named(self, what: str, error: KafkaException) -> KafkaIngestError:
        """Return the error that names a topic and the cause."""
        cause: KafkaError = error.args[0]
        has_said = self._said and cause.code() in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
        found = self._settings.redacted(
            f"{what} could not be used through connection {self._settings.conn_id!r}: {cause.name()}: {cause.str()}"
            f"{f' ({self._said})' if has_said else ''}."
        )
        if (advice := ADVICE.get(cause.code())) is not None:
            return OutputNotUsableError(f"{found} Nothing was published and no offset was moved. {advice}")
        if cause.code() in DENIED:
            return OutputNotUsableError(
                f"{found} Expected a user that may describe, write and DescribeConfigs the topic; create, describe, "
                "read and write its topic of marks; use transactional ids that begin with 'kafka_ingest.'; read "
                "the group 'kafka_ingest'; and DescribeConfigs on the cluster. No offset was moved; grant the rights, "
                "or correct the connection."
            )
        if cause.code() in REFUSED:
            return OutputNotUsableError(
                f"{found} Nothing was published and no offset was moved. Change the topic's settings so that it takes "
                "the records, and run the commit again."
            )
        return OutputUnavailableError(
            f"{found} No offset was moved; run this again when the cluster answers: the batch's mark in it then says "
            "whether it was published."
        )

    def topic(self, name: str) -> Topic | None:
        """Return a topic with its settings, None where there is none."""
        try:
            with self._admin() as admin:
                asked = admin.describe_topics(TopicCollection([name]), request_timeout=self.timeout_s)
                described = asked[name].result()
        except KafkaException as error:
            if code_of(error, MISSING):
                return None
            raise
        replicas = min(len(partition.replicas) for partition in described.partitions)
        settings = self._settings_of(ResourceType.TOPIC, name)
        return Topic(name, known_topic_id(described.topic_id), len(described.partitions), replicas, settings)

    def longest_transaction_s(self) -> float:
        """Return how long all brokers allow a transaction to take: each may be the one that coordinates it."""
        with self._admin() as admin:
            brokers = admin.list_topics(NO_TOPIC, timeout=self.timeout_s).brokers
        found = [self._settings_of(ResourceType.BROKER, str(broker)) for broker in brokers]
        return min((int(listed(each, "transaction.max.timeout.ms", "a broker")) for each in found), default=0) / 1000

    def make_topic(self, name: str, replicas: int, settings: Mapping[str, str]) -> None:
        """Create a topic of one partition; it has a leader when this returns. Does nothing where there is one."""
        topic = NewTopic(name, num_partitions=1, replication_factor=replicas, config=dict(settings))
        try:
            with self._admin() as admin:
                admin.create_topics([topic], request_timeout=self.timeout_s)[name].result()
        except KafkaException as error:
            if not code_of(error, {KafkaError.TOPIC_ALREADY_EXISTS}):
                raise
        until = time.monotonic() + self.timeout_s
        while True:
            try:
                self.end_of(name)
            except KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
            else:
                return

    def end_of(self, name: str) -> int:
        """Return the high watermark of a topic of one partition: where what is being written ends, too."""
        place = ClientTopicPartition(name, 0)
        with self._admin() as admin:
            # Of a partition whose leader is not known, librdkafka may end the process: see KafkaClient.leaders.
            described = admin.describe_topics(TopicCollection([name]), request_timeout=self.timeout_s)[name].result()
            if described.partitions[0].leader is None:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            asked = admin.list_offsets(
                {place: OffsetSpec.latest()},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self.timeout_s,
            )
            return int(asked[place].result().offset)

    def records(self, topic: Topic) -> dict[int, Records]:
        """Return which committed records each partition has until now."""
        consumer = self.reader()
        try:
            places = [ClientTopicPartition(topic.name, number) for number in range(topic.partitions)]
            for place in places:
                place.offset, _ = consumer.get_watermark_offsets(place, self.timeout_s)
            consumer.assign(places)
            offsets: dict[int, array[int]] = {place.partition: array("q") for place in places}
            open_still, patient_until = set(offsets), time.monotonic() + PATIENCE_S
            while open_still:
                for message in consumer.consume(READ_AT_ONCE, 0.5):
                    patient_until = time.monotonic() + PATIENCE_S
                    error, number = message.error(), message.partition() or 0
                    if error is None:
                        offsets[number].append(message.offset() or 0)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        open_still.discard(number)
                    else:
                        raise KafkaException(error)
                if time.monotonic() > patient_until:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        finally:
            consumer.close()
        return {place.partition: Records(place.offset, offsets[place.partition]) for place in places}

    def reader(self, isolation: str = "read_committed") -> Consumer:
        """Return a consumer that joins no group, and raises where an offset that it is to read from is gone."""
        own = {"group.id": "kafka_ingest", "enable.auto.commit": False, "auto.offset.reset": "error"}
        # By default the answer that there is no more takes half a second.
        own |= {"isolation.level": isolation, "enable.partition.eof": True, "fetch.wait.max.ms": 20}
        return Consumer(self._all() | own)

    @contextmanager
    def producer(self, transactional_id: str, own: Mapping[str, Any]) -> Iterator[Producer]:
        """Open a producer that has not begun anything; what it has not sent by its end is dropped."""
        producer = Producer({**self._all(), "transactional.id": transactional_id, **own})
        try:
            yield producer
        finally:
            producer.purge()
            # Closing has no time-out of its own.
            closing = Thread(target=producer.close, daemon=True)
            closing.start()
            closing.join(CLOSED_WITHIN_S)

    def _admin(self) -> AdminClient:
        """Return a client for one question: an older one may have noted that a topic is not there, and not look again.

        It is closed with the question; left to the garbage collector, clients crash.
        """
        return AdminClient(self._all())

    def _all(self) -> dict[str, Any]:
        return {**self._settings.admin_settings(), "log_level": 0, "error_cb": self._note}

    def _note(self, error: KafkaError) -> None:
        self._said = error.str()

    def _settings_of(self, kind: ResourceType, name: str) -> dict[str, str]:
        resource = ConfigResource(kind, name)
        with self._admin() as admin:
            found = admin.describe_configs([resource], request_timeout=self.timeout_s)[resource].result()
        return {key: entry.value for key, entry in found.items() if entry.value is not None}


FindKafka = Callable[[str], OutputCluster]
"""Finds a cluster by the id of its connection; raises MissingConnection- or InvalidConnectionError."""


def listed(settings: Mapping[str, str], name: str, whose: str) -> str:
    """Return a setting; raises OutputNotUsableError where a compatible cluster does not list it."""
    if name not in settings:
        raise OutputNotUsableError(
            f"{whose}: expected the cluster to list its {name}, found none. Nothing was published and no offset was "
            "moved. Give the feed a topic in a cluster that lists it, as Apache Kafka does."
        )
    return settings[name]


def code_of(error: KafkaException, codes: Collection[int]) -> bool:
    """Whether an error is one of these."""
    return error.args[0].code() in codes
