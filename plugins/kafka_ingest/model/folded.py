"""What old live batches have read, summed up: ranges that follow each other are one, however many batches they are of.

A folded range is a chain of whole ranges, each beginning where the one before ends, so its sums are exact. Ranges that
share an offset, because an operator let the feed read it again, never join one chain: it stays visible how often an
offset was committed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, intersect, subtract, union
from kafka_ingest.model.place import OutputLocation


@dataclass(frozen=True, slots=True)
class FoldedRange:
    """What committed batches have read of one partition, without a hole. Its sums satisfy invariant 11."""

    offset_range: OffsetRange
    topic_id: str | None
    rows: int
    filtered: int
    dead_letters: int
    invisible: int
    batches: int
    oldest: datetime
    """When the first of its batches was committed."""
    newest: datetime

    def __post_init__(self) -> None:
        counts = (self.rows, self.filtered, self.dead_letters, self.invisible)
        if min(counts) < 0 or sum(counts) != self.offset_range.span:
            raise ValueError(
                f"expected counts that add up to the {counted(self.offset_range.span, 'offset')} of "
                f"{self.offset_range}, found "
                f"{' + '.join(map(str, counts))}"
            )
        if self.batches < 1 or self.oldest > self.newest:
            raise ValueError(f"expected one batch or more, found {self.batches} from {self.oldest} to {self.newest}")

    def joined(self, following: "FoldedRange") -> "FoldedRange":
        """Return this range joined with the one that begins where it ends."""
        mine, theirs = self.offset_range, following.offset_range
        if (mine.topic_partition, self.topic_id) != (theirs.topic_partition, following.topic_id) or (
            mine.end_offset != theirs.start_offset
        ):
            raise ValueError(f"expected a range that begins where {mine} ends, found {theirs}")
        return FoldedRange(
            OffsetRange(mine.topic_partition, mine.start_offset, theirs.end_offset),
            self.topic_id,
            self.rows + following.rows,
            self.filtered + following.filtered,
            self.dead_letters + following.dead_letters,
            self.invisible + following.invisible,
            self.batches + following.batches,
            min(self.oldest, following.oldest),
            max(self.newest, following.newest),
        )


Place = tuple[TopicPartition, str | None, int]


class Chains:
    """Folded ranges while more are added to them. Those that were stored before have a number."""

    def __init__(self, known: Mapping[UUID, FoldedRange]) -> None:
        self._numbers = list(known)
        self._ranges = dict(enumerate(known.values()))
        self._starts: dict[Place, set[int]] = {}
        self._ends: dict[Place, set[int]] = {}
        for number in self._ranges:
            self._note(number)
        self._next = len(self._numbers)

    def add(self, new: FoldedRange) -> None:
        """Add a range, joining it to the chain that ends where it begins and the one that begins where it ends."""
        start, end = places(new)
        # Of several, the one that began last: the same ranges give the same chains, one at a time or all at once.
        if before := self._ends.get(start):
            new = self._taken(max(before, key=self._began)).joined(new)
        if after := self._starts.get(end):
            new = new.joined(self._taken(max(after, key=self._began)))
        self._ranges[self._next] = new
        self._note(self._next)
        self._next += 1

    @property
    def gone(self) -> list[UUID]:
        """The known ones that are part of others now."""
        return [known for number, known in enumerate(self._numbers) if number not in self._ranges]

    @property
    def new(self) -> list[FoldedRange]:
        return [each for number, each in self._ranges.items() if number >= len(self._numbers)]

    def _began(self, number: int) -> tuple[datetime, int, int]:
        span = self._ranges[number].offset_range
        return self._ranges[number].oldest, span.start_offset, span.end_offset

    def _note(self, number: int) -> None:
        start, end = places(self._ranges[number])
        self._starts.setdefault(start, set()).add(number)
        self._ends.setdefault(end, set()).add(number)

    def _taken(self, number: int) -> FoldedRange:
        found = self._ranges.pop(number)
        start, end = places(found)
        self._starts[start].discard(number)
        self._ends[end].discard(number)
        return found


def places(folded: FoldedRange) -> tuple[Place, Place]:
    """Return where a range begins and ends, each with its topic's id."""
    span = folded.offset_range
    start: Place = (span.topic_partition, folded.topic_id, span.start_offset)
    return start, (span.topic_partition, folded.topic_id, span.end_offset)


def kept_of_folded(folded: Iterable[OffsetRange], gone: Mapping[UUID, Iterable[OffsetRange]]) -> list[OffsetRange]:
    """Return folded ranges minus what each batch lost: an offset that two hold and one lost remains once."""
    left = list(folded)
    for of_batch in gone.values():
        to_take = union(of_batch)
        pieces: list[OffsetRange] = []
        for each in left:
            here = intersect([each], to_take)
            pieces += subtract([each], here)
            to_take = subtract(to_take, here)
        left = pieces
    return left


NEWEST_STAY = 20
"""How many of a feed's newest batches are never folded: their speed decides how much the next one may read."""


@dataclass(frozen=True, slots=True)
class FoldCut:
    """Which batches may be folded: those committed before a time, except the newest; and how many per transaction."""

    before: datetime
    newest_stay: int = NEWEST_STAY
    batches_at_once: int = 500
    ranges_at_once: int = 20_000
    events_at_once: int = 10_000


@dataclass(frozen=True, slots=True)
class Folded:
    """What one transaction folded: batches, and how many of their rows and of the journal's were removed."""

    batches: int = 0
    ranges: int = 0
    attempts: int = 0
    events: int = 0

    @property
    def is_nothing(self) -> bool:
        return not (self.batches or self.events)


@dataclass(frozen=True, slots=True)
class Foldable:
    """What may be folded now, and what is old enough but stays: not announced, or with staged output."""

    batches: int
    events: int
    to_announce: int = 0
    staged: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class FoldedFeed:
    """What is folded of a feed at one instant."""

    batches: frozenset[UUID]
    ranges: Sequence[FoldedRange]


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """A batch whose ranges are folded: its feed, its output, and the fingerprint that identifies its receipt."""

    batch_id: UUID
    fingerprint: str
    planned_at: datetime
    planned_by: str
    committed_at: datetime
    committed_by: str
    output: OutputLocation
