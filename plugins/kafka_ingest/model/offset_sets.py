"""Sets of offsets: difference, intersection and union of ranges. Every result is sorted."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from kafka_ingest.model.offsets import OffsetRange, TopicPartition


def place(offset_range: OffsetRange) -> tuple[str, int, int, int]:
    """Return what ranges are sorted by; comparing ranges themselves takes ten times as long."""
    topic_partition = offset_range.topic_partition
    return topic_partition.topic, topic_partition.partition, offset_range.start_offset, offset_range.end_offset


def union(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in as few ranges as can be, without empty ones."""
    found: list[OffsetRange] = []
    for offset_range in sorted(ranges, key=place):
        last = found[-1] if found else None
        if not offset_range.span:
            continue
        if (
            last is None
            or last.topic_partition != offset_range.topic_partition
            or last.end_offset < offset_range.start_offset
        ):
            found.append(offset_range)
        elif offset_range.end_offset > last.end_offset:
            found[-1] = OffsetRange(last.topic_partition, last.start_offset, offset_range.end_offset)
    return found


class Lookup:
    """An index of ranges by what they overlap: a partition may have thousands, and a lookup reads only those."""

    def __init__(self, ranges: Iterable[OffsetRange]) -> None:
        self._of_partition = by_partition(union(ranges))
        self._ends = {tp: [each.end_offset for each in found] for tp, found in self._of_partition.items()}

    def touching(self, offset_range: OffsetRange) -> Iterator[OffsetRange]:
        """Yield those that share an offset with a range, merged and in order."""
        topic_partition = offset_range.topic_partition
        found = self._of_partition.get(topic_partition, [])
        first = bisect_right(self._ends.get(topic_partition, []), offset_range.start_offset)
        for number in range(first, len(found)):
            if found[number].start_offset >= offset_range.end_offset:
                return
            yield found[number]


def subtract(ranges: Iterable[OffsetRange], covered: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return what remains of ranges after others are taken out of them."""
    covers = Lookup(covered)
    left: list[OffsetRange] = []
    for offset_range in ranges:
        start = offset_range.start_offset
        for cover in covers.touching(offset_range):
            if start < (end := min(cover.start_offset, offset_range.end_offset)):
                left.append(OffsetRange(offset_range.topic_partition, start, end))
            start = max(start, cover.end_offset)
        if start < offset_range.end_offset:
            left.append(OffsetRange(offset_range.topic_partition, start, offset_range.end_offset))
    return sorted(left, key=place)


def intersect(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of ranges that are also in others."""
    found: list[OffsetRange] = []
    lookup = Lookup(others)
    for offset_range in ranges:
        for other in lookup.touching(offset_range):
            start = max(offset_range.start_offset, other.start_offset)
            end = min(offset_range.end_offset, other.end_offset)
            if start < end:
                found.append(OffsetRange(offset_range.topic_partition, start, end))
    return sorted(found, key=place)


def shared(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets that are in more than one of the ranges."""
    found: list[OffsetRange] = []
    reached: OffsetRange | None = None
    for offset_range in sorted(ranges, key=place):
        if reached is None or reached.topic_partition != offset_range.topic_partition:
            reached = offset_range
            continue
        if offset_range.start_offset < (end := min(reached.end_offset, offset_range.end_offset)):
            found.append(OffsetRange(reached.topic_partition, offset_range.start_offset, end))
        if offset_range.end_offset > reached.end_offset:
            reached = offset_range
    return union(found)


def span_of(ranges: Iterable[OffsetRange]) -> int:
    return sum(offset_range.span for offset_range in ranges)


def by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[OffsetRange]]:
    """Return ranges by partition, each in the given order."""
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for offset_range in ranges:
        found.setdefault(offset_range.topic_partition, []).append(offset_range)
    return found
