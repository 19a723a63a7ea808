"""What planning needs to know of a feed, and of where a manual run's batch ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from kafka_ingest.errors import EndOutsideLogError, StartOutsideLogError
from kafka_ingest.model.offsets import Isolation, LogBounds, OffsetsPolicy, TopicPartition, listing
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.topics import is_selected


@dataclass(frozen=True, slots=True)
class PartitionAnswers:
    """Kafka's answers for one partition. The last two only where its start rule needs them; None is "there is none"."""

    bounds: LogBounds
    isolation: Isolation
    offset_at_timestamp: int | None = None
    group_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A resolved start: the offset, and what the stored offset's row says decided it."""

    offset: int
    note: str


@dataclass(frozen=True, slots=True)
class Earliest:
    """Begin at the log start offset."""

    def __str__(self) -> str:
        return "earliest"

    def resolve(self, _topic_partition: TopicPartition, answers: PartitionAnswers) -> Start:
        return Start(answers.bounds.log_start_offset, str(self))


@dataclass(frozen=True, slots=True)
class Latest:
    """Begin at the end a reader can see: only records that arrive from now on."""

    def __str__(self) -> str:
        return "latest"

    def resolve(self, _topic_partition: TopicPartition, answers: PartitionAnswers) -> Start:
        return Start(answers.bounds.readable_end(answers.isolation), str(self))


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Begin at an explicit offset."""

    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset}"

    def resolve(self, topic_partition: TopicPartition, answers: PartitionAnswers) -> Start:
        """Return the partition's first offset; raises where the log does not hold it."""
        bounds = answers.bounds
        if self.offset < bounds.log_start_offset:
            raise StartOutsideLogError(
                f"{topic_partition}: the feed's start names offset {self.offset:,}, but the log starts at "
                f"{bounds.log_start_offset:,}: the records before are deleted. Name an offset from "
                f"{bounds.log_start_offset:,} on, or 'earliest'."
            )
        if self.offset > bounds.high_watermark:
            raise StartOutsideLogError(
                f"{topic_partition}: the feed's start names offset {self.offset:,}, but the log ends at "
                f"{bounds.high_watermark:,}. Name an offset up to {bounds.high_watermark:,}, or 'latest'."
            )
        return Start(self.offset, str(self))


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Begin at the first offset whose record is of that time or later.

    As Kafka's ListOffsets defines it (KIP-79): before the log it is the log start, after the log, or in a partition
    without records, the log's end, and between two records the later one. Timestamps need not grow with offsets:
    records of an earlier time may follow.
    """

    timestamp: datetime

    def __str__(self) -> str:
        return f"timestamp {self.timestamp.isoformat()}"

    def resolve(self, _topic_partition: TopicPartition, answers: PartitionAnswers) -> Start:
        bounds, found = answers.bounds, answers.offset_at_timestamp
        if found is None:
            return Start(bounds.high_watermark, f"{self}: no record is of that time or later, so the log's end")
        # The bounds are asked first: a record that arrived since is read, rather than passed over.
        return Start(max(bounds.log_start_offset, min(found, bounds.high_watermark)), str(self))


@dataclass(frozen=True, slots=True)
class FromGroup:
    """Begin where a consumer group stands; ``otherwise`` decides for partitions for which it has no offset."""

    group: str
    otherwise: Earliest | Latest

    def __str__(self) -> str:
        return f"group {self.group} otherwise {self.otherwise}"

    def resolve(self, topic_partition: TopicPartition, answers: PartitionAnswers) -> Start:
        """Return the partition's first offset; below the log start counts as loss, above the log's end is refused."""
        if answers.group_offset is None:
            start = self.otherwise.resolve(topic_partition, answers)
            return Start(start.offset, f"{start.note}: group {self.group} has no offset")
        if answers.group_offset > answers.bounds.high_watermark:
            raise StartOutsideLogError(
                f"{topic_partition}: consumer group {self.group!r}, where the feed is to start, stands at offset "
                f"{answers.group_offset:,}, but the log ends at {answers.bounds.high_watermark:,}: the group read "
                "another log under this name. Name offsets, or another start."
            )
        return Start(answers.group_offset, f"group {self.group}")


@dataclass(frozen=True, slots=True)
class NewPartition:
    """Created since the last plan, alone or with its topic: all of it is new, so it begins at offset 0 in any case."""

    def __str__(self) -> str:
        return "new partition"

    def resolve(self, _topic_partition: TopicPartition, _answers: PartitionAnswers) -> Start:
        """Return 0; a log start above it is then loss, like any other."""
        return Start(0, str(self))


@dataclass(frozen=True, slots=True)
class NewOrOlder:
    """Of a topic that appeared after a plan: Kafka cannot say whether it was made since, so its start stays pending.

    Its text keeps that plan's time, since each later plan has another. ``why`` is for the hold.
    """

    last_plan: datetime
    why: str = ""

    def __str__(self) -> str:
        return f"{NEW_OR_OLDER}{self.last_plan.isoformat()}"

    @classmethod
    def noted(cls, seeded_by: str) -> "NewOrOlder | None":
        """Return what a pending seed was noted with, None where it was another rule."""
        if not seeded_by.startswith(NEW_OR_OLDER):
            return None
        return cls(datetime.fromisoformat(seeded_by.removeprefix(NEW_OR_OLDER)))


NEW_OR_OLDER: Final = "undecided: new, or older than the plan of "

PartitionRule = Earliest | Latest | AtOffset | AtTimestamp | FromGroup | NewPartition | NewOrOlder
"""What decides the start of one partition. Its text is what a pending seed is noted with."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An explicit offset per partition of one topic; ``otherwise`` decides for partitions that are not named."""

    offsets: Mapping[int, int]
    otherwise: Earliest | Latest

    def of(self, topic_partition: TopicPartition) -> PartitionRule:
        offset = self.offsets.get(topic_partition.partition)
        return self.otherwise if offset is None else AtOffset(offset)


StartRule = Earliest | Latest | AtOffsets | AtTimestamp | FromGroup
"""What a feed file can ask for."""


def rule_of_partition(rule: StartRule, topic_partition: TopicPartition) -> PartitionRule:
    return rule.of(topic_partition) if isinstance(rule, AtOffsets) else rule


class OnDataLoss(StrEnum):
    """What to do where Kafka deleted records before they were read."""

    FAIL = "fail"
    RECORD_GAP = "record_gap"
    HOLD = "hold"
    """Hold that partition until an operator decides; also one whose log ended below its stored offset."""


class OnMissingTopic(StrEnum):
    """What to do where a topic of the feed, or a partition of it, is not there."""

    STOP = "stop"
    HOLD = "hold"


class OnTopicChanged(StrEnum):
    """What to do where a topic of the feed was deleted and created again."""

    STOP = "stop"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class FeedPlanSettings:
    """A feed as the planner sees it; limits are in records, None means no limit.

    A feed reads the topics that ``start_rules`` names, or all that ``topic_pattern`` matches as a whole; then
    ``start_rules`` names exceptions from ``pattern_start``. ``limit_follows_speed``: the feed names no
    ``max_records``, so a batch holds what its newest ones would have read in minutes, or less where one run asks for
    less.
    """

    name: str
    start_rules: Mapping[str, StartRule]
    isolation: Isolation
    offsets_policy: OffsetsPolicy
    output: OutputLocation
    topic_pattern: str | None = None
    pattern_start: StartRule = field(default_factory=Earliest)
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    on_missing_topic: OnMissingTopic = OnMissingTopic.STOP
    on_topic_changed: OnTopicChanged = OnTopicChanged.STOP
    max_records: int | None = None
    limit_follows_speed: bool = False
    max_records_per_partition: int | None = None
    min_records: int | None = None
    max_wait: timedelta | None = None
    skip_to_latest_when_behind: int | None = None
    relative_path: Path | None = None
    """The output's path as the feed file says it, where that is relative: its root is the environment's."""
    surely_fits: int | None = None
    """So many bytes of a record need no more memory than Spark has: one that was too large is read again then."""

    found_after: datetime | None = None
    """The plan of a file for many topics that would have found the feed's topic, and did not: it is new, or older."""

    def selects(self, topic: str) -> bool:
        return topic in self.start_rules if self.topic_pattern is None else is_selected(topic, self.topic_pattern)

    def start_rule(self, topic: str) -> StartRule:
        return self.start_rules.get(topic, self.pattern_start)


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """End before the first record of that time or later (KIP-79); at the end of the log where there is none."""

    timestamp: datetime


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """End at explicit offsets, which are not read; partitions that are not named are not read at all.

    One that is passed already has nothing left to read: the same run can be asked for twice.
    """

    offsets: Mapping[TopicPartition, int]

    def check(self, readable_ends: Mapping[TopicPartition, int]) -> None:
        """Raise EndOutsideLogError where an end is of an unknown partition, or above what can be read of the log."""
        wrong = [
            f"{tp}: it takes no part: there is no such partition, or Kafka cannot answer for it now"
            if tp not in readable_ends
            else f"{tp}: asked to end at {end:,}, readable up to {readable_ends[tp]:,}"
            for tp, end in sorted(self.offsets.items())
            if tp not in readable_ends or end > readable_ends[tp]
        ]
        if wrong:
            raise EndOutsideLogError(
                f"expected ends up to what can be read of the log, found {listing(wrong)}. Nothing was planned."
            )


EndPositions = ToTimestamp | ToOffsets | None
"""None: as far as the log can be read."""
