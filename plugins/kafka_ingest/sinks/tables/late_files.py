"""Late rows of a table or a topic: Parquet files beside it, laid out as those of a directory of Parquet files are.

Spark stages them with the others, and one receipt names both. The commit that decides has the others alone. Just before
it late rows are copied to where no clean-up of the table takes them, and they become visible right after it::

    P.kafka-ingest/staging/<batch>/<attempt>/data.late/    until they are visible; in a store until it is removed
    P_late/kafka_batch=<batch>/kafka_late=true/            visible
"""

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError
from kafka_ingest.foundation.storage import (
    Opened,
    copy_file,
    files_below,
    flush,
    is_folder,
    make_folder,
    names_in,
    opened,
    remove_tree,
)
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.partition_term import SUFFIX, is_late
from kafka_ingest.model.place import Place
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.batch_folders import PUBLISHED, sizes_in
from kafka_ingest.sinks.staged_files import DATA_LATE, difference, folders_in
from kafka_ingest.sinks.tables.table_format import folder_of_table
from kafka_ingest.sinks.usable_places import make_usable, storage_errors

if TYPE_CHECKING:
    from kafka_ingest.sinks.found_offsets import FoundOffsets


class LateFiles:
    """The late rows of the output in a place. I/O errors of steps of publishing are left to the publisher."""

    def __init__(self, output: Place, access: StoreAccess | None) -> None:
        self.place: Place = output.parent / f"{output.name}{SUFFIX}"
        self._access = access

    def _opened(self, place: Place) -> Opened:
        return opened(place, self._access)

    def folder(self, batch_id: UUID) -> Place:
        return self.place / f"{PUBLISHED}{batch_id}"

    def sizes(self, receipt: Receipt) -> dict[str, int]:
        """Return the names and sizes of a batch's late rows that readers see."""
        return sizes_in(self._opened(self.folder(receipt.batch_id)), receipt)

    def aside(self, directory: Place, receipt: Receipt) -> dict[str, int]:
        """Return those that wait for it, by the attempt's directory."""
        return sizes_in(self._opened(directory / DATA_LATE), receipt)

    def check_usable(self) -> None:
        """Raise OutputNotUsableError where something else is in the place of late rows; makes nothing."""
        place = self._opened(self.place)
        with storage_errors(self.place):
            table = folder_of_table(place)
            if table is None and (not isinstance(place, Path) or place.is_dir() or not os.path.lexists(place)):
                return
        found = "a file" if table is None else f"a table, with {table}, whose clean-up would delete them"
        raise OutputNotUsableError(
            f"expected {self.place} for files of late rows alone, found {found}. Nothing was written. Move it "
            "elsewhere, or give the feed another sink.path."
        )

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        """Raise what :meth:`.Publisher.can_take` does of late rows."""
        self.check_usable()
        make_usable(self.place, ())
        if self.is_there(receipt.batch_id):
            raise OutputConflictError(
                f"batch {receipt.batch_id} was never published, but {self.folder(receipt.batch_id)} exists. Nothing "
                "was moved into it; move it elsewhere and run the commit again."
            )
        if isinstance(directory, Path) and isinstance(self.place, Path):
            devices = {each.stat().st_dev for each in (directory, self.place)}
            if len(devices) > 1:
                raise OutputNotUsableError(
                    f"expected {directory} and {self.place} on one file system, found two: late rows are published by "
                    "one rename. Nothing was published."
                )

    def set_aside(self, data: Opened, directory: Place, receipt: Receipt) -> None:
        """Copy staged late rows, durably; on a disk all of them come to their place at once."""
        copy_at_once(data, self._opened(directory / DATA_LATE), receipt)

    def publish(self, directory: Place, receipt: Receipt) -> None:
        """Make late rows of a published batch visible, once.

        What was staged stays until the attempt is removed: in a store another publisher may be copying it.
        """
        target, aside = self._opened(self.folder(receipt.batch_id)), self._opened(directory / DATA_LATE)
        expected = {file.name: file.size_bytes for file in receipt.files}
        if (found := sizes_in(target, receipt)) != expected:
            if not isinstance(target, Path):
                for name in expected.keys() & sizes_in(aside):
                    copy_file(aside / name, target / name)
            elif isinstance(aside, Path):
                make_folder(target.parent)
                rename_unless_done(aside, target)
            found = sizes_in(target, receipt)
        if found != expected:
            raise OutputConflictError(
                f"batch {receipt.batch_id}: its other rows are published, but its late rows cannot be, and no offset "
                f"was moved. Expected them in {aside} or in {target}; found there: {difference(expected, found)}. "
                "Restore them from a backup, and run the commit again."
            )
        flush(target)
        flush(target.parent)

    def is_there(self, batch_id: UUID) -> bool:
        """Whether readers see late rows of a batch."""
        return is_folder(self._opened(self.folder(batch_id)))

    def visible(self, batch_ids: Iterable[str]) -> set[str]:
        """Return of which of some batches readers see late rows."""
        place = self._opened(self.place)
        if isinstance(place, Path) and not place.is_dir():
            return set()
        return {name.removeprefix(PUBLISHED) for name in names_in(place)}.intersection(batch_ids)

    def remove(self, batch_id: UUID) -> None:
        remove_tree(self._opened(self.folder(batch_id)))

    def add_to(self, found: "FoundOffsets") -> None:
        """Hand in all late rows that readers see, and nothing else that is there."""
        place = self._opened(self.place)
        for name in files_below(place):
            batch, _, rest = name.partition("/")
            if batch.startswith(PUBLISHED) and is_late(rest) and name.endswith(".parquet"):
                found.add_file(f"{self.place.name}/{name}", place / name, {BATCH_COLUMN: batch.removeprefix(PUBLISHED)})


def copy_at_once(
    data: Opened, target: Opened, receipt: Receipt, copy: Callable[[Opened, Opened], None] = copy_file
) -> None:
    """Copy staged files to another folder, durably; on a disk all of them come there at once, and never again."""
    # An empty folder is what a clean-up leaves of files that a table did not name for days.
    if isinstance(target, Path) and target.is_dir() and any(target.iterdir()):
        flush(target.parent)  # the publisher that renamed it may have been killed before it did
        return
    copies = target.with_name(f"{target.name}.{uuid4().hex}") if isinstance(target, Path) else target
    for file in receipt.files:
        make_folder((copies / file.name).parent)
        copy(data / file.name, copies / file.name)
        flush(copies / file.name)
    for name in reversed(folders_in(receipt)):
        flush(copies / name)
    flush(copies)
    if isinstance(copies, Path) and isinstance(target, Path):
        rename_unless_done(copies, target)
        flush(target.parent)
        remove_tree(copies)


def rename_unless_done(source: Path, target: Path) -> None:
    """Rename a folder; does nothing where another publisher was faster, or where it is lost, as callers see."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
            raise
