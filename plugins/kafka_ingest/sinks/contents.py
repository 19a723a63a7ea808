"""What an output shows without control tables: by its rows, by its commits, and by the receipts beside it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_as_ours
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.held_log import Evidence, HeldLog
from kafka_ingest.model.place import Place
from kafka_ingest.model.proof import Proof, proof_of
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.removal import LostRange, RemovalCause
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.storage_errors import storage_errors

if TYPE_CHECKING:
    from kafka_ingest.model.offsets import OffsetRange, TopicPartition
    from kafka_ingest.sinks.found_offsets import FoundOffsets


class RowsAndCommits(Protocol):
    """One reading of an output, of a format's own. I/O errors are left to the caller."""

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        """Yield what commits say: the proof of a batch, and the id of a batch whose rows were removed."""

    def add_to(self, found: "FoundOffsets") -> None:
        """Hand in all rows that readers see."""

    def was_published(self, published: PublishedReceipt) -> bool:
        """Whether a batch whose receipt is kept was published, perhaps removed since, or is not yet, or never."""


class OutputContents:
    """Reads an output: a :class:`.Contents`."""

    def __init__(self, place: Place, receipts: KeptReceipts, rows: Callable[[], RowsAndCommits]) -> None:
        self._place = place
        self._receipts = receipts
        self._make_rows = rows
        self._proofs: dict[UUID, Proof] = {}
        self._removed: set[UUID] = set()
        self._gaps: list[tuple[str | None, OffsetRange]] = []
        self._lost: dict[tuple[UUID, TopicPartition, str], int] = {}
        self._problems: list[str] = []
        self._unpublished: set[UUID] = set()

    @cached_property
    def _rows(self) -> RowsAndCommits:
        return self._make_rows()

    def evidence(self) -> Evidence:
        """Return what the output says of itself; what cannot be used of it is among the problems."""
        with storage_errors(self._place):
            expired = set(self._receipts.removed_batches())
            for name in sorted(self._receipts.batch_ids()):
                with self._noted(f"the receipt of batch {name}"):
                    self._take_receipt(UUID(name), is_marked_removed=name in expired)
            for proof, removed in self._rows.said():
                with self._noted("a commit"):
                    self._take_commit(proof, removed)
        lost: dict[tuple[UUID, TopicPartition], int] = {}
        for (batch_id, topic_partition, _), rows in self._lost.items():
            lost[batch_id, topic_partition] = lost.get((batch_id, topic_partition), 0) + rows
        return Evidence(
            self._proofs, frozenset(self._removed), self._gaps, lost, self._problems, frozenset(self._unpublished)
        )

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        try:
            with read_as_ours():
                yield
        except (ForeignJsonError, OutputConflictError) as error:
            self._problems.append(f"{what} cannot be used: {error}")

    def _take_receipt(self, batch_id: UUID, *, is_marked_removed: bool) -> None:
        published = self._receipts.published_receipt(batch_id)
        if published is None:
            return
        self._proofs[batch_id] = proof_of(published.plan, published.receipt, most=None)
        removal = self._receipts.removal(batch_id) if is_marked_removed else None
        if removal is not None and removal.cause is RemovalCause.EXPIRED:
            self._removed.add(batch_id)
        elif not self._rows.was_published(published):
            self._unpublished.add(batch_id)
        for event in published.ledger:
            if event.kind == "gap":
                gaps = map(Gap.from_document, event.detail["gaps"])
                self._gaps += [(each.topic_id, each.offset_range) for each in gaps]
                for each in map(LostRange.from_document, event.detail.get("lost", ())):
                    self._lost[each.batch_id, each.offset_range.topic_partition, each.file] = each.rows

    def _take_commit(self, text: str | None, removed: str | None) -> None:
        if removed is not None:
            self._removed.add(UUID(removed))
        if text is None:
            return
        said = Proof.from_text(text)
        known = self._proofs.setdefault(said.batch_id, said)
        if (known.plan_fingerprint, known.ranges_sha256) != (said.plan_fingerprint, said.ranges_sha256):
            self._problems.append(
                f"batch {said.batch_id}: expected its commit and the receipt beside the output to say the same, found "
                f"{counted(said.rows, 'row')} by plan {said.plan_fingerprint} in the commit, and "
                f"{counted(known.rows, 'row')} by plan {known.plan_fingerprint} in the receipt"
            )

    def held(self, evidence: Evidence) -> tuple[Sequence[HeldLog], Sequence[str], int]:
        """Return what all rows hold, which files cannot be read, and how many rows have no position."""
        # A third of a second for pyarrow, which only a count should pay.
        from kafka_ingest.sinks.found_offsets import FoundOffsets  # noqa: PLC0415

        def topic_id(batch_id: UUID | None, topic: str) -> str | None:
            proof = evidence.proofs.get(batch_id) if batch_id is not None else None
            return proof.topic_ids.get(topic) if proof is not None else None

        found = FoundOffsets()
        with storage_errors(self._place):
            self._rows.add_to(found)
        return found.held(topic_id), found.problems, found.foreign_rows
