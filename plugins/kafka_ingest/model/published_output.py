"""What was published: data files and what they hold, where they differ from receipts, and what readers see."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.gap import Event, Gap, LostRange, Removal, RemovedRange
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition, listing
from kafka_ingest.model.place import OutputLocation, Place
from kafka_ingest.model.receipt import Receipt, WrittenFile


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Which batch a file belongs to: published, or, where ``attempt`` is not None, staged by one of its attempts."""

    output: OutputLocation
    batch_id: UUID
    attempt: int | None


@dataclass(frozen=True, slots=True)
class PartitionContents:
    """What a data file holds of one partition, at least one row.

    ``intervals`` are the contiguous runs of its offsets, up to the number requested; ``interval_count`` is how many
    there are in all. ``distinct_offsets`` equals ``rows`` unless a record occurs twice.
    """

    topic_partition: TopicPartition
    rows: int
    smallest_offset: int
    largest_offset: int
    distinct_offsets: int
    intervals: tuple[OffsetRange, ...]
    interval_count: int


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a data file holds: one partition, several where their ranges were small, none where it has no rows."""

    size_bytes: int
    rows: int
    partitions: tuple[PartitionContents, ...]
    columns: tuple[tuple[str, str], ...]
    """Name and type of each, as Arrow calls it."""

    @property
    def only(self) -> PartitionContents | None:
        """What it holds, where that is one partition."""
        return self.partitions[0] if len(self.partitions) == 1 else None

    @property
    def distinct_offsets(self) -> int:
        return sum(held.distinct_offsets for held in self.partitions)

    @property
    def intervals(self) -> tuple[OffsetRange, ...]:
        """The contiguous runs of offsets, as many as were asked for."""
        return tuple(interval for held in self.partitions for interval in held.intervals)

    @property
    def interval_count(self) -> int:
        return sum(held.interval_count for held in self.partitions)


def partitions_that_differ(written: WrittenFile, contents: FileContents) -> Iterator[str]:
    """Yield each difference between a file's partitions and offsets and those in its receipt."""
    said = {held.topic_partition: held for held in written.partitions}
    there = {held.topic_partition: held for held in contents.partitions}
    if said.keys() != there.keys():
        in_words = [listing(sorted(partitions)) or None for partitions in (said, there)]
        yield "partition: the receipt says {}, found {}".format(*in_words)
    several = len(said) > 1
    for topic_partition in sorted(said.keys() & there.keys()):
        expected, found = said[topic_partition], there[topic_partition]
        for what, says, holds in (
            *([("rows", expected.rows, found.rows)] if several else []),
            ("smallest offset", expected.smallest_offset, found.smallest_offset),
            ("largest offset", expected.largest_offset, found.largest_offset),
        ):
            if says != holds:
                yield f"{what}{f' of {topic_partition}' if several else ''}: the receipt says {says}, found {holds}"


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """How many files it has, and in how many of them some reader takes a column's missing bounds for nulls.

    ``complete`` are the columns that the table can name as those with bounds, since each file has some.
    """

    files: int
    lacking: Mapping[str, int]
    complete: tuple[str, ...]


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


@dataclass(frozen=True, slots=True)
class AdoptedBatch:
    """A batch that is in the output but not in the control tables, from its published receipt."""

    plan: BatchPlan
    receipt: Receipt
    receipt_sha256: str
    attempt_directory: Place


@dataclass(frozen=True, slots=True)
class Adoption:
    """A feed's control rows as rebuilt from its output. ``abandoned`` is an open batch that was overtaken.

    ``expired`` is what readers no longer see, ``back`` the part of it that they see again, ``lost`` what lost files
    held, and ``files`` the batches whose files differ from their receipts.

    ``removed`` are rows of partitions that a topic does not have any more. ``reset`` are topics that an operator has
    decided on since: gaps ahead and holds in them end.
    """

    cluster_id: str
    topics: Collection[str]
    stored: Sequence[StoredOffset]
    batches: Sequence[AdoptedBatch]
    gaps: Sequence[Gap]
    ledger: Sequence[Event]
    topic_pattern: str | None = None
    abandoned: UUID | None = None
    removed: Sequence[TopicPartition] = ()
    reset: Collection[str] = ()
    expired: Sequence[RemovedRange] = ()
    back: Sequence[RemovedRange] = ()
    lost: Sequence[LostRange] = ()
    files: Mapping[UUID, FoundFiles] = field(default_factory=dict)
