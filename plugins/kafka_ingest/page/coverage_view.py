"""The view of a feed's coverage: where every offset is, and whether each is accounted for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.coverage import PartitionCoverage, coverage_of
from kafka_ingest.observing.offset_counts import HEADINGS, offset_counts, used_headings
from kafka_ingest.page.pages_of import PageOf
from kafka_ingest.page.sources import Sources

PARTITIONS_A_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class CoverageView:
    """What the view shows: counts by their headings, of a page of the partitions and in all."""

    feed: str
    headings: Sequence[tuple[str, str]]
    partitions: PageOf[tuple[PartitionCoverage, Mapping[str, int]]]
    totals: Mapping[str, int]
    unaccounted: int


def coverage_view(sources: Sources, name: str, page: int) -> CoverageView | None:
    """Return where a feed's offsets are, those that are not accounted for first; None where it was never planned."""
    with without_garbage_collection():
        rows = sources.control().coverage(name)
        if rows is None:
            return None
        partitions = sorted(coverage_of(rows).values(), key=lambda each: (each.is_accounted, each.topic_partition))
        counted = [(each, offset_counts(each)) for each in partitions]
        counts = [count for _, count in counted]
        used = used_headings(counts)
        return CoverageView(
            feed=name,
            headings=[(each, HEADINGS[each]) for each in used],
            partitions=PageOf.of(counted, page, PARTITIONS_A_PAGE),
            totals={each: sum(count[each] for count in counts) for each in used},
            unaccounted=sum(not each.is_accounted for each in partitions),
        )
