"""Questions about the cluster and its topics."""

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.errors import KafkaUnavailableError
from kafka_ingest.model.offsets import TopicDescription, listing

ZERO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero UUID in its base64 form: a broker that does not know topic ids (KIP-516)."""

NO_TOPIC = "no topic: the cluster's id is asked"
"""No topic can have this name, so asking for it returns the cluster's metadata and creates nothing."""


class TopicQuestions:
    """Which cluster this is, and which topics it has."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

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
            futures = self._client.admin.describe_topics(
                TopicCollection(sorted(topics)), request_timeout=self._client.request_timeout_s
            )
            for topic, future in futures.items():
                try:
                    described = self._client.result(future)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        denied[topic] = error.args[0]
                    elif error.args[0].code() not in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
                        raise
                    continue
                topic_id = str(described.topic_id)
                found[topic] = TopicDescription(
                    topic=topic,
                    topic_id=None if topic_id == ZERO_TOPIC_ID else topic_id,
                    partitions=tuple(sorted(partition.id for partition in described.partitions)),
                )
        return found, denied
