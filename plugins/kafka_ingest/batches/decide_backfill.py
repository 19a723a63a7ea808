"""Decide what a backfill reads: what is requested, minus what is committed, claimed or deleted. Pure."""

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_ingest.batches.backfill_request import NOTHING_DONE, BackfillRequest, Mode, OnMissing, OnOverlap, OpenGaps
from kafka_ingest.batches.replacing import read_by, to_replace, whole_chunks
from kafka_ingest.batches.replaying import LettersFound, chunks_of_letters
from kafka_ingest.errors import InvalidBackfillError, RangesTakenError, RecordsDeletedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import HeldRange
from kafka_ingest.model.coverage import BackfillRange, PartitionCoverage
from kafka_ingest.model.gap import GapCause, NewGap
from kafka_ingest.model.offsets import (
    Isolation,
    LogBounds,
    OffsetRange,
    TopicPartition,
    by_partition,
    intersect,
    listing,
    span_of,
    subtract,
    union,
)
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.read_again import ReplacedRange, ReplayedLetters, RowsReplaced, spanned_by


def cut_into_chunks(
    ranges: Iterable[OffsetRange], max_records: int, most: int
) -> tuple[list[tuple[OffsetRange, ...]], list[OffsetRange]]:
    """Return the first ``most`` chunks of at most ``max_records`` each, in reading order, and what is left then.

    A chunk takes at most one range per partition, as a batch does, and covers as many partitions as it can: they are
    read in parallel.
    """
    left = {tp: deque(pieces) for tp, pieces in by_partition(union(ranges)).items()}
    chunks: list[tuple[OffsetRange, ...]] = []
    while left and len(chunks) < most:
        shares = share({tp: pieces[0].span for tp, pieces in left.items()}, max_records)
        chunk: list[OffsetRange] = []
        for topic_partition, taken in shares.items():
            head = left[topic_partition].popleft()
            cut = head.start_offset + taken
            chunk.append(OffsetRange(topic_partition, head.start_offset, cut))
            if cut < head.end_offset:
                left[topic_partition].appendleft(OffsetRange(topic_partition, cut, head.end_offset))
            if not left[topic_partition]:
                del left[topic_partition]
        chunks.append(tuple(sorted(chunk)))
    return chunks, sorted(itertools.chain.from_iterable(left.values()))


def share(spans: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Return how much each partition takes of a budget: the same for all, and what small ones leave goes to the others.

    Where there are more partitions than the budget is large, the first ones take one each.
    """
    shares: dict[TopicPartition, int] = {}
    smallest_first = sorted(sorted(spans)[:budget], key=lambda tp: spans[tp])
    for number, topic_partition in enumerate(smallest_first):
        # Never 0: there are no more partitions than records in the budget, and none before this one took more than its
        # share.
        taken = min(spans[topic_partition], budget // (len(smallest_first) - number))
        shares[topic_partition] = taken
        budget -= taken
    return shares


MOST_CHUNKS = 1_000
"""Per plan; the rest is for the next. Airflow expands a task up to ``core.max_map_length`` times, by default 1,024."""


@dataclass(frozen=True, slots=True)
class BackfillDecision:
    """What to read, in chunks, and what not. ``gaps`` are new ones, over deleted records that were in no gap.

    ``for_later`` exceeds the largest number of chunks, ``committed`` is in the output already, ``claimed`` is another
    open backfill's, ``deleted`` is no longer in Kafka.
    """

    chunks: Sequence[tuple[OffsetRange, ...]]
    for_later: Sequence[OffsetRange] = ()
    committed: Sequence[OffsetRange] = ()
    claimed: Sequence[OffsetRange] = ()
    deleted: Sequence[OffsetRange] = ()
    gaps: Sequence[NewGap] = ()
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epochs in which logs reached the ends of the chunks; without partitions whose broker reports none."""
    replaces: Sequence[tuple[ReplacedRange, ...]] = ()
    """What each chunk of a replacement replaces; empty where nothing is replaced."""
    rows_replaced: RowsReplaced | None = None
    """What readers see of that now."""
    replays: Sequence[tuple[ReplayedLetters, ...]] = ()
    """Which dead letters each chunk of a replay claims; empty where none are replayed."""
    topic_ids: Sequence[Mapping[str, str | None]] = ()
    """The ids that the topics of each chunk of a replay had then; those of others are the stored offsets'."""
    letters_left_out: Sequence[str] = ()
    """Which dead letters are not replayed, and why."""

    @property
    def records_at_most(self) -> int:
        """How many records the chunks can hold; compaction and transactions make it fewer."""
        if self.replays:
            return sum(each.number for chunk in self.replays for each in chunk)
        return sum(span_of(chunk) for chunk in self.chunks)

    def not_read(self) -> list[tuple[str, Sequence[OffsetRange]]]:
        found = (
            ("in the output already", self.committed),
            ("another open backfill reads it", self.claimed),
            ("deleted by retention", self.deleted),
            ("more than one run takes, so it is for the next", self.for_later),
        )
        return [(why, ranges) for why, ranges in found if ranges]


@dataclass(frozen=True, slots=True)
class Taken:
    """What of the target output is there already, or about to be."""

    committed: Sequence[OffsetRange]
    claimed: Sequence[OffsetRange]
    by: Sequence[BackfillRange]
    expired: Sequence[OffsetRange] = ()
    """Committed ranges that were removed from the output on purpose: they are not filled again, but may be copied."""


def taken_in_feed(coverage: Mapping[TopicPartition, PartitionCoverage], rewound: Sequence[OffsetRange] = ()) -> Taken:
    """Return what the feed's output holds or will hold; ``rewound`` was committed before a backward reset."""
    return Taken(
        committed=[*rewound, *(each for partition in coverage.values() for each in partition.committed)],
        claimed=[each for partition in coverage.values() for each in partition.claimed],
        by=[each for partition in coverage.values() for each in partition.backfills],
        expired=[each for partition in coverage.values() for each in partition.expired],
    )


def taken_in_copy(copied: Sequence[BackfillRange], topic_ids: Mapping[str, str | None]) -> Taken:
    """Return what another output holds of the topics as they are now, or is about to."""
    same = [each for each in copied if topic_ids.get(each.offset_range.topic, each.topic_id) == each.topic_id]
    return Taken(
        committed=union(held for each in same if not each.state.is_open for held in each.held),
        claimed=union(each.offset_range for each in same if each.state.is_open),
        by=same,
    )


def decide(
    request: BackfillRequest,
    wanted: Sequence[OffsetRange],
    taken: Taken,
    coverage: Mapping[TopicPartition, PartitionCoverage],
    bounds: Mapping[TopicPartition, LogBounds],
    isolation: Isolation,
) -> BackfillDecision:
    """Return what a backfill reads of what it was asked for.

    Raises InvalidBackfillError where the request covers what a backfill may not read, RangesTakenError or
    RecordsDeletedError where it covers taken or deleted ranges without asking to leave them out.
    """
    if request.mode is Mode.FILL:
        check_below_stored(wanted, coverage)
    check_in_log(wanted, bounds, isolation)
    committed, claimed = intersect(wanted, taken.committed), intersect(wanted, taken.claimed)
    if request.on_overlap is OnOverlap.REFUSE and (committed or claimed):
        raise_taken(committed, claimed, taken, request.on_overlap)
    left = subtract(wanted, [*committed, *claimed])

    before_log = [OffsetRange(tp, 0, found.log_start_offset) for tp, found in bounds.items()]
    deleted = intersect(left, before_log)
    known_lost = lost_on_record(coverage) if isinstance(request.selection, OpenGaps) else []
    if request.on_missing is OnMissing.REFUSE and (missing := subtract(deleted, known_lost)):
        raise RecordsDeletedError(
            f"expected records that Kafka still holds, found that retention has deleted {listing(missing, limit=20)} "
            f"({counted(span_of(missing), 'offset')}). {NOTHING_DONE} To read the rest"
            f"{', with what is missing as a gap on record' if request.mode is Mode.FILL else ''}: missing `record_gap`."
        )
    chunks, for_later = cut_into_chunks(subtract(left, deleted), request.max_records, MOST_CHUNKS)
    if claimed and not chunks:
        # Nothing to do would be taken for done.
        raise_taken(committed, claimed, taken, request.on_overlap)
    gaps = new_gaps(deleted, coverage, bounds) if request.mode is Mode.FILL else []
    return BackfillDecision(chunks, for_later, committed, claimed, deleted, gaps, epochs_of(bounds))


def decide_replacement(
    request: BackfillRequest,
    wanted: Sequence[OffsetRange],
    held: Sequence[HeldRange],
    coverage: Mapping[TopicPartition, PartitionCoverage],
    bounds: Mapping[TopicPartition, LogBounds],
    isolation: Isolation,
    output: OutputLocation,
) -> BackfillDecision:
    """Return what a replacement reads; raises the error that names what cannot be replaced."""
    check_below_stored(wanted, coverage)
    check_in_log(wanted, bounds, isolation)
    replaced = to_replace(wanted, held, coverage, bounds, output)
    chunks, for_later = whole_chunks(replaced, request.max_records, MOST_CHUNKS)
    return BackfillDecision(
        [read_by(chunk) for chunk in chunks], for_later, leader_epochs=epochs_of(bounds), replaces=chunks
    )


def decide_replay(request: BackfillRequest, found: LettersFound) -> BackfillDecision:
    """Return what a replay claims, in chunks."""
    chunks, for_later = chunks_of_letters(found, request.max_records, MOST_CHUNKS)
    ids = found.topic_ids
    return BackfillDecision(
        [spanned_by(chunk) for chunk in chunks],
        for_later,
        replays=chunks,
        topic_ids=[
            {each.topic_partition.topic: ids[each.batch_id][each.topic_partition.topic] for each in chunk}
            for chunk in chunks
        ],
        letters_left_out=found.left_out,
    )


def epochs_of(bounds: Mapping[TopicPartition, LogBounds]) -> dict[TopicPartition, int]:
    """Return the logs' leader epochs, where a broker reports them.

    All chunks end within these logs: where one is cut off below an end later, this epoch ends there (KIP-320).
    """
    return {tp: found.leader_epoch for tp, found in bounds.items() if found.leader_epoch is not None}


def check_below_stored(wanted: Sequence[OffsetRange], coverage: Mapping[TopicPartition, PartitionCoverage]) -> None:
    """Raise InvalidBackfillError where a range ends above the stored offset: a live run reads what follows."""
    beyond = [
        f"{offset_range}, stored offset {stored:,}"
        for offset_range in wanted
        if offset_range.end_offset > (stored := coverage[offset_range.topic_partition].stored.next_offset or 0)
    ]
    if beyond:
        raise InvalidBackfillError(
            "expected ranges that end at or below the stored offset, since a live run reads what follows; found "
            f"{listing(beyond)}. {NOTHING_DONE} End there, or run the feed; `copy` reads further, into another output."
        )


def check_in_log(
    wanted: Sequence[OffsetRange], bounds: Mapping[TopicPartition, LogBounds], isolation: Isolation
) -> None:
    """Raise InvalidBackfillError where a range ends above what can be read of the log."""
    beyond = [
        f"{offset_range}, readable up to {end:,}"
        for offset_range in wanted
        if offset_range.end_offset > (end := bounds[offset_range.topic_partition].readable_end(isolation))
    ]
    if beyond:
        raise InvalidBackfillError(
            f"expected ranges that end within the log, found {listing(beyond)}. {NOTHING_DONE} End where the log does."
        )


def raise_taken(
    committed: Sequence[OffsetRange], claimed: Sequence[OffsetRange], taken: Taken, on_overlap: OnOverlap
) -> None:
    """Raise RangesTakenError, naming what is committed already and which open backfills claim the rest."""
    batches = sorted(
        {str(each.batch_id) for each in taken.by if each.state.is_open and intersect([each.offset_range], claimed)}
    )
    texts = [f"committed already: {listing(committed)}"] if committed else []
    if gone := intersect(committed, taken.expired):
        texts.append(f"expired from the output since: {listing(gone)}, which a copy can read (`--copy-to`)")
    texts += [f"claimed by open backfills, {listing(batches)}: {listing(claimed)}"] if claimed else []
    others = " Continue those: `kafka-ingest backfill FEED open`, or the form's open chunks; or end one: `abandon`."
    cut = " Or leave out what is taken: overlap `cut`."
    raise RangesTakenError(
        f"expected ranges that are neither in the output nor in an open backfill, found {'; '.join(texts)}. "
        f"{NOTHING_DONE}{others if batches else ''}{cut if on_overlap is OnOverlap.REFUSE else ''}"
    )


def lost_on_record(coverage: Mapping[TopicPartition, PartitionCoverage]) -> list[OffsetRange]:
    """Return the open gaps of cause ``retention``."""
    return [
        gap.offset_range
        for partition in coverage.values()
        for gap in partition.open_gaps
        if gap.cause is GapCause.RETENTION
    ]


def new_gaps(
    deleted: Sequence[OffsetRange],
    coverage: Mapping[TopicPartition, PartitionCoverage],
    bounds: Mapping[TopicPartition, LogBounds],
) -> list[NewGap]:
    """Return the gaps over deleted ranges, without what is in a gap already."""
    on_record = [gap.offset_range for partition in coverage.values() for gap in partition.open_gaps]
    return [
        NewGap(missing, GapCause.RETENTION, f"the log starts at {start:,}: a backfill found the records below deleted")
        for missing in subtract(deleted, on_record)
        for start in [bounds[missing.topic_partition].log_start_offset]
    ]
