"""Stored offsets as the audit journal keeps them."""

from typing import Any

from kafka_ingest.model.offsets import StoredOffset, TopicPartition


def row_of(entry: dict[str, Any]) -> StoredOffset:
    """Return a stored offset as the journal keeps it."""
    topic_partition = TopicPartition(entry["topic"], entry["partition"])
    first_offset, next_offset = entry["first_offset"], entry["next_offset"]
    return StoredOffset(topic_partition, entry["topic_id"], first_offset, next_offset, entry["rule"])
