"""Which batches a table says were published or revoked: one property for each, which names the plan's fingerprint.

A property, since snapshots expire. The newest stay in the table. Before older ones are removed from it, they are
written to a folder beside it, durably: :class:`OlderMarks`. A committer that finds no mark in a table that was read
looks there before it commits, so a batch is published once, however late that is.
"""

import re
from collections.abc import Mapping
from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.storage import Opened, make_folder, read_at_most, write_new
from kafka_ingest.sinks.kept_receipts import day_of
from kafka_ingest.sinks.tables.table_format import Mark, Outcome

PREFIX = "kafka_ingest.batch."
PROOF_KEY = "kafka_ingest.proof"
"""What a snapshot's summary calls its batch's proof."""
OF_A_BATCH = re.compile(rf"{re.escape(PREFIX)}[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
LONGEST = 200
"""How many bytes of a mark that is kept beside the table are read; it has fewer."""
MOST, STAY = 200, 100
"""From how many marks on a commit removes the oldest, and how many stay then."""


def key_of(batch_id: UUID) -> str:
    return f"{PREFIX}{batch_id}"


def text_of(mark: Mark) -> str:
    return f"{mark.outcome.value} {mark.fingerprint}".strip()


def mark_of(batch_id: UUID, text: str) -> Mark:
    """Read a mark back; raises OutputConflictError where another program wrote it."""
    word, _, fingerprint = text.partition(" ")
    try:
        return Mark(batch_id, Outcome(word), fingerprint)
    except ValueError as error:
        raise OutputConflictError(
            f"property {key_of(batch_id)} of the table: expected published or revoked, found {text!r}: another "
            "program uses this batch's id. No offset was moved."
        ) from error


def marks_in(properties: Mapping[str, str]) -> dict[str, Mark]:
    """Return all marks of a table by their batch's id, oldest first."""
    found = sorted((key.removeprefix(PREFIX), text) for key, text in properties.items() if OF_A_BATCH.fullmatch(key))
    return {name: mark_of(UUID(name), text) for name, text in found}


class OlderMarks:
    """The folder of marks that the table does not carry any more. I/O errors are left to the caller."""

    def __init__(self, folder: Opened) -> None:
        self.folder = folder

    def mark(self, batch_id: UUID) -> Mark | None:
        try:
            return mark_of(batch_id, read_at_most(self._path(batch_id), LONGEST).decode(errors="replace"))
        except FileNotFoundError:
            return None

    def keep(self, mark: Mark) -> None:
        """Keep a mark that was read from the table, durably; two committers write the same."""
        path = self._path(mark.batch_id)
        make_folder(path.parent)
        write_new(path, text_of(mark).encode("ascii"))

    def _path(self, batch_id: UUID) -> Opened:
        return self.folder / (day_of(batch_id) or "undated") / str(batch_id)
