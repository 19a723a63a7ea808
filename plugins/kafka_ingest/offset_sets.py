"""Sets of offsets: what is left of ranges, what two sets share, and one set out of many ranges. Every answer is sorted."""

from collections.abc import Iterable

from kafka_ingest.offsets import OffsetRange, TopicPartition


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the same offsets in as few ranges as can be, without empty ones."""
    found: list[OffsetRange] = []
    for offset_range in sorted(ranges):
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


def without(ranges: Iterable[OffsetRange], covered: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return what is left of ranges where others are taken out of them."""
    covers = by_partition(merged(covered))
    left: list[OffsetRange] = []
    for offset_range in sorted(ranges):
        start = offset_range.start_offset
        for cover in covers.get(offset_range.topic_partition, ()):
            if start < (end := min(cover.start_offset, offset_range.end_offset)):
                left.append(OffsetRange(offset_range.topic_partition, start, end))
            start = max(start, cover.end_offset)
        if start < offset_range.end_offset:
            left.append(OffsetRange(offset_range.topic_partition, start, offset_range.end_offset))
    return sorted(left)


def within(ranges: Iterable[OffsetRange], others: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return which offsets of ranges lie in others, too."""
    found: list[OffsetRange] = []
    of_partition = by_partition(merged(others))
    for offset_range in sorted(ranges):
        for other in of_partition.get(offset_range.topic_partition, ()):
            start = max(offset_range.start_offset, other.start_offset)
            end = min(offset_range.end_offset, other.end_offset)
            if start < end:
                found.append(OffsetRange(offset_range.topic_partition, start, end))
    return sorted(found)


def span_of(ranges: Iterable[OffsetRange]) -> int:
    """Return how many offsets ranges hold together."""
    return sum(offset_range.span for offset_range in ranges)


def by_partition(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, list[OffsetRange]]:
    """Return ranges by their partition, in the order in which they come."""
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for offset_range in ranges:
        found.setdefault(offset_range.topic_partition, []).append(offset_range)
    return found
