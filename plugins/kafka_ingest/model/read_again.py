"""What batches read again: ranges whose rows they replace, and dead letters that they replay."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from kafka_ingest.foundation.foreign_json import whole
from kafka_ingest.model.documents import Documented, document_of, read_document
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, by_partition


@dataclass(frozen=True, slots=True, order=True)
class ReplacedRange(Documented):
    """One range of an earlier batch, as it was committed: all rows that readers see of it are replaced."""

    offset_range: OffsetRange
    batch_id: UUID

    @property
    def topic_partition(self) -> TopicPartition:
        return self.offset_range.topic_partition


@dataclass(frozen=True, slots=True)
class Replacement:
    """A range of an earlier batch, and the batch that replaces it; ``is_open``: its rows are there until it commits."""

    replaced: ReplacedRange
    by: UUID
    topic_id: str | None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class RowsReplaced:
    """What a replacement would take out of the output. ``rewritten`` are files of which other rows stay."""

    rows: int
    files: int
    rewritten: int


def sum_of(found: Collection[RowsReplaced]) -> RowsReplaced:
    """Return what some replacements take out together; a file that two of them rewrite counts twice."""
    return RowsReplaced(
        rows=sum(each.rows for each in found),
        files=sum(each.files for each in found),
        rewritten=sum(each.rewritten for each in found),
    )


def why_no_replacement(ranges: Sequence[OffsetRange], replaced: Collection[ReplacedRange]) -> str | None:
    """Return why a batch of these ranges cannot replace others': each of its offsets is of exactly one of them."""
    pieces = by_partition([each.offset_range for each in replaced])
    for planned in ranges:
        reached = planned.start_offset
        for piece in sorted(pieces.pop(planned.topic_partition, [])):
            if piece.start_offset != reached:
                return f"{planned}: expected a replaced range that starts at {reached:,}, found {piece}"
            reached = piece.end_offset
        if reached != planned.end_offset:
            return f"{planned}: expected replaced ranges up to {planned.end_offset:,}, found {reached:,}"
    return f"it replaces ranges of {min(pieces)}, which it does not read" if pieces else None


@dataclass(frozen=True, slots=True, order=True)
class ReplayedLetters:
    """Dead letters that one batch has published: those of a range, and of some causes.

    ``records`` are the stable names of the causes, sorted, each with how many letters of it the files hold.
    """

    offset_range: OffsetRange
    batch_id: UUID
    records: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.records]
        if not names or names != sorted(set(names)):
            raise ValueError(f"{self.offset_range}: replayed causes are sorted, each once, found {names}")
        if any(number < 1 for _, number in self.records):
            raise ValueError(f"{self.offset_range}: each replayed cause has a record at least, found {self.records}")

    @property
    def topic_partition(self) -> TopicPartition:
        return self.offset_range.topic_partition

    @property
    def number(self) -> int:
        return sum(number for _, number in self.records)

    @property
    def causes(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.records)

    def as_document(self) -> dict[str, Any]:
        return document_of(self) | {"records": dict(self.records)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ReplayedLetters":
        records = tuple((cause, whole(document["records"], cause)) for cause in sorted(document["records"]))
        return read_document(cls, document, records=records)


@dataclass(frozen=True, slots=True)
class Replay:
    """Dead letters, and the batch that decodes them again; ``is_open``: it may still be abandoned."""

    letters: ReplayedLetters
    by: UUID
    topic_id: str | None
    is_open: bool = False


def spanned_by(letters: Iterable[ReplayedLetters]) -> tuple[OffsetRange, ...]:
    """Return the ranges of the batch that replays letters: of each partition from the first range to the last.

    What is in between is in other batches; the plan names what is replayed of it.
    """
    found = by_partition([each.offset_range for each in letters])
    return tuple(
        OffsetRange(tp, min(each.start_offset for each in pieces), max(each.end_offset for each in pieces))
        for tp, pieces in sorted(found.items())
    )


def numbers_of(letters: Iterable[ReplayedLetters]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for each in letters:
        found[each.topic_partition] = found.get(each.topic_partition, 0) + each.number
    return found


def why_no_replay(ranges: Sequence[OffsetRange], letters: Collection[ReplayedLetters]) -> str | None:
    """Return why a batch of these ranges cannot replay letters: of a partition they may not overlap."""
    if not letters:
        return "a batch of kind replay names the dead letters that it replays, found none"
    for one, other in pairwise(sorted(letters)):
        if one.topic_partition == other.topic_partition and overlap(one.offset_range, other.offset_range):
            return f"a batch replays an offset once, found {one.offset_range} and {other.offset_range}"
    if (expected := spanned_by(letters)) != tuple(ranges):
        return f"expected the ranges {list(map(str, expected))} of what it replays, found {list(map(str, ranges))}"
    return None


def taken_twice(mine: Sequence[ReplayedLetters], others: Iterable[ReplayedLetters]) -> list[OffsetRange]:
    """Return the ranges of ``mine`` of which others, or another one of mine, decode letters of the same batch again."""
    by_place: dict[tuple[UUID, TopicPartition], list[ReplayedLetters]] = {}
    for each in (*mine, *others):
        by_place.setdefault((each.batch_id, each.topic_partition), []).append(each)
    return [
        each.offset_range
        for each in mine
        for other in by_place[each.batch_id, each.topic_partition]
        if other is not each and each.causes & other.causes and overlap(each.offset_range, other.offset_range)
    ]


def overlap(one: OffsetRange, other: OffsetRange) -> bool:
    return one.start_offset < other.end_offset and other.start_offset < one.end_offset
