"""Holds: partitions and topics that take no part in a feed's batches for now, why, and since when."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from kafka_ingest.offsets import TopicPartition


class HoldCause(StrEnum):
    """Why something takes no part, or only up to an offset."""

    NO_ANSWER = "no_answer"
    """Kafka cannot answer for the partition: it has no leader, or its replica is not available."""

    TOPIC_MISSING = "topic_missing"
    """The topic, or some of its partitions, are not there, and the feed says ``on_missing_topic: hold``."""

    OPEN_TRANSACTION = "open_transaction"
    """A transaction holds the last stable offset back (KIP-98): what lies above it cannot be read yet. Not a lag."""

    UNREADABLE = "unreadable"
    """Kafka has the record at ``at_offset``, but no consumer can read it: ranges end there."""

    BEYOND_LOG = "beyond_log"
    """The log ended at ``at_offset``, below the stored offset: other records took the place of those that were read.

    It stays until an operator decides, also once the log has grown past the stored offset and the numbers fit again.
    """


@dataclass(frozen=True, slots=True)
class Hold:
    """One topic, or one partition of it, held at an offset where that says more. ``since`` is when a plan first saw it."""

    topic: str
    partition: int | None
    cause: HoldCause
    reason: str
    since: datetime
    at_offset: int | None = None

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition, None where the whole topic is held."""
        return None if self.partition is None else TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic_partition or self.topic}: {self.reason}"

    @property
    def identity(self) -> tuple[str, int | None, HoldCause, int | None]:
        """What makes it the same hold as an earlier one; another open transaction begins at another offset."""
        return self.topic, self.partition, self.cause, self.at_offset


def beyond_log(topic_partition: TopicPartition, stored_offset: int, log_end: int, now: datetime) -> Hold:
    """Return the hold on a partition whose log was seen to end below its stored offset."""
    reason = f"the log ended at {log_end:,}, below the stored offset {stored_offset:,}"
    return Hold(topic_partition.topic, topic_partition.partition, HoldCause.BEYOND_LOG, reason, now, log_end)


def dated(holds: Collection[Hold], known: Collection[Hold]) -> tuple[Hold, ...]:
    """Return the holds with the moment at which each was first seen."""
    since: dict[object, datetime] = {}
    for hold in known:
        since[hold.identity] = min(hold.since, since.get(hold.identity, hold.since))
    return tuple(replace(hold, since=since.get(hold.identity, hold.since)) for hold in holds)
