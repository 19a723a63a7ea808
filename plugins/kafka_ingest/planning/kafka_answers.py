"""Kafka's answers for one plan."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka_ingest.model.offsets import LogBounds, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.planning.topic_age import TopicAge


@dataclass(frozen=True, slots=True)
class KafkaAnswers:
    """Kafka's answers for this plan. A topic that does not exist is not in ``topics``.

    ``start_offsets_at`` and ``group_offsets`` are of partitions whose start rule asks for them, ``end_offsets_at`` is
    there where a manual run ends at a time. ``cut_off_at`` says where logs were cut off below their stored offsets,
    ``unreadable`` which held offsets still cannot be read, ``ages`` how old topics are that the last plan did not
    find.
    """

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]
    start_offsets_at: Mapping[TopicPartition, int | Unavailable | None] = field(default_factory=dict)
    group_offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    end_offsets_at: Mapping[TopicPartition, int | Unavailable | None] = field(default_factory=dict)
    cut_off_at: Mapping[TopicPartition, int] = field(default_factory=dict)
    unreadable: Collection[TopicPartition] = ()
    ages: Mapping[str, TopicAge] = field(default_factory=dict)
