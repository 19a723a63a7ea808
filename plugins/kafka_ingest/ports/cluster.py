"""The questions asked of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafka_ingest.model.offsets import (
    FirstRecord,
    Isolation,
    LogBounds,
    NewestRecord,
    OffsetRange,
    Retention,
    TopicDescription,
    TopicPartition,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from kafka_ingest.model.spark_settings import LargeRecord


class KafkaCluster(Protocol):
    """The questions asked of Kafka. All raise KafkaUnavailableError where no answer comes within the time limit."""

    def cluster_id(self) -> str:
        """Return the cluster's id."""

    def topic_names(self) -> list[str]:
        """Return the names of all topics that this client may see."""

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist; the others are left out. Never creates one.

        Raises KafkaAccessDeniedError where this client may not see one of them.
        """

    def visible_topics(self, topics: Collection[str]) -> tuple[dict[str, TopicDescription], dict[str, str]]:
        """Return the topics that exist, and why others may not be seen: whether these exist is not known.

        For questions about many feeds at once, of which one without a right must not hide the others.
        """

    def log_bounds(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Return each partition's bounds, or why Kafka cannot report them now."""

    def offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return each partition's first offset whose record is of that time or later; None where there is none.

        Kafka's ListOffsets by timestamp (KIP-79): times are of whole milliseconds, and the record need not be the
        oldest.
        """

    def records_from(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, NewestRecord | Unavailable | None]:
        """Return the first record of that time or later, with its own time, without reading it; None where none is.

        ListOffsets' plain answer: while deleted records are in a log's files, "none is found" may be wrong.
        """

    def newest_records(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, NewestRecord | Unavailable | None]:
        """Return the record with the largest time of each log, which is not read; None where Kafka cannot say it."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | Unavailable | None]:
        """Return where records of a later leader epoch than this one begin in each log, or its end.

        None where its leader knows of no epoch that is as low. Kafka's OffsetsForLeaderEpoch (KIP-320).
        """

    def first_records(
        self, log_starts: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, FirstRecord | Unavailable | None]:
        """Return the first record of each log, read where it starts; None where no record is left in it.

        Also where reading is to continue: then it is the first record at that offset or later.
        """

    def retentions(self, topics: Collection[str]) -> dict[str, Retention | Unavailable]:
        """Return when each topic's records are deleted, or why that is not known."""

    def unreadable_at(
        self, offsets: Mapping[TopicPartition, int], at_most_bytes: int | None = None
    ) -> dict[TopicPartition, str | Unavailable]:
        """Try to read at each offset; return where the record is damaged, and how, or why that is unknown.

        No answer in time proves neither damage nor repair. With ``at_most_bytes`` also where it is larger.
        """

    def large_records(
        self, ranges: Collection[OffsetRange], isolation: Isolation
    ) -> dict[TopicPartition, list[LargeRecord]]:
        """Return of each range the records that are larger than all before it, read for some minutes at most."""

    def group_offsets(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the consumer group's committed offsets, None where it has none."""

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """Set all of the consumer group's committed offsets; raises MirrorRefusedError naming what was refused."""


class MirrorRefusedError(Exception):
    """Kafka refused to set the group's offsets (live members, not authorised, …); the data is not affected."""
