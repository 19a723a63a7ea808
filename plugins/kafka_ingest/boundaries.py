"""The calls through which the protocol touches the world: control tables, Kafka, and the sink.

Each call is one step that happens whole or not at all, so a crash can only lie between two of them. Real parts and the
fakes of the tests implement these protocols and pass the same contract tests.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from kafka_ingest.batch import ABANDONABLE, Attempt, Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.folded import FoldedRange
from kafka_ingest.gap import Gap, Jump, NewGap
from kafka_ingest.hold import Hold
from kafka_ingest.offsets import (
    FirstRecord,
    LogBounds,
    OffsetRange,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
)
from kafka_ingest.output_location import OutputLocation
from kafka_ingest.receipt import RangeCount, Receipt, WrittenFile
from kafka_ingest.removal import LostRange, Removal, RemovedRange


class KafkaCluster(Protocol):
    """The questions asked of Kafka. All raise KafkaUnavailableError where no answer comes within the time limit."""

    def cluster_id(self) -> str:
        """Return the cluster's id."""

    def topic_names(self) -> list[str]:
        """Return the names of all topics that this client may see."""

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist; the others are left out. Never creates one."""

    def log_bounds(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Return each partition's bounds, or why Kafka cannot say them now."""

    def offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return each partition's first offset whose record is of that time or later; None where there is none.

        Kafka's ListOffsets by timestamp (KIP-79): times are of whole milliseconds, and the record need not be the oldest.
        """

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | Unavailable | None]:
        """Return where each log goes on with records of a later leader epoch than this one, or ends.

        None where its leader knows of no epoch that is as low. Kafka's OffsetsForLeaderEpoch (KIP-320).
        """

    def first_records(
        self, log_starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FirstRecord | Unavailable | None]:
        """Return the first record of each log, read where it starts; None where no record is left in it."""

    def unreadable_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str | Unavailable]:
        """Try to read at each offset; return where the record is damaged, and how, or why nobody can say.

        No answer in time is no proof of damage, and none that it was mended.
        """

    def group_offsets(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the consumer group's committed offsets, None where it has none."""

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """Set the consumer group's committed offsets, all of them; raises MirrorRefusedError naming what was refused."""


class MirrorRefusedError(Exception):
    """Kafka refused to set the group's offsets (live members, not authorised, …); the data is not affected."""


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """A batch that was committed, and the output that it was published in."""

    batch_id: UUID
    output: OutputLocation


RECENT_BATCHES = 100
"""So many of a feed's newest batches a plan holds against its output; maintenance does so daily with all of them."""

RESTORED_BY = "restore:"
"""So the name begins of who plans batches that come of an abandoned one's staged files, and not of Kafka."""


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """A feed's control rows at one instant. ``revision`` changes with every write to them.

    ``topics`` and ``topic_pattern`` are the last plan's; ``planned_at`` is when it asked Kafka, None where that is not known.
    ``gaps_ahead`` were filed ahead of the stored offsets.
    ``behind_losses`` are the partitions of which Kafka deleted records twice since something was read: their stored offsets are
    where the second of two adjoining gaps of cause ``retention`` ends. ``waiting_since``: there are records to read, but fewer
    than the feed's ``min_records``. ``newest_batch`` has the largest id of all that were ever planned, ``recent_batch`` the one
    of the :data:`RECENT_BATCHES` newest that is the oldest, None where there are fewer. ``published_to`` is the output of the
    newest live batch that was committed.
    """

    feed_id: UUID
    name: str
    cluster_id: str
    revision: int
    topics: Collection[str]
    stored: Mapping[TopicPartition, StoredOffset]
    open_batch: Batch | None
    topic_pattern: str | None = None
    gaps_ahead: Collection[Gap] = ()
    behind_losses: Collection[TopicPartition] = ()
    holds: Collection[Hold] = ()
    waiting_since: datetime | None = None
    newest_batch: UUID | None = None
    published_to: OutputLocation | None = None
    recent_batch: UUID | None = None
    planned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BackfillRange:
    """One range of a backfill or copy that is open or committed."""

    batch_id: UUID
    state: BatchState
    offset_range: OffsetRange
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class Rewind:
    """An interval that an operator let the feed read again: the stored offset went from its end back to its start.

    ``same_records``: the interval held the same records then; not so where a log was truncated.
    """

    offset_range: OffsetRange
    topic_id: str | None
    at: datetime
    who: str
    reason: str
    same_records: bool = True


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """How many records of one committed range could not be decoded."""

    batch_id: UUID
    offset_range: OffsetRange
    topic_id: str | None
    count: int


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """One range of a committed batch, and what its receipt says of it."""

    count: RangeCount
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed batch with its ranges and where it was published.

    ``folded`` is its plan's fingerprint where the control tables keep no ranges of it: then its receipt has them.
    """

    batch_id: UUID
    kind: BatchKind
    output: OutputLocation
    ranges: Sequence[CommittedRange]
    folded: str | None = None


NEWEST_STAY = 20
"""So many of a feed's newest batches are never folded: how fast they were says how much the next one may read."""


@dataclass(frozen=True, slots=True)
class FoldCut:
    """Which batches may be folded: those committed before a time, apart from the newest; and how much one transaction takes."""

    before: datetime
    newest_stay: int = NEWEST_STAY
    batches_at_once: int = 500
    ranges_at_once: int = 20_000
    events_at_once: int = 10_000


@dataclass(frozen=True, slots=True)
class Folded:
    """What one transaction folded: batches, and how many of their rows, and of the journal's, are gone."""

    batches: int = 0
    ranges: int = 0
    attempts: int = 0
    events: int = 0

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is left to be folded."""
        return not (self.batches or self.events)


@dataclass(frozen=True, slots=True)
class Foldable:
    """What may be folded now, and what is as old and stays: not announced, with staged output, or with dead letters."""

    batches: int
    events: int
    to_announce: int = 0
    staged: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class FoldedFeed:
    """What is folded of a feed at one instant."""

    batches: frozenset[UUID]
    ranges: Sequence[FoldedRange]


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """A batch whose ranges are folded: who made it, where it lies, and the fingerprint by which its receipt is known."""

    batch_id: UUID
    fingerprint: str
    planned_at: datetime
    planned_by: str
    committed_at: datetime
    committed_by: str
    output: OutputLocation


@dataclass(frozen=True, slots=True)
class CoverageRows:
    """All that the control rows of a feed say of which offset is where, at one instant.

    What live batches have committed follows: it is [first, stored) without the gaps. So their ranges, years of them, are not
    among it.
    """

    feed: FeedSnapshot
    gaps: Sequence[Gap] = ()
    backfills: Sequence[BackfillRange] = ()
    rewinds: Sequence[Rewind] = ()
    dead_letters: Sequence[DeadLetters] = ()
    committed_ahead: Sequence[OffsetRange] = ()
    """What was committed at or above the stored offsets before an operator went back."""

    lost: Sequence[LostRange] = ()
    """What published files held that were lost since; a gap is filed of what no other batch holds."""

    removed: Sequence[RemovedRange] = ()
    """What was let expire from the output: still committed, and seen by no reader."""

    folded: Sequence[FoldedRange] = ()
    """What old live batches have read, of which the control tables keep no ranges any more."""

    ids_before: Mapping[tuple[str, str | None], str | None] = field(default_factory=dict)
    """(topic, id) → the id that the same records have now, where an operator said that they are the same."""

    def id_now(self, topic: str, topic_id: str | None) -> str | None:
        """Return the topic id under which the records of an earlier one are counted now."""
        return self.ids_before.get((topic, topic_id), topic_id)


@dataclass(frozen=True, slots=True)
class NewFeed:
    """A feed that the control tables do not know yet."""

    feed_id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the audit journal."""

    event_id: int
    kind: str
    at: datetime
    who: str
    batch_id: UUID | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """What one plan writes down, in one transaction: the batch, if there is one, and all that was decided beside it."""

    cluster_id: str
    topics: Collection[str]
    topic_pattern: str | None = None
    seeds: Sequence[StoredOffset] = ()
    jumps: Sequence[Jump] = ()
    holds: Sequence[Hold] = ()
    waiting_since: datetime | None = None
    plan: BatchPlan | None = None
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epochs in which logs were seen to reach their stored offsets, of those that had another."""

    planned_at: datetime | None = None
    """When Kafka was asked which topics there are."""


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """What planning a backfill writes down, in one transaction: its chunks, each a batch, and the gaps of what is gone.

    ``request`` is what was asked for, for the audit journal.
    """

    chunks: Sequence[BatchPlan]
    gaps: Sequence[NewGap]
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResetMove:
    """One partition's stored offset is moved by an operator: back to an offset, or forward over a jump's gaps.

    Forward without a jump passes only what was committed before an operator went back.
    """

    topic_partition: TopicPartition
    from_offset: int
    to_offset: int
    jump: Jump | None = None


@dataclass(frozen=True, slots=True)
class StartOver:
    """What becomes of a topic that was made again: its old rows end, and new ones begin; none where it is gone.

    ``same_records``: they are counted as before, so gaps that lie ahead stay; otherwise those are dropped, apart from those of
    partitions that are ``untouched``.
    """

    topic: str
    topic_id: str | None
    rows: Sequence[StoredOffset]
    same_records: bool = False
    untouched: Collection[TopicPartition] = ()


class FilesState(StrEnum):
    """What is there of a batch whose receipt is kept, by the names and sizes of its files."""

    INTACT = "intact"
    CHANGED = "changed"
    """Other files lie there, or files of other sizes: somebody rewrote or removed some."""

    GONE = "gone"
    EXPIRED = "expired"
    """They were removed on purpose, and a mark says so."""

    STAGED = "staged"
    """They are still in the attempt's directory: the commit ended between keeping the receipt and publishing."""

    REVOKED = "revoked"
    """They were taken from publishing by an operator who gave the batch up; that has only to be noted."""

    BROKEN = "broken"
    """They were never published, and what is staged is not what the receipt says."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What is there of a batch, and in words how that differs from its receipt."""

    state: FilesState
    difference: str = ""


@dataclass(frozen=True, slots=True)
class AdoptedBatch:
    """A batch that the output holds and the control tables do not know, from its published receipt."""

    plan: BatchPlan
    receipt: Receipt
    receipt_sha256: str
    attempt_directory: Path


@dataclass(frozen=True, slots=True)
class Adoption:
    """A feed's control rows as its output tells them. ``abandoned`` is an open batch that was overtaken.

    ``expired`` is what readers see no more, ``back`` what they see again of that, ``lost`` what files held that were lost, and
    ``files`` which batches are not there as their receipts say.

    ``removed`` are rows of partitions that a topic does not have any more. ``reset`` topics were decided on since: what the
    control tables have planned ahead in them, or hold, is over.
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


class ControlReader(Protocol):
    """What is stored. Reading changes nothing and takes no lock."""

    def feed(self, name: str) -> FeedSnapshot | None:
        """Return the feed's control rows as of one instant, None where it was never planned."""

    def feed_of_id(self, feed_id: UUID) -> FeedSnapshot | None:
        """Return the same by the feed's own id, whatever it is called now."""

    def batch(self, batch_id: UUID) -> Batch:
        """Return a batch; raises UnknownBatchError."""

    def newest_published(self, feed_id: UUID, kind: BatchKind = BatchKind.LIVE) -> PublishedBatch | None:
        """Return the feed's newest batch of a kind that was committed, None where none was."""

    def batch_states(self, feed_id: UUID, since: UUID | None = None) -> dict[UUID, BatchState]:
        """Return every batch of a feed with its state.

        ``since`` is a batch: only those from its id on, and older ones that are open, or were given up since it was planned.
        """

    def speeds(self, feed_id: UUID) -> list[float]:
        """Return how many offsets a second the committed ones of the feed's twenty newest batches read; newest first.

        From the beginning of the attempt that counts to its receipt, Spark's start included. What was restored is left out:
        its files were copied, and no records read.
        """

    def attempts(self, batch_id: UUID) -> list[Attempt]:
        """Return a batch's attempts, in order."""

    def ended_attempts(self, feed_id: UUID, *, ended_before: datetime) -> list[Attempt]:
        """Return the attempts that are over since before then: of ended batches, and discarded ones; oldest first.

        Those that were cleaned up before then are left out.
        """

    def coverage(self, feed_name: str) -> CoverageRows | None:
        """Return what the control rows say of which offset is where; None where the feed was never planned."""

    def copied_ranges(self, feed_id: UUID, output: OutputLocation) -> list[BackfillRange]:
        """Return what the feed's copies into another output hold, or are about to."""

    def copy_outputs(self) -> list[tuple[UUID, OutputLocation]]:
        """Return where copies of all feeds lie, or are about to, with the feeds' ids."""

    def backfill_of(self, feed_id: UUID, who: str) -> list[Batch]:
        """Return the backfills and copies that somebody planned, in the order of their ids."""

    def backfill_request(self, feed_id: UUID, who: str) -> Mapping[str, Any] | None:
        """Return what ``who`` asked for with the newest backfill that it planned, None where that is not known."""

    def to_announce(self, feed_id: UUID) -> list[Batch]:
        """Return the batches that DAG runs committed and whose Asset event may be lost, oldest first, a hundred at most."""

    def open_backfills(self, feed_id: UUID) -> list[Batch]:
        """Return the backfills and copies that are open, in the order of their ids."""

    def batches_of_run(self, feed_id: UUID, run_id: str) -> list[Batch]:
        """Return the batches that a DAG run planned or committed, oldest first."""

    def starts_since(self, batch_id: UUID) -> dict[TopicPartition, int]:
        """Return where a live batch began in each partition, or the first one after it that read the partition.

        Only committed live batches count, and only topics that are the ones the offsets are stored of now. Raises
        BatchFoldedError where the batch, or a later one, is folded.
        """

    def committed_within(
        self, feed_id: UUID, intervals: Sequence[OffsetRange], *, apart_from: UUID | None = None
    ) -> list[OffsetRange]:
        """Return what committed batches hold of intervals of the topics as they are now: of the feed's output, no copies.

        What was lost of them is not held. ``apart_from`` is a batch that is not asked.
        """

    def committed_ahead(self, feed_id: UUID) -> list[OffsetRange]:
        """Return what committed batches hold at or above the stored offsets, sorted: something once an operator went back.

        Only topics that are the ones the offsets are stored of now; a copy into another output does not count.
        """

    def committed_batches(self, feed_id: UUID) -> Iterator[CommittedBatch]:
        """Yield the feed's committed batches with all their ranges, oldest first; copies are not among them."""

    def folded(self, feed_id: UUID) -> FoldedFeed:
        """Return which of the feed's batches are folded, and what they have read."""

    def committed_ranges(self, batch_id: UUID) -> list[OffsetRange]:
        """Return what the feed's output holds of this batch's topics and partitions, where committed batches overlap it."""

    def range_counts(self, batch_id: UUID) -> list[RangeCount]:
        """Return what a written batch's receipt says of each range, in the plan's order."""

    def ledger_of_feed(self, feed_id: UUID) -> list[Event]:
        """Return all seeds, gaps and resets of a feed, oldest first."""

    def ledger(self, batch_id: UUID) -> list[Event]:
        """Return the seeds, gaps and resets between the feed's previous published batch and this COMMITTING one.

        For the first batch in another output all there ever were, ending with the stored offsets as the old output left them.
        """


class ControlTables(ControlReader, Protocol):
    """What is stored, and the steps that change it: each one transaction under the feed's lock."""

    def record_plan(self, feed: FeedSnapshot | NewFeed, record: PlanRecord, *, who: str) -> None:
        """Write what a plan decided; raises FeedChangedError where the feed is not as in the snapshot any more."""

    def record_backfill(self, feed: FeedSnapshot, record: BackfillRecord, *, who: str) -> None:
        """Write a backfill's chunks, all or none; no stored offset moves.

        Raises FeedChangedError where the feed is not as in the snapshot any more, RangesTakenError where an offset is another
        backfill's, and OffsetsMovedError where one is not below the stored offset.
        """

    def open_attempt(self, attempt: Attempt) -> None:
        """Add an attempt to a PLANNED batch; raises FeedChangedError where its number is taken, BatchStateError otherwise."""

    def pin(
        self, batch_id: UUID, attempt: int, receipt: Receipt, receipt_sha256: str, counts: Sequence[RangeCount]
    ) -> None:
        """PLANNED → WRITTEN by compare-and-set on batch and OPEN attempt; raises BatchStateError where it lost."""

    def discard_written(self, batch_id: UUID, attempt: int, *, reason: str, who: str) -> None:
        """WRITTEN by this attempt → PLANNED, and every attempt so far DISCARDED, so that none can be pinned later."""

    def begin_commit(self, batch_id: UUID, attempt: int) -> None:
        """WRITTEN by this attempt → COMMITTING; does nothing where it is COMMITTING or COMMITTED already."""

    def complete_commit(self, batch_id: UUID, *, who: str) -> Batch:
        """Move all the batch's stored offsets and COMMITTING → COMMITTED, or neither; raises OffsetsMovedError.

        A backfill moves none, and closes the gaps that it read. Does nothing where the batch is COMMITTED already. Returns the
        batch as it is then.
        """

    def abandon(
        self,
        batch_id: UUID,
        *,
        reason: str,
        who: str,
        only_from: Collection[BatchState] = ABANDONABLE,
        jumps: Sequence[Jump] = (),
    ) -> None:
        """→ ABANDONED, from one of these states; raises BatchStateError from any other.

        Stored offsets move only over gaps, where some of the batch's offsets are lost: both happen or neither.
        """

    def note_announced(self, feed_id: UUID, batch_ids: Collection[UUID]) -> None:
        """Note that Airflow has recorded the Asset events of batches."""

    def note_cleaned(self, attempt: Attempt) -> None:
        """Note that an attempt's directory was removed."""

    def hold(self, feed_id: UUID, hold: Hold) -> None:
        """Add a hold that was found between two plans."""

    def note_holds(self, feed: FeedSnapshot, holds: Sequence[Hold]) -> None:
        """Add holds that a plan found and stops at; raises FeedChangedError where the feed is not as in the snapshot any more."""

    def record_event(
        self, feed_id: UUID, kind: str, *, who: str, batch_id: UUID | None, detail: Mapping[str, Any]
    ) -> None:
        """Append a line to the audit journal."""


class FoldingTables(ControlTables, Protocol):
    """The step that keeps the control tables small after years."""

    def foldable(self, feed_id: UUID, cut: FoldCut) -> Foldable:
        """Return what may be folded now, and what stays that is as old."""

    def fold(self, feed_id: UUID, cut: FoldCut) -> Folded:
        """Fold the next old live batches and lines of the journal, and return how many; nothing where none is left.

        A batch's ranges become part of the feed's folded ranges, and its attempts go. Only of COMMITTED ones that were announced,
        whose staged output is removed, and that hold no dead letters. No decision rests on where a range is kept, so the feed's
        revision stays.
        """


class OperatorTables(FoldingTables, Protocol):
    """The steps that only an operator takes. Each names who and why, and is refused where the feed changed meanwhile."""

    def file_gap(self, feed: FeedSnapshot, new_gap: NewGap, *, seed: StoredOffset | None, who: str) -> Gap:
        """File a gap, and move the stored offset over it where it begins there; ``seed`` is the row of a new partition."""

    def start_over(
        self,
        feed: FeedSnapshot,
        cluster_id: str,
        topics: Sequence[StartOver],
        *,
        reason: str,
        who: str,
        abandoned: UUID | None = None,
    ) -> None:
        """Replace the stored offsets of topics that are not the ones they were counted in any more, and end their holds.

        ``abandoned`` is a PLANNED batch that read one of them: it is given up with them, or nothing happens.
        """

    def reset_offsets(self, feed: FeedSnapshot, moves: Sequence[ResetMove], *, reason: str, who: str) -> None:
        """Move stored offsets, all or none; raises FeedChangedError, or BatchStateError where a batch is open.

        Forward a gap is filed. Backward open gaps above the new offset end, since what they hold is read now.
        """

    def record_lost(
        self,
        feed: FeedSnapshot,
        lost: Sequence[LostRange],
        gaps: Sequence[NewGap],
        *,
        reason: str,
        who: str,
    ) -> None:
        """Write that published files were lost, and the gaps of what no other batch holds; no stored offset moves.

        Raises FeedChangedError where the feed is not as in the snapshot any more.
        """

    def record_removed(
        self, feed_id: UUID, batches: Sequence[UUID], ranges: Sequence[RemovedRange], *, reason: str, who: str
    ) -> None:
        """Write which committed offsets were let expire; again changes nothing but the audit journal."""

    def rename_feed(self, feed: FeedSnapshot, new_name: str, *, reason: str, who: str) -> None:
        """Give the feed another name; raises FeedChangedError where it is taken."""

    def adopt(self, feed: FeedSnapshot | NewFeed, adoption: Adoption, *, reason: str, who: str) -> None:
        """Write what the output tells of a feed."""


@dataclass(frozen=True, slots=True)
class PublishedReceipt:
    """What is kept beside the output for ever: enough to rebuild lost control tables from.

    ``files`` is what is there of it now, ``removal`` why nothing is.
    """

    plan: BatchPlan
    receipt: Receipt
    ledger: Sequence[Event]
    files: FoundFiles = FoundFiles(FilesState.INTACT)
    removal: Removal | None = None

    @property
    def ranges_read(self) -> tuple[OffsetRange, ...]:
        """What the batch has read: its plan's ranges, without those that its receipt leaves out."""
        return self.receipt.ranges_read(self.plan)


@dataclass(frozen=True, slots=True)
class PublishedCount:
    """What the visible files of a batch hold of one partition, counted row by row. ``offsets`` are the different ones."""

    topic_partition: TopicPartition
    rows: int
    offsets: int
    smallest_offset: int
    largest_offset: int


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A file of a published batch that cannot be read, is not there, or is not what the batch's receipt says.

    ``written`` is None where the receipt names no such file. ``is_there``: something lies in its place.
    """

    name: str
    written: WrittenFile | None
    problem: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class PublishedLook:
    """What readers see of a batch, file by file: the rows of those that can be read, and what is wrong with others.

    ``strangers`` are names that lie there and are not in the batch's receipt.
    """

    counts: Sequence[PublishedCount] = ()
    problems: Sequence[FileProblem] = ()
    strangers: Sequence[str] = ()


class Staging(Protocol):
    """Where attempts are staged: plain Parquet, their documents and their receipts."""

    def attempt_directory(self, batch_id: UUID, attempt: int) -> Path:
        """Return the absolute directory that belongs to one attempt alone."""

    def open_attempt(self, directory: Path, document: bytes) -> None:
        """Make the attempt's directory with its document in it, durably."""

    def read_receipt(self, directory: Path) -> bytes | None:
        """Return the attempt's receipt as it lies there, None where there is none."""

    def write_receipt(self, directory: Path, content: bytes) -> None:
        """Write the receipt of an attempt whose files were staged again, durably; the last thing of it."""

    def read_failure(self, directory: Path) -> str | None:
        """Return what Spark said when the attempt failed, None where it said nothing."""

    def verify(self, directory: Path, receipt: Receipt) -> None:
        """Check the staged files against their receipt, durably on disk; raises StagedOutputUnusableError."""

    def check_restageable(self, directory: Path, receipt: Receipt) -> None:
        """Raise StagedOutputUnusableError unless an attempt's files, revoked or not, are what its receipt says."""

    def restage(
        self, source: Path, receipt: Receipt, target: Path, ranges: Sequence[OffsetRange]
    ) -> Sequence[WrittenFile]:
        """Stage the records of ranges, out of the files of an earlier attempt, revoked or not, in another one's directory.

        Durable when it returns. Raises StagedOutputUnusableError where the files are not what the earlier receipt says.
        """

    def size_bytes(self, directory: Path) -> int:
        """Return how large an attempt's directory is, 0 where there is none."""

    def remove(self, directory: Path) -> None:
        """Remove an attempt's directory with all that is staged in it; does nothing where there is none."""


class Publisher(Protocol):
    """Makes staged batches visible to readers, once each.

    Publishing and revoking write the same marker, named by the batch's id; whoever is first wins, and the output becomes
    visible in the same atomic step.
    """

    def prepare(self) -> None:
        """Make the output and the places beside it; raises OutputNotUsableError where they cannot be written."""

    def can_take(self, batch_id: UUID) -> None:
        """Ask before COMMITTING whether the batch can be published; raises OutputNotUsable- or OutputConflictError."""

    def publish(self, directory: Path, published: PublishedReceipt) -> None:
        """Make the batch visible, once; does nothing where it is published already. Durable when it returns.

        Raises BatchRevokedError where an operator was faster, OutputConflictError where something else lies in its place.
        """

    def revoke(self, directory: Path, batch_id: UUID, *, rows: int) -> None:
        """Take a COMMITTING batch's staged files from every publisher, for ever; does nothing where that was done already.

        Raises BatchStateError where the batch is published: of the two exactly one wins.
        """

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches that were ever published here, newest last; ``since``: from this id on."""

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        """Return all that was ever published here, oldest first, with what is there of it now.

        Raises OutputConflictError on a receipt that cannot be read.
        """


class ReceiptArchive(Protocol):
    """The receipts of an output's published batches, kept for ever, and marks of those that were removed since."""

    def is_kept(self, batch_id: UUID) -> bool:
        """Whether a receipt of the batch is kept here."""

    def receipt(self, batch_id: UUID) -> Receipt | None:
        """Return the receipt of a batch as it was published, None where none was."""

    def published_receipt(self, batch_id: UUID) -> PublishedReceipt | None:
        """Return what is kept of one batch, None where nothing is; what is there of its files is not looked at.

        Raises OutputConflictError where it cannot be used.
        """

    def removal(self, batch_id: UUID) -> Removal | None:
        """Return why readers see nothing of a published batch any more, None where they are to see it."""

    def removed_batches(self) -> list[str]:
        """Return the ids of the published batches that were removed, oldest first."""

    def note_removal(self, removal: Removal) -> None:
        """Note that a batch is removed, durably and before it is.

        Does nothing where that was noted before, unless it was only found gone, and expires now.
        """

    def sort(self, now: datetime) -> int:
        """Move receipts that an earlier version kept in another order to where they are found quickly; return how many."""


class Inspector(Protocol):
    """Answers questions about what readers see, from the published data itself."""

    def look_at(self, batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        """Read what readers see of a batch file by file, so that one that is damaged keeps none of the others from it.

        ``closely``: every column is read, not only those of the positions.
        """

    def path(self, batch_id: UUID, file: WrittenFile) -> Path:
        """Return where readers find a file of a batch."""

    def holds(self, batch_id: UUID, file: WrittenFile, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether the record of that partition and offset is in a published file.

        Raises NotADataFileError where it is damaged, OSError where it cannot be read or is not there.
        """


class Remover(Protocol):
    """Takes batches, or files of them, out of readers' sight."""

    def hide(self, batch_id: UUID) -> None:
        """Take a removed batch out of readers' sight, whole and durably; does nothing where there is nothing to be seen."""

    def unfinished(self) -> list[str]:
        """Return the removed batches that readers still see, or whose hidden or damaged files are not deleted yet."""

    def delete_hidden(self, batch_id: UUID) -> None:
        """Delete what was hidden of a removed batch; does nothing where that was done."""

    def aside(self, batch_id: UUID) -> Path:
        """Return where files of a batch are kept that were moved out of readers' sight."""

    def set_aside(self, batch_id: UUID, names: list[str]) -> None:
        """Move files of a batch out of readers' sight, durably, and keep them; does nothing for those that are not there."""


@dataclass(frozen=True, slots=True)
class Sink:
    """One output, by the roles that the protocol asks for."""

    staging: Staging
    publisher: Publisher
    archive: ReceiptArchive
    inspector: Inspector
    remover: Remover


class Sinks(Protocol):
    """Finds the sink of an output; an open batch keeps its own, whatever the feed file says now."""

    def __call__(self, output: OutputLocation) -> Sink:
        """Return the sink; raises OutputNotUsableError where the format is not known."""
