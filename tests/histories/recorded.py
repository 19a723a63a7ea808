"""What the receipts beside an output record of a feed, and whether adopting them brings exactly that back."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.batches.known_feed import whole_plan
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.sinks.choose import sink_of

LedgerLine = tuple[str, datetime, str, Mapping[str, Any]]


@dataclass(frozen=True)
class Recorded:
    """The stored offsets, gaps and ledger as they were when a live batch's commit began, or a backfill was planned."""

    stored: Mapping[TopicPartition, StoredOffset]
    gaps: list[Gap]
    ledger: list[LedgerLine]
    committing: UUID | None = None
    """The live batch whose commit had begun by then and moved no offset yet."""

    def after(self, read: Iterable[OffsetRange]) -> "Recorded":
        """Return the same with a batch's ranges read."""
        ends = {each.topic_partition: each.end_offset for each in read}
        stored = {tp: replace(row, next_offset=ends[tp]) if tp in ends else row for tp, row in self.stored.items()}
        return replace(self, stored=stored)

    def filled_by(self, backfills: Iterable[BatchPlan]) -> "Recorded":
        """Return the same with what backfills read of the gaps that were there when they were planned."""
        gaps = self.gaps
        for plan in backfills:
            gaps = [
                piece
                for gap in gaps
                for piece in (gap.read_by(plan.batch_id, plan.ranges) if is_filled_by(plan, gap) else [gap])
            ]
        return replace(self, gaps=gaps)


def is_filled_by(plan: BatchPlan, gap: Gap) -> bool:
    """Whether a backfill was planned for an open gap's topic when the gap was there."""
    topic_id = plan.topic_ids.get(gap.offset_range.topic, gap.topic_id)
    return gap.is_open and gap.applied_at is not None and gap.applied_at <= plan.planned_at and topic_id == gap.topic_id


def pieces(gaps: Iterable[Gap]) -> list[dict[str, Any]]:
    """Return gaps without their ids: only the ids show in what order backfills took pieces out of one."""
    documents = [{**gap.as_document(), "gap_id": None} for gap in gaps]
    return sorted(documents, key=lambda document: json.dumps(document, sort_keys=True))


def recorded_in(tables: SqlControlTables, feed: FeedSnapshot) -> Recorded:
    """Return what the control tables know now, apart from when rows were written.

    Leader epoch and batch of a row are left out, too: a reset does not write them to the ledger.
    """
    stored = {tp: replace(row, updated_at=None, leader_epoch=None, batch_id=None) for tp, row in feed.stored.items()}
    ledger = [(event.kind, event.at, event.actor, event.detail) for event in tables.ledger_of_feed(feed.feed_id)]
    is_committing = feed.open_batch is not None and feed.open_batch.state is BatchState.COMMITTING
    return Recorded(
        stored,
        tables.gaps(feed.feed_id),
        sorted(ledger, key=lambda line: line[1]),
        feed.open_batch.batch_id if feed.open_batch is not None and is_committing else None,
    )


def check_adopted(
    adopted: SqlControlTables,
    lost: SqlControlTables,
    feed_name: str,
    recorded: Mapping[UUID, Recorded],
    published: list[str],
) -> None:
    """Hold control tables that were empty and adopted an output against those that wrote it.

    The same are: the batches that were published, as COMMITTED, with plan and counts; stored offsets, gaps and ledger
    as they were when the newest live one began its commit, or a backfill was planned after that, the ranges of the
    newest live one as read, and all gaps closed that backfills have filled. No receipt has what was decided later.
    """
    feed = adopted.feed(feed_name)
    assert feed is not None
    ids = [UUID(batch_id) for batch_id in published]
    assert adopted.batch_states(feed.feed_id) == dict.fromkeys(ids, BatchState.COMMITTED)
    for batch_id in ids:
        plan = lost.batch(batch_id).plan
        assert adopted.batch(batch_id).plan == whole_plan(plan, sink_of)
        assert adopted.batch(batch_id).rows == lost.batch(batch_id).rows
        assert adopted.batch(batch_id).left_out == lost.batch(batch_id).left_out
        if plan.folded is None:
            assert adopted.range_counts(batch_id) == lost.range_counts(batch_id)
    batches = [adopted.batch(batch_id) for batch_id in ids]
    newest = last_recorded(recorded, batches)
    assert newest is not None
    backfills = [batch.plan for batch in batches if batch.plan.kind is BatchKind.BACKFILL]
    expected, found = newest.filled_by(backfills), recorded_in(adopted, feed)
    assert found.stored == expected.stored
    assert pieces(found.gaps) == pieces(expected.gaps)
    assert found.ledger == expected.ledger


def last_recorded(recorded: Mapping[UUID, Recorded], published: Iterable[Batch | PublishedReceipt]) -> Recorded | None:
    """Return what the receipts of batches record together, the gaps as they were before backfills filled them.

    The last that any of them records is the newest live one's, with its ranges read, or of a backfill that was planned
    later, or where no live one was published.
    """
    batches = {batch.plan.batch_id: batch for batch in published}
    live = [batch_id for batch_id, batch in batches.items() if batch.plan.kind is BatchKind.LIVE]
    of_backfills = [recorded[batch_id] for batch_id in batches if batch_id in recorded and batch_id not in live]
    if not live:
        return max(of_backfills, key=lambda each: len(each.ledger), default=None)
    newest = max(live)
    # Of as many lines, the live one's: a backfill that was planned on the same does not have its ranges.
    last = max([recorded[newest], *of_backfills], key=lambda each: len(each.ledger))
    return last.after(batches[newest].ranges_read) if last is recorded[newest] or last.committing == newest else last
