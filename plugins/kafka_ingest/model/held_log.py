"""What an output holds, by its rows and by what it says of itself: no control tables are needed for it."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.proof import Proof


@dataclass(frozen=True)
class OffsetRuns:
    """Offsets of one partition in sorted runs that share none, ``[start, end)`` each.

    A compacted topic has nearly as many runs as records: two arrays take a tenth of what ranges would.
    """

    starts: Sequence[int] = ()
    ends: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def count(self) -> int:
        return sum(self.ends) - sum(self.starts)

    def within(self, start: int, end: int) -> "OffsetRuns":
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        if first >= last:
            return OffsetRuns()
        starts, ends = [*self.starts[first:last]], [*self.ends[first:last]]
        starts[0], ends[-1] = max(start, starts[0]), min(end, ends[-1])
        return OffsetRuns(starts, ends)

    def holes(self, start: int, end: int) -> "OffsetRuns":
        """Return which of ``[start, end)`` these are not."""
        there = self.within(start, end)
        between = zip([start, *there.ends], [*there.starts, end], strict=True)
        found = [(hole, after) for hole, after in between if hole < after]
        return OffsetRuns([hole for hole, _ in found], [after for _, after in found])

    def first(self, most: int) -> list[tuple[int, int]]:
        return list(zip(self.starts[:most], self.ends[:most], strict=True))


@dataclass(frozen=True)
class HeldLog:
    """What an output holds of one partition of one topic, wherever the rows are.

    ``doubled`` are the offsets of more than one row. ``of_batches``: the offsets by the batch that the rows name, None:
    they name none. ``files`` are names, with the smallest offset in each and the one after the largest.
    """

    topic_partition: TopicPartition
    topic_id: str | None
    rows: int
    offsets: OffsetRuns
    doubled: OffsetRuns = OffsetRuns()
    of_batches: Mapping[UUID | None, OffsetRuns] = field(default_factory=dict)
    files: Sequence[tuple[str, int, int]] = ()

    def batches_of(self, start: int, end: int) -> list[UUID | None]:
        return [batch for batch, runs in self.of_batches.items() if runs.within(start, end)]

    def files_of(self, start: int, end: int) -> list[str]:
        """Return the files that may hold rows of ``[start, end)``, by their bounds."""
        return [name for name, first, after in self.files if first < end and start < after]


@dataclass(frozen=True)
class Evidence:
    """What an output says of itself: by its commits, and by the receipts beside it.

    ``proofs`` have all ranges where there is a receipt. ``removed`` are batches whose rows were taken out on purpose,
    ``gaps`` offsets that were passed over, with their topic's id, and ``lost`` how many rows of a batch's partition
    were in files that an operator has recorded as lost. ``unpublished`` have a receipt and no more: their commit was
    interrupted, or did not begin. ``problems`` say what cannot be used. ``of_newest_states``: a row is the newest state
    of a key, so a batch's rows need not be there any more. ``of_counts``: rows do not say which offsets they are, so
    which ones are missing is not known. ``notes`` are no fault of the output's.
    """

    proofs: Mapping[UUID, Proof] = field(default_factory=dict)
    removed: frozenset[UUID] = frozenset()
    gaps: Sequence[tuple[str | None, OffsetRange]] = ()
    lost: Mapping[tuple[UUID, TopicPartition], int] = field(default_factory=dict)
    problems: Sequence[str] = ()
    unpublished: frozenset[UUID] = frozenset()
    of_newest_states: bool = False
    of_counts: bool = False
    notes: Sequence[str] = ()
