"""How many offsets of a partition are where, and sums of committed batches and folded ranges."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.control_rows import CommittedBatch
from kafka_ingest.model.coverage import PartitionCoverage, dead_letters_in, replayed_in
from kafka_ingest.model.folded import FoldedFeed, FoldedRange
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, shared, span_of, union
from kafka_ingest.model.read_again import Replacement
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.observing.verify_output import Counted, Difference

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
    return [name for name in HEADINGS if name in ALWAYS or any(count[name] for count in counts)]


Place = tuple[TopicPartition, str | None]
"""A partition of a topic with this id."""


@dataclass(slots=True)
class Sums:
    """What batches have read of one place. ``apart`` are records of other kinds, which are counted separately."""

    batches: int = 0
    rows: int = 0
    apart: int = 0
    spans: list[OffsetRange] = field(default_factory=list)

    def __str__(self) -> str:
        often = span_of(self.spans)
        apart = f", {counted(self.apart, 'other record')}" if self.apart else ""
        return f"{counted(often, 'offset')} of {counted(self.batches, 'batch')}, {counted(self.rows, 'row')}{apart}"

    def is_as(self, other: "Sums") -> bool:
        """Whether other sums are equal: the same numbers, and the same offsets equally often."""
        return (
            str(self) == str(other)
            and union(self.spans) == union(other.spans)
            and shared(self.spans) == shared(other.spans)
        )


class FoldedProof:
    """Adds up what the receipts of folded batches say, batch by batch."""

    def __init__(self, folded: FoldedFeed) -> None:
        self._folded = folded
        self._read = 0
        self._of_receipts: dict[Place, Sums] = {}

    def add(self, batch: CommittedBatch) -> None:
        """Add a batch with its ranges; one that was not folded yet when the folded ranges were read is left out."""
        if batch.batch_id not in self._folded.batches or not batch.ranges:
            return
        self._read += 1
        for each in batch.ranges:
            span = each.count.offset_range
            sums = self._of_receipts.setdefault((span.topic_partition, each.topic_id), Sums())
            sums.batches, sums.rows = sums.batches + 1, sums.rows + each.count.rows
            sums.apart += each.count.filtered + each.count.dead_letters
            sums.spans.append(span)

    def differences(self) -> Iterator[Difference]:
        """Yield where the folded ranges differ from these sums.

        Nothing where a receipt could not be read: that is reported as another difference, and the sums are unknown.
        """
        if self._read < len(self._folded.batches):
            return
        of_tables: dict[Place, Sums] = {}
        for chain in self._folded.ranges:
            sums = of_tables.setdefault((chain.offset_range.topic_partition, chain.topic_id), Sums())
            sums.batches, sums.rows = sums.batches + chain.batches, sums.rows + chain.rows
            sums.apart += chain.filtered + chain.dead_letters
            sums.spans.append(chain.offset_range)
        for place in sorted({*self._of_receipts, *of_tables}, key=lambda each: (each[0], each[1] or "")):
            expected, found = self._of_receipts.get(place, Sums()), of_tables.get(place, Sums())
            if not expected.is_as(found):
                yield Difference(f"what is folded of {place[0]}", str(expected), str(found))


PARTS: Final = ("rows", "filtered", "dead_letters", "invisible")


def parts_of(committed: RangeCount | FoldedRange) -> dict[str, int]:
    """Return what the offsets of committed ranges are; together they are all of them."""
    return {name: getattr(committed, name) for name in PARTS}


class CommittedSums:
    """Adds up batches, one by one, as they were counted in the output: each offset once, wherever its record is now.

    Per partition, offsets = rows + filtered + dead letters + invisible (invariant 11). A replay turns dead letters of
    other batches into rows, or filters them; a replacement stands for the ranges that it replaced; copies are counted
    apart. What is committed again after a reset, or since files were lost, counts each time.
    """

    def __init__(self, replacements: Iterable[Replacement]) -> None:
        done = (each.replaced for each in replacements if not each.is_open)
        self._replaced = {(each.batch_id, each.topic_partition) for each in done}
        self._parts: dict[TopicPartition, Counter[str]] = {}
        self._in_output: Counter[TopicPartition] = Counter()
        self.copied = 0

    def add(self, counted: Counted) -> None:
        """Add a batch: what it has read, and how many of its rows readers see."""
        kind = counted.batch.kind
        if kind is BatchKind.COPY:
            self.copied += counted.rows
            return
        for each in counted.seen:
            self._in_output[each.topic_partition] += each.rows
        for count in (each.count for each in counted.batch.ranges):
            if (counted.batch.batch_id, count.offset_range.topic_partition) in self._replaced:
                continue
            found = self._parts.setdefault(count.offset_range.topic_partition, Counter())
            if kind is BatchKind.REPLAY:
                found.update(rows=count.rows, filtered=count.filtered, dead_letters=-count.rows - count.filtered)
            else:
                found.update(parts_of(count))

    def as_documents(self) -> list[dict[str, Any]]:
        return [
            {"topic": tp.topic, "partition": tp.partition, "offsets": parts.total()}
            | {name: parts[name] for name in PARTS}
            | {"in_output": self._in_output[tp]}
            for tp, parts in sorted(self._parts.items())
        ]
