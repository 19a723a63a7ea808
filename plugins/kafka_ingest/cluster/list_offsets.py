"""Kafka's ListOffsets, in bulk."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import OffsetSpec

from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.model.offsets import TopicPartition


def list_offsets(
    client: KafkaClient, specs: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel
) -> dict[TopicPartition, Future[Any]]:
    """Ask one bulk ListOffsets request; the answers are futures, by partition."""
    if not specs:
        return {}
    futures = client.admin.list_offsets(
        {ClientTopicPartition(tp.topic, tp.partition): spec for tp, spec in specs.items()},
        isolation_level=isolation,
        request_timeout=client.request_timeout_s,
    )
    return {TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}
