"""Whether the columns that a feed makes now go with those that its output has: asked before a batch is written."""

from collections.abc import Mapping

from kafka_ingest.assembly import assemble
from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.never_found import described
from kafka_ingest.model.schema_source import TOPIC
from kafka_ingest.model.written_columns import side_by_side
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed import Feed


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
