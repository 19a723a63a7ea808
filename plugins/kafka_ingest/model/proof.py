"""What a commit says of itself, where the output's own readers look: a stranger can check the rows against it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from uuid import UUID

from kafka_ingest.foundation.foreign_json import read_as_ours, read_foreign_object, said, whole
from kafka_ingest.model.batch import BatchKind, BatchPlan, canonical_json, ids_of, require_version, sha256
from kafka_ingest.model.documents import document_of, read_document
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.receipt import RangeCount, Receipt

PROOF_VERSION = 1
MOST_BYTES = 6_000
"""Of a proof's text, which lists nothing where it would be longer; topic names are up to 249 characters long."""
MOST_LISTED = 100
"""Of more ranges a proof has their number, sums and digest; the receipt beside the output has all."""
COLUMNS = ("partition", "start_offset", "end_offset", "rows", "dead_letters", "filtered", "invisible")
"""What the numbers of a range are, in their order."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What one batch has put into an output.

    ``ranges`` are those that it has read, with what was written of them, and ``replaces`` the batches and partitions
    whose rows it has taken the place of; both are None where they are more than a proof lists. ``ranges_sha256`` is
    the digest of all ranges, listed or not.
    """

    batch_id: UUID
    kind: BatchKind
    plan_fingerprint: str
    cluster_id: str
    topic_ids: Mapping[str, str | None]
    ranges: Sequence[RangeCount] | None
    ranges_sha256: str
    range_count: int
    rows: int
    dead_letters: int
    filtered: int
    invisible: int
    replaces: Sequence[tuple[UUID, TopicPartition]] | None = ()
    late_rows: int = 0
    """How many of the rows are late, in a dataset of their own."""

    def as_document(self) -> dict[str, Any]:
        """Return the proof as JSON-able data, with its format version."""
        names = ("batch_id", "kind", "plan_fingerprint", "cluster_id", "topic_ids", "ranges_sha256", "range_count")
        document = document_of(self, *names, "rows", "dead_letters", "filtered", "invisible")
        document["version"] = PROOF_VERSION
        document |= {"late_rows": self.late_rows} if self.late_rows else {}
        if self.ranges is not None:
            document |= {"columns": list(COLUMNS), "ranges": by_topic(self.ranges)}
        if self.replaces is None:
            document["replaces"] = None
        elif self.replaces:
            document["replaces"] = [[str(batch), tp.topic, tp.partition] for batch, tp in self.replaces]
        return document

    def as_text(self) -> str:
        """Return the proof as a commit keeps it: canonical JSON on one line."""
        return canonical_json(self.as_document()).decode()

    @classmethod
    @read_as_ours()
    def from_document(cls, document: Mapping[str, Any]) -> "Proof":
        """Read a proof back, whatever else is in it; raises ForeignJsonError where it cannot be used."""
        require_version(document, PROOF_VERSION, "proof")
        listed, replaced = document.get("ranges"), document.get("replaces", ())
        found = read_document(
            cls,
            document,
            topic_ids=ids_of(document["topic_ids"]),
            ranges=None if listed is None else tuple(ranges_of(listed)),
            replaces=None if replaced is None else tuple(map(replaced_of, replaced)),
        )
        if found.ranges is not None and digest_of(found.ranges) != found.ranges_sha256:
            raise ValueError(f"expected ranges with SHA-256 {found.ranges_sha256}, found {digest_of(found.ranges)}")
        return found

    @classmethod
    def from_text(cls, text: str) -> "Proof":
        """Read a proof back from a commit; raises ForeignJsonError as :meth:`from_document` does."""
        return cls.from_document(read_foreign_object(text))


def proof_of(plan: BatchPlan, receipt: Receipt, *, most: int | None = MOST_LISTED) -> Proof:
    """Return what a batch's commit says of itself; ``most``: how many ranges are listed at most, None: all."""
    counts = receipt.range_counts(plan)
    replaces = sorted((each.batch_id, each.topic_partition) for each in plan.replaces)

    def fits(found: Sized) -> bool:
        return most is None or len(found) <= most

    proof = Proof(
        batch_id=plan.batch_id,
        kind=plan.kind,
        plan_fingerprint=plan.fingerprint,
        cluster_id=plan.cluster_id,
        topic_ids=plan.topic_ids if fits(plan.topic_ids) else {},
        ranges=tuple(counts) if fits(counts) else None,
        ranges_sha256=digest_of(counts),
        range_count=len(counts),
        rows=sum(each.rows for each in counts),
        dead_letters=sum(each.dead_letters for each in counts),
        filtered=sum(each.filtered for each in counts),
        invisible=sum(each.invisible for each in counts),
        replaces=tuple(replaces) if fits(replaces) else None,
        late_rows=receipt.late_rows,
    )
    if most is None or len(proof.as_text()) <= MOST_BYTES:
        return proof
    return replace(proof, topic_ids={}, ranges=None, replaces=None if replaces else ())


def by_topic(counts: Iterable[RangeCount]) -> dict[str, list[list[int]]]:
    """Return ranges by their topic, each as the numbers of :data:`COLUMNS`."""
    found: dict[str, list[list[int]]] = {}
    for each in counts:
        span = each.offset_range
        numbers = [span.partition, span.start_offset, span.end_offset]
        numbers += [each.rows, each.dead_letters, each.filtered, each.invisible]
        found.setdefault(span.topic, []).append(numbers)
    return found


def digest_of(counts: Iterable[RangeCount]) -> str:
    """Return the SHA-256 of the ranges as a proof lists them, in canonical JSON."""
    return sha256(canonical_json(by_topic(counts)))


def ranges_of(listed: Mapping[str, Any]) -> Iterable[RangeCount]:
    """Read the ranges of a proof back, without the smallest and the largest offset, which it does not say."""
    for topic, ranges in listed.items():
        for numbers in ranges:
            named = dict(zip(COLUMNS, numbers, strict=False))
            partition, start, end, rows, dead_letters, filtered = (whole(named, name) for name in COLUMNS[:-1])
            span = OffsetRange(TopicPartition(topic, partition), start, end)
            yield RangeCount(span, rows, None, None, dead_letters, filtered)


def replaced_of(entry: Sequence[Any]) -> tuple[UUID, TopicPartition]:
    named = dict(zip(("batch_id", "topic", "partition"), entry, strict=False))
    return UUID(said(named, "batch_id")), TopicPartition.from_document(named)


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
