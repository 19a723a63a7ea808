"""The least rights of a feed's Kafka users, as commands of Kafka's own ``kafka-acls.sh``."""

import re
import shlex
from collections.abc import Iterator
from typing import Final

from kafka_ingest.cluster.client_settings import with_ports
from kafka_ingest.model.topic_patterns import MARKS_SUFFIX
from kafka_ingest.settings.connections import FindConnection, kafka_settings
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, feed_of
from kafka_ingest.settings.shape_settings import GroupStart

Right = tuple[str, tuple[str, ...]]
"""The options that name a resource, and the operations on it."""

PREFIXED: Final = " --resource-pattern-type prefixed"
OF_OUR_OWN: Final = "kafka_ingest"
"""The group, and the prefix of transactional ids, of Kafka as output."""


def commands_of(file: FeedFile, principal: str, find_connection: FindConnection) -> list[str]:
    """Return the commands that give a principal, such as ``User:ingest``, what a file needs, one for each resource.

    A file for many topics needs what its pattern selects: without a right on them, no plan finds any.
    """
    of_topics = file.topics.pattern if file.topics is not None else None
    feed = file.topics.specimen if file.topics is not None else feed_of(file)
    rights = [(feed.kafka.conn_id, right) for right in rights_to_read(feed, of_topics)]
    if (written := feed.sink.written_topic) is not None:
        rights += [(written[0], right) for right in rights_to_write(written[1])]
    servers = {conn_id: with_ports(kafka_settings(find_connection(conn_id)).bootstrap_servers) for conn_id, _ in rights}
    return [
        " ".join(
            (
                f"kafka-acls.sh --bootstrap-server {shlex.quote(servers[conn_id])} --add",
                f"--allow-principal {shlex.quote(principal)}",
                *(f"--operation {each}" for each in operations),
                resource,
            )
        )
        for conn_id, (resource, operations) in rights
    ]


def rights_to_read(feed: Feed, of_topics: str | None = None) -> Iterator[Right]:
    """Yield what planning, reading and committing needs: READ includes DESCRIBE."""
    asks_configs = feed.alerts is not None and feed.alerts.headroom is not None
    operations = ("Read", *(("DescribeConfigs",) if asks_configs else ()))
    pattern = of_topics or feed.kafka.topic_pattern
    if pattern is None:
        yield from ((f"--topic={topic.name}", operations) for topic in feed.kafka.listed)
    else:
        prefix = literal_prefix(pattern)
        yield f"--topic={prefix}{PREFIXED}" if prefix else "--topic='*'", operations
    if feed.kafka.group is not None:
        yield f"--group={shlex.quote(feed.kafka.group)}", ("Read",)
    starts = [feed.start, *(topic.start for topic in feed.kafka.listed)]
    for group in dict.fromkeys(each.group for each in starts if isinstance(each, GroupStart)):
        yield f"--group={shlex.quote(group)}", ("Describe",)


def rights_to_write(topic: str) -> Iterator[Right]:
    """Yield what Kafka as output needs (docs/sinks.md)."""
    yield f"--topic={topic}", ("Write", "DescribeConfigs")
    yield f"--topic={topic}{MARKS_SUFFIX}", ("Create", "Read", "Write", "DescribeConfigs")
    yield f"--transactional-id={OF_OUR_OWN}.{PREFIXED}", ("Write",)
    yield "--cluster", ("DescribeConfigs",)
    yield f"--group={OF_OUR_OWN}", ("Read",)


def literal_prefix(pattern: str) -> str:
    """Return how all topics begin that a pattern matches, as far as it says so in plain characters."""
    if "|" in pattern:
        return ""
    pattern = re.sub(r"\A(?:\^|\\A)", "", pattern)
    found = re.match(r"(?:[A-Za-z0-9_-]|\\[.-])*", pattern)
    text = found[0] if found is not None else ""
    if pattern[len(text) : len(text) + 1] in {"*", "?", "{"}:  # of the last one there may be none
        text = re.sub(r"\\?.\Z", "", text)
    return text.replace("\\", "")
