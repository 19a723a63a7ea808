"""Files for many topics: which topics there are is asked of Kafka, and a plan remembers which feeds a file makes."""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from kafka_ingest.assembly import control_tables, kafka_at
from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.model.topics import FilePlan, TopicMemory
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.topic_feeds import Others, TopicFeeds, Topics, all_feeds, topic_feeds
from kafka_ingest.settings.topics_file import TopicsFile


def topics_there(asked: TopicsFile, known: Iterable[str], kafka: KafkaCluster) -> Topics:
    """Return the topics that a file asks for or has become feeds, with their ids: two questions for all of them.

    One that this client may not see counts as there: whether it exists is not known, and its feed's plan says so.
    """
    wanted = {topic for topic in kafka.topic_names() if asked.match(topic) is not None}.union(known)
    found, denied = kafka.visible_topics(wanted) if wanted else ({}, {})
    return {topic: described.topic_id for topic, described in found.items()} | dict.fromkeys(denied)


def look_at(
    file: FeedFile,
    files: Sequence[FeedFile],
    memory: TopicMemory,
    find_connection: FindConnection,
    environment: Mapping[str, str],
) -> TopicFeeds:
    """Return which feeds a file among others of its folder makes now; nothing is remembered."""
    asked = file.topics
    if asked is None:
        return TopicFeeds()
    folder = feeds_directory(environment)
    sources = [each for each in files if each.topics is not None]
    feeds = all_feeds(files, memory, folder, environment, but=file.path)
    others = Others(folder, [*sources, *feeds])
    known = [each.topic for each in memory.seen if each.file == others.file_text(file.path)]
    kafka = kafka_at(None, asked.specimen.kafka.conn_id, find_connection)
    return topic_feeds(file, topics_there(asked, known, kafka), memory, others, environment)


def plan_topics(
    file: FeedFile, find_connection: FindConnection, environment: Mapping[str, str] = os.environ
) -> TopicFeeds:
    """Return which feeds a file makes now, and remember it: its feeds are known by name from then on.

    Files are read again: between the reading of a DAG file and this plan another file may have been added.
    """
    directory, control, asked_at = feeds_directory(environment), control_tables(find_connection), datetime.now(UTC)
    files = read_feed_files(directory, environment)
    now = next((each for each in files if each.path == file.path), file)
    if now.topics is None:
        raise now.error or InvalidFeedError(
            f"expected {file.path} to be for many topics, found that it is not any more"
        )
    found = look_at(now, files, control.topic_memory(), find_connection, environment)
    plan = FilePlan(Others(directory).file_text(now.path), asked_at, now.topics.pattern)
    control.note_topics(plan, found.seen)
    return found
