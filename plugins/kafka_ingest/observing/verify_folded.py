"""Compare folded ranges with the receipts of the batches that they are the sum of, range by range."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import CommittedBatch, FoldedFeed
from kafka_ingest.model.offset_sets import shared, span_of, union
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.observing.verify_output import Difference

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
