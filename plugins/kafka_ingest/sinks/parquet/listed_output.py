"""Which batches are visible in an output, and whether that has changed since each was known to have its receipt.

After years an output holds a name for each batch, and reading them all takes seconds. A directory's time of
modification changes with every name that comes or goes (POSIX, rename(2) and mkdir(2)). So where all visible batches
have their receipts, that time is noted beside the output; while it stays, the receipts alone say what the output holds.
A publisher keeps the receipt first, so the note follows a publication. It only saves time: without it, or with one of
another directory, the names are read again.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from kafka_ingest.foundation.foreign_json import (
    ENOUGH_BYTES,
    ForeignJsonError,
    read_as_ours,
    read_foreign_object,
    whole,
)
from kafka_ingest.foundation.storage import read_at_most
from kafka_ingest.sinks.batch_folders import PUBLISHED

VERSION = 1


@dataclass(frozen=True, slots=True)
class Change:
    """When a directory was changed last, in ns, and which one it is."""

    modified_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The visible batches; ``before`` is the output's last change before its names were read, None if it is missing."""

    batch_ids: frozenset[str]
    before: Change | None


class ListedOutput:
    """An output's visible batches, and the note on them. I/O errors of reading are left to the caller."""

    def __init__(self, output: Path, note: Path) -> None:
        self._output = output
        self._note = note

    def read(self) -> Listing:
        before = self._last_change()
        if before is None:
            return Listing(frozenset(), None)
        with os.scandir(self._output) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(PUBLISHED)]
        return Listing(frozenset(name.removeprefix(PUBLISHED) for name in names), before)

    def is_unchanged(self) -> bool:
        """Whether no name was added or removed since each visible batch was known to have its receipt."""
        return (change := self._last_change()) is not None and change == self._noted()

    def note(self, listing: Listing) -> None:
        if listing.before is not None and listing.before != self._noted():
            self._write(listing.before)

    @contextlib.contextmanager
    def kept_up(self) -> Iterator[None]:
        """Let the note follow a step that makes a batch with a kept receipt visible, or takes one out of sight."""
        before = self._last_change()
        was_noted = before is not None and before == self._noted()
        yield
        after = self._last_change()
        # A file system that does not count changes cannot prove that there was none.
        if was_noted and after is not None and after != before:
            self._write(after)

    def _last_change(self) -> Change | None:
        try:
            found = self._output.stat()
        except FileNotFoundError:
            return None
        return Change(found.st_mtime_ns, found.st_ino)

    def _noted(self) -> Change | None:
        try:
            with read_as_ours():
                noted = read_foreign_object(read_at_most(self._note, ENOUGH_BYTES), most_bits=64)
                change = Change(whole(noted, "modified_ns"), whole(noted, "inode"))
                return change if noted["version"] == VERSION else None
        except (OSError, ForeignJsonError):
            return None

    def _write(self, change: Change) -> None:
        document = {"version": VERSION, "modified_ns": change.modified_ns, "inode": change.inode}
        temporary = self._note.with_name(f".{self._note.name}.{uuid4().hex}.tmp")
        # A user who may only read the output cannot write beside it; then the names are read the next time, too.
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(document))
            temporary.rename(self._note)
