"""Whether offsets still mean the records they were counted in: the cluster's id and the topics' ids."""

from collections.abc import Mapping

from kafka_ingest.errors import TopicGoneError, TopicRecreatedError, WrongClusterError
from kafka_ingest.model.offsets import TopicDescription


def check_cluster(known: str | None, found: str, feed_name: str) -> None:
    """Raise WrongClusterError where the brokers are not those the feed's offsets belong to."""
    if known is not None and known != found:
        raise WrongClusterError(
            f"feed {feed_name}: its stored offsets belong to Kafka cluster {known}, but the connection leads to "
            f"cluster {found}. Offsets of one cluster mean nothing in another. Nothing was moved: point the connection "
            f"back, or, if the feed is to read the other cluster from now on: `kafka-ingest topic-changed {feed_name}` "
            "shows the choices."
        )


def is_other_topic(expected: str | None, found: str | None) -> bool:
    """Whether two topic ids are both known and differ; an unknown one proves nothing (brokers before KIP-516)."""
    return expected is not None and found is not None and expected != found


def check_topic_id(topic: str, expected: str | None, found: str | None, feed_name: str) -> None:
    """Raise TopicRecreatedError where a topic is not the one that is expected."""
    if is_other_topic(expected, found):
        raise TopicRecreatedError(
            f"topic {topic!r} was deleted and created again: expected topic id {expected}, found {found}. Its offsets "
            "start over, so the stored ones point into other records. The feed stays stopped until an operator "
            "decides, or only this topic where the feed says on_topic_changed: hold: `kafka-ingest topic-changed "
            f"{feed_name}` shows what can be done."
        )


def check_topic_ids(expected: Mapping[str, str | None], found: Mapping[str, TopicDescription], feed_name: str) -> None:
    """Raise TopicGoneError or TopicRecreatedError unless all the expected topics are there and are the same."""
    for topic, topic_id in sorted(expected.items()):
        if topic not in found:
            raise TopicGoneError(
                f"topic {topic!r} (topic id {topic_id}) does not exist any more, so it is unknown which records a read "
                f"of it saw. Nothing was moved or deleted; `kafka-ingest topic-changed {feed_name}` shows what can be "
                "done."
            )
        check_topic_id(topic, topic_id, found[topic].topic_id, feed_name)
