"""Rows that an output refuses: which records they are of, and by what; frozen with the next attempt."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_ingest.model.offsets import TopicPartition

MOST_REFUSED = 10_000
"""Of one batch: each is looked for by itself in the output, and named in what Spark is sent."""


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows of one partition, by their offsets, that an output refuses for one cause; it holds no value of a row."""

    topic_partition: TopicPartition
    cause: str
    offsets: tuple[int, ...]

    def as_document(self) -> dict[str, Any]:
        topic, partition = self.topic_partition.topic, self.topic_partition.partition
        return {"topic": topic, "partition": partition, "cause": self.cause, "offsets": list(self.offsets)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "RefusedRows":
        return cls(TopicPartition.from_document(document), document["cause"], tuple(document["offsets"]))

    def __str__(self) -> str:
        more = f" and {len(self.offsets) - 1:,} more" if len(self.offsets) > 1 else ""
        return f"{self.topic_partition}@{self.offsets[0]}{more} ({self.cause})"


def refused_by_cause(found: Iterable[tuple[TopicPartition, int, str]]) -> tuple[RefusedRows, ...]:
    """Return records by partition and cause, each once: of several causes the first counts."""
    causes: dict[tuple[TopicPartition, int], str] = {}
    for topic_partition, offset, cause in found:
        causes.setdefault((topic_partition, offset), cause)
    groups: dict[tuple[TopicPartition, str], list[int]] = {}
    for (topic_partition, offset), cause in sorted(causes.items()):
        groups.setdefault((topic_partition, cause), []).append(offset)
    return tuple(RefusedRows(*group, tuple(offsets)) for group, offsets in groups.items())
