"""The gap ledger of a feed, rebuilt from its published receipts. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.event import Event
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.rewound import ended_gaps
from kafka_ingest.operating.journal_rows import row_of


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
        """Apply an event's changes to the gaps."""
        if event.kind == "gap":
            gaps = {gap.gap_id: gap for gap in map(Gap.from_document, event.detail["gaps"])}
            self.gaps |= gaps
            if lost := {UUID(entry["batch_id"]) for entry in event.detail.get("lost", ())}:
                self.lost_by |= dict.fromkeys(gaps, lost)
        elif event.kind == "reset":
            self._end(event)
            self._start_over(event)

    def read(self, plan: BatchPlan) -> None:
        """Close what a backfill has read."""
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
