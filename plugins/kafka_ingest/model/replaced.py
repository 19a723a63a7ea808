"""What a batch of kind ``replace`` takes the place of: whole ranges of earlier batches."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from kafka_ingest.model.documents import Documented
from kafka_ingest.model.offset_sets import by_partition
from kafka_ingest.model.offsets import OffsetRange, TopicPartition


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
