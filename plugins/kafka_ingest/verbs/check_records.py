"""Checks of a feed's records: their schemas are there, their columns go with the output's, no batch was refused."""

from collections.abc import Mapping

from kafka_ingest.assembly import assemble, schemas_of
from kafka_ingest.errors import ColumnsChangedError, RefusedBatchError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.decoding import FieldDecoding
from kafka_ingest.model.never_found import described
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.schema_source import TOPIC, RegistrySource
from kafka_ingest.model.written_columns import side_by_side
from kafka_ingest.observing import feed_status
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
        f"{name}: {read_as(part)}" for name, part in frozen.parts.items() if decoding.parts[name].source is not None
    )


def read_as(part: FieldDecoding) -> str:
    misfits = [
        f"id {writer.schema_id}: {writer.misfit}"
        for writer in part.writers or ()
        if writer.misfit is not None and not writer.is_other
    ]
    written = f", written with {counted(len(part.writers), 'schema')}" if part.writers is not None else ""
    warning = f"; records of some become dead letters ({listing(misfits)})" if misfits else ""
    return f"{part.format}{written}{warning}"


def columns(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return how they go together; raises ColumnsChangedError where an attempt would be refused."""
    parts = assemble(feed, find_connection, environment)
    decoding, topics = feed.decoding(), [topic.name for topic in feed.kafka.listed]
    if decoding.has_sources:
        # Of topics that a pattern finds any name will do where the subject is not the topic's.
        decoding = parts.schemas.frozen(decoding, topics or [TOPIC], {})
    compared = parts.compare_columns(decoding)
    if compared.refused is not None:
        raise ColumnsChangedError(compared.refused)
    if compared.now is None:
        return "not known before records are written: a function makes them"
    never = parts.never_found()
    ended = f"; null in all rows of the newest batch: {'; '.join(described(never))}" if never else ""
    if compared.before is None:
        return f"{counted(len(compared.now), 'field')}; the output has none to compare them with"
    if not compared.new:
        return f"{counted(len(compared.now), 'field')}, as the output has them{ended}"
    does = "left out (on_new_fields: ignore)" if compared.left_out else "added (on_new_fields: add)"
    return f"these are new, and will be {does}:\n{side_by_side(compared.before, compared.now, compared.new)}{ended}"


def open_batch(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return the state of the feed's open batch; raises RefusedBatchError where what was written of it was refused."""
    control = assemble(feed, find_connection, environment).control
    known = control.feed(feed.name)
    found = feed_status.open_batch(known, control) if known is not None else None
    if found is None:
        return "none"
    if found["discarded"] is not None:
        raise RefusedBatchError(f"it was written, and is {found['state']} again: {found['discarded']}")
    return f"{found['batch_id']} is {found['state']}"
