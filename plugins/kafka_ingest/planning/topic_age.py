"""Whether a topic that appears was made since the last plan, or is older and only became visible. Pure.

Kafka says no time of creation, and topic ids are random. What there is: the first record of each log, whose timestamp
is the broker's (``message.timestamp.type=LogAppendTime``, KIP-32) or the producer's word, and whether the log starts
above 0.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from kafka_ingest.model.offsets import FirstRecord, LogBounds, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.planning.start_rules import Earliest, StartRule

CLOCKS_DIFFER = timedelta(hours=1)
"""How far the broker's clock may be behind this machine's, before a time counts as proof."""


class Age(StrEnum):
    """What is known of a topic that appears."""

    NEW = "new"
    """Nothing speaks against it, or it does not matter: offset 0 is where the start rule leads, too."""

    OLDER = "older"
    """A broker wrote to it before the last plan."""

    UNDECIDED = "undecided"
    """Its start would be another, and nothing proves which."""


@dataclass(frozen=True, slots=True)
class TopicAge:
    """The age of one topic, compared with the last plan that did not find it, and why it is undecided."""

    age: Age
    last_plan: datetime
    why: str = ""


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


def begins_alike(logs: Collection[LogBounds | Unavailable], rule: StartRule) -> bool:
    """Whether a topic begins at offset 0 whether it is new or older, so that nothing has to be decided."""
    return all(
        isinstance(log, LogBounds) and log.log_start_offset == 0 and (isinstance(rule, Earliest) or log.is_empty)
        for log in logs
    )


def reads_alike(logs: Collection[LogBounds | Unavailable], rule: StartRule, on_data_loss: OnDataLoss) -> bool:
    """Whether a topic is read from its log start in both cases; taken for new, what is before it is a gap on record."""
    is_gap = on_data_loss is OnDataLoss.RECORD_GAP
    return is_gap and isinstance(rule, Earliest) and all(isinstance(log, LogBounds) for log in logs)


def age_of(
    bounds: Mapping[TopicPartition, LogBounds | Unavailable],
    firsts: Mapping[TopicPartition, FirstRecord | Unavailable | None],
    last_plan: datetime,
) -> TopicAge:
    """Return what the logs of one topic and their first records say."""
    doubts: list[str] = []
    for tp, log in sorted(bounds.items()):
        first = firsts.get(tp)
        if isinstance(first, FirstRecord) and first.by_broker and is_before(first, last_plan - CLOCKS_DIFFER):
            return TopicAge(Age.OLDER, last_plan)
        if doubt := doubt_of(log, first, last_plan):
            doubts.append(f"{tp}: {doubt}")
    if not doubts:
        return TopicAge(Age.NEW, last_plan)
    return TopicAge(Age.UNDECIDED, last_plan, doubts[0])


def doubt_of(log: LogBounds | Unavailable, first: FirstRecord | Unavailable | None, last_plan: datetime) -> str | None:
    """Return why one partition may be older than the last plan, None where all speaks for its being new."""
    if isinstance(log, Unavailable):
        return log.reason
    if log.log_start_offset:
        return f"the log starts at {log.log_start_offset:,}"
    if log.is_empty:
        return None
    return doubt_of_record(first, last_plan)


def doubt_of_record(first: FirstRecord | Unavailable | None, last_plan: datetime) -> str | None:
    """Return why the first record of a log that begins at 0 may be older than the last plan."""
    if isinstance(first, Unavailable):
        return first.reason
    if first is None:
        return "no record is left in it"
    if first.timestamp_ms is None:
        return "its first record has no timestamp"
    if is_before(first, last_plan):
        clock = "a broker's clock" if first.by_broker else "its producer"
        return f"its first record is dated {first.timestamp_ms:,} (milliseconds since 1970) by {clock}"
    return None


def is_before(record: FirstRecord, when: datetime) -> bool:
    """Whether a record is dated before then; a producer can write any number, also one that no datetime holds."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return record.timestamp_ms is not None and record.timestamp_ms < (when - epoch) // timedelta(milliseconds=1)
