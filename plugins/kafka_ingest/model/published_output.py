"""What was published, and what readers see of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.event import Event
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.removal import Removal


class FilesState(StrEnum):
    """What exists of a batch whose receipt is kept, by the names and sizes of its files."""

    INTACT = "intact"
    CHANGED = "changed"
    """There are other files, or files of other sizes: some were rewritten or removed."""

    GONE = "gone"
    EXPIRED = "expired"
    """They were removed on purpose, and a mark records it."""

    STAGED = "staged"
    """They are still in the attempt's directory: the commit ended between keeping the receipt and publishing."""

    REVOKED = "revoked"
    """They were taken from publishing by an operator who gave the batch up; that has only to be noted."""

    BROKEN = "broken"
    """They were never published, and the staged files differ from the receipt."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What exists of a batch, and in words how it differs from its receipt.

    ``rows``: how many of its rows the output holds, where that was counted. ``is_marked``: whether the output itself
    says that the batch was published, even if it was removed since; asked only of a removed one that replaced rows.
    """

    state: FilesState
    difference: str = ""
    rows: int | None = None
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class PublishedReceipt:
    """What is kept beside the output permanently: enough to rebuild lost control tables.

    ``files`` is what exists of it now, ``removal`` why nothing does. ``replaced`` are the partitions whose rows a later
    batch has replaced.
    """

    plan: BatchPlan
    receipt: Receipt
    ledger: Sequence[Event]
    files: FoundFiles = FoundFiles(FilesState.INTACT)
    removal: Removal | None = None
    replaced: Collection[TopicPartition] = frozenset()

    @property
    def ranges_read(self) -> tuple[OffsetRange, ...]:
        """What the batch has read: its plan's ranges, without those that its receipt leaves out."""
        return self.receipt.ranges_read(self.plan)


@dataclass(frozen=True, slots=True)
class PublishedCount:
    """What the visible files of a batch hold of one partition, counted row by row. ``offsets`` counts distinct ones."""

    topic_partition: TopicPartition
    rows: int
    offsets: int
    smallest_offset: int
    largest_offset: int


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file of a published batch that cannot be read, is missing, or differs from the batch's receipt.

    ``written`` is None where the receipt names no such file. ``is_there``: something exists at its path.
    """

    name: str
    written: WrittenFile | None
    problem: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class PublishedLook:
    """What readers see of a batch, file by file: the rows of readable files, and what is wrong with the others.

    ``strangers`` are names that exist and are not in the batch's receipt.
    """

    counts: Sequence[PublishedCount] = ()
    problems: Sequence[FileProblem] = ()
    strangers: Sequence[str] = ()
