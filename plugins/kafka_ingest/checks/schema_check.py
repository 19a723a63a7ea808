"""Whether the schemas of a feed's records are there, and which records of their writers cannot be read."""

from collections.abc import Mapping

from kafka_ingest.assembly import schemas_of
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.decoding import FieldDecoding
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.schema_source import TOPIC, RegistrySource
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed import Feed
from kafka_ingest.spark_launch.installation import installation


def schemas(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return what keys and values are read as, after asking for their schemas; and what some records may not fit."""
    decoding, topics = feed.decoding(), [topic.name for topic in feed.kafka.listed]
    if decoding.has_avro:
        installation().check_avro_jars()
    by_topic = [
        part.source.subject_of(TOPIC, name) != part.source.subject_of("", name)
        for name, part in decoding.parts.items()
        if isinstance(part.source, RegistrySource)
    ]
    if not topics and any(by_topic):
        return "not asked for: the subjects are those of topics that kafka.topic_pattern finds"
    frozen = schemas_of(find_connection, environment).frozen(decoding, topics or [feed.name], {})
    return "; ".join(
        f"{name}: {described(part)}" for name, part in frozen.parts.items() if decoding.parts[name].source is not None
    )


def described(part: FieldDecoding) -> str:
    """Return what a key or value is read as."""
    misfits = [
        f"id {writer.schema_id}: {writer.misfit}"
        for writer in part.writers or ()
        if writer.misfit is not None and not writer.is_other
    ]
    written = f", written with {counted(len(part.writers), 'schema')}" if part.writers is not None else ""
    warning = f"; records of some become dead letters ({listing(misfits)})" if misfits else ""
    return f"{part.format}{written}{warning}"
