"""Where a partition without a stored offset begins. Resolved to a number while planning, and applied once."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_ingest.errors import StartOutsideLogError
from kafka_ingest.offsets import Isolation, LogBounds, TopicPartition


@dataclass(frozen=True, slots=True)
class Earliest:
    """Begin at the log start offset."""

    def resolve(self, _topic_partition: TopicPartition, bounds: LogBounds, _isolation: Isolation) -> int:
        """Return the partition's first offset."""
        return bounds.log_start_offset

    def note(self, _topic_partition: TopicPartition) -> str:
        """Return what the stored offset's row says decided it."""
        return "earliest"


@dataclass(frozen=True, slots=True)
class Latest:
    """Begin at the end a reader can see: only records that arrive from now on."""

    def resolve(self, _topic_partition: TopicPartition, bounds: LogBounds, isolation: Isolation) -> int:
        """Return the partition's first offset."""
        return bounds.readable_end(isolation)

    def note(self, _topic_partition: TopicPartition) -> str:
        """Return what the stored offset's row says decided it."""
        return "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Begin at an explicit offset per partition of one topic; ``otherwise`` decides for partitions that are not named."""

    offsets: Mapping[int, int]
    otherwise: Earliest | Latest

    def resolve(self, topic_partition: TopicPartition, bounds: LogBounds, isolation: Isolation) -> int:
        """Return the partition's first offset; raises where the log does not hold it."""
        offset = self.offsets.get(topic_partition.partition)
        if offset is None:
            return self.otherwise.resolve(topic_partition, bounds, isolation)
        if offset < bounds.log_start_offset:
            raise StartOutsideLogError(
                f"{topic_partition}: the feed's start names offset {offset:,}, but the log starts at "
                f"{bounds.log_start_offset:,}: the records before are deleted. Name an offset from "
                f"{bounds.log_start_offset:,} on, or 'earliest'."
            )
        if offset > bounds.high_watermark:
            raise StartOutsideLogError(
                f"{topic_partition}: the feed's start names offset {offset:,}, but the log ends at "
                f"{bounds.high_watermark:,}. Name an offset up to {bounds.high_watermark:,}, or 'latest'."
            )
        return offset

    def note(self, topic_partition: TopicPartition) -> str:
        """Return what the stored offset's row says decided it."""
        offset = self.offsets.get(topic_partition.partition)
        return self.otherwise.note(topic_partition) if offset is None else f"offset {offset}"


@dataclass(frozen=True, slots=True)
class NewPartition:
    """A partition that a known topic gained: all of it is new, so it begins at offset 0, whatever the feed's start rule."""

    def resolve(self, _topic_partition: TopicPartition, _bounds: LogBounds, _isolation: Isolation) -> int:
        """Return 0; a log start above it is then loss, like any other."""
        return 0

    def note(self, _topic_partition: TopicPartition) -> str:
        """Return what the stored offset's row says decided it."""
        return "new partition"


@dataclass(frozen=True, slots=True)
class NotedOffset:
    """An explicit offset that was accepted when the seed was noted; where the log lost it since, that is loss."""

    offset: int

    def resolve(self, _topic_partition: TopicPartition, _bounds: LogBounds, _isolation: Isolation) -> int:
        """Return the partition's first offset."""
        return self.offset

    def note(self, _topic_partition: TopicPartition) -> str:
        """Return what the stored offset's row says decided it."""
        return f"offset {self.offset}"


StartRule = Earliest | Latest | AtOffsets
"""What a feed file can ask for."""


def rule_of_note(note: str) -> StartRule | NewPartition | NotedOffset:
    """Return the rule that a pending seed was noted with: it was decided then, whatever the feed file says now."""
    if note.startswith("offset "):
        return NotedOffset(int(note.removeprefix("offset ")))
    rules: Mapping[str, StartRule | NewPartition] = {
        "earliest": Earliest(),
        "latest": Latest(),
        "new partition": NewPartition(),
    }
    return rules[note]
