"""The life of a Kafka client: created, authenticated, closed when idle; what its errors mean, and their names."""

import contextlib
import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from copy import copy
from functools import cached_property
from threading import RLock
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.first_answers import LITTLE, FirstAnswer, first_answers
from kafka_ingest.cluster.handshake import UNREACHABLE, ClientErrors, pause_after_a_login, shake_hands, unreachable
from kafka_ingest.cluster.large_records import large_records
from kafka_ingest.cluster.other_logins import KERBEROS, without_kerberos
from kafka_ingest.errors import (
    InvalidConnectionError,
    KafkaAccessDeniedError,
    KafkaIngestError,
    KafkaLoginRefusedError,
    KafkaUnavailableError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import Isolation, OffsetRange, TopicPartition, Unavailable
from kafka_ingest.model.spark_settings import LargeRecord

NO_LEADER_KNOWN = Unavailable("LEADER_NOT_AVAILABLE: its leader did not answer")
"""The client still asks a leader that has just died, and then returns no error, only an offset below zero."""

ACCESS_ERRORS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)

RIGHTS: Mapping[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ on each of these topics, which includes DESCRIBE",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on this consumer group, which includes DESCRIBE",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "DESCRIBE on the cluster",
}
"""Which right an answer means; what includes what: https://kafka.apache.org/documentation/#operations_in_kafka."""

# Codes that say something about one partition rather than about reaching the cluster.
PARTITION_ERRORS = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,  # its leader changed this moment
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._NOENT,  # every partition that was asked for is without a leader
    }
)


def unavailable(error: KafkaException) -> Unavailable:
    """Return why one partition has no answer; raises again what says something about reaching the cluster."""
    if error.args[0].code() in PARTITION_ERRORS:
        return Unavailable(f"{error.args[0].name()}: {error.args[0].str()}")
    raise error


def is_unreachable(error: KafkaError) -> bool:
    """Whether an error is about reaching Kafka at all, rather than an answer of Kafka's."""
    return error.code() in UNREACHABLE


CLIENT_IDLE_S = 5.0
"""How long an idle client is kept: within a step questions follow at once, between steps Spark may work for hours.

A cluster that restarts in between may return metadata without any broker. librdkafka then forgets the brokers it knew,
and was seen not to find them again for five minutes (KIP-1102's ``metadata.recovery.rebootstrap.trigger.ms``); a new
client does at once.
"""

LEADERS_S = 10.0
"""How long a client that has described a topic is taken to know its leaders; librdkafka forgets them after minutes."""

REFUSED_S = 5.0
"""How long a cluster that let nobody in is not asked again: those who waited meanwhile, and a run's other feeds, get
the same error at once, instead of a time limit each. A refused login is final: each try counts against the account.
"""


class KafkaClient:
    """One AdminClient, created at the first question of a step; its errors are raised by name."""

    def __init__(self, find_settings: Callable[[], KafkaClientSettings], *, at_most_s: float | None = None) -> None:
        """Ask for the settings only when they are needed: a commit can do without Kafka, and so without its connection.

        ``at_most_s`` shortens the connection's own time limit, for answers that an operator waits for.
        """
        self._find_settings = find_settings
        self._at_most_s = at_most_s
        self._client: AdminClient | None = None
        self._reported = ClientErrors()
        self._refused: KafkaIngestError | None = None
        self._refused_until = 0.0
        self._used_at = 0.0
        self._asking = 0
        self._is_in_doubt = False
        self._heard: dict[str, tuple[float, Mapping[int, bool]]] = {}
        # Feeds that are planned or committed at once share a client: none closes it while another one asks.
        self._lock = RLock()

    @cached_property
    def settings(self) -> KafkaClientSettings:
        return self._find_settings()

    @property
    def request_timeout_s(self) -> float:
        return min(self.settings.request_timeout_s, self._at_most_s or self.settings.request_timeout_s)

    @property
    def admin(self) -> AdminClient:
        """The client; librdkafka's own lines on stderr are silenced, since each failure is raised here by name."""
        return self.connected_admin()

    def connected_admin(self) -> AdminClient:
        """Return the client once a broker has accepted it; raises the error that says why none did.

        After a question without an answer the broker is asked first whether it is there: if it is not, all feeds of
        the connection get that error, instead of a time limit each.
        """
        with self._lock:
            if self._client is not None and not self._is_in_doubt:
                return self._client
            if self._refused is not None and time.monotonic() < self._refused_until:
                raise copy(self._refused)
            try:
                client = self._client or self._new_client_let_in()
                if self._is_in_doubt:
                    shake_hands(client, self._reported, self.settings, self.request_timeout_s)
            except KafkaIngestError as error:
                # A copy has no traceback, which would hold what asked.
                self._refused = copy(error)
                is_final = isinstance(error, KafkaLoginRefusedError)
                self._refused_until = math.inf if is_final else time.monotonic() + REFUSED_S
                raise
            self._client, self._is_in_doubt = client, False
            return client

    def _new_client_let_in(self) -> AdminClient:
        self._reported, self._is_in_doubt = ClientErrors(), False
        with contextlib.ExitStack() as unless_let_in:
            client = unless_let_in.enter_context(self._new_client())
            shake_hands(client, self._reported, self.settings, self.request_timeout_s)
            unless_let_in.pop_all()
        return client

    def check_let_in(self) -> None:
        """Raise the error that says why no broker accepts the client; it is closed again."""
        with self._lock:
            self.connected_admin()
            self._close()

    def _new_client(self) -> AdminClient:
        try:
            settings: dict[str, Any] = {
                "log_level": "0",
                **pause_after_a_login(self.settings),
                **self.settings.admin_settings(),
                "error_cb": self._reported,
            }
            return AdminClient(settings)
        except (KafkaException, TypeError, ValueError) as error:
            cause = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            if f"No provider for SASL mechanism {KERBEROS}" in cause:
                raise without_kerberos(self.settings.conn_id) from None
            refused = refused_setting(cause, self.settings.librdkafka)
            raise InvalidConnectionError(
                f"connection {self.settings.conn_id!r}: librdkafka refuses its extra: {refused}. See librdkafka's "
                "CONFIGURATION.md for its keys and values."
            ) from None

    @contextlib.contextmanager
    def consumer(self, group: str) -> Iterator[Consumer]:
        """Yield a consumer that is closed again; it joins no group by itself. It is not for reading records."""
        consumer = Consumer(self._consumer_settings(group))
        try:
            yield consumer
        finally:
            consumer.close()

    def first_answers(
        self, offsets: Mapping[TopicPartition, int], question: str, settings: Mapping[str, object]
    ) -> dict[TopicPartition, FirstAnswer]:
        """Return a consumer's first answer at each offset: a record's place, the log's end, or an error.

        Those without an answer within the time limit are left out. What a record takes, this process does not.
        """
        if not offsets:
            return {}
        with self.time_limited(question):
            positions = [(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
            consumer = {**self._consumer_settings("kafka_ingest reads where a log begins"), **settings}
            found = first_answers(consumer, positions, self.request_timeout_s)
        return {TopicPartition(*place): answer for place, answer in found.items()}

    def large_records(
        self, ranges: Collection[OffsetRange], isolation: Isolation
    ) -> dict[TopicPartition, list[LargeRecord]]:
        with self.time_limited(f"the sizes of the records of {counted(len(ranges), 'partition')}"):
            settings = self._consumer_settings("kafka_ingest looks for large records")
            return large_records(settings | {"isolation.level": isolation.value}, ranges, self.request_timeout_s)

    def _consumer_settings(self, group: str) -> dict[str, object]:
        """Return the settings of a consumer that is given its partitions: it joins no group, and commits nothing."""
        # A consumer would repeat a refused password until the question's timeout: the admin client goes first.
        self.connected_admin()
        own = {"log_level": "0", "group.id": group, "enable.auto.commit": False, "enable.partition.eof": True}
        return {**self.settings.admin_settings(), **LITTLE, **own}

    def result(self, future: Future[Any]) -> Any:  # noqa: ANN401 - confluent-kafka's futures are untyped
        """Return an answer; raises KafkaException, or TimeoutError where none comes."""
        # librdkafka keeps the request's own limit; a little more here, so that its better message wins.
        return future.result(timeout=self.request_timeout_s + 5)

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription | KafkaError]:
        """Describe topics in one request; unlike a request for metadata by name it makes none that is missing."""
        found: dict[str, TopicDescription | KafkaError] = {}
        futures = self.admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=self.request_timeout_s)
        for topic, future in futures.items():
            try:
                described = self.result(future)
            except KafkaException as error:
                if is_unreachable(error.args[0]):
                    raise
                found[topic] = error.args[0]
                continue
            found[topic] = described
            leaders = has_leader(described)
            if all(leaders.values()):
                self._heard[topic] = time.monotonic(), leaders
        return found

    def leaders(self, topics: set[str]) -> dict[str, Mapping[int, bool] | KafkaError]:
        """Return whether each partition of topics has a leader, or why a topic does not say.

        Asked before each ListOffsets. About a partition whose leader the client has not heard of that is slow, and was
        seen to end the process: librdkafka 2.16 frees what
        `rd_kafka_topic_partition_list_query_leaders_async_worker` still locks.
        """
        heard_since = time.monotonic() - LEADERS_S
        found: dict[str, Mapping[int, bool] | KafkaError] = {}
        for topic in topics:
            heard_at, leaders = self._heard.get(topic, (0.0, {}))
            if heard_at > heard_since:
                found[topic] = leaders
        if unheard := topics - found.keys():
            for topic, each in self.describe_topics(unheard).items():
                found[topic] = each if isinstance(each, KafkaError) else has_leader(each)
        return found

    @contextlib.contextmanager
    def time_limited(self, question: str) -> Iterator[None]:
        """Ask a question inside this: what fails is raised as the error that names the question and the cause."""
        with self._lock:
            if not self._asking and (self._is_in_doubt or time.monotonic() - self._used_at > CLIENT_IDLE_S):
                self._close()
            self._asking += 1
        try:
            yield
        except TimeoutError as error:
            raise self._no_answer(question, "no answer") from error
        except KafkaException as error:
            cause = self.settings.redacted(f"{error.args[0].name()}: {error.args[0].str()}")
            if error.args[0].code() in ACCESS_ERRORS:
                raise self.no_access(question, error.args[0]) from error
            if is_unreachable(error.args[0]):
                raise self._no_answer(question, cause) from error
            raise KafkaUnavailableError(
                f"{self._where} answered with an error when asked for {question}: {cause}"
            ) from error
        finally:
            with self._lock:
                self._asking -= 1
                self._used_at = time.monotonic()

    def close(self) -> None:
        """Close the client for good, if nobody asks: an error that holds it would otherwise keep it logging in."""
        with self._lock:
            if not self._asking:
                self._close()

    def _close(self) -> None:
        """Close the client, if there is one, in this thread: see :attr:`kafka_ingest.assembly.FeedParts.kafka`."""
        client, self._client = self._client, None
        self._heard.clear()
        if client is not None:
            client.__exit__(None, None, None)

    @property
    def _where(self) -> str:
        return f"Kafka at {self.settings.bootstrap_servers} (connection {self.settings.conn_id!r})"

    def no_access(self, question: str, error: KafkaError) -> KafkaAccessDeniedError:
        cause = self.settings.redacted(f"{error.name()}: {error.str()}")
        right = RIGHTS.get(error.code(), "the rights in docs/security.md")
        return KafkaAccessDeniedError(
            f"{self._where} refused access to {question}: {cause}. Expected for the connection's user: {right}. Grant "
            "it, or correct the user; docs/security.md lists all rights that a feed needs."
        )

    def _no_answer(self, question: str, cause: str) -> KafkaIngestError:
        self._is_in_doubt = True
        if self._client is not None:
            self._client.poll(0)
        return unreachable(self._reported, self.settings, self.request_timeout_s, question, cause)


class Questions:
    """Questions that share a client."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client


def has_leader(topic: TopicDescription) -> dict[int, bool]:
    return {partition.id: partition.leader is not None for partition in topic.partitions}


def refused_setting(cause: str, keys: Collection[str]) -> str:
    """Return which setting librdkafka refuses, and the range of a number, but nothing of the value that it quotes."""
    named = [key for key in sorted(keys, key=len, reverse=True) if key in cause]
    if named and cause.startswith("No such configuration property"):
        return f"it has no setting {named[0]}"
    allowed = re.search(r"allowed range [0-9.+-]+", cause)
    which = f"the value of {named[0]}" if named else "one of its settings"
    return f"{which} is outside the {allowed[0]}" if allowed else which
