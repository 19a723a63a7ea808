"""Holds: partitions and topics that take no part in a feed's batches for now, why, and since when."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.documents import Documented
from kafka_ingest.model.offsets import OffsetRange, TopicPartition


class HoldCause(StrEnum):
    """Why something takes no part, or only up to an offset."""

    NO_ANSWER = "no_answer"
    """Kafka cannot answer for the partition: it has no leader, or its replica is not available."""

    TOPIC_MISSING = "topic_missing"
    """The topic, or some of its partitions, do not exist, and the feed says ``on_missing_topic: hold``."""

    TOPIC_CHANGED = "topic_changed"
    """The topic was recreated, and the feed says ``on_topic_changed: hold``: an operator must decide."""

    OPEN_TRANSACTION = "open_transaction"
    """An open transaction holds the last stable offset back (KIP-98): records above it are not readable yet. No lag."""

    UNREADABLE = "unreadable"
    """Kafka has the record at ``at_offset``, but it is damaged, or too large for Spark's memory: ranges end there."""

    BEYOND_LOG = "beyond_log"
    """The log ended at ``at_offset``, below the stored offset: other records took the place of those that were read.

    It stays until an operator decides, even once the log has grown past the stored offset again.
    """

    OFFSETS_LOST = "offsets_lost"
    """Kafka deleted the record at ``at_offset`` before it was read, and the feed says ``on_data_loss: hold``."""

    NEW_OR_OLDER = "new_or_older"
    """The topic appeared after a plan, and may be older than that plan: an operator decides where it begins."""


OF_WHOLE_TOPICS = frozenset({HoldCause.TOPIC_MISSING, HoldCause.TOPIC_CHANGED})

DECIDED_BY_TOPIC = frozenset({HoldCause.BEYOND_LOG, HoldCause.TOPIC_CHANGED, HoldCause.NEW_OR_OLDER})
"""What an operator's word on a topic (``topic-changed``) ends."""


@dataclass(frozen=True, slots=True)
class Hold(Documented):
    """A topic, or one partition of it at an offset where known, that is held. ``since`` is when a plan first saw it."""

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
    """Return the hold on a partition whose log ended below its stored offset."""
    reason = f"the log ended at {log_end:,}, below the stored offset {stored_offset:,}"
    return Hold(topic_partition.topic, topic_partition.partition, HoldCause.BEYOND_LOG, reason, now, log_end)


def offsets_lost(lost: OffsetRange, log_start: int, now: datetime) -> Hold:
    """Return the hold on a partition of which Kafka deleted records before they were read."""
    reason = (
        f"{counted(lost.span, 'offset')} from {lost.start_offset:,} on {were(lost.span)} deleted unread: "
        f"the log starts at {log_start:,}"
    )
    return Hold(lost.topic, lost.partition, HoldCause.OFFSETS_LOST, reason, now, lost.start_offset)


def dated(holds: Collection[Hold], known: Collection[Hold]) -> tuple[Hold, ...]:
    """Return the holds with the moment at which each was first seen."""
    since: dict[object, datetime] = {}
    for hold in known:
        since[hold.identity] = min(hold.since, since.get(hold.identity, hold.since))
    return tuple(replace(hold, since=since.get(hold.identity, hold.since)) for hold in holds)
