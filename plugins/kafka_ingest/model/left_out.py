"""A planned range that an attempt left out: Kafka had deleted records of it before they were read. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from kafka_ingest.model.documents import Documented
from kafka_ingest.model.offsets import LogBounds, OffsetRange, TopicPartition, Unavailable


@dataclass(frozen=True, slots=True, order=True)
class LeftOut(Documented):
    """A range of a batch of which nothing was read, and the log start that Kafka reported then."""

    offset_range: OffsetRange
    log_start_offset: int

    def __post_init__(self) -> None:
        if self.log_start_offset <= self.offset_range.start_offset:
            raise ValueError(
                f"a range is left out where its log starts above its first offset, found {self.offset_range} and log "
                f"start {self.log_start_offset}"
            )

    def __str__(self) -> str:
        return f"{self.offset_range} (the log starts at {self.log_start_offset:,})"


def ranges_read(planned: Iterable[OffsetRange], left_out: Collection[LeftOut]) -> tuple[OffsetRange, ...]:
    not_read = {each.offset_range for each in left_out}
    return tuple(offset_range for offset_range in planned if offset_range not in not_read)


def wrongly_left_out(planned: Collection[OffsetRange], left_out: Collection[LeftOut]) -> list[str]:
    """Return why these ranges of a plan cannot have been left out; empty where they can."""
    ranges, of_plan = sorted(each.offset_range for each in left_out), set(planned)
    found = [f"{each} is left out, which the plan does not read" for each in ranges if each not in of_plan]
    found += [f"{one} is left out twice" for one, other in pairwise(ranges) if one == other]
    return found if ranges_read(planned, left_out) else [*found, "all of the plan's ranges are left out"]


def to_leave_out(planned: Collection[OffsetRange], log_starts: Mapping[TopicPartition, int]) -> tuple[LeftOut, ...]:
    """Return which ranges lost their beginning, where the others can be read without them; nothing where all did."""
    lost = tuple(
        LeftOut(offset_range, start)
        for offset_range in planned
        if (start := log_starts.get(offset_range.topic_partition, 0)) > offset_range.start_offset
    )
    return lost if len(lost) < len(planned) else ()


def log_starts_of(bounds: Mapping[TopicPartition, LogBounds | Unavailable]) -> dict[TopicPartition, int]:
    """Return where logs start, for those that Kafka could answer for."""
    return {tp: found.log_start_offset for tp, found in bounds.items() if isinstance(found, LogBounds)}
