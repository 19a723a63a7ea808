"""Gaps: intervals of offsets that will not be ingested, or not yet, who or what decided it, and the journal of that."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from kafka_ingest.foundation.foreign_json import read_as_ours, said
from kafka_ingest.model.batch import require_version
from kafka_ingest.model.documents import Documented, document_of, read_document
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition, intersect, subtract


class GapCause(StrEnum):
    """What decided that an interval is passed over."""

    RETENTION = "retention"
    """Kafka deleted the records before they were read, and the feed says ``on_data_loss: record_gap``."""

    SKIPPED = "skipped"
    """An operator decided it."""

    BEHIND = "behind"
    """The feed was behind and prefers fresh records (``skip_to_latest_when_behind``); a backfill can close it."""

    RESET = "reset"
    """An operator moved the stored offset forward; a backfill can close it."""

    OUTPUT_LOST = "output_lost"
    """An operator reported a published file lost or damaged (``kafka-ingest lost``); a backfill can close it."""


DECIDED = frozenset({GapCause.SKIPPED, GapCause.RESET})
"""An operator has decided that these offsets are not read, and why: nothing is left to decide about them."""

ACKNOWLEDGED = "gap_acknowledged"
"""The kind of event by which an operator decides that a gap of another cause stays; its detail holds the gap."""


@dataclass(frozen=True, slots=True)
class NewGap:
    """A gap as it is decided: which offsets, what decided it, and why in a sentence."""

    offset_range: OffsetRange
    cause: GapCause
    reason: str

    def __post_init__(self) -> None:
        if not self.offset_range.span:
            raise ValueError(f"a gap holds at least one offset, found {self.offset_range}")
        if not self.reason.strip():
            raise ValueError(f"a gap needs a reason, found none for {self.offset_range}")


@dataclass(frozen=True, slots=True)
class Gap(Documented):
    """A gap as the control tables hold it. ``applied_at`` is None while it is ahead of the stored offset."""

    gap_id: UUID
    offset_range: OffsetRange
    topic_id: str | None
    cause: GapCause
    reason: str
    decided_by: str
    decided_at: datetime
    applied_at: datetime | None
    closed_by_batch: UUID | None = None

    @property
    def state(self) -> str:
        """``ahead`` of the stored offset, ``open``, or ``closed`` by a batch that read it after all."""
        if self.closed_by_batch is not None:
            return "closed"
        return "open" if self.applied_at is not None else "ahead"

    @property
    def is_open(self) -> bool:
        """Whether the stored offset has passed it and no batch has read it since."""
        return self.applied_at is not None and self.closed_by_batch is None

    def is_decided(self, acknowledged: Iterable["Gap"]) -> bool:
        """Whether an operator has decided that it stays: by its cause, or as part of a gap that was acknowledged."""
        return self.cause in DECIDED or any(
            each.topic_id == self.topic_id and not subtract([self.offset_range], [each.offset_range])
            for each in acknowledged
        )

    @property
    def decision(self) -> tuple[TopicPartition, datetime, str]:
        """What all pieces of one gap share: where, when and by whom it was decided."""
        return self.offset_range.topic_partition, self.decided_at, self.decided_by

    def read_by(self, batch_id: UUID, ranges: Collection[OffsetRange]) -> list["Gap"]:
        """Return the pieces of an open gap after a backfill commits ranges; those that were read are closed.

        A gap that was partly read is split; the ids of the pieces derive from its id, so the same split gives the same
        ids.
        """
        span = [self.offset_range]
        read, left = intersect(span, ranges), subtract(span, ranges)
        if not read:
            return [self]
        if not left:
            return [replace(self, closed_by_batch=batch_id)]
        pieces = [(piece, batch_id) for piece in read] + [(piece, None) for piece in left]
        return [
            replace(self, gap_id=uuid5(self.gap_id, str(piece)), offset_range=piece, closed_by_batch=closed_by)
            for piece, closed_by in sorted(pieces, key=lambda each: each[0])
        ]

    def below(self, offset: int) -> "Gap | None":
        """Return what remains of an open gap when the stored offset moves back to ``offset``: the part below it."""
        span = self.offset_range
        if span.end_offset <= offset:
            return self
        if span.start_offset >= offset:
            return None
        piece = OffsetRange(span.topic_partition, span.start_offset, offset)
        return replace(self, gap_id=uuid5(self.gap_id, str(piece)), offset_range=piece)


@dataclass(frozen=True, slots=True)
class Jump:
    """A stored offset passes over gaps without reading: over new ones, and over those that were filed ahead of it."""

    topic_partition: TopicPartition
    from_offset: int
    to_offset: int
    gaps: tuple[NewGap, ...] = ()
    passed: tuple[Gap, ...] = ()


def ended_gaps(
    gaps: Collection[Gap], was: Collection[StoredOffset], now: Collection[StoredOffset]
) -> dict[UUID, Gap | None]:
    """Return the open gaps that end where stored offsets moved back, by id: their offsets are read after all.

    Each with what remains of it below the new stored offset, None for nothing. Only within the same topic id: a smaller
    offset of another topic means nothing.
    """
    before = {(row.topic_partition, row.topic_id): row.next_offset for row in was}
    back = {
        (row.topic_partition, row.topic_id): row.next_offset
        for row in now
        if row.next_offset is not None
        and (old := before.get((row.topic_partition, row.topic_id))) is not None
        and row.next_offset < old
    }
    ended: dict[UUID, Gap | None] = {}
    for gap in gaps:
        offset = back.get((gap.offset_range.topic_partition, gap.topic_id))
        if offset is not None and gap.is_open and (left := gap.below(offset)) != gap:
            ended[gap.gap_id] = left
    return ended


REMOVAL_VERSION = 1


class RemovalCause(StrEnum):
    """Why readers see nothing of a batch that was published."""

    EXPIRED = "expired"
    """An operator expired it (``kafka-ingest expire``)."""

    GONE = "gone"
    """Its files were missing when lost control tables were rebuilt (``kafka-ingest adopt``)."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A published batch that readers no longer see. Its receipt stays, so its offsets stay committed."""

    batch_id: UUID
    cause: RemovalCause
    at: datetime
    actor: str
    reason: str

    def __str__(self) -> str:
        what = "expired" if self.cause is RemovalCause.EXPIRED else "found gone"
        return f"{what} on {self.at:%Y-%m-%d} by {self.actor}: {self.reason}"

    def is_overruled_by(self, later: "Removal") -> bool:
        """Whether another mark replaces this one: missing files may come back, and expire then."""
        return self.cause is RemovalCause.GONE and later.cause is RemovalCause.EXPIRED

    def as_document(self) -> dict[str, Any]:
        found = document_of(self, "batch_id", "cause", "at", "reason")
        return {"version": REMOVAL_VERSION, **found, "who": self.actor}

    @classmethod
    @read_as_ours()
    def from_document(cls, document: Mapping[str, Any]) -> "Removal":
        """Read a removal back; raises ForeignJsonError where it is damaged or of another version."""
        require_version(document, REMOVAL_VERSION, "removal")
        return read_document(cls, document, actor=said(document, "who"))


@dataclass(frozen=True, slots=True)
class RemovedRange:
    """An interval of a topic whose records were committed, then some or all removed from the output on purpose."""

    offset_range: OffsetRange
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class LostRange(Documented):
    """The records of one partition in a published file that was lost or damaged.

    ``offset_range`` reaches from the smallest to the largest offset in the batch's receipt; it contains ``rows``.
    """

    batch_id: UUID
    file: str
    offset_range: OffsetRange
    topic_id: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the audit journal."""

    event_id: int
    kind: str
    at: datetime
    actor: str
    batch_id: UUID | None
    detail: Mapping[str, Any]
