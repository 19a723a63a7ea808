"""Output topics for tests: each output's is one of its own, in the broker of this process."""

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where it is defined: `admin` hides it from mypy

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.sinks.choose import SinkConnections
from kafka_ingest.sinks.kafka_topic.cluster import OutputCluster

CONN_ID = "kafka_other"
SERVERS_VARIABLE = "TESTS_KAFKA_SERVERS"
"""Where other processes of a test find the broker."""
PARTITIONS = 5


def topic_of(path: Path) -> str:
    """Return the name of an output's topic."""
    return f"out-{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def make_topic(
    servers: str, name: str, settings: Mapping[str, str] | None = None, *, partitions: int = PARTITIONS
) -> None:
    """Make a topic, which exists and has its leaders when this returns."""
    os.environ[SERVERS_VARIABLE] = servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
    try:
        admin.create_topics([topic])[name].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    while not is_led(admin, name):
        time.sleep(0.02)


def is_led(admin: AdminClient, name: str) -> bool:
    """Whether all partitions of a topic have a leader."""
    try:
        found = admin.describe_topics(TopicCollection([name]))[name].result()
    except KafkaException:
        return False
    return all(partition.leader is not None for partition in found.partitions)


def kafka_at(path: Path, **options: str) -> OutputLocation:
    """Return the output that is staged beside a path."""
    return OutputLocation.at("kafka", str(path), {"conn_id": CONN_ID, "topic": topic_of(path), **options})


def connections_to_kafka(servers: str | None = None) -> SinkConnections:
    """Return how a sink finds the broker."""

    def found(conn_id: str) -> OutputCluster:
        settings = KafkaClientSettings(conn_id, {"bootstrap.servers": servers or os.environ[SERVERS_VARIABLE]})
        return OutputCluster(settings)

    return SinkConnections(kafka=found)


def committed_records(topic: str, *, isolation: str = "read_committed") -> list[Message]:
    """Return all records of a topic that a new consumer sees, in the order of partitions and offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ[SERVERS_VARIABLE],
            "group.id": "a stranger",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # otherwise the end is reported half a second late
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found: list[Message] = []
        ended: set[Any] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(20)
            assert message is not None, "no answer"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            elif error.code() not in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
                raise KafkaException(error)
        return sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))
    finally:
        consumer.close()
