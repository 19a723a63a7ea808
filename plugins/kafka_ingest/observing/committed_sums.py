"""What the offsets of a feed's committed ranges are, by partition: each once, wherever its record is now.

Per partition, offsets = rows + filtered + dead letters + invisible (invariant 11). A replay turns dead letters of other
batches into rows, or filters them; a replacement stands for the ranges that it replaced; copies are counted apart. What
is committed again after a reset, or since files were lost, counts each time.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.folded import FoldedRange
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.model.replaced import Replacement
from kafka_ingest.observing.verify_output import Counted

if TYPE_CHECKING:
    from kafka_ingest.model.offsets import TopicPartition

PARTS: Final = ("rows", "filtered", "dead_letters", "invisible")


def parts_of(committed: RangeCount | FoldedRange) -> dict[str, int]:
    """Return what the offsets of committed ranges are; together they are all of them."""
    return {name: getattr(committed, name) for name in PARTS}


class CommittedSums:
    """Adds up batches, one by one, as they were counted in the output."""

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
        """Return the sums of each partition, and how many rows of it readers see in the feed's outputs."""
        return [
            {"topic": tp.topic, "partition": tp.partition, "offsets": parts.total()}
            | {name: parts[name] for name in PARTS}
            | {"in_output": self._in_output[tp]}
            for tp, parts in sorted(self._parts.items())
        ]
