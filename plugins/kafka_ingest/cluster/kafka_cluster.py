"""The questions asked of Kafka, through confluent-kafka's AdminClient: in bulk, with isolation always explicit.

Here those about the cluster and its topics, their retention, the client's rights, and a consumer group's offsets.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final, TypeVar

import tenacity
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_client import ACCESS_ERRORS, RIGHTS, KafkaClient, Questions, is_unreachable
from kafka_ingest.cluster.log_questions import OffsetsAtTime
from kafka_ingest.errors import KafkaUnavailableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import Retention, TopicDescription, TopicPartition, Unavailable, listing
from kafka_ingest.model.topics import known_topic_id
from kafka_ingest.ports.cluster import MirrorRefusedError

GROUP_COMMIT_PARTITIONS = 1_000
"""One request's offsets become one record batch, about 100 bytes each, which must stay below ``max.message.bytes``."""

LOOK_WHY_AFTER_S = 2.0
"""A group answers in milliseconds; after this time a second request asks whether the client may read it at all."""

Answer = TypeVar("Answer")

COORDINATOR_MOVES = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


OF_MEMBERS = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH})
"""What a group with members answers to others, by the classic protocol and by that of KIP-848."""


class GroupQuestions(Questions):
    """A consumer group's committed offsets."""

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
        with (
            self._client.time_limited(f"the offsets of consumer group {group!r}"),
            self._client.consumer(group) as consumer,
        ):
            answer = self._while_the_coordinator_moves(
                tenacity.retry_if_exception(coordinator_moves), lambda: self._committed(consumer, group, wanted)
            )
            if failed := next((tp.error for tp in answer if tp.error), None):
                raise KafkaException(failed)
        return {TopicPartition(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in answer}

    def _committed(
        self, consumer: Consumer, group: str, wanted: list[ClientTopicPartition]
    ) -> list[ClientTopicPartition]:
        """Ask for the offsets; a consumer that may not read the group looks for its coordinator until the timeout."""
        first_try_s = min(LOOK_WHY_AFTER_S, self._client.request_timeout_s / 2)
        try:
            return consumer.committed(wanted, timeout=first_try_s)
        except KafkaException as error:
            if not is_unreachable(error.args[0]):
                raise
            if denied := self._denied(group):
                raise denied from error
        return consumer.committed(wanted, timeout=self._client.request_timeout_s - first_try_s)

    def _denied(self, group: str) -> KafkaException | None:
        futures = self._client.admin.describe_consumer_groups([group], request_timeout=self._client.request_timeout_s)
        try:
            self._client.result(futures[group])
        except KafkaException as error:
            return error if error.args[0].code() in ACCESS_ERRORS else None
        return None

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """Set the consumer group's committed offsets in parts; raises MirrorRefusedError naming what was refused.

        A coordinator that is being found or is loading (the first commit to a new group) is waited for, within the
        limit.
        """
        wanted = [
            ClientTopicPartition(tp.topic, tp.partition, offset, metadata) for tp, offset in sorted(offsets.items())
        ]
        for start in range(0, len(wanted), GROUP_COMMIT_PARTITIONS):
            request = ConsumerGroupTopicPartitions(group, wanted[start : start + GROUP_COMMIT_PARTITIONS])
            with self._client.time_limited(f"setting the offsets of consumer group {group!r}"):
                self._while_the_coordinator_moves(
                    tenacity.retry_if_exception_type(CoordinatorMovingError),
                    functools.partial(self._set_group_offsets_once, group, request),
                )

    def _while_the_coordinator_moves(self, retry: tenacity.retry_base, ask: Callable[[], Answer]) -> Answer:
        """Ask again until the group's coordinator is found and has loaded, within the limit."""
        return tenacity.Retrying(
            retry=retry,
            wait=tenacity.wait_exponential(multiplier=0.05, max=1),
            stop=tenacity.stop_after_delay(self._client.request_timeout_s),
            reraise=True,
        )(ask)

    def _set_group_offsets_once(self, group: str, request: ConsumerGroupTopicPartitions) -> None:
        futures = self._client.admin.alter_consumer_group_offsets(
            [request], request_timeout=self._client.request_timeout_s
        )
        try:
            answer = self._client.result(futures[group])
        except KafkaException as error:
            if is_unreachable(error.args[0]):
                raise
            text = f"{error.args[0].name()}: {error.args[0].str()}"
            raise refusal(group, [error.args[0]], self._client.settings.redacted(text)) from error
        refused = [tp for tp in answer.topic_partitions if tp.error]
        if refused:
            texts = [f"{tp.topic}-{tp.partition}: {tp.error.name()}" for tp in refused]
            raise refusal(group, [tp.error for tp in refused], listing(texts))


class CoordinatorMovingError(MirrorRefusedError):
    """The group's coordinator is being found, or is loading: it will answer soon."""


def coordinator_moves(error: BaseException) -> bool:
    """Whether a group's coordinator is being found, or is loading."""
    return isinstance(error, KafkaException) and error.args[0].code() in COORDINATOR_MOVES


def refusal(group: str, errors: list[KafkaError], text: str) -> MirrorRefusedError:
    if any(error.code() in OF_MEMBERS for error in errors):
        return MirrorRefusedError(
            f"{text}: consumer group {group!r} has live members, and while it has, Kafka takes its offsets from them "
            "alone. Stop these consumers (`kafka-consumer-groups.sh --describe --members` lists them), or give the "
            "feed a kafka.group of its own"
        )
    if all(error.code() in COORDINATOR_MOVES for error in errors):
        return CoordinatorMovingError(text)
    rights = sorted({RIGHTS[error.code()] for error in errors if error.code() in RIGHTS})
    return MirrorRefusedError(f"{text}. Expected {' and '.join(rights)}: docs/security.md" if rights else text)


NO_TOPIC = "no topic: the cluster's id is asked"
"""No topic can have this name, so asking for it returns the cluster's metadata and creates nothing."""

LONGEST: Final = timedelta(days=36_500)
"""``retention.ms`` may be any number of 64 bits: more than this is as good as never."""


class TopicQuestions(Questions):
    """Which cluster this is, which topics it has, what the client's user may do with them, and what they delete."""

    def cluster_id(self) -> str:
        """Return the cluster's id.

        Not asked by describe_cluster: librdkafka 2.16 aborts the process where the answer names no broker, as that of
        a cluster whose only broker was fenced a moment ago (DescribeClusterResponse_parse in rdkafka_admin.c). As a
        new client's first question it takes 50 ms, after any other one 1 ms.
        """
        with self._client.time_limited("the cluster's id"):
            cluster_id = self._client.admin.list_topics(NO_TOPIC, timeout=self._client.request_timeout_s).cluster_id
        if not cluster_id:
            raise KafkaUnavailableError(f"the brokers at {self._client.settings.bootstrap_servers} gave no cluster id")
        return str(cluster_id)

    def topic_names(self) -> list[str]:
        with self._client.time_limited("its topics"):
            return sorted(self._client.admin.list_topics(timeout=self._client.request_timeout_s).topics)

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist. Asked by describe_topics: a metadata request by name creates a missing one."""
        found, denied = self._described(topics)
        if denied:
            raise self._client.no_access(f"topics {listing(sorted(denied))}", next(iter(denied.values())))
        return found

    def visible_topics(self, topics: Collection[str]) -> tuple[dict[str, TopicDescription], dict[str, str]]:
        """Return the topics that exist, and why others cannot be seen: of these it is unknown whether they exist."""
        found, denied = self._described(topics)
        return found, {topic: str(self._client.no_access(f"topic {topic}", error)) for topic, error in denied.items()}

    def _described(self, topics: Collection[str]) -> tuple[dict[str, TopicDescription], dict[str, KafkaError]]:
        found: dict[str, TopicDescription] = {}
        denied: dict[str, KafkaError] = {}
        with self._client.time_limited(f"topics {listing(sorted(topics))}"):
            for topic, described in self._client.describe_topics(topics).items():
                if isinstance(described, KafkaError):
                    if described.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        denied[topic] = described
                    elif described.code() not in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
                        raise KafkaException(described)
                    continue
                found[topic] = TopicDescription(
                    topic=topic,
                    topic_id=known_topic_id(described.topic_id),
                    partitions=tuple(sorted(partition.id for partition in described.partitions)),
                )
        return found, denied

    def missing_rights(self, topics: Collection[str], group: str | None) -> list[str]:
        """Return which rights a feed lacks on topics that it sees, and on its consumer group: ``READ on topic orders``.

        Brokers without ACLs lack none, and neither do those that do not say.
        """
        with self._client.time_limited("the rights on its topics"):
            of_topics = self._client.admin.describe_topics(
                TopicCollection(sorted(topics)),
                include_authorized_operations=True,
                request_timeout=self._client.request_timeout_s,
            )
            of_group = (
                self._client.admin.describe_consumer_groups(
                    [group], include_authorized_operations=True, request_timeout=self._client.request_timeout_s
                )
                if group is not None
                else {}
            )
            named = {f"READ on topic {topic}": future for topic, future in of_topics.items()}
            named |= {f"READ on group {group}": future for future in of_group.values()}
            return [right for right, future in named.items() if not self._may_read(future)]

    def _may_read(self, future: Future[Any]) -> bool:
        try:
            operations = self._client.result(future).authorized_operations
        except KafkaException as error:
            if is_unreachable(error.args[0]):
                raise
            return error.args[0].code() not in ACCESS_ERRORS
        return not operations or AclOperation.READ in operations

    def retentions(self, topics: Collection[str]) -> dict[str, Retention | Unavailable]:
        """Return when each topic's records are deleted, or why that is not known: it needs DESCRIBE_CONFIGS."""
        if not topics:
            return {}
        with self._client.time_limited(f"the retention of {counted(len(topics), 'topic')}"):
            futures = self._client.admin.describe_configs(
                [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)],
                request_timeout=self._client.request_timeout_s,
            )
            return {resource.name: self._retention(future) for resource, future in futures.items()}

    def _retention(self, future: Future[Any]) -> Retention | Unavailable:
        try:
            entries = self._client.result(future)
        except KafkaException as error:
            if is_unreachable(error.args[0]):
                raise
            # A missing right concerns nothing else that is asked.
            return Unavailable(self._client.settings.redacted(f"{error.args[0].name()}: {error.args[0].str()}"))
        try:
            return retention_of({name: entry.value for name, entry in entries.items()})
        except (KeyError, TypeError, ValueError) as error:
            # Other brokers that speak Kafka's protocol may name fewer settings, or hide their values.
            return Unavailable(f"its settings do not say it: {type(error).__name__}: {error}")


def retention_of(settings: Mapping[str, str]) -> Retention:
    """Return what a topic's settings say: https://kafka.apache.org/documentation/#topicconfigs."""
    policies = settings["cleanup.policy"].split(",")
    compacts = "compact" in policies
    if "delete" not in policies:
        return Retention(None, by_size=False, compacts=compacts)
    milliseconds = int(settings["retention.ms"])
    is_never = milliseconds < 0 or milliseconds > LONGEST // timedelta(milliseconds=1)
    time = None if is_never else timedelta(milliseconds=milliseconds)
    return Retention(time, by_size=int(settings["retention.bytes"]) >= 0, compacts=compacts)


class ConfluentKafkaCluster(TopicQuestions, OffsetsAtTime, GroupQuestions):
    """One Kafka cluster: the questions that share a client, which is made at the first one of a step."""

    def __init__(self, find_settings: Callable[[], KafkaClientSettings], *, at_most_s: float | None = None) -> None:
        """Ask for the settings only when they are needed: a commit can do without Kafka, and so without its connection.

        ``at_most_s`` shortens the connection's own time limit, for answers that an operator waits for.
        """
        super().__init__(KafkaClient(find_settings, at_most_s=at_most_s))
        self.large_records = self._client.large_records
        self.close = self._client.close
