"""The questions asked of Kafka, through confluent-kafka's AdminClient: in bulk, with isolation always explicit."""

import contextlib
import functools
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

import tenacity
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, OffsetSpec

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.handshake import UNREACHABLE, Heard, pause_after_a_login, shake_hands, unreachable
from kafka_ingest.cluster.log_reader import LITTLE, epoch_ends, first_answers, first_records, timestamp_of
from kafka_ingest.errors import (
    InvalidConnectionError,
    KafkaAccessDeniedError,
    KafkaIngestError,
    KafkaUnavailableError,
)
from kafka_ingest.model.offsets import FirstRecord, LogBounds, TopicDescription, TopicPartition, Unavailable, listing
from kafka_ingest.ports.cluster import MirrorRefusedError

ZERO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero UUID in its base64 form: a broker that does not know topic ids (KIP-516)."""

NO_SUCH_OFFSET = -1
"""ListOffsets' answer where no record is of that time or later (KIP-79)."""

NO_LEADER_KNOWN = Unavailable("LEADER_NOT_AVAILABLE: its leader did not answer")
"""A leader that died a moment ago is still the one to ask: the client then gives no error, only an offset below zero."""

LEADER_CHANGED = Unavailable("FENCED_LEADER_EPOCH: its leader changed while it was asked")
"""Where the log ends and its leader epoch have to belong together."""

GROUP_COMMIT_PARTITIONS = 1_000
"""One request's offsets become one record batch of about 100 bytes each, which must stay below ``max.message.bytes``."""

NO_TOPIC = "no topic: the cluster's id is asked"
"""No topic can have this name, so asking for it tells of the cluster and creates nothing."""

CLIENT_IDLE_S = 5.0
"""How long a client keeps between two questions: within a step they follow at once, between steps Spark may work for hours.

A cluster that restarts meanwhile may tell a client of no broker at all. librdkafka then forgets those it knew, and was seen
not to find them again for five minutes (KIP-1102's ``metadata.recovery.rebootstrap.trigger.ms``); a new client does at once.
"""

LOOK_WHY_AFTER_S = 2.0
"""A group that answers does so in milliseconds; so late it is worth a question of its own whether it may answer at all."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Answer = TypeVar("Answer")

COORDINATOR_MOVES = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
ACCESS_ERRORS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)

DAMAGED = frozenset(
    {
        KafkaError._BAD_MSG,  # its checksum is wrong, or it does not follow the format
        KafkaError._BAD_COMPRESSION,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
    }
)
"""What says that a record is damaged, rather than that nobody answered for it."""

PAST_READING = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})
"""There is no such record: the log ends there, or begins later; the log's bounds say what that means."""

CANNOT_SAY = frozenset({KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION})
"""A broker before 3.0 is asked for its newest timestamp (KIP-734)."""

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


class ConfluentKafkaCluster:
    """One Kafka cluster, seen through an AdminClient that is made at the first question of a step."""

    def __init__(self, find_settings: Callable[[], KafkaClientSettings], *, at_most_s: float | None = None) -> None:
        """Ask for the settings only when they are needed: a commit can do without Kafka, and so without its connection.

        ``at_most_s`` shortens the connection's own time limit, for answers that somebody waits for.
        """
        self._find_settings = find_settings
        self._at_most_s = at_most_s
        self._client: AdminClient | None = None
        self._heard = Heard()
        self._used_at = 0.0

    @cached_property
    def _settings(self) -> KafkaClientSettings:
        return self._find_settings()

    @property
    def _request_timeout_s(self) -> float:
        return min(self._settings.request_timeout_s, self._at_most_s or self._settings.request_timeout_s)

    @property
    def admin(self) -> AdminClient:
        """The client; librdkafka's own lines on stderr are silenced, each failure is raised here by name instead."""
        return self._be_let_in()

    def _be_let_in(self) -> AdminClient:
        if self._client is not None:
            return self._client
        self._heard = Heard()
        with contextlib.ExitStack() as unless_let_in:
            client = unless_let_in.enter_context(self._new_client())
            shake_hands(client, self._heard, self._settings, self._request_timeout_s)
            unless_let_in.pop_all()
        self._client = client
        return client

    def _new_client(self) -> AdminClient:
        try:
            settings: dict[str, Any] = {
                "log_level": "0",
                **pause_after_a_login(self._settings),
                **self._settings.admin_settings(),
                "error_cb": self._heard,
            }
            return AdminClient(settings)
        except (KafkaException, TypeError, ValueError) as error:
            cause = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            refused = refused_setting(cause, self._settings.librdkafka)
            raise InvalidConnectionError(
                f"connection {self._settings.conn_id!r}: librdkafka refuses its extra: {refused}. See librdkafka's "
                "CONFIGURATION.md for its keys and values."
            ) from None

    def cluster_id(self) -> str:
        """Return the cluster's id.

        Not asked by describe_cluster: librdkafka 2.16 aborts the process where the answer names no broker, as that of a
        cluster whose only broker was fenced a moment ago (DescribeClusterResponse_parse in rdkafka_admin.c). As a new client's
        first question it takes 50 ms, after any other one 1 ms.
        """
        with self._time_limited("the cluster's id"):
            cluster_id = self.admin.list_topics(NO_TOPIC, timeout=self._request_timeout_s).cluster_id
        if not cluster_id:
            raise KafkaUnavailableError(f"the brokers at {self._settings.bootstrap_servers} gave no cluster id")
        return str(cluster_id)

    def topic_names(self) -> list[str]:
        """Return the names of all topics that this client may see."""
        with self._time_limited("its topics"):
            return sorted(self.admin.list_topics(timeout=self._request_timeout_s).topics)

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist. Asked by describe_topics: a metadata request by name creates a missing one."""
        found: dict[str, TopicDescription] = {}
        with self._time_limited(f"topics {listing(sorted(topics))}"):
            futures = self.admin.describe_topics(
                TopicCollection(sorted(topics)), request_timeout=self._request_timeout_s
            )
            for topic, future in futures.items():
                try:
                    described = self._result(future)
                except KafkaException as error:
                    if error.args[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
                        continue
                    raise
                topic_id = str(described.topic_id)
                found[topic] = TopicDescription(
                    topic=topic,
                    topic_id=None if topic_id == ZERO_TOPIC_ID else topic_id,
                    partitions=tuple(sorted(partition.id for partition in described.partitions)),
                )
        return found

    def log_bounds(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Return each partition's bounds from three bulk ListOffsets requests, or why Kafka cannot say them now.

        The last stable offset is asked last: of a log that grows meanwhile it would look held back by a transaction.
        """
        questions = {
            "log start offset": (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
            "high watermark": (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
            "last stable offset": (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
        }
        with self._time_limited(f"the log bounds of {len(topic_partitions):,} partitions"):
            answers = [
                self._list_offsets(dict.fromkeys(topic_partitions, spec), isolation)
                for spec, isolation in questions.values()
            ]
            return {
                topic_partition: self._bounds([answer[topic_partition] for answer in answers])
                for topic_partition in sorted(topic_partitions)
            }

    def _list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel
    ) -> dict[TopicPartition, Future[Any]]:
        if not specs:
            return {}
        futures = self.admin.list_offsets(
            {ClientTopicPartition(tp.topic, tp.partition): spec for tp, spec in specs.items()},
            isolation_level=isolation,
            request_timeout=self._request_timeout_s,
        )
        return {TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}

    def offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return each partition's first offset whose record is of that time or later; None where there is none.

        Also records of an open transaction count: the answer is a place in the log, not a promise that it can be read. "None
        is" is believed only where Kafka's other answers agree, see _no_offsets_at.
        """
        with self._time_limited(f"the offsets at a time of {len(timestamps):,} partitions"):
            found = self._offsets_at(timestamps)
            none = {tp: timestamp for tp, timestamp in timestamps.items() if found[tp] is None}
            return found | self._no_offsets_at(none) if none else found

    def _offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        specs = {tp: OffsetSpec.for_timestamp(milliseconds(timestamp)) for tp, timestamp in timestamps.items()}
        futures = self._list_offsets(specs, IsolationLevel.READ_UNCOMMITTED)
        return {topic_partition: self._offset_at(future) for topic_partition, future in sorted(futures.items())}

    def _offset_at(self, future: Future[Any]) -> int | Unavailable | None:
        try:
            offset = int(self._result(future).offset)
        except KafkaException as error:
            return unavailable(error)
        if offset < NO_SUCH_OFFSET:
            return NO_LEADER_KNOWN
        return None if offset == NO_SUCH_OFFSET else offset

    def _no_offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return the offsets of partitions of which Kafka said that no record is of a time or later, which may be wrong.

        The broker looks into the first segment that ever held such a record. While that one only holds what was deleted
        (DeleteRecords and retention move the log start minutes before the file goes), it finds none, and looks no further.
        """
        newest = self._newest_timestamps(timestamps)
        bounds = self.log_bounds(timestamps)
        agreed: dict[TopicPartition, int | Unavailable | None] = {}
        doubted: dict[TopicPartition, int] = {}
        for tp, timestamp in timestamps.items():
            log, newest_ms = bounds[tp], newest[tp]
            if isinstance(log, Unavailable) or isinstance(newest_ms, Unavailable):
                agreed[tp] = log if isinstance(log, Unavailable) else newest[tp]
            elif log.is_empty or (newest_ms is not None and newest_ms < milliseconds(timestamp)):
                agreed[tp] = None
            else:
                doubted[tp] = log.log_start_offset
        return agreed | self._doubted_offsets_at({tp: timestamps[tp] for tp in doubted}, doubted)

    def _doubted_offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime], log_starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return the offsets again: a record may have come since, or the first one of the log may be of that time."""
        if not timestamps:
            return {}
        found = self._offsets_at(timestamps)
        firsts = self._first_records({tp: log_starts[tp] for tp, offset in found.items() if offset is None})
        for tp, first in firsts.items():
            first_ms, first_offset = timestamp_of(first), first.offset()
            if first_ms is not None and first_offset is not None and first_ms >= milliseconds(timestamps[tp]):
                found[tp] = first_offset
        return {
            tp: Unavailable(contradiction(timestamps[tp])) if offset is None else offset for tp, offset in found.items()
        }

    def _newest_timestamps(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return the largest timestamp, in milliseconds, of all segments (KIP-734); None where Kafka cannot say it."""
        specs = dict.fromkeys(topic_partitions, OffsetSpec.max_timestamp())
        futures = self._list_offsets(specs, IsolationLevel.READ_UNCOMMITTED)
        return {topic_partition: self._newest_timestamp(future) for topic_partition, future in futures.items()}

    def _newest_timestamp(self, future: Future[Any]) -> int | Unavailable | None:
        try:
            timestamp = int(self._result(future).timestamp)
        except KafkaException as error:
            if error.args[0].code() in CANNOT_SAY:
                return None
            return unavailable(error)
        return timestamp if timestamp >= 0 else None

    def _first_records(self, log_starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, Message]:
        if not log_starts:
            return {}
        with self._consumer("kafka_ingest looks at the first record", **LITTLE) as consumer:
            return first_answers(consumer, log_starts, self._request_timeout_s)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | Unavailable | None]:
        """Return where each log goes on with records of a later leader epoch, or ends; None where it knows none so early."""
        with (
            self._time_limited(f"the ends of leader epochs in {len(epochs):,} partitions"),
            self._consumer("kafka_ingest looks for logs that were cut off", **LITTLE) as consumer,
        ):
            return epoch_ends(consumer, epochs, self._request_timeout_s)

    def first_records(
        self, log_starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FirstRecord | Unavailable | None]:
        """Return the first record of each log, read where it starts; None where no record is left in it."""
        # Also a record that its transaction has not committed says when the log began.
        settings = {"enable.partition.eof": True, "isolation.level": "read_uncommitted"}
        with (
            self._time_limited(f"the first records of {len(log_starts):,} partitions"),
            self._consumer("kafka_ingest looks how old a topic is", **LITTLE, **settings) as consumer,
        ):
            return first_records(consumer, log_starts, self._request_timeout_s)

    def unreadable_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str | Unavailable]:
        """Try to read at each offset, and check what comes as consumers do; return where the record is damaged, and how.

        No answer in time, or one about the brokers, says nothing of a record: Unavailable.
        """
        failed: dict[TopicPartition, str | Unavailable] = {}
        for topic_partition, offset in sorted(offsets.items()):
            # The group is never joined, and nothing is committed to it.
            settings = {"auto.offset.reset": "error", "check.crcs": True, "enable.partition.eof": True}
            with self._consumer("kafka_ingest looks whether it can read", **settings) as consumer:
                consumer.assign([ClientTopicPartition(topic_partition.topic, topic_partition.partition, offset)])
                answer = self._first_word(consumer)
            error = answer.error() if answer is not None else None
            if error is not None and error.code() in ACCESS_ERRORS:
                raise self._no_access(f"the record at {topic_partition}, offset {offset:,}", error)
            if answer is None:
                failed[topic_partition] = Unavailable(f"no record within {self._request_timeout_s:g} s")
            elif error is not None and error.code() not in PAST_READING:
                reason = f"{error.name()}: {error.str()}"
                failed[topic_partition] = reason if error.code() in DAMAGED else Unavailable(reason)
        return failed

    def _first_word(self, consumer: Consumer) -> Message | None:
        """Return the first record or error of the one partition; whether the client may use the group does not matter."""
        until = time.monotonic() + self._request_timeout_s
        while (left_s := until - time.monotonic()) > 0:
            answer = consumer.poll(left_s)
            error = answer.error() if answer is not None else None
            if error is None or error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                return answer
        return None

    def _bounds(self, futures: list[Future[Any]]) -> LogBounds | Unavailable:
        try:
            log_start, high_watermark, last_stable = (self._result(future) for future in futures)
        except KafkaException as error:
            return unavailable(error)
        if min(log_start.offset, last_stable.offset, high_watermark.offset) < 0:
            return NO_LEADER_KNOWN
        if high_watermark.leader_epoch != last_stable.leader_epoch:
            return LEADER_CHANGED
        # The three answers are moments apart; a log that grows between them must not look inconsistent.
        return LogBounds(
            log_start_offset=log_start.offset,
            last_stable_offset=max(log_start.offset, last_stable.offset),
            high_watermark=max(log_start.offset, last_stable.offset, high_watermark.offset),
            leader_epoch=high_watermark.leader_epoch,
        )

    def group_offsets(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the consumer group's committed offsets, None where it has none.

        Asked by a consumer that never joins: librdkafka's admin request for it crashes the process where the group's
        coordinator moves (https://github.com/confluentinc/librdkafka/issues/5040).
        """
        if not topic_partitions:
            return {}
        wanted = [ClientTopicPartition(tp.topic, tp.partition) for tp in sorted(topic_partitions)]
        with self._time_limited(f"the offsets of consumer group {group!r}"), self._consumer(group) as consumer:
            answer = self._while_the_coordinator_moves(
                tenacity.retry_if_exception(coordinator_moves), lambda: self._committed(consumer, group, wanted)
            )
            if failed := next((tp.error for tp in answer if tp.error), None):
                raise KafkaException(failed)
        return {TopicPartition(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in answer}

    def _committed(
        self, consumer: Consumer, group: str, wanted: list[ClientTopicPartition]
    ) -> list[ClientTopicPartition]:
        """Ask for the offsets; a consumer that may not read the group looks for its coordinator until the time is over."""
        first_try_s = min(LOOK_WHY_AFTER_S, self._request_timeout_s / 2)
        try:
            return consumer.committed(wanted, timeout=first_try_s)
        except KafkaException as error:
            if not is_unreachable(error.args[0]):
                raise
            if denied := self._denied(group):
                raise denied from error
        return consumer.committed(wanted, timeout=self._request_timeout_s - first_try_s)

    def _denied(self, group: str) -> KafkaException | None:
        """Return Kafka's refusal to tell anything of a group, None where it does not refuse."""
        futures = self.admin.describe_consumer_groups([group], request_timeout=self._request_timeout_s)
        try:
            self._result(futures[group])
        except KafkaException as error:
            return error if error.args[0].code() in ACCESS_ERRORS else None
        return None

    @contextlib.contextmanager
    def _consumer(self, group: str, **settings: object) -> Iterator[Consumer]:
        # A consumer would repeat a refused password until the question's time is over: the admin client goes first.
        self._be_let_in()
        consumer = Consumer(
            {
                "log_level": "0",
                **self._settings.admin_settings(),
                "group.id": group,
                "enable.auto.commit": False,
                **settings,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """Set the consumer group's committed offsets, some at a time; raises MirrorRefusedError naming what was refused.

        A coordinator that is being found or is loading (the first commit to a new group) is waited for, within the limit.
        """
        wanted = [
            ClientTopicPartition(tp.topic, tp.partition, offset, metadata) for tp, offset in sorted(offsets.items())
        ]
        for start in range(0, len(wanted), GROUP_COMMIT_PARTITIONS):
            request = ConsumerGroupTopicPartitions(group, wanted[start : start + GROUP_COMMIT_PARTITIONS])
            with self._time_limited(f"setting the offsets of consumer group {group!r}"):
                self._while_the_coordinator_moves(
                    tenacity.retry_if_exception_type(CoordinatorMovingError),
                    functools.partial(self._set_group_offsets_once, group, request),
                )

    def _while_the_coordinator_moves(self, retry: tenacity.retry_base, ask: Callable[[], Answer]) -> Answer:
        """Ask again until the group's coordinator is found and has loaded, within the limit."""
        return tenacity.Retrying(
            retry=retry,
            wait=tenacity.wait_exponential(multiplier=0.05, max=1),
            stop=tenacity.stop_after_delay(self._request_timeout_s),
            reraise=True,
        )(ask)

    def _set_group_offsets_once(self, group: str, request: ConsumerGroupTopicPartitions) -> None:
        futures = self.admin.alter_consumer_group_offsets([request], request_timeout=self._request_timeout_s)
        try:
            answer = self._result(futures[group])
        except KafkaException as error:
            if is_unreachable(error.args[0]):
                raise
            text = f"{error.args[0].name()}: {error.args[0].str()}"
            raise refusal([error.args[0]], self._settings.redacted(text)) from error
        refused = [tp for tp in answer.topic_partitions if tp.error]
        if refused:
            texts = [f"{tp.topic}-{tp.partition}: {tp.error.name()}" for tp in refused]
            raise refusal([tp.error for tp in refused], listing(texts))

    def _result(self, future: Future[Any]) -> Any:  # noqa: ANN401 - confluent-kafka's futures are untyped
        # librdkafka keeps the request's own limit; a little more here, so that its better message wins.
        return future.result(timeout=self._request_timeout_s + 5)

    @contextlib.contextmanager
    def _time_limited(self, question: str) -> Iterator[None]:
        if time.monotonic() - self._used_at > CLIENT_IDLE_S:
            self._client = None
        try:
            yield
        except TimeoutError as error:
            raise self._no_answer(question, "no answer") from error
        except KafkaException as error:
            cause = self._settings.redacted(f"{error.args[0].name()}: {error.args[0].str()}")
            if error.args[0].code() in ACCESS_ERRORS:
                raise self._no_access(question, error.args[0]) from error
            if is_unreachable(error.args[0]):
                raise self._no_answer(question, cause) from error
            raise KafkaUnavailableError(
                f"{self._where} answered with an error when asked for {question}: {cause}"
            ) from error
        finally:
            self._used_at = time.monotonic()

    @property
    def _where(self) -> str:
        return f"Kafka at {self._settings.bootstrap_servers} (connection {self._settings.conn_id!r})"

    def _no_access(self, question: str, error: KafkaError) -> KafkaAccessDeniedError:
        cause = self._settings.redacted(f"{error.name()}: {error.str()}")
        right = RIGHTS.get(error.code(), "the rights in docs/security.md")
        return KafkaAccessDeniedError(
            f"{self._where} refused to tell {question}: {cause}. Expected for the connection's user: {right}. Grant it, or "
            "correct the user; docs/security.md lists all rights that a feed needs."
        )

    def missing_rights(self, topics: Collection[str], group: str | None) -> list[str]:
        """Return which rights a feed lacks on topics that it sees, and on its consumer group: ``READ on topic orders``.

        Brokers without ACLs lack none, and neither do those that do not say.
        """
        with self._time_limited("the rights on its topics"):
            of_topics = self.admin.describe_topics(
                TopicCollection(sorted(topics)),
                include_authorized_operations=True,
                request_timeout=self._request_timeout_s,
            )
            of_group = (
                self.admin.describe_consumer_groups(
                    [group], include_authorized_operations=True, request_timeout=self._request_timeout_s
                )
                if group is not None
                else {}
            )
            named = {f"READ on topic {topic}": future for topic, future in of_topics.items()}
            named |= {f"READ on group {group}": future for future in of_group.values()}
            return [right for right, future in named.items() if not self._may_read(future)]

    def _may_read(self, future: Future[Any]) -> bool:
        try:
            operations = self._result(future).authorized_operations
        except KafkaException as error:
            if is_unreachable(error.args[0]):
                raise
            return error.args[0].code() not in ACCESS_ERRORS
        return not operations or AclOperation.READ in operations

    def _no_answer(self, question: str, cause: str) -> KafkaIngestError:
        if self._client is not None:
            self._client.poll(0)
        return unreachable(self._heard, self._settings, self._request_timeout_s, question, cause)


def unavailable(error: KafkaException) -> Unavailable:
    """Return why one partition has no answer; raises again what says something about reaching the cluster."""
    if error.args[0].code() in PARTITION_ERRORS:
        return Unavailable(f"{error.args[0].name()}: {error.args[0].str()}")
    raise error


def contradiction(timestamp: datetime) -> str:
    """Return why "no record is of that time or later" is not believed."""
    return (
        f"NO_OFFSET_AT_TIME: Kafka finds no record of {timestamp.isoformat()} or later, but does not say that its newest one is "
        "older. Deleted records that still lie in its files hide others: wait until it has removed them "
        "(log.retention.check.interval.ms, file.delete.delay.ms), or name offsets. Brokers before 3.0 cannot say it (KIP-734)"
    )


def milliseconds(timestamp: datetime) -> int:
    """Return a time as Kafka counts it; a fraction of a millisecond is rounded up, so that nothing earlier is of that time."""
    return -((EPOCH - timestamp) // timedelta(milliseconds=1))


def refused_setting(cause: str, keys: Collection[str]) -> str:
    """Return which setting librdkafka refuses, and the range of a number, but nothing of the value that it quotes."""
    named = [key for key in sorted(keys, key=len, reverse=True) if key in cause]
    if named and cause.startswith("No such configuration property"):
        return f"it has no setting {named[0]}"
    allowed = re.search(r"allowed range [0-9.+-]+", cause)
    which = f"the value of {named[0]}" if named else "one of its settings"
    return f"{which} is outside the {allowed[0]}" if allowed else which


class CoordinatorMovingError(MirrorRefusedError):
    """The group's coordinator is being found, or is loading: it will answer in a moment."""


def coordinator_moves(error: BaseException) -> bool:
    """Whether a group's coordinator is being found, or is loading."""
    return isinstance(error, KafkaException) and error.args[0].code() in COORDINATOR_MOVES


def refusal(errors: list[KafkaError], text: str) -> MirrorRefusedError:
    """Return the error of a group commit that was refused, for good or for a moment."""
    if all(error.code() in COORDINATOR_MOVES for error in errors):
        return CoordinatorMovingError(text)
    rights = sorted({RIGHTS[error.code()] for error in errors if error.code() in RIGHTS})
    return MirrorRefusedError(f"{text}. Expected {' and '.join(rights)}: docs/security.md" if rights else text)


def is_unreachable(error: KafkaError) -> bool:
    """Whether an error is about reaching Kafka at all, rather than an answer of Kafka's."""
    return error.code() in UNREACHABLE
