"""The receipts that are kept for ever beside an output: one for each batch that was published, a mark for each revoked one."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from kafka_ingest.boundaries import PublishedReceipt
from kafka_ingest.durable_files import make_directory_durably, sync, write_durably
from kafka_ingest.errors import OutputConflictError
from kafka_ingest.receipt import Receipt
from kafka_ingest.sinks.published_document import published_document, published_of

KEPT = ".json"
REVOKED = ".revoked"


class KeptReceipts:
    """A folder of receipts. I/O errors are left to the caller, who knows whose step failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, batch_id: UUID | str) -> Path:
        """Return where a batch's receipt is kept."""
        return self.folder / f"{batch_id}{KEPT}"

    def batch_ids(self) -> set[str]:
        """Return the ids of the batches whose receipts are kept, without those that were revoked.

        A publisher that lost against a revoking operator may have kept a receipt before it noticed.
        """
        # Not glob: it takes a folder that cannot be read for an empty one.
        found = list(self.folder.iterdir()) if self.folder.exists() else []
        revoked = {path.stem for path in found if path.suffix == REVOKED}
        return {path.stem for path in found if path.suffix == KEPT} - revoked

    def is_kept(self, batch_id: UUID) -> bool:
        """Whether a receipt of the batch is kept."""
        try:
            return bool(self.path(batch_id).stat())
        except FileNotFoundError:
            return False

    def published(self, batch_id: str) -> PublishedReceipt:
        """Return what is kept of a batch; raises ValueError, KeyError, TypeError or AttributeError where it cannot be used."""
        kept = self._read(UUID(batch_id))
        if kept is None:
            raise ValueError("there is none")
        published = published_of(kept)
        if str(published.plan.batch_id) != batch_id:
            raise ValueError(f"it is of batch {published.plan.batch_id}")
        return published

    def receipt(self, batch_id: UUID) -> Receipt | None:
        """Return a batch's receipt, None where none is kept; raises OutputConflictError where it cannot be used."""
        kept = self._read(batch_id)
        if kept is None:
            return None
        try:
            return Receipt.from_document(kept["receipt"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OutputConflictError(
                f"{self.path(batch_id)}: expected the receipt of a published batch, found that it cannot be used: {error!r}. "
                "Restore it, or move it away to have it written again."
            ) from error

    def keep(self, published: PublishedReceipt) -> None:
        """Keep a batch's receipt, durably; raises OutputConflictError where another one is kept under its id."""
        batch_id = published.receipt.batch_id
        kept = self._read(batch_id)
        if kept is None:
            write_durably(self.path(batch_id), published_document(published))
            return
        sync(self.folder)  # a publisher that died may have left the name to the system
        # The fingerprint and the receipt say what was published; the rest may be another version's way to write it down.
        if (
            kept.get("plan_fingerprint") != published.plan.fingerprint
            or kept.get("receipt") != published.receipt.as_document()
        ):
            raise OutputConflictError(
                f"batch {batch_id}: {self.path(batch_id)} is the receipt of something else under the same batch id. No "
                "offset was moved; find out who else writes to this output, move that file away and run the commit again."
            )

    def withdraw(self, batch_id: UUID) -> None:
        """Mark a batch as revoked, for ever and durably, whatever receipt of it is kept, now or by somebody who comes late."""
        make_directory_durably(self.folder)
        mark = self._mark(batch_id)
        try:
            self.path(batch_id).rename(mark)
        except FileNotFoundError:
            if not mark.exists():
                write_durably(mark, b"")
        sync(self.folder)

    def is_withdrawn(self, batch_id: UUID) -> bool:
        """Whether a batch was marked as revoked."""
        return self._mark(batch_id).exists()

    def _mark(self, batch_id: UUID) -> Path:
        return self.folder / f"{batch_id}{REVOKED}"

    def _read(self, batch_id: UUID) -> dict[str, Any] | None:
        path = self.path(batch_id)
        try:
            kept = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise OutputConflictError(
                f"{path}: expected the receipt of a published batch, found no JSON ({error}). Receipts are written whole, so "
                "somebody changed it; restore it, or move it away to have it written again."
            ) from error
        if not isinstance(kept, dict):
            raise OutputConflictError(
                f"{path}: expected the receipt of a published batch, found {type(kept).__name__}. Somebody changed it; restore "
                "it, or move it away to have it written again."
            )
        return kept
