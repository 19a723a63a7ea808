"""What a batch lacks: ranges that Kafka had deleted, rows that the output refuses, fields that no record has. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kafka_ingest.foundation.counting import counted
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


MOST_REFUSED = 10_000
"""Of one batch: each is looked for by itself in the output, and named in what Spark is sent."""


@dataclass(frozen=True, slots=True)
class RefusedRows(Documented):
    """Rows of one partition, by their offsets, that an output refuses for one cause; it holds no value of a row."""

    topic_partition: TopicPartition
    cause: str
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        more = f" and {len(self.offsets) - 1:,} more" if len(self.offsets) > 1 else ""
        return f"{self.topic_partition}@{self.offsets[0]}{more} ({self.cause})"


def refused_by_cause(found: Iterable[tuple[TopicPartition, int, str]]) -> tuple[RefusedRows, ...]:
    """Return records by partition and cause, each once: of several causes the first counts."""
    causes: dict[tuple[TopicPartition, int], str] = {}
    for topic_partition, offset, cause in found:
        causes.setdefault((topic_partition, offset), cause)
    groups: dict[tuple[TopicPartition, str], list[int]] = {}
    for (topic_partition, offset), cause in sorted(causes.items()):
        groups.setdefault((topic_partition, cause), []).append(offset)
    return tuple(RefusedRows(*group, tuple(offsets)) for group, offsets in groups.items())


LEAST_RECORDS: Final = 20
"""Fewer records say nothing of what all of them have, unless they have none of the fields."""

MOST_NAMES: Final = 20
"""How many names that the records have in a field's place are kept."""

MOST_FIELDS: Final = 100
"""How many fields are kept."""

LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class NeverFound(Documented):
    """A field that is null in all rows of a batch, and that none of the records examined has.

    ``part``: ``key`` or ``value``. ``field``: its path there. ``records``: how many were examined that have the object
    it belongs to. ``others``: names that these have in that object and the schema does not, the most frequent first.
    ``is_part_found``: other fields of the part were found.
    """

    part: str
    field: str
    records: int
    others: tuple[str, ...] = ()
    is_part_found: bool = True

    @property
    def whereabouts(self) -> str:
        """Say how many records were examined, and what they have in its place."""
        there = f"there are: {', '.join(self.others)}" if self.others else "the schema has all names that are there"
        return f"in 0 of {counted(self.records, 'record')}; {there}"


def described(missing: Iterable[NeverFound]) -> list[str]:
    """Return the fields in words, those of one object together: ``value.usr: in 0 of 20 records; there are: user``."""
    fields: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        fields.setdefault((each.part, each.whereabouts), []).append(f"{each.part}.{each.field}")
    return [f"{', '.join(names)}: {whereabouts}" for (_, whereabouts), names in fields.items()]
