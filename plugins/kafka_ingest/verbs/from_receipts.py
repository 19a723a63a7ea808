"""Which offsets batches hold in an output, by its receipts; and the history of a feed, replayed from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_as_ours, said, said_or_none, whole
from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.gap import Event, Gap, LostRange, RemovalCause, RemovedRange, ended_gaps
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition, intersect, subtract, union
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedReceipt

THERE = frozenset({FilesState.INTACT, FilesState.CHANGED, FilesState.STAGED})
"""Readers see a batch's files, or will as soon as its publishing is finished."""


def lost_of_batches(lost: Iterable[LostRange]) -> dict[UUID, list[LostRange]]:
    return grouped((each.batch_id, each) for each in lost)


def held(published: PublishedReceipt, lost: Mapping[UUID, Sequence[LostRange]]) -> list[RemovedRange]:
    """Return what a batch read, without what its lost files held, and what another batch holds in its place.

    A replay holds single records of ranges that others have read: no offset of its own.
    """
    plan = published.plan
    if plan.replays:
        return []
    gone = [each.offset_range for each in lost.get(plan.batch_id, ())]
    gone += [each for each in published.ranges_read if each.topic_partition in published.replaced]
    return [RemovedRange(each, plan.topic_ids[each.topic]) for each in subtract(published.ranges_read, gone)]


def is_visible(published: PublishedReceipt) -> bool:
    return published.files.state in THERE and bool(published.receipt.files)


def not_in(ranges: Iterable[RemovedRange], others: Iterable[RemovedRange]) -> list[RemovedRange]:
    return combined(subtract, ranges, others)


def also_in(ranges: Iterable[RemovedRange], others: Iterable[RemovedRange]) -> list[RemovedRange]:
    return combined(intersect, ranges, others)


def combined(
    how: Callable[[list[OffsetRange], Iterable[OffsetRange]], list[OffsetRange]],
    ranges: Iterable[RemovedRange],
    others: Iterable[RemovedRange],
) -> list[RemovedRange]:
    of_topic, of_others = (grouped((each.topic_id, each.offset_range) for each in some) for some in (ranges, others))
    return [
        RemovedRange(each, topic_id)
        for topic_id, found in of_topic.items()
        for each in how(union(found), of_others.get(topic_id, ()))
    ]


def with_replaced(receipts: Sequence[PublishedReceipt]) -> list[PublishedReceipt]:
    """Return receipts with what others have replaced of each, and with its files judged without those rows."""
    landed = [published.plan.replaces for published in receipts if has_landed(published)]
    replaced = {(each.batch_id, each.topic_partition) for replaces in landed for each in replaces}
    found: list[PublishedReceipt] = []
    for published in receipts:
        batch_id, ranges = published.plan.batch_id, published.plan.ranges if replaced else ()
        gone = {each.topic_partition for each in ranges if (batch_id, each.topic_partition) in replaced}
        found.append(without(published, gone))
    return found


def has_landed(published: PublishedReceipt) -> bool:
    """Whether a batch was published, and so has replaced what its plan names, even if its own rows are gone since."""
    if published.removal is not None:
        return published.removal.cause is RemovalCause.EXPIRED or published.files.is_marked
    files = published.files
    was_counted = files.state is FilesState.GONE and files.rows is not None
    return files.state in {FilesState.INTACT, FilesState.CHANGED} or was_counted


def without(published: PublishedReceipt, replaced: set[TopicPartition]) -> PublishedReceipt:
    """Return a receipt with the partitions whose rows were replaced; what is left of it counts as all of it."""
    if not replaced:
        return published
    found = replace(published, replaced=frozenset(replaced))
    if published.files.rows == rows_left(found):
        return replace(found, files=FoundFiles(FilesState.INTACT, rows=published.files.rows))
    return found


def rows_left(published: PublishedReceipt) -> int:
    """Return how many of a batch's rows should be in the output: those that no other batch has replaced."""
    held = (held for file in published.receipt.files for held in file.partitions)
    return sum(each.rows for each in held if each.topic_partition not in published.replaced)


@dataclass(slots=True)
class Rebuilt:
    """The history of a feed, replayed from its receipts, oldest first."""

    rows: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    ledger: dict[tuple[str, datetime, str], Event] = field(default_factory=dict)
    story: list[Event | BatchPlan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    """What lost published files held, as far as receipts record it."""

    def replay(self, published: PublishedReceipt) -> None:
        """Take one receipt in: first what was decided since the one before, then what was read."""
        for event in published.ledger:
            # Its number is of the control tables that wrote it, and those may have been rebuilt since.
            identity = (event.kind, event.at, event.actor)
            if identity in self.ledger:
                continue
            self.ledger[identity] = event
            self.story.append(event)
            if event.kind == "seeded":
                self._seed(event)
            elif event.kind == "gap":
                self._pass_gaps(event)
                self.lost += map(LostRange.from_document, event.detail.get("lost", ()))
            elif event.kind == "reset":
                for row in map(row_of, event.detail["removed"]):
                    self.rows.pop(row.topic_partition, None)
                self._take(event)
            elif event.kind == "output_changed":
                # Another output left the stored offsets so: its receipts are not here.
                self.rows.clear()
                self._take(event)
        if published.plan.kind is BatchKind.LIVE:
            self._advance(published)
        elif published.plan.kind is BatchKind.BACKFILL:
            self.story.append(published.plan)

    def _seed(self, event: Event) -> None:
        for entry in event.detail["partitions"]:
            row = self.rows.get(TopicPartition(entry["topic"], entry["partition"]))
            if row is not None and not row.is_pending:
                self.problems.append(
                    f"{row.topic_partition} has two starts in the receipts, the second at {entry['offset']} by "
                    f"{event.actor}"
                )
            seed = row_of(entry | {"first_offset": entry["offset"], "next_offset": entry["offset"]})
            self.rows[seed.topic_partition] = seed

    def _pass_gaps(self, event: Event) -> None:
        for gap in map(Gap.from_document, event.detail["gaps"]):
            row = self.rows.get(gap.offset_range.topic_partition)
            if gap.applied_at is not None and row is not None and row.next_offset is not None:
                end_offset = max(row.next_offset, gap.offset_range.end_offset)
                self.rows[row.topic_partition] = replace(row, next_offset=end_offset, leader_epoch=None)

    def _take(self, event: Event) -> None:
        self.rows |= {row.topic_partition: row for row in map(row_of, event.detail["partitions"])}

    def _advance(self, published: PublishedReceipt) -> None:
        plan = published.plan
        for planned in published.ranges_read:
            topic_id = plan.topic_ids[planned.topic]
            row = self.rows.get(planned.topic_partition)
            if row is None:
                self.problems.append(f"batch {plan.batch_id} reads {planned}, and no receipt has its start offset")
                continue
            if (row.next_offset, row.topic_id) != (planned.start_offset, topic_id):
                self.problems.append(
                    f"batch {plan.batch_id} reads {planned} of topic id {topic_id}, the receipts before it end at "
                    f"{row.next_offset} of topic id {row.topic_id}"
                )
            self.rows[planned.topic_partition] = replace(
                row,
                next_offset=planned.end_offset,
                first_offset=row.first_offset if row.first_offset is not None else planned.start_offset,
                topic_id=topic_id,
                leader_epoch=plan.leader_epochs.get(planned.topic_partition),
                batch_id=plan.batch_id,
            )


def rebuilt_from(receipts: Sequence[PublishedReceipt]) -> Rebuilt:
    """Return a feed's history; raises OutputConflictError where what a receipt says was decided cannot be used."""
    rebuilt = Rebuilt()
    for published in receipts:
        try:
            with read_as_ours():
                rebuilt.replay(published)
                if published is receipts[-1]:
                    rebuilt.gaps = rebuilt_gaps(rebuilt.story)
        except ForeignJsonError as error:
            raise OutputConflictError(
                f"batch {published.plan.batch_id}: expected in its receipt what was decided before it, found that it "
                f"cannot be used: {error}. Nothing was changed; restore the receipt from a backup."
            ) from error
    return rebuilt


def rebuilt_gaps(story: Iterable[Event | BatchPlan]) -> list[Gap]:
    """Return the gaps after all events and all backfills, applied in the order of the receipts.

    Which gaps a backfill closed is recorded only in its ranges. It closed those that existed when it was planned: while
    a backfill is open no offset is reset, and gaps passed in the meantime are above it.
    """
    ledger = GapLedger()
    for entry in story:
        if isinstance(entry, BatchPlan):
            ledger.read(entry)
        else:
            ledger.apply(entry)
    return list(ledger.gaps.values())


@dataclass(slots=True)
class GapLedger:
    """The gaps at one moment, by their ids."""

    gaps: dict[UUID, Gap] = field(default_factory=dict)
    lost_by: dict[UUID, set[UUID]] = field(default_factory=dict)
    """Gap → the batches whose lost files it covers: one may follow it in the ledger without having read it again."""

    def apply(self, event: Event) -> None:
        if event.kind == "gap":
            gaps = {gap.gap_id: gap for gap in map(Gap.from_document, event.detail["gaps"])}
            self.gaps |= gaps
            if lost := {UUID(entry["batch_id"]) for entry in event.detail.get("lost", ())}:
                self.lost_by |= dict.fromkeys(gaps, lost)
        elif event.kind == "reset":
            self._end(event)
            self._start_over(event)

    def read(self, plan: BatchPlan) -> None:
        for gap in list(self.gaps.values()):
            if plan.batch_id in self.lost_by.get(gap.gap_id, ()):
                continue
            if gap.is_open and plan.topic_ids.get(gap.offset_range.topic, gap.topic_id) == gap.topic_id:
                self._replace(gap, gap.read_by(plan.batch_id, plan.ranges))

    def _end(self, event: Event) -> None:
        was, now = ([row_of(entry) for entry in event.detail[key]] for key in ("removed", "partitions"))
        for gap_id, left in ended_gaps(self.gaps.values(), was, now).items():
            self._replace(self.gaps[gap_id], [left] if left is not None else [])

    def _start_over(self, event: Event) -> None:
        were = {(entry["topic"], entry["topic_id"]) for entry in event.detail["removed"]}
        changed = {topic for topic, _ in were}
        ids = {entry["topic"]: entry["topic_id"] for entry in event.detail["partitions"]}
        for gap in list(self.gaps.values()):
            topic = gap.offset_range.topic
            is_untouched = str(gap.offset_range.topic_partition) in event.detail["untouched"]
            if topic in event.detail["same_records"]:
                if (topic, gap.topic_id) in were:
                    self.gaps[gap.gap_id] = replace(gap, topic_id=ids.get(topic))
            elif topic in changed and gap.applied_at is None and not is_untouched:
                del self.gaps[gap.gap_id]

    def _replace(self, gap: Gap, pieces: Sequence[Gap]) -> None:
        del self.gaps[gap.gap_id]
        self.gaps |= {piece.gap_id: piece for piece in pieces}
        if gap.gap_id in self.lost_by:
            self.lost_by |= {piece.gap_id: self.lost_by[gap.gap_id] for piece in pieces}


def row_of(entry: dict[str, Any]) -> StoredOffset:
    first_offset, next_offset = (
        whole(entry, name) if entry[name] is not None else None for name in ("first_offset", "next_offset")
    )
    topic_partition, topic_id = TopicPartition.from_document(entry), said_or_none(entry, "topic_id")
    return StoredOffset(topic_partition, topic_id, first_offset, next_offset, said(entry, "rule"))
