"""Questions about when Kafka deletes records."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from kafka_ingest.cluster.answer_errors import is_unreachable
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import Retention, Unavailable

LONGEST: Final = timedelta(days=36_500)
"""``retention.ms`` may be any number of 64 bits: more than this is as good as never."""


class RetentionQuestions:
    """The settings of topics that say what is deleted."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

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
    if "delete" not in settings["cleanup.policy"].split(","):
        return Retention(None, by_size=False)
    milliseconds = int(settings["retention.ms"])
    is_never = milliseconds < 0 or milliseconds > LONGEST // timedelta(milliseconds=1)
    return Retention(
        None if is_never else timedelta(milliseconds=milliseconds), by_size=int(settings["retention.bytes"]) >= 0
    )
