"""Where output goes: the roles of a sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path
    from uuid import UUID

    from kafka_ingest.model.batch import BatchPlan, DataNeeds
    from kafka_ingest.model.dead_letters import DeadLettersOfFile
    from kafka_ingest.model.gap import Removal
    from kafka_ingest.model.offsets import OffsetRange, TopicPartition
    from kafka_ingest.model.omissions import RefusedRows
    from kafka_ingest.model.place import OutputLocation, Place
    from kafka_ingest.model.proof import Evidence, HeldLog
    from kafka_ingest.model.published_output import (
        FileContents,
        FilePlace,
        PublishedLook,
        PublishedReceipt,
        TableStatistics,
    )
    from kafka_ingest.model.read_again import ReplacedRange, ReplayedLetters, RowsReplaced
    from kafka_ingest.model.receipt import Receipt, WrittenFile
    from kafka_ingest.model.written_columns import WrittenColumns

Within = Callable[[object], bool]
"""Asks or does something of the control tables in an output's open transaction; returns whether it is so."""


class Staging(Protocol):
    """Where attempts are staged: plain Parquet, their documents and their receipts."""

    def attempt_directory(self, batch_id: UUID, attempt: int) -> Place:
        """Return the directory of one attempt."""

    def open_attempt(self, directory: Place, document: bytes) -> None:
        """Make the attempt's directory with its document in it, durably."""

    def read_receipt(self, directory: Place) -> bytes | None:
        """Return the attempt's receipt as stored, None where there is none."""

    def write_receipt(self, directory: Place, content: bytes) -> None:
        """Write the receipt of an attempt whose files were staged again, durably; its last step."""

    def read_failure(self, directory: Place) -> str | None:
        """Return Spark's output when the attempt failed, None where there is none."""

    def note_failure(self, directory: Place, found: str) -> None:
        """Leave why an attempt is of no use, as Spark does where it fails."""

    def end_of_failure(self, directory: Place, most: int) -> tuple[str, bool] | None:
        """Return the end of that output, of so many bytes, and whether there may be more before it."""

    def verify(self, directory: Place, receipt: Receipt) -> None:
        """Check the staged files against their receipt, durably on disk; raises StagedOutputUnusableError."""

    def check_restageable(self, directory: Place, receipt: Receipt) -> None:
        """Raise StagedOutputUnusableError unless an attempt's files, revoked or not, match its receipt."""

    def restage(
        self, source: Place, receipt: Receipt, target: Place, ranges: Sequence[OffsetRange]
    ) -> Sequence[WrittenFile]:
        """Stage the records of ranges from the files of an earlier attempt, revoked or not, in another one's directory.

        Durable when it returns. Raises StagedOutputUnusableError where the files are not what the earlier receipt says.
        """

    def size_bytes(self, directory: Place) -> int:
        """Return how large an attempt's directory is, 0 where there is none."""

    def remove(self, directory: Place) -> None:
        """Remove an attempt's directory with all that is staged in it; does nothing where there is none."""


class Publisher(Protocol):
    """Makes staged batches visible to readers, once each.

    Publishing and revoking write the same marker, named by the batch's id; the first one wins, and the output becomes
    visible in the same atomic step.
    """

    def examine(self) -> None:
        """Raise where the output cannot be used here; on a disk it creates nothing."""

    def prepare(self) -> None:
        """Create the output and the places beside it; raises OutputNotUsableError where they cannot be written."""

    def data_needs(self, directory: Place) -> DataNeeds:
        """Return where the data of the attempt in that directory has to be written, and which column it needs."""

    def check_records(self, *, decoded: bool) -> None:
        """Raise ColumnsChangedError where the output cannot hold decoded records, or only those; most hold either."""

    def columns_there(self, written: WrittenColumns) -> WrittenColumns | None:
        """Return the columns beside Kafka's own that all rows of the output have, as receipts list them.

        None where it has none of its own, so that only receipts say them. ``written`` are those that are to be written.
        """

    def misfits(self, written: WrittenColumns) -> Sequence[str]:
        """Return which of the columns that are to be written the output could not take, whatever their types.

        With why: for their names, or for what the output allows of them.
        """

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        """Ask before COMMITTING whether the attempt in that directory can be published; moves nothing.

        Raises OutputNotUsable- or OutputConflictError; StagedOutputUnusableError where its files are not of the
        output's form, ColumnsChangedError where columns of decoded records do not go with the output's.
        """

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        """Make the batch visible, once; does nothing where it is published already. Durable when it returns.

        Raises BatchRevokedError where an operator was faster, OutputConflictError where something else is in its place.
        """

    def revoke(self, directory: Place, batch_id: UUID) -> None:
        """Take a COMMITTING batch's staged files from every publisher, permanently; does nothing where that was done.

        Raises BatchStateError where the batch is published: of the two exactly one wins.
        """

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches that were ever published here, newest last; ``since``: from this id on."""

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        """Return everything that was ever published here, oldest first, with what exists of it now.

        Raises OutputConflictError on a receipt that cannot be read: nothing else shows which offsets the batch holds.
        """


class ReceiptArchive(Protocol):
    """The receipts of an output's published batches, kept permanently, and marks of those that were removed since."""

    def is_kept(self, batch_id: UUID) -> bool:
        """Whether a receipt of the batch is kept here."""

    def receipt(self, batch_id: UUID) -> Receipt | None:
        """Return the receipt of a batch as published, None where there is none."""

    def published_receipt(self, batch_id: UUID) -> PublishedReceipt | None:
        """Return what is kept of one batch, None where nothing is; its files are not checked.

        Raises OutputConflictError where it cannot be used.
        """

    def removal(self, batch_id: UUID) -> Removal | None:
        """Return why readers no longer see a published batch, None where they should see it."""

    def removed_batches(self) -> list[str]:
        """Return the ids of the published batches that were removed, oldest first."""

    def note_removal(self, removal: Removal) -> None:
        """Note that a batch is removed, durably and before it is.

        Does nothing where that was recorded before, except for a batch that was found missing and expires now.
        """


class Inspector(Protocol):
    """Answers questions about what readers see, from the published data itself."""

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch file by file, so that a damaged one does not hide the others.

        ``closely``: every column is read, not only those of the positions.
        """

    def path(self, batch_id: UUID, file: WrittenFile) -> Place:
        """Return where readers find a file of a batch."""

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether the record of that partition and offset is in a published file.

        Raises NotADataFileError where it is damaged, OSError where it cannot be read or does not exist.
        """

    def rows_by_hour(self, receipt: Receipt, file: WrittenFile, before: datetime) -> Mapping[datetime, int]:
        """Return how many rows of a published file are of each hour before a time, by Kafka's timestamps.

        Raises what :meth:`holds` raises.
        """


class Remover(Protocol):
    """Takes batches out of readers' sight."""

    def check_can_remove(self) -> None:
        """Raise OutputNotUsableError where nothing may be removed from this output."""

    def hide(self, batch_id: UUID) -> None:
        """Hide a removed batch from readers, completely and durably; does nothing where nothing is visible."""

    def unfinished(self) -> list[str]:
        """Return the removed batches that readers still see, or whose hidden or damaged files are not deleted yet."""

    def delete_hidden(self, batch_id: UUID) -> None:
        """Delete what was hidden of a removed batch; does nothing where that was done."""


class Salvage(Protocol):
    """Takes single damaged files out of readers' sight, and keeps them."""

    def aside(self, batch_id: UUID) -> Path:
        """Return where files of a batch are kept that were moved out of readers' sight."""

    def set_aside(self, batch_id: UUID, names: list[str]) -> None:
        """Hide files of a batch from readers, durably, and keep them; does nothing for missing ones."""


class DeadLetterReader(Protocol):
    """Finds dead letters again in an output of dead letters, so that a replay can take them up."""

    def files(self, batch_id: UUID, attempt: Place) -> tuple[Place, ...]:
        """Return which files an attempt in that directory reads to replay a batch's dead letters, all of its receipt.

        Raises OutputUnavailableError where its receipt or a letter is missing, BatchStateError where an operator gave
        them up.
        """

    def bring(self, batch_id: UUID, attempt: Place) -> None:
        """Write those of the files that are not there, into that directory; raises what :meth:`files` raises."""

    def of_batch(
        self, batch_id: UUID, *, samples: int, without: Collection[ReplayedLetters] = ()
    ) -> Iterator[DeadLettersOfFile]:
        """Yield how many letters of a batch there are of each cause, with the first ones, a file at a time.

        ``without`` do not count, since they were replayed. Raises what :meth:`count` raises.
        """

    def count(self, batch_id: UUID, ranges: Sequence[OffsetRange]) -> Mapping[OffsetRange, Mapping[str, int]]:
        """Return how many letters of a batch there are in each range, by the names of their causes.

        ``ranges`` do not overlap. Raises what :meth:`files` raises, NotADataFileError where a file is damaged, and
        OutputUnavailableError where it cannot be read.
        """

    def offsets(self, batch_id: UUID, letters: Collection[ReplayedLetters]) -> list[OffsetRange]:
        """Return the offsets of some of a batch's letters, merged and sorted; raises what :meth:`count` raises."""


class Replacer(Protocol):
    """Examines the rows that a batch is to take the place of. The publisher replaces them, in its one step."""

    def check_can_replace(self) -> None:
        """Raise OutputNotUsableError where no rows can be replaced in this output."""

    def rows_of(self, replaced: tuple[ReplacedRange, ...]) -> RowsReplaced:
        """Return what readers see of some ranges, wherever it is.

        Raises OffsetsMovedError where a batch of theirs was removed, or is being removed.
        """

    def can_take(self, directory: Place, plan: BatchPlan, receipt: Receipt) -> None:
        """Ask before COMMITTING whether the attempt in that directory can replace what its plan says; moves nothing.

        Raises RecordsDeletedError where a row would be removed whose record was not read again, or where fewer records
        were read again than were committed; OffsetsMovedError as :meth:`rows_of` does.
        """


class Contents(Protocol):
    """Reads what an output shows alone, wherever it was copied to: no control tables are asked."""

    def evidence(self) -> Evidence:
        """Return what the output says of itself; what cannot be used of it is among the problems."""

    def held(self, evidence: Evidence) -> tuple[Sequence[HeldLog], Sequence[str], int]:
        """Return what all rows hold, which files cannot be read, and how many rows have no position."""


class Statistics(Protocol):
    """What the output's metadata record of its files, by which readers skip them."""

    def may_lack(self) -> list[str]:
        """Return the columns whose bounds readers look for, although files may lack them; no list of files is read."""

    def look(self) -> TableStatistics:
        """Return what is recorded of all files."""

    def mend(self) -> None:
        """Let readers look for bounds that all files have, and for no others, in one commit; safe to repeat.

        Raises OutputNotUsableError where the table cannot be written, OutputUnavailableError where other commits came
        first again and again.
        """


@dataclass(frozen=True, slots=True)
class Sink:
    """One output, by the roles that the protocol asks for. What a format cannot answer or do is None.

    ``places`` are the directories that belong to the output alone: first the one that readers see, then those beside
    it.
    """

    staging: Staging
    publisher: Publisher
    archive: ReceiptArchive
    inspector: Inspector | None
    remover: Remover | None
    salvage: Salvage | None
    places: tuple[Place, ...]
    replacer: Replacer | None = None
    dead_letters: DeadLetterReader | None = None
    statistics: Statistics | None = None
    contents: Contents | None = None
    in_transaction: Callable[[Within], bool] | None = None
    """Opens a transaction, of an output in a database, which may have the control tables, too."""
    publish_within: Callable[[Place, PublishedReceipt, Within], None] | None = None
    """Does what the publisher's ``publish`` does, and something more in the transaction that publishes the batch."""
    in_one: Callable[[UUID], bool | None] | None = None
    """Says whether that transaction moved the stored offsets of a published batch, too; None where it is not known."""
    lost: Callable[[Collection[str], str | None], set[str]] | None = None
    """Returns which batches the output has neither mark nor rows of; an actor revokes them, for who may outlive it."""
    lacks: Callable[[UUID], str] | None = None
    """Says where else than beside ``places`` a published batch has to be known, and is not; an empty text if it is."""
    remark: Callable[[], str] | None = None
    """Returns what doctor says of the output besides; an empty text if there is nothing."""
    refused: Callable[[Place, Receipt], Sequence[RefusedRows]] | None = None
    """Tries the rows of a staged attempt in the output, undoes it, and returns those that the output refuses.

    It stops at more than may become dead letters. Raises what the publisher's ``can_take`` raises.
    """
    check_late: Callable[[], None] | None = None
    """Raises OutputNotUsableError where the place for late rows beside the output cannot be used; makes nothing."""
    rows_by_hour: Callable[[Receipt, WrittenFile, datetime], Mapping[datetime, int]] | None = None
    """Does what the inspector's does where there is none, by staged files."""
    most_rows: Callable[[], int] | None = None
    """How many rows one batch may have, as long as they are like those of the newest ones; None for any number."""


class DataFiles(Protocol):
    """Data files by their paths alone, of any format's sink."""

    def place_of(self, path: Path) -> FilePlace | None:
        """Return whose data file an absolute path names, None where no sink puts one there."""

    def places_in_words(self) -> str:
        """Return the places of data files, for a message."""

    def contents(self, path: Path, *, intervals: int) -> FileContents:
        """Return what a data file holds, with its first intervals of offsets.

        Raises NotADataFileError where it is damaged or not a sink's, OSError where it cannot be read or does not exist.
        """


class ColumnsOfFile(Protocol):
    """Reads the end of a data file."""

    def __call__(self, path: Place) -> WrittenColumns:
        """Return its columns, by their paths, with their types."""


class RowsOfFile(Protocol):
    """Reads a small data file."""

    def __call__(self, path: Place) -> list[dict[str, Any]]:
        """Return the rows, by the names of their columns."""


class DeadLetterFiles(Protocol):
    """Staged files of dead letters."""

    def __call__(self, path: Place, *, samples: int) -> DeadLettersOfFile:
        """Return how many records a file holds of each cause, with the first ones of each.

        Raises NotADataFileError where it is damaged or holds no dead letters, OSError where it cannot be read.
        """


class Sinks(Protocol):
    """Finds the sink of an output; an open batch keeps its own, even if the feed file has another one now."""

    def __call__(self, output: OutputLocation) -> Sink:
        """Return the sink; raises OutputNotUsableError where the format is not known."""
