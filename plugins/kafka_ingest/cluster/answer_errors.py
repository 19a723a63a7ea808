"""What Kafka's error codes mean to the questions asked of it."""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from kafka_ingest.cluster.handshake import UNREACHABLE
from kafka_ingest.model.offsets import Unavailable

NO_LEADER_KNOWN = Unavailable("LEADER_NOT_AVAILABLE: its leader did not answer")
"""The client still asks a leader that has just died, and then returns no error, only an offset below zero."""

ACCESS_ERRORS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)

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


def unavailable(error: KafkaException) -> Unavailable:
    """Return why one partition has no answer; raises again what says something about reaching the cluster."""
    if error.args[0].code() in PARTITION_ERRORS:
        return Unavailable(f"{error.args[0].name()}: {error.args[0].str()}")
    raise error


def is_unreachable(error: KafkaError) -> bool:
    """Whether an error is about reaching Kafka at all, rather than an answer of Kafka's."""
    return error.code() in UNREACHABLE
