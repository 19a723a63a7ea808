"""``locate``: what happened to one offset."""

from collections.abc import Iterator

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.history_sentences import describe_files, describe_offset
from kafka_ingest.answers.history_tables import located_table
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.observing.locate import LocatedOffset
from kafka_ingest.observing.locate import locate as locate_offset
from kafka_ingest.ports.outputs import Sinks


def locate(
    control: SqlControlTables, sinks: Sinks, feed_name: str, topic_partition: TopicPartition, offset: int
) -> Answer:
    """Say which batch ingested an offset, who ran it, and its file, or why there is none."""
    found = locate_offset(control, sinks, feed_name, topic_partition, offset)
    return Answer(found.as_document(), shown(found))


def shown(found: LocatedOffset) -> Iterator[Line | FittingTable]:
    """Yield what happened to the offset, and where its record is."""
    yield Line(describe_offset(found))
    if found.batches:
        yield located_table(found)
    for batch in found.batches:
        yield from map(Line, describe_files(batch))
