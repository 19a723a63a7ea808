"""Which rights a client has, as far as brokers say."""

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation

from kafka_ingest.cluster.answer_errors import ACCESS_ERRORS, is_unreachable
from kafka_ingest.cluster.kafka_client import KafkaClient


class RightsQuestions:
    """What the client's user may do."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

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
