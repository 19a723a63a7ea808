"""Stored offsets as the audit journal keeps them."""

from typing import Any

from kafka_ingest.foundation.foreign_json import said, said_or_none, whole
from kafka_ingest.model.offsets import StoredOffset, TopicPartition


def row_of(entry: dict[str, Any]) -> StoredOffset:
    """Return a stored offset as the journal keeps it."""
    first_offset, next_offset = (
        whole(entry, name) if entry[name] is not None else None for name in ("first_offset", "next_offset")
    )
    topic_partition, topic_id = TopicPartition.from_document(entry), said_or_none(entry, "topic_id")
    return StoredOffset(topic_partition, topic_id, first_offset, next_offset, said(entry, "rule"))
