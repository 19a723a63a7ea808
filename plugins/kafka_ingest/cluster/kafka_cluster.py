"""The questions asked of Kafka, through confluent-kafka's AdminClient: in bulk, with isolation always explicit."""

from collections.abc import Callable

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.group_questions import GroupQuestions
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.cluster.log_questions import LogQuestions
from kafka_ingest.cluster.offsets_at_time import OffsetsAtTime
from kafka_ingest.cluster.topic_questions import RetentionQuestions, RightsQuestions, TopicQuestions


class ConfluentKafkaCluster:
    """One Kafka cluster: the questions that share a client, which is made at the first one of a step."""

    def __init__(self, find_settings: Callable[[], KafkaClientSettings], *, at_most_s: float | None = None) -> None:
        """Ask for the settings only when they are needed: a commit can do without Kafka, and so without its connection.

        ``at_most_s`` shortens the connection's own time limit, for answers that an operator waits for.
        """
        client = KafkaClient(find_settings, at_most_s=at_most_s)
        topics, logs, groups = TopicQuestions(client), LogQuestions(client), GroupQuestions(client)
        self.cluster_id = topics.cluster_id
        self.topic_names = topics.topic_names
        self.describe_topics = topics.describe_topics
        self.visible_topics = topics.visible_topics
        self.log_bounds = logs.log_bounds
        self.epoch_ends = logs.epoch_ends
        self.first_records = logs.first_records
        self.unreadable_at = logs.unreadable_at
        self.large_records = client.large_records
        times = OffsetsAtTime(client, logs)
        self.offsets_at = times.offsets_at
        self.newest_records = times.newest_records
        self.records_from = times.records_from
        self.retentions = RetentionQuestions(client).retentions
        self.group_offsets = groups.group_offsets
        self.set_group_offsets = groups.set_group_offsets
        self.missing_rights = RightsQuestions(client).missing_rights
