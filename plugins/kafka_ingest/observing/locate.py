"""What happened to one offset: which batch ingested it and into which file, or why none did."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from kafka_ingest.batches.known_feed import plan_as_read, receipt_of_folded
from kafka_ingest.errors import KafkaIngestError, NotADataFileError, UnknownFeedError, WrongUseError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.coverage import BatchOfOffset, OffsetRows
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.folded import FoldedBatch, FoldedRange
from kafka_ingest.model.gap import Event, Gap, LostRange
from kafka_ingest.model.offsets import StoredOffset, TopicPartition, listing
from kafka_ingest.model.place import Place
from kafka_ingest.model.receipt import WrittenFile, WrittenPartition
from kafka_ingest.model.topics import is_other_topic
from kafka_ingest.observing.locate_folded import batch_that_read
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.ports.outputs import Inspector, Sinks
from kafka_ingest.ports.parts import REPLAY_DEAD_LETTERS, role_of

ASKED_FOR = "be asked for single records"


class OffsetState(StrEnum):
    """What happened to an offset in the feed's own output; copies into another output do not count."""

    COMMITTED = "committed"
    PENDING = "pending"
    """An open batch is to read it."""
    GAP = "gap"
    NOT_READ_YET = "not_read_yet"
    START_PENDING = "start_pending"
    """Where the feed begins is to be resolved."""
    BEFORE_FIRST = "before_first"
    FORGOTTEN = "forgotten"
    """The feed has no such partition any more; batches read it before."""
    UNACCOUNTED = "unaccounted"


class RecordState(StrEnum):
    """Whether a committed batch published a record of the offset."""

    IN_FILE = "in_file"
    EXPIRED = "expired"
    """It did, and the batch was removed from the output since."""
    LOST = "lost"
    """It did, and an operator recorded the file as lost."""
    DEAD_LETTER = "dead_letter"
    """It published the record as a dead letter."""
    REPLAYED = "replayed"
    """It was a dead letter, which a later batch has decoded again."""
    REPLACED = "replaced"
    """It did, and a later batch has replaced the rows of its range."""
    FILTERED = "filtered"
    """The feed's ``where`` or ``transform`` has left the record out."""
    FILTERED_OR_NONE = "filtered_or_none"
    """That, or there was none: the range has offsets of both kinds, and only how many of each is known."""
    NONE = "none"
    NOT_KNOWN = "not_known"


@dataclass(frozen=True, slots=True)
class FileOfOffset:
    """A published file whose offsets of the partition reach from below to above the offset.

    ``problem`` says why it cannot be read.
    """

    path: Place
    written: WrittenPartition
    holds_record: bool | None
    problem: str | None = None

    def as_document(self) -> dict[str, Any]:
        own = document_of(self, "path", "holds_record", "problem")
        return own | document_of(self.written, "smallest_offset", "largest_offset", "rows")


@dataclass(frozen=True, slots=True)
class LocatedBatch:
    """A batch that holds the offset. ``files`` is None where it published none, or ``problem`` hides them."""

    batch: BatchOfOffset
    is_earlier_topic: bool
    files: tuple[FileOfOffset, ...] | None = None
    dead_letters: tuple[FileOfOffset, ...] = ()
    problem: str | None = None
    gone: RecordState | None = None
    filtered: int = 0
    """How many records of the offset's range were filtered."""
    invisible: int = 0
    """How many offsets of it have no record."""

    @property
    def counts(self) -> bool:
        """Whether the offset's state follows from it: a batch that commits offsets, of the present topic."""
        in_ledger = self.batch.kind.commits_offsets and not self.is_earlier_topic
        return in_ledger and self.gone is not RecordState.LOST

    @property
    def record(self) -> RecordState | None:
        """Whether the record was published, None for a batch that is not committed."""
        if self.batch.state is not BatchState.COMMITTED:
            return None
        if self.gone is not None:
            return self.gone
        if self.files is None:
            return RecordState.NOT_KNOWN
        if any(file.holds_record for file in self.dead_letters):
            return RecordState.DEAD_LETTER
        held = {file.holds_record for file in (*self.files, *self.dead_letters)}
        if True in held:
            return RecordState.IN_FILE
        return RecordState.NOT_KNOWN if None in held else self._without_row

    @property
    def _without_row(self) -> RecordState:
        if not self.filtered:
            return RecordState.NONE
        return RecordState.FILTERED_OR_NONE if self.invisible else RecordState.FILTERED

    def as_document(self) -> dict[str, Any]:
        of_batch = ("batch_id", "kind", "state", "planned_at", "planned_by", "committed_at", "committed_by", "reason")
        return {
            **document_of(self.batch, *of_batch, "topic_id"),
            **document_of(self.batch.offset_range, "start_offset", "end_offset"),
            "output": str(self.batch.output),
            "earlier_topic": self.is_earlier_topic,
            **document_of(self, "record", "files", "filtered", "problem"),
            "dead_letter_files": [file.as_document() for file in self.dead_letters],
        }


@dataclass(frozen=True, slots=True)
class LocatedFolded:
    """The folded range that holds the offset, and the batch that read it; ``problem`` says why that is unknown."""

    folded: FoldedRange
    is_earlier_topic: bool
    batch: BatchOfOffset | None
    problem: str | None = None

    def as_document(self) -> dict[str, Any]:
        folded = self.folded
        return {
            **document_of(folded.offset_range, "start_offset", "end_offset"),
            **document_of(folded, "topic_id", "batches"),
            "earlier_topic": self.is_earlier_topic,
            "oldest_commit": folded.oldest.isoformat(),
            "newest_commit": folded.newest.isoformat(),
            "batch_id": str(self.batch.batch_id) if self.batch is not None else None,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class LocatedOffset:
    """The whole answer. ``batches`` are newest first, ``gap`` is the one that holds the offset in the present topic."""

    feed: str
    topic_partition: TopicPartition
    offset: int
    state: OffsetState
    stored: StoredOffset | None
    is_read: bool
    batches: tuple[LocatedBatch, ...]
    gap: Gap | None
    folded: tuple[LocatedFolded, ...] = ()

    @property
    def deciding(self) -> LocatedBatch | None:
        wanted = {OffsetState.COMMITTED: is_committed, OffsetState.PENDING: is_open}.get(self.state)
        return next((found for found in self.batches if wanted and found.counts and wanted(found)), None)

    def as_document(self) -> dict[str, Any]:
        stored, of_stored = self.stored, ("topic_id", "first_offset", "seeded_by")
        return {
            **document_of(self, "feed", "topic_partition", "offset", "state", "is_read", "batches", "folded"),
            **(document_of(stored, *of_stored) if stored else dict.fromkeys(of_stored)),
            "stored_offset": stored.next_offset if stored else None,
            "gap": {"state": self.gap.state, **self.gap.as_document()} if self.gap else None,
        }


def locate(
    control: ControlObserver, sinks: Sinks, feed_name: str, topic_partition: TopicPartition, offset: int
) -> LocatedOffset:
    """Return what happened to an offset.

    Raises UnknownFeedError where the feed was never planned, WrongUseError where it has and had no such partition.
    """
    rows = control.offset_rows(feed_name, topic_partition, offset)
    if rows is None:
        raise UnknownFeedError(
            f"expected a feed that was planned before, found {feed_name!r}, of which the control tables know nothing. "
            "Is this the right control database? `kafka-ingest status` lists what it knows."
        )
    if rows.stored is None and not rows.batches and not rows.gaps and not rows.folded:
        known = listing(
            f"{topic} (partitions 0 to {largest})" if largest else f"{topic} (partition 0)"
            for topic, largest in rows.largest_partitions.items()
        )
        raise WrongUseError(
            f"expected a topic and partition of feed {feed_name}: {known or 'it has none yet'}; found {topic_partition}"
        )
    same = ids_of_same_records(topic_partition.topic, rows.stored, rows.resets)
    folded: tuple[LocatedFolded, ...] = ()
    for each in rows.folded:
        folded = (*folded, located_folded(control, sinks, rows, each, offset, same, folded))
    read = [*rows.batches, *(each.batch for each in folded if each.batch is not None)]
    by = {(each.replaced.batch_id): each.by for each in rows.replacements if not each.is_open}
    batches = tuple(
        replaced(batch, by[batch.batch_id], same)
        if batch.batch_id in by
        else located(batch, sinks, topic_partition, offset, same, rows.lost)
        for batch in sorted(read, key=lambda each: (each.planned_at, each.batch_id), reverse=True)
    )
    batches = with_replays(of_replayed(batches, control, sinks, offset))
    gap = gap_of(rows.gaps, same)
    return LocatedOffset(
        feed=feed_name,
        topic_partition=topic_partition,
        offset=offset,
        state=state_of(rows.stored, batches, gap, offset, folded),
        stored=rows.stored,
        is_read=topic_partition.topic in rows.topics,
        batches=batches,
        gap=gap,
        folded=folded,
    )


def replaced(batch: BatchOfOffset, by: UUID, same: Collection[str | None]) -> LocatedBatch:
    problem = f"batch {by} has replaced its rows of {batch.offset_range}"
    return LocatedBatch(batch, is_earlier(batch.topic_id, same), problem=problem, gone=RecordState.REPLACED)


def of_replayed(
    batches: Sequence[LocatedBatch], control: ControlObserver, sinks: Sinks, offset: int
) -> tuple[LocatedBatch, ...]:
    """Return batches; of replays with filtered records, whether this is one of them: they span others.

    As it was where the files of the dead letters cannot be read, which say so.
    """
    found: list[LocatedBatch] = []
    for each in batches:
        if each.batch.kind is BatchKind.REPLAY and each.record in {RecordState.FILTERED, RecordState.FILTERED_OR_NONE}:
            with suppress(KafkaIngestError):
                is_taken_up = takes_up(control.batch(each.batch.batch_id).plan, each.batch, sinks, offset)
                found.append(replace(each, invisible=0) if is_taken_up else replace(each, filtered=0))
                continue
        found.append(each)
    return tuple(found)


def takes_up(plan: BatchPlan, batch: BatchOfOffset, sinks: Sinks, offset: int) -> bool:
    """Whether a replay decodes the dead letter of an offset again."""
    at = batch.offset_range.topic_partition
    taken_up = [
        each
        for each in plan.replays
        if each.topic_partition == at and each.offset_range.start_offset <= offset < each.offset_range.end_offset
    ]
    output = output_of_dead_letters(plan.output)
    reader = role_of(output, sinks(output).dead_letters, REPLAY_DEAD_LETTERS)
    return any(
        held.start_offset <= offset < held.end_offset
        for each in taken_up
        for held in reader.offsets(each.batch_id, [each])
    )


HELD = frozenset({RecordState.IN_FILE, RecordState.FILTERED, RecordState.DEAD_LETTER})
"""What the record of a replay may be that has decoded it again."""


def with_replays(batches: Sequence[LocatedBatch]) -> tuple[LocatedBatch, ...]:
    """Return batches, newest first, without replays that only span the offset; a dead letter may have been replayed.

    Then it is a row, filtered, or a dead letter once more, of the newest replay that holds it.
    """
    found: list[LocatedBatch] = []
    by: UUID | None = None
    for each in batches:
        is_replay, record = each.batch.kind is BatchKind.REPLAY, each.record
        if is_replay and (record is RecordState.NONE or each.batch.state is BatchState.ABANDONED):
            continue
        if record is RecordState.DEAD_LETTER and by is not None:
            found.append(replace(each, gone=RecordState.REPLAYED, problem=f"batch {by} has replayed it"))
        else:
            found.append(each)
        if is_replay and by is None and record in HELD:
            by = each.batch.batch_id
    return tuple(found)


def located_folded(
    control: ControlObserver,
    sinks: Sinks,
    rows: OffsetRows,
    folded: FoldedRange,
    offset: int,
    same: Collection[str | None],
    others: Collection[LocatedFolded],
) -> LocatedFolded:
    """Return which batch of a folded range has read an offset; unavailable storage is part of the answer, no error."""
    earlier = is_earlier(folded.topic_id, same)
    known = {other.batch.batch_id for other in others if other.batch is not None}
    found = control.folded_batches(rows.feed_id, folded.oldest, folded.newest)
    batches = [each for each in found if each.batch_id not in known]

    def plan_of(batch: FoldedBatch) -> BatchPlan:
        return plan_as_read(receipt_of_folded(batch.batch_id, batch.fingerprint, batch.output, sinks))

    try:
        batch = batch_that_read(folded, offset, batches, plan_of)
    except KafkaIngestError as error:
        return LocatedFolded(folded, earlier, None, str(error))
    problem = None if batch is not None else "no receipt of its batches holds the offset: a receipt was changed"
    return LocatedFolded(folded, earlier, batch, problem)


def ids_of_same_records(topic: str, stored: StoredOffset | None, resets: Collection[Event]) -> set[str | None]:
    """Return the topic ids of a topic's present records, as the feed knows them; none where it does not read the topic.

    An operator may have declared that a topic with another id holds the same records (``topic-changed --choice
    same-records``).
    """
    if stored is None:
        return set()
    ids = {stored.topic_id}
    for reset in resets:
        if topic in reset.detail.get("same_records", ()):
            after = {entry["topic_id"] for entry in reset.detail["partitions"] if entry["topic"] == topic}
            before = {entry["topic_id"] for entry in reset.detail["removed"] if entry["topic"] == topic}
            ids |= before if after & ids else set()
    return ids


def is_earlier(topic_id: str | None, same: Collection[str | None]) -> bool:
    """Whether an id is of a topic whose records are gone, under the same name."""
    return all(is_other_topic(known, topic_id) for known in same)


def gap_of(gaps: Collection[Gap], same: Collection[str | None]) -> Gap | None:
    """Return the gap that holds the offset now; the newest that was closed where none is left."""
    of_topic = [gap for gap in gaps if not is_earlier(gap.topic_id, same)]
    not_closed = [gap for gap in of_topic if gap.closed_by_batch is None]
    return next(iter(not_closed or of_topic), None)


def is_committed(found: LocatedBatch) -> bool:
    return found.batch.state is BatchState.COMMITTED


def is_open(found: LocatedBatch) -> bool:
    return found.batch.state.is_open


def state_of(
    stored: StoredOffset | None,
    batches: Collection[LocatedBatch],
    gap: Gap | None,
    offset: int,
    folded: Collection[LocatedFolded] = (),
) -> OffsetState:
    """Return what happened to an offset; a committed one stays committed, also where it is to be read again."""
    counting = [found for found in batches if found.counts]
    # Which batch of a folded range it was may be unknown; but one of them has committed the offset.
    is_folded = any(each.batch is None and not each.is_earlier_topic for each in folded)
    if is_folded or any(map(is_committed, counting)):
        return OffsetState.COMMITTED
    if any(map(is_open, counting)):
        return OffsetState.PENDING
    if gap is not None and gap.closed_by_batch is None:
        return OffsetState.GAP
    return OffsetState.FORGOTTEN if stored is None else state_by_stored_offset(stored, offset)


def state_by_stored_offset(stored: StoredOffset, offset: int) -> OffsetState:
    if stored.next_offset is None or stored.first_offset is None:
        return OffsetState.START_PENDING
    if offset >= stored.next_offset:
        return OffsetState.NOT_READ_YET
    return OffsetState.BEFORE_FIRST if offset < stored.first_offset else OffsetState.UNACCOUNTED


def located(
    batch: BatchOfOffset,
    sinks: Sinks,
    topic_partition: TopicPartition,
    offset: int,
    same: Collection[str | None],
    lost: Collection[LostRange] = (),
) -> LocatedBatch:
    """Return a batch with its files that may hold the record; unavailable storage is part of the answer, no error."""
    earlier = is_earlier(batch.topic_id, same)
    if batch.state is not BatchState.COMMITTED:
        return LocatedBatch(batch, earlier)
    if file := next((each.file for each in lost if each.batch_id == batch.batch_id), None):
        problem = f"its file {file} was recorded as lost by an operator"
        return LocatedBatch(batch, earlier, problem=problem, gone=RecordState.LOST)
    try:
        sink = sinks(batch.output)
        if (removal := sink.archive.removal(batch.batch_id)) is not None:
            return LocatedBatch(batch, earlier, problem=str(removal), gone=RecordState.EXPIRED)
        receipt = sink.archive.receipt(batch.batch_id)
        inspector = role_of(batch.output, sink.inspector, ASKED_FOR)
    except KafkaIngestError as error:
        return LocatedBatch(batch, earlier, problem=str(error))
    if receipt is None:
        return LocatedBatch(
            batch, earlier, problem=f"expected its receipt next to {batch.output}, found none: is its storage mounted?"
        )
    found = tuple(files_of(batch, candidates(receipt.files, topic_partition, offset), inspector, offset))
    letters: tuple[FileOfOffset, ...] = ()
    if dead := candidates(receipt.dead_letters, topic_partition, offset):
        output = output_of_dead_letters(batch.output)
        letters = tuple(files_of(batch, dead, role_of(output, sinks(output).inspector, ASKED_FOR), offset))
    [count] = receipt.counts_of([batch.offset_range])
    return LocatedBatch(batch, earlier, found, letters, filtered=count.filtered, invisible=count.invisible)


def candidates(
    files: Collection[WrittenFile], topic_partition: TopicPartition, offset: int
) -> list[tuple[WrittenFile, WrittenPartition]]:
    return [
        (file, held)
        for file in files
        if (held := file.of_partition(topic_partition)) and held.smallest_offset <= offset <= held.largest_offset
    ]


def files_of(
    batch: BatchOfOffset, written: Collection[tuple[WrittenFile, WrittenPartition]], inspector: Inspector, offset: int
) -> Iterator[FileOfOffset]:
    for file, held in written:
        path = inspector.path(batch.batch_id, file)
        try:
            yield FileOfOffset(path, held, inspector.holds(batch.batch_id, file, held.topic_partition, offset))
        except FileNotFoundError:
            yield FileOfOffset(path, held, None, "file not found: removed, or moved, or its storage is not mounted")
        except (NotADataFileError, OSError) as error:
            yield FileOfOffset(path, held, None, str(error))
