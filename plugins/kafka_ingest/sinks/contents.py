"""What an output shows without control tables: by its rows, by its commits, and by the receipts beside it."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_as_ours
from kafka_ingest.model.gap import Gap, LostRange, RemovalCause
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import Place
from kafka_ingest.model.proof import Evidence, HeldLog, Proof, proof_of
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.usable_places import storage_errors

if TYPE_CHECKING:
    from kafka_ingest.sinks.found_offsets import FoundOffsets


class RowsAndCommits(Protocol):
    """One reading of an output, of a format's own. I/O errors are left to the caller."""

    @property
    def are_newest_states(self) -> bool:
        """Whether a row is the newest state of a key, so that a batch's rows leave with later batches."""

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        """Yield what commits say: the proof of a batch, and the id of a batch whose rows were removed."""

    def add_to(self, found: "FoundOffsets") -> None:
        """Hand in all rows that readers see."""

    def was_published(self, published: PublishedReceipt) -> bool:
        """Whether a batch whose receipt is kept was published, perhaps removed since, or is not yet, or never."""


class OutputContents:
    """Reads an output: a :class:`.Contents`. Rows are of the reading of which the evidence is."""

    def __init__(
        self,
        place: Place,
        receipts: KeptReceipts,
        rows: Callable[[], RowsAndCommits],
        add_late: "Callable[[FoundOffsets], None]" = lambda _: None,
    ) -> None:
        self._place = place
        self._receipts = receipts
        self._read_rows = rows
        self._add_late = add_late

    @cached_property
    def _rows(self) -> RowsAndCommits:
        return self._read_rows()

    def evidence(self) -> Evidence:
        vars(self).pop("_rows", None)
        with storage_errors(self._place):
            return TakenEvidence(self._receipts, self._rows).taken()

    def held(self, evidence: Evidence) -> tuple[Sequence[HeldLog], Sequence[str], int]:
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.found_offsets import FoundOffsets  # noqa: PLC0415

        def topic_id(batch_id: UUID | None, topic: str) -> str | None:
            proof = evidence.proofs.get(batch_id) if batch_id is not None else None
            return proof.topic_ids.get(topic) if proof is not None else None

        found = FoundOffsets()
        with storage_errors(self._place):
            self._rows.add_to(found)
            self._add_late(found)
        return found.held(topic_id), found.problems, found.foreign_rows


@dataclass(slots=True)
class TakenEvidence:
    """What receipts and commits say, taken in one by one."""

    receipts: KeptReceipts
    rows: RowsAndCommits
    proofs: dict[UUID, Proof] = field(default_factory=dict)
    removed: set[UUID] = field(default_factory=set)
    gaps: list[tuple[str | None, OffsetRange]] = field(default_factory=list)
    lost: dict[tuple[UUID, TopicPartition, str], int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unpublished: set[UUID] = field(default_factory=set)

    def taken(self) -> Evidence:
        expired = set(self.receipts.removed_batches())
        for name in sorted(self.receipts.batch_ids()):
            with self._noted(f"the receipt of batch {name}"):
                self._take_receipt(UUID(name), is_marked_removed=name in expired)
        for proof, removed in self.rows.said():
            with self._noted("a commit"):
                self._take_commit(proof, removed)
        lost: Counter[tuple[UUID, TopicPartition]] = Counter()
        for (batch_id, topic_partition, _), rows in self.lost.items():
            lost[batch_id, topic_partition] += rows
        return Evidence(
            self.proofs,
            frozenset(self.removed),
            self.gaps,
            lost,
            self.problems,
            frozenset(self.unpublished),
            self.rows.are_newest_states,
        )

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        try:
            with read_as_ours():
                yield
        except (ForeignJsonError, OutputConflictError) as error:
            self.problems.append(f"{what} cannot be used: {error}")

    def _take_receipt(self, batch_id: UUID, *, is_marked_removed: bool) -> None:
        published = self.receipts.published_receipt(batch_id)
        if published is None:
            return
        self.proofs[batch_id] = proof_of(published.plan, published.receipt, most=None)
        removal = self.receipts.removal(batch_id) if is_marked_removed else None
        if removal is not None and removal.cause is RemovalCause.EXPIRED:
            self.removed.add(batch_id)
        elif not self.rows.was_published(published):
            self.unpublished.add(batch_id)
        for event in published.ledger:
            if event.kind == "gap":
                gaps = map(Gap.from_document, event.detail["gaps"])
                self.gaps += [(each.topic_id, each.offset_range) for each in gaps]
                for each in map(LostRange.from_document, event.detail.get("lost", ())):
                    self.lost[each.batch_id, each.offset_range.topic_partition, each.file] = each.rows

    def _take_commit(self, text: str | None, removed: str | None) -> None:
        if removed is not None:
            self.removed.add(UUID(removed))
        if text is None:
            return
        said = Proof.from_text(text)
        known = self.proofs.setdefault(said.batch_id, said)
        if (known.plan_fingerprint, known.ranges_sha256) != (said.plan_fingerprint, said.ranges_sha256):
            self.problems.append(
                f"batch {said.batch_id}: expected its commit and the receipt beside the output to say the same, found "
                f"{counted(said.rows, 'row')} by plan {said.plan_fingerprint} in the commit, and "
                f"{counted(known.rows, 'row')} by plan {known.plan_fingerprint} in the receipt"
            )
