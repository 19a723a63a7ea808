"""How tasks show a batch's ranges: a table in a log, and a label in Airflow's grid."""

from collections.abc import Iterator, Sequence
from typing import Final

from kafka_ingest.model.batch import Batch
from kafka_ingest.model.offsets import OffsetRange, listing

MOST: Final = 100
"""Of a batch's ranges so many are shown; ``kafka-ingest batches`` has all of them."""

HEADINGS: Final = ("topic", "partition", "from offset", "to before", "offsets")


def lines_of_ranges(ranges: Sequence[OffsetRange]) -> Iterator[str]:
    """Yield the lines of a table, and the sum of all ranges."""
    rows = [
        (each.topic, str(each.partition), f"{each.start_offset:,}", f"{each.end_offset:,}", f"{each.span:,}")
        for each in ranges[:MOST]
    ]
    sums = ("", f"{len(ranges):,}", "", "", f"{sum(each.span for each in ranges):,}")
    widths = [max(map(len, cells)) for cells in zip(HEADINGS, *rows, sums, strict=True)]
    for topic, *numbers in (HEADINGS, *rows):
        yield in_columns(topic, numbers, widths)
    if more := len(ranges) - len(rows):
        yield f"and {more:,} more"
    yield in_columns(sums[0], sums[1:], widths)


def in_columns(topic: str, numbers: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line: text on the left, numbers on the right of their columns."""
    return "  ".join([topic.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])


def label_of(batch: Batch) -> str:
    """Return by what a chunk of a backfill is found among others."""
    return f"{listing(batch.plan.ranges, limit=1)}, batch {batch.batch_id}"
