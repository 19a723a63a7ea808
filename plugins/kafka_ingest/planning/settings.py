"""What planning needs to know of a feed, and of where a manual run's batch ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from kafka_ingest.errors import EndOutsideLogError
from kafka_ingest.model.offsets import Isolation, OffsetsPolicy, TopicPartition, listing
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.topic_patterns import is_selected
from kafka_ingest.planning.start_rules import Earliest, StartRule


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
