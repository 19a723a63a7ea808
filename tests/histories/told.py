"""What the receipts beside an output tell of a feed, and whether adopting them brings exactly that back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.batch import BatchPlan, BatchState
from kafka_ingest.boundaries import FeedSnapshot
from kafka_ingest.control.operator_writer import SqlOperatorTables
from kafka_ingest.gap import Gap
from kafka_ingest.offsets import StoredOffset, TopicPartition

LedgerLine = tuple[str, datetime, str, Mapping[str, Any]]


@dataclass(frozen=True)
class Told:
    """The stored offsets, gaps and ledger as they were when a batch's commit began."""

    stored: Mapping[TopicPartition, StoredOffset]
    gaps: list[Gap]
    ledger: list[LedgerLine]

    def after(self, plan: BatchPlan) -> "Told":
        """Return the same with a batch's ranges read."""
        ends = {planned.topic_partition: planned.end_offset for planned in plan.ranges}
        stored = {tp: replace(row, next_offset=ends[tp]) if tp in ends else row for tp, row in self.stored.items()}
        return replace(self, stored=stored)


def told_by(tables: SqlOperatorTables, feed: FeedSnapshot) -> Told:
    """Return what the control tables know now, apart from when rows were written.

    Leader epoch and batch of a row are left out, too: a reset does not write them to the ledger.
    """
    stored = {tp: replace(row, updated_at=None, leader_epoch=None, batch_id=None) for tp, row in feed.stored.items()}
    ledger = [(event.kind, event.at, event.who, event.detail) for event in tables.ledger_of_feed(feed.feed_id)]
    return Told(stored, tables.gaps(feed.feed_id), sorted(ledger, key=lambda line: line[1]))


def check_adopted(
    adopted: SqlOperatorTables, lost: SqlOperatorTables, feed_name: str, told: Mapping[UUID, Told], published: list[str]
) -> None:
    """Hold control tables that were empty and adopted an output against those that wrote it.

    The same are: the batches that were published, as COMMITTED, with plan and counts; stored offsets, gaps and ledger as they
    were when the newest of them began its commit, and its ranges as read. What was decided later no receipt can tell.
    """
    feed = adopted.feed(feed_name)
    assert feed is not None
    ids = [UUID(batch_id) for batch_id in published]
    assert adopted.batch_states(feed.feed_id) == dict.fromkeys(ids, BatchState.COMMITTED)
    for batch_id in ids:
        assert adopted.batch(batch_id).plan == lost.batch(batch_id).plan
        assert adopted.batch(batch_id).rows == lost.batch(batch_id).rows
        assert adopted.range_counts(batch_id) == lost.range_counts(batch_id)
    expected, found = told[ids[-1]].after(lost.batch(ids[-1]).plan), told_by(adopted, feed)
    assert found.stored == expected.stored
    assert found.gaps == expected.gaps
    assert found.ledger == expected.ledger
