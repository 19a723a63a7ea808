"""A batch: its plan, the states it goes through, and the attempts at writing it."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

from kafka_ingest.errors import BatchStateError
from kafka_ingest.foundation.foreign_json import read_as_ours, said, said_or_none, whole
from kafka_ingest.model.decoding import RAW, Decoding
from kafka_ingest.model.documents import document_of, read_document
from kafka_ingest.model.offsets import Isolation, OffsetRange, OffsetsPolicy, TopicPartition
from kafka_ingest.model.omissions import LeftOut, ranges_read
from kafka_ingest.model.partition_term import LateRows, PartitionTerm, terms_of
from kafka_ingest.model.place import OutputLocation, Place, place_of
from kafka_ingest.model.read_again import ReplacedRange, ReplayedLetters, why_no_replacement, why_no_replay

DATED = 7
"""The version of the ids that contain a time."""

BELOW_TIMESTAMP = 80  # bits


def milliseconds_of(dated_id: UUID) -> int:
    """Return when an id was made, in milliseconds since 1970."""
    return dated_id.int >> BELOW_TIMESTAMP


NOBODY = UUID(int=0)
"""The feed of a batch that no control table knows: a preview's."""

PLAN_VERSION = 1
DOCUMENT_VERSION = 8
"""The format version of the attempt's document: what has written it reads it, inside Spark."""


class BatchKind(StrEnum):
    """What a batch is to its feed. Only a live one moves stored offsets."""

    LIVE = "live"
    """Reads on from the stored offsets."""

    BACKFILL = "backfill"
    """Reads offsets below the stored ones that no batch has committed, into the feed's own output."""

    COPY = "copy"
    """Reads any offsets into another output; to the feed's own it means nothing."""

    REPLACE = "replace"
    """Reads ranges of committed batches again, and takes their rows' place in the feed's own output.

    Their offsets stay committed by those batches.
    """

    REPLAY = "replay"
    """Decodes dead letters of committed batches again, from their files, into the feed's own output.

    Their offsets stay committed by those batches. Kafka is not asked.
    """

    @property
    def reads_kafka(self) -> bool:
        """Whether its records come from Kafka, so that Kafka has to have them still, under the same topic ids."""
        return self is not BatchKind.REPLAY

    @property
    def commits_offsets(self) -> bool:
        """Whether its ranges count as committed: each offset once."""
        return self in {BatchKind.LIVE, BatchKind.BACKFILL}


class BatchState(StrEnum):
    """How far a batch has come between its plan and the stored offsets."""

    PLANNED = "PLANNED"
    WRITTEN = "WRITTEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABANDONED = "ABANDONED"

    @property
    def is_open(self) -> bool:
        """Whether the batch still holds its feed: at most one live batch is open (invariant 2)."""
        return self in OPEN_STATES


OPEN_STATES = frozenset({BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING})

ABANDONABLE = frozenset({BatchState.PLANNED, BatchState.WRITTEN})
"""The states in which a batch can be abandoned without revoking it: none of it was visible yet."""

TRANSITIONS: Mapping[BatchState, frozenset[BatchState]] = {
    BatchState.PLANNED: frozenset({BatchState.WRITTEN, BatchState.ABANDONED}),
    BatchState.WRITTEN: frozenset({BatchState.PLANNED, BatchState.COMMITTING, BatchState.ABANDONED}),
    BatchState.COMMITTING: frozenset({BatchState.COMMITTED, BatchState.ABANDONED}),
    BatchState.COMMITTED: frozenset(),
    BatchState.ABANDONED: frozenset(),
}


ADOPTIONS: Mapping[BatchState, frozenset[BatchState]] = {
    state: frozenset({BatchState.COMMITTED}) - {state} for state in BatchState
}
"""What adopting does to a batch that the output holds, from any state that older control tables have for it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of a batch's state that its table allows; any other raises BatchStateError."""

    batch_id: UUID
    found: BatchState
    to: BatchState
    table: Mapping[BatchState, frozenset[BatchState]] = field(default_factory=lambda: TRANSITIONS, repr=False)

    def __post_init__(self) -> None:
        if self.to not in self.table[self.found]:
            origins = sorted(state for state, targets in self.table.items() if self.to in targets)
            raise BatchStateError(
                f"batch {self.batch_id} cannot become {self.to}: expected it to be {' or '.join(origins)}, found "
                f"{self.found}. Nothing was changed; `kafka-ingest batches --json` shows who changed it first."
            )


class AttemptState(StrEnum):
    """Whether an attempt's receipt may still be taken."""

    OPEN = "OPEN"
    PINNED = "PINNED"
    DISCARDED = "DISCARDED"


@dataclass(frozen=True)
class BatchPlan:
    """What a batch reads and where it writes: durable before the first record is read, never changed (invariant 1)."""

    batch_id: UUID
    kind: BatchKind
    feed_id: UUID
    feed_name: str
    cluster_id: str
    topic_ids: Mapping[str, str | None]
    ranges: tuple[OffsetRange, ...]
    isolation: Isolation
    offsets_policy: OffsetsPolicy
    output: OutputLocation
    planned_at: datetime
    capped: bool = False
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    folded: str | None = None
    """The plan's fingerprint once its ranges are folded; then only the receipt beside the output has them."""
    replaces: tuple[ReplacedRange, ...] = ()
    """The ranges of earlier batches whose rows a batch of kind ``replace`` takes the place of; of any other, none."""
    replays: tuple[ReplayedLetters, ...] = ()
    """The dead letters of earlier batches that a batch of kind ``replay`` decodes again; of any other, none."""

    def __post_init__(self) -> None:
        if not self.ranges and self.folded is None:
            raise ValueError("a batch has at least one range, found none")
        if self.ranges and self.folded is not None:
            raise ValueError(f"a batch that is folded has no ranges, found {len(self.ranges)}")
        if any(not offset_range.span for offset_range in self.ranges):
            raise ValueError("a batch has no empty ranges; leave them out")
        partitions = [offset_range.topic_partition for offset_range in self.ranges]
        if partitions != sorted(set(partitions)):
            raise ValueError("a batch's ranges are sorted, one per partition")
        if missing := {offset_range.topic for offset_range in self.ranges} - set(self.topic_ids):
            raise ValueError(f"a plan names the topic id of each topic, missing: {sorted(missing)}")
        if self.kind is not BatchKind.REPLACE and self.replaces:
            raise ValueError(f"only a batch of kind replace replaces ranges, found kind {self.kind}")
        if self.kind is BatchKind.REPLACE and (problem := why_no_replacement(self.ranges, self.replaces)):
            raise ValueError(problem)
        if self.kind is not BatchKind.REPLAY and self.replays:
            raise ValueError(f"only a batch of kind replay replays dead letters, found kind {self.kind}")
        if self.kind is BatchKind.REPLAY and (problem := why_no_replay(self.ranges, self.replays)):
            raise ValueError(problem)

    @property
    def max_rows(self) -> int:
        """How many records it can have at most; of ranges of Kafka compaction and transactions make it fewer."""
        if self.replays:
            return sum(each.number for each in self.replays)
        return sum(offset_range.span for offset_range in self.ranges)

    def without_ranges(self) -> "BatchPlan":
        """Return what the control tables keep of a folded plan: everything but what grows with its partitions."""
        return replace(self, ranges=(), topic_ids={}, leader_epochs={}, folded=self.fingerprint)

    def as_document(self) -> dict[str, Any]:
        """Return the plan as JSON-able data, with its format version."""
        # Only where there is one: other plans keep the form, and so the fingerprint, that earlier versions gave them.
        rare = [name for name in ("folded", "replaces", "replays") if getattr(self, name)]
        return document_of(self, *rare, "batch_id", "kind", "cluster_id", "isolation", "capped", "planned_at") | {
            "version": PLAN_VERSION,
            "feed": {"feed_id": str(self.feed_id), "name": self.feed_name},
            "topic_ids": dict(sorted(self.topic_ids.items())),
            "ranges": [
                {
                    **offset_range.as_document(),
                    "leader_epoch": self.leader_epochs.get(offset_range.topic_partition),
                }
                for offset_range in self.ranges
            ],
            "offsets": self.offsets_policy.value,
            "sink": self.output.as_document(),
        }

    @classmethod
    @read_as_ours()
    def from_document(cls, document: Mapping[str, Any]) -> "BatchPlan":
        """Read a plan back; raises ForeignJsonError where it is damaged or of another version."""
        require_version(document, PLAN_VERSION, "plan")
        ranges: list[OffsetRange] = []
        leader_epochs: dict[TopicPartition, int] = {}
        for entry in document["ranges"]:
            ranges.append(OffsetRange.from_document(entry))
            if entry["leader_epoch"] is not None:
                leader_epochs[ranges[-1].topic_partition] = whole(entry, "leader_epoch")
        return read_document(
            cls,
            document,
            feed_id=UUID(said(document["feed"], "feed_id")),
            feed_name=said(document["feed"], "name"),
            topic_ids=ids_of(document["topic_ids"]),
            ranges=tuple(ranges),
            offsets_policy=OffsetsPolicy(document["offsets"]),
            output=OutputLocation.from_document(document["sink"]),
            leader_epochs=leader_epochs,
        )

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the plan's canonical JSON: a document that carries it belongs to this plan."""
        return self.folded or sha256(canonical_json(self.as_document()))


@dataclass(frozen=True, slots=True)
class DataNeeds:
    """What a sink needs of an attempt's data files before they can be published.

    ``place`` is the absolute directory where they must be written, None where the attempt's directory will do.
    ``batch_column``: each row carries its batch's id in ``kafka_batch``, because readers cannot take it from a path.
    ``without``: columns of the raw format that are not written. ``partition_by``: each file holds one partition of a
    table; with ``own_columns`` the values of terms that are no columns are written in columns of their own. ``late``:
    which rows are divided from the others besides, above all other folders.
    """

    place: Place | None = None
    batch_column: bool = False
    without: tuple[str, ...] = ()
    partition_by: tuple[PartitionTerm, ...] = ()
    own_columns: bool = False
    late: LateRows | None = None

    def __post_init__(self) -> None:
        if isinstance(self.place, Path) and not self.place.is_absolute():
            raise ValueError(f"expected an absolute directory for data files, found {self.place}")

    def as_document(self) -> dict[str, Any]:
        late = None if self.late is None else document_of(self.late, "first", "before")
        return document_of(self) | {"partition_by": list(map(str, self.partition_by)), "late": late}

    @property
    def terms(self) -> tuple[PartitionTerm, ...]:
        """All that rows are divided by, the outermost folder first."""
        return self.partition_by if self.late is None else (self.late, *self.partition_by)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "DataNeeds":
        late = read_document(LateRows, document["late"]) if document["late"] else None
        return read_document(cls, document, partition_by=terms_of(document["partition_by"]), late=late)


@dataclass(frozen=True, slots=True)
class AttemptDocument:
    """What Spark receives: the plan, which attempt this is, what records become, and where the data goes.

    Frozen when the attempt is opened. ``letters`` are the files of dead letters that a replay reads, by the batches
    that published them. ``columns``: those of decoded rows, for the receipt; None where they are not known beforehand.
    """

    plan: BatchPlan
    attempt: int
    decode: Decoding = RAW
    data: DataNeeds = DataNeeds()
    letters: Mapping[UUID, tuple[Place, ...]] = field(default_factory=dict)
    columns: Mapping[str, str] | None = None

    def as_bytes(self) -> bytes:
        return canonical_json(
            document_of(self) | {"version": DOCUMENT_VERSION, "plan_fingerprint": self.plan.fingerprint}
        )

    @classmethod
    def from_bytes(cls, content: bytes, expected_sha256: str) -> "AttemptDocument":
        """Read a document back; raises ValueError where it is not the one that was written for this attempt."""
        if (found := sha256(content)) != expected_sha256:
            raise ValueError(f"expected an attempt document with SHA-256 {expected_sha256}, found {found}")
        document = json.loads(content)
        require_version(document, DOCUMENT_VERSION, "attempt document")
        files: Mapping[str, list[str]] = document["letters"]
        letters = {UUID(batch_id): tuple(map(place_of, names)) for batch_id, names in files.items()}
        read = read_document(cls, document, letters=letters)
        if read.as_bytes() != content:  # a default in place of what is missing would be written somewhere else
            raise ValueError("expected an attempt document with all that it freezes, found one that lacks some")
        return read


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at writing a batch, with its directory."""

    batch_id: UUID
    attempt: int
    state: AttemptState
    directory: Place
    document_sha256: str
    opened_at: datetime
    opened_by: str
    receipt_sha256: str | None = None
    reason: str | None = None
    cleaned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the control tables hold it now. ``feed_name`` is the feed's current name; the plan's may be older.

    ``left_out`` are the planned ranges that the pinned receipt leaves out.
    """

    feed_name: str
    plan: BatchPlan
    state: BatchState
    planned_by: str
    updated_at: datetime
    pinned_attempt: int | None = None
    committed_at: datetime | None = None
    committed_by: str | None = None
    reason: str | None = None
    abandoned_by: str | None = None
    rows: int | None = None
    size_bytes: int | None = None
    left_out: tuple[LeftOut, ...] = ()

    @property
    def ranges_read(self) -> tuple[OffsetRange, ...]:
        """The planned ranges that the batch reads or has read: all, unless its pinned receipt leaves some out."""
        return ranges_read(self.plan.ranges, self.left_out)

    @property
    def batch_id(self) -> UUID:
        return self.plan.batch_id

    @property
    def end(self) -> str:
        """How an ended batch ended, by whom and why, for a message."""
        if self.state is BatchState.ABANDONED:
            return f"was abandoned by {self.abandoned_by or 'an earlier version'} ({self.reason})"
        return f"was committed by {self.committed_by}"


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return a document's canonical JSON: sorted keys, no spaces, UTF-8; a lone surrogate is written as its escape."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="backslashreplace")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def ids_of(document: Mapping[str, str | None]) -> Mapping[str, str | None]:
    return {topic: said_or_none(document, topic) for topic in document}


def require_version(document: Mapping[str, Any], supported: int | Collection[int], what: str) -> None:
    """Raise ValueError unless the document's format version is the supported one, or one of them."""
    found = document.get("version")
    versions = [supported] if isinstance(supported, int) else sorted(supported)
    if found not in versions:
        raise ValueError(
            f"expected a {what} of format version {' or '.join(map(str, versions))}, found {found!r}; "
            "it was written by another version of kafka_ingest"
        )
