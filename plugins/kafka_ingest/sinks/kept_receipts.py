"""The receipts that are kept permanently beside an output: one for each published batch, with marks beside them.

A receipt holds all that rebuilds lost control tables: plan, receipt, and where the offsets came from. A mark records
that a batch was revoked, so that it will never be published, or that its files were removed.

Each is in the folder of the day on which its batch's id was made (RFC 9562, version 7), so that the newest are found
without listing the names of years.
"""

import contextlib
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from kafka_ingest.errors import BatchRevokedError, BatchStateError, OutputConflictError
from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.foundation.foreign_json import (
    ENOUGH_BYTES,
    ForeignJsonError,
    moment,
    read_as_ours,
    read_foreign_object,
    said,
    whole,
)
from kafka_ingest.foundation.storage import Opened, flush, names_in, read_at_most, remove_file, write_new, write_whole
from kafka_ingest.model.batch import DATED, BatchPlan, canonical_json, milliseconds_of, require_version
from kafka_ingest.model.gap import Event, Removal, RemovalCause
from kafka_ingest.model.published_output import FoundFiles, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.usable_places import storage_errors

KEPT = ".json"
REVOKED = ".revoked"
REMOVED = ".removed"


class KeptReceipts:
    """The receipts and marks beside one output, in a folder on a disk or elsewhere: a :class:`.ReceiptArchive`.

    ``check_mounted`` raises FileNotFoundError where the storage is not available; ``is_visible``: whether readers see
    anything of a batch. I/O errors of steps of publishing are left to the publisher, who knows whose step failed.
    """

    def __init__(
        self,
        folder: Opened,
        check_mounted: Callable[[], None] = lambda: None,
        is_visible: Callable[[UUID], bool] = lambda _: False,
    ) -> None:
        self.folder = folder
        self._check_mounted = check_mounted
        self._is_visible = is_visible

    def path(self, batch_id: UUID | str) -> Opened:
        return self._place(batch_id, KEPT)

    def batch_ids(self, since: UUID | None = None) -> set[str]:
        """Return the ids of the batches whose receipts are kept, without those that were revoked.

        ``since``: only from this id on. A publisher that lost against a revoking operator may have kept a receipt
        before it noticed.
        """
        least = str(since) if since is not None else ""
        found = self._names(since)
        revoked = {name.removesuffix(REVOKED) for name in found if name.endswith(REVOKED)}
        kept = {name.removesuffix(KEPT) for name in found if name.endswith(KEPT)}
        return {batch_id for batch_id in kept - revoked if batch_id >= least}

    def is_kept(self, batch_id: UUID) -> bool:
        with storage_errors(self.folder):
            return self._is_there(batch_id, KEPT) and not self.is_withdrawn(batch_id)

    def is_of_attempt(self, batch_id: UUID, attempt: int) -> bool:
        kept = self.receipt(batch_id) if self.is_kept(batch_id) else None
        return kept is not None and kept.attempt == attempt

    def published_receipt(self, batch_id: UUID) -> PublishedReceipt | None:
        return self._published(str(batch_id)) if self.is_kept(batch_id) else None

    def published(
        self, names: Iterable[str], found: Callable[[PublishedReceipt, Removal | None], FoundFiles]
    ) -> Iterator[PublishedReceipt]:
        """Yield what is kept of batches, by the names found, with what exists of each now; raises OutputConflictError.

        ``found`` is asked what exists of a batch, and why it was removed where it was.
        """
        for name in names:
            published = self._published(name)
            removal = self.removal(published.plan.batch_id)
            yield replace(published, files=found(published, removal), removal=removal)

    def _published(self, name: str) -> PublishedReceipt:
        path = self.path(name)
        try:
            with storage_errors(path):
                return self._usable(name)
        except ValueError as error:
            raise OutputConflictError(
                f"the output holds batch {name}, expected its receipt in {path}, found that it cannot be used: "
                f"{error}. Restore that file from a backup; without it, it is unknown which offsets the batch holds."
            ) from error

    def _usable(self, name: str) -> PublishedReceipt:
        kept = self._read(UUID(name))
        if kept is None:
            raise ValueError("there is none")
        published = published_of(kept)
        if str(published.plan.batch_id) != name:
            raise ValueError(f"it is of batch {published.plan.batch_id}")
        return published

    def receipt(self, batch_id: UUID) -> Receipt | None:
        with storage_errors(self.folder):
            kept = self._read(batch_id)
        if kept is None:
            return None
        try:
            return Receipt.from_document(kept.get("receipt", {}))
        except ForeignJsonError as error:
            raise OutputConflictError(
                f"{self.path(batch_id)}: expected the receipt of a published batch, found that it cannot be used: "
                f"{error}. Restore it, or move it elsewhere to have it written again."
            ) from error

    def keep(self, published: PublishedReceipt) -> None:
        """Keep a batch's receipt, durably; raises OutputConflictError where another one is kept under its id."""
        batch_id = published.receipt.batch_id
        kept = self._read(batch_id)
        if kept is None:
            path = self.path(batch_id)
            self._make(path.parent)
            with contextlib.suppress(FileExistsError):  # another publisher was faster: compared below
                write_new(path, published_document(published))
                return
            kept = self._read(batch_id) or {}
        flush(self.path(batch_id).parent)  # a publisher that died may have left the name to the system
        # The fingerprint and the receipt identify what was published; another version may have written the rest
        # otherwise.
        if (
            kept.get("plan_fingerprint") != published.plan.fingerprint
            or kept.get("receipt") != published.receipt.as_document()
        ):
            raise OutputConflictError(
                f"batch {batch_id}: {self.path(batch_id)} is the receipt of something else under the same batch id. No "
                "offset was moved; find what else writes to this output, move that file elsewhere and run the commit "
                "again."
            )

    def withdraw(self, batch_id: UUID) -> None:
        """Mark a batch as revoked, finally and durably, even if a receipt is kept now or by a late publisher."""
        mark, kept = self._place(batch_id, REVOKED), self.path(batch_id)
        if not isinstance(mark, Path) or not isinstance(kept, Path):
            # Nothing can be renamed there. What is marked counts as revoked, whatever else is kept of it.
            write_whole(mark, canonical_json(self._read(batch_id) or {}))
            remove_file(kept)
            return
        self._make(mark.parent)
        with contextlib.suppress(FileNotFoundError):
            kept.rename(mark)
        if not self.is_withdrawn(batch_id):
            write_whole(mark, b"")
        sync(mark.parent)

    def note_removal(self, removal: Removal) -> None:
        """Mark a batch as removed, durably; an existing mark is kept, unless it only records missing files."""
        mark = self._place(removal.batch_id, REMOVED)
        with storage_errors(self.folder):
            self._check_mounted()
            known = self._noted_removal(removal.batch_id)
            if known is None or known.is_overruled_by(removal):
                self._make(mark.parent)
                write_whole(mark, canonical_json(removal.as_document()))
            flush(mark.parent)

    def removal(self, batch_id: UUID) -> Removal | None:
        """Return why readers no longer see a published batch, None where they should see it.

        Files that were only found missing may have come back since. Raises OutputConflictError on an unusable mark.
        """
        with storage_errors(self.folder):
            removal = self._noted_removal(batch_id)
            is_back = removal is not None and removal.cause is RemovalCause.GONE and self._is_visible(batch_id)
            return None if is_back else removal

    def _noted_removal(self, batch_id: UUID) -> Removal | None:
        mark = self._place(batch_id, REMOVED)
        try:
            return Removal.from_document(read_foreign_object(read_at_most(mark, ENOUGH_BYTES)))
        except FileNotFoundError:
            return None
        except ForeignJsonError as error:
            raise OutputConflictError(
                f"{mark}: expected who removed batch {batch_id} and why, found that it cannot be used: {error}. "
                "Restore it from a backup; if readers see the batch's files, move the mark elsewhere."
            ) from error

    def removed_batches(self) -> list[str]:
        with storage_errors(self.folder):
            return sorted(name.removesuffix(REMOVED) for name in self._names(None) if name.endswith(REMOVED))

    def is_withdrawn(self, batch_id: UUID) -> bool:
        return self._is_there(batch_id, REVOKED)

    def _make(self, folder: Opened) -> None:
        """Create a day's folder, durably, with the same permissions as its parent."""
        if not isinstance(folder, Path) or folder.is_dir():
            return
        make_directory_durably(folder)
        if folder != self.folder:
            with contextlib.suppress(PermissionError):  # another user made it at the same moment
                folder.chmod(stat.S_IMODE(self.folder.stat().st_mode))

    def _place(self, batch_id: UUID | str, suffix: str) -> Opened:
        name = f"{batch_id}{suffix}"
        day = day_of_name(name)
        return self.folder / name if day is None else self.folder / day / name

    def _is_there(self, batch_id: UUID, suffix: str) -> bool:
        path = self._place(batch_id, suffix)
        try:
            # On other storage only reading tells a missing bucket from a missing file.
            path.stat() if isinstance(path, Path) else read_at_most(path, 1)
        except FileNotFoundError:
            return False
        return True

    def _names(self, since: UUID | None) -> set[str]:
        """Return the names of all files that are kept, of batches from an id on at least."""
        first = day_of(since) if since is not None else None
        is_there = not isinstance(self.folder, Path) or self.folder.exists()
        entries = names_in(self.folder) if is_there else []
        found = set(entries)  # ids without a time have no day
        for day in entries:
            if is_day(day) and (first is None or day >= first):
                found |= set(names_in(self.folder / day))
        return found

    def _read(self, batch_id: UUID) -> dict[str, Any] | None:
        path = self.path(batch_id)
        try:
            return read_foreign_object(read_at_most(path, ENOUGH_BYTES))
        except FileNotFoundError:
            return None
        except ForeignJsonError as error:
            raise OutputConflictError(
                f"{path}: expected the receipt of a published batch, found that it cannot be used: {error}. Receipts "
                "are written atomically, so it was changed; restore it, or move it elsewhere to have it written again."
            ) from error


def day_of(batch_id: UUID) -> str | None:
    """Return the day an id was made, None for an id without a time."""
    if batch_id.version != DATED:
        return None
    try:
        return day_name(datetime.fromtimestamp(milliseconds_of(batch_id) / 1000, UTC))
    except (OverflowError, ValueError):
        return None  # beyond the year 9999


def day_name(when: datetime) -> str:
    return when.strftime("%Y-%m-%d")


def is_day(name: str) -> bool:
    """Whether a name in the folder is a day's."""
    return len(name) == len("2026-01-31") and name[4] == name[7] == "-"


def day_of_name(name: str) -> str | None:
    batch_id, dot, suffix = name.partition(".")
    if dot + suffix not in {KEPT, REVOKED, REMOVED}:
        return None
    try:
        return day_of(UUID(batch_id))
    except ValueError:
        return None


def how_to_abandon(batch_id: UUID) -> str:
    return f"abandon the batch: `kafka-ingest abandon {batch_id} --reason …`, and the next run reads its ranges again"


def being_abandoned(batch_id: UUID) -> BatchRevokedError:
    return BatchRevokedError(
        f"batch {batch_id} is being abandoned: an operator revoked its staged files. Nothing of it is visible and no "
        f"offset was moved. To finish that, {how_to_abandon(batch_id)}."
    )


def published_already(batch_id: UUID) -> BatchStateError:
    return BatchStateError(
        f"batch {batch_id} is published already, so it cannot be abandoned any more: it only rolls forward. Run the "
        "feed, or its commit task, again. Nothing was changed."
    )


PUBLISHED_RECEIPT_VERSION = 1


def published_document(published: PublishedReceipt) -> bytes:
    return canonical_json(
        {
            "version": PUBLISHED_RECEIPT_VERSION,
            "plan_fingerprint": published.plan.fingerprint,
            "plan": published.plan.as_document(),
            "receipt": published.receipt.as_document(),
            "ledger": [
                {"event_id": event.event_id, "kind": event.kind, "at": event.at.isoformat(), "who": event.actor}
                | {"detail": dict(event.detail)}
                for event in published.ledger
            ],
        }
    )


@read_as_ours()
def published_of(document: Mapping[str, Any]) -> PublishedReceipt:
    """Read back what is kept of a published batch; raises ForeignJsonError where it is damaged."""
    require_version(document, PUBLISHED_RECEIPT_VERSION, "published receipt")
    plan = BatchPlan.from_document(document["plan"])
    if plan.fingerprint != document["plan_fingerprint"]:
        raise ValueError(f"expected plan fingerprint {document['plan_fingerprint']}, found {plan.fingerprint}")
    receipt = Receipt.from_document(document["receipt"])
    if problems := receipt.contradictions(plan):
        raise ValueError("; ".join(problems))
    return PublishedReceipt(plan, receipt, list(map(event_of, document["ledger"])))


def event_of(entry: Mapping[str, Any]) -> Event:
    if not isinstance(entry["detail"], dict):
        raise TypeError(f"expected what a line of the journal says as an object, found {str(entry['detail'])[:100]}")
    at = moment(entry, "at")
    return Event(whole(entry, "event_id"), said(entry, "kind"), at, said(entry, "who"), None, entry["detail"])
