"""How many offsets of a partition are where, as the command line and the page list it."""

from collections.abc import Collection, Mapping
from typing import Final

from kafka_ingest.model.coverage import PartitionCoverage, dead_letters_in, replayed_in
from kafka_ingest.model.offset_sets import span_of

HEADINGS: Final = {
    "live": "live",
    "backfilled": "backfilled",
    "before_first": "before first",
    "expired": "expired",
    "replaced": "replaced",
    "pending": "pending",
    "dead_letters": "dead letters",
    "replayed": "replayed",
    "filtered": "filtered",
    "gaps_open": "open gaps",
    "gaps_closed": "closed gaps",
    "gaps_ahead": "gaps ahead",
    "read_again": "read again",
}
ALWAYS: Final = frozenset({"live", "gaps_open", "pending"})
"""What is listed also where it is nothing."""


def offset_counts(partition: PartitionCoverage) -> dict[str, int]:
    of_state = dict.fromkeys(("open", "closed", "ahead"), 0)
    for gap in partition.gaps:
        of_state[gap.state] += gap.offset_range.span
    return {
        "live": span_of(partition.live),
        "backfilled": span_of(partition.backfilled),
        "before_first": span_of(partition.before_first),
        "expired": span_of(partition.expired),
        "replaced": span_of(partition.replaced),
        "pending": span_of(partition.pending_live) + span_of(partition.claimed),
        "dead_letters": dead_letters_in(partition),
        "replayed": replayed_in(partition),
        "filtered": partition.filtered,
        "gaps_open": of_state["open"],
        "gaps_closed": of_state["closed"],
        "gaps_ahead": of_state["ahead"],
        "read_again": span_of(each.offset_range for each in partition.rewinds),
    }


def used_headings(counts: Collection[Mapping[str, int]]) -> list[str]:
    """Return which of the counts are not nothing everywhere, and those that are always listed."""
    return [name for name in HEADINGS if name in ALWAYS or any(count[name] for count in counts)]
