"""What a backfill is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.output_location import OutputLocation

MAX_RECORDS = 5_000_000
"""The default size of a chunk."""


class Mode(StrEnum):
    """Where a backfill writes, and so what it may read."""

    FILL = "fill"
    """Into the feed's own output: only offsets below the stored ones that no batch has committed."""

    COPY = "copy"
    """Into another output, no matter what the feed has done with those offsets."""

    REPLACE = "replace"
    """Into the feed's own output: only whole ranges of committed batches, whose rows it takes the place of."""

    REPLAY = "replay"
    """Into the feed's own output: dead letters of committed batches, from their files, by the current decoding."""

    @property
    def kind(self) -> BatchKind:
        """What its batches are to the feed."""
        return BatchKind.BACKFILL if self is Mode.FILL else BatchKind(self.value)


class OnOverlap(StrEnum):
    """What to do with offsets that are in the output already, or that another backfill has claimed."""

    CUT = "cut"
    """They are left out."""

    REFUSE = "refuse"
    """Nothing is planned."""


class OnMissing(StrEnum):
    """What to do with offsets whose records Kafka has deleted."""

    REFUSE = "refuse"
    """Nothing is planned."""

    RECORD_GAP = "record_gap"
    """The rest is read; what is missing becomes a gap. (A copy only leaves it out: gaps belong to the feed.)"""


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """These ranges."""

    ranges: Sequence[OffsetRange]


@dataclass(frozen=True, slots=True)
class BetweenTimestamps:
    """From the first offset of a time or later to before the first of another; None: from the log's start, to its end.

    Kafka's ListOffsets by timestamp (KIP-79): records need not be in the order of their times.
    """

    start: datetime | None
    end: datetime | None


@dataclass(frozen=True, slots=True)
class OfBatch:
    """What an earlier batch was planned to read."""

    batch_id: UUID


@dataclass(frozen=True, slots=True)
class OfDagRun:
    """What the batches were planned to read that an earlier DAG run planned or committed."""

    run_id: str


@dataclass(frozen=True, slots=True)
class OpenGaps:
    """Every open gap."""


@dataclass(frozen=True, slots=True)
class OpenChunks:
    """No new ranges: all chunks that are open already."""


@dataclass(frozen=True, slots=True)
class StoredDeadLetters:
    """The dead letters that committed batches have published and no replay has claimed.

    Only those of one batch, of batches committed at a time or later, of some causes; None and empty: of all.
    """

    batch_id: UUID | None = None
    since: datetime | None = None
    causes: frozenset[str] = frozenset()


Selection = OffsetRanges | BetweenTimestamps | OfBatch | OfDagRun | OpenGaps | OpenChunks | StoredDeadLetters


@dataclass(frozen=True, slots=True)
class Place:
    """A topic, or one partition of it: what a selection is narrowed to."""

    topic: str
    partition: int | None = None

    def holds(self, topic_partition: TopicPartition) -> bool:
        return self.topic == topic_partition.topic and self.partition in {None, topic_partition.partition}

    def __str__(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}:{self.partition}"


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What to read, and how. ``output`` is a copy's; ``only`` restricts unless empty; ``max_records`` is per chunk.

    ``asked`` is the request as it was made, for the audit journal.
    """

    selection: Selection
    asked: dict[str, Any]
    mode: Mode = Mode.FILL
    on_overlap: OnOverlap = OnOverlap.CUT
    on_missing: OnMissing = OnMissing.REFUSE
    output: OutputLocation | None = None
    only: Sequence[Place] = ()
    max_records: int = MAX_RECORDS

    def __post_init__(self) -> None:
        if (self.output is not None) != (self.mode is Mode.COPY):
            raise ValueError(f"a copy names its output, and nothing else does; found {self.mode} with {self.output}")
        if self.mode is Mode.REPLACE and (self.on_overlap, self.on_missing) != (OnOverlap.CUT, OnMissing.REFUSE):
            raise ValueError(f"replacing leaves nothing out; found {self.on_overlap}, {self.on_missing}")
        of_letters = isinstance(self.selection, StoredDeadLetters)
        if of_letters != (self.mode is Mode.REPLAY) and not isinstance(self.selection, OpenChunks):
            raise ValueError(f"a replay is of dead letters, and nothing else is; found {self.mode}, {self.selection}")

    def takes(self, topic_partition: TopicPartition) -> bool:
        return not self.only or any(place.holds(topic_partition) for place in self.only)
