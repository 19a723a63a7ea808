"""The questions asked of Kafka, through confluent-kafka's AdminClient: in bulk, with isolation always explicit."""

from collections.abc import Callable

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.group_questions import GroupQuestions
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.cluster.log_questions import OffsetsAtTime
from kafka_ingest.cluster.topic_questions import TopicQuestions


class ConfluentKafkaCluster(TopicQuestions, OffsetsAtTime, GroupQuestions):
    """One Kafka cluster: the questions that share a client, which is made at the first one of a step."""

    def __init__(self, find_settings: Callable[[], KafkaClientSettings], *, at_most_s: float | None = None) -> None:
        """Ask for the settings only when they are needed: a commit can do without Kafka, and so without its connection.

        ``at_most_s`` shortens the connection's own time limit, for answers that an operator waits for.
        """
        super().__init__(KafkaClient(find_settings, at_most_s=at_most_s))
        self.large_records = self._client.large_records
        self.close = self._client.close
