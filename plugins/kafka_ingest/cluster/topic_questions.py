"""Questions about the cluster and its topics, their retention, and the client's rights."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType

from kafka_ingest.cluster.kafka_client import ACCESS_ERRORS, Questions, is_unreachable
from kafka_ingest.errors import KafkaUnavailableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import Retention, TopicDescription, Unavailable, listing

ZERO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero UUID in its base64 form: a broker that does not know topic ids (KIP-516)."""

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
                topic_id = str(described.topic_id)
                found[topic] = TopicDescription(
                    topic=topic,
                    topic_id=None if topic_id == ZERO_TOPIC_ID else topic_id,
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
