"""A feed's control rows, written from what its output holds: one transaction."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from kafka_ingest.control.batch_statements import (
    begin_adopted_batch,
    left_out_document,
    move_batch,
    set_range_counts,
    transition_of,
)
from kafka_ingest.control.database import Store, transaction
from kafka_ingest.control.feed_statements import append_event, insert_feed, require_revision, touch_feed
from kafka_ingest.control.offset_statements import insert_gaps, insert_seeds, row_detail
from kafka_ingest.control.output_rows import add_lost_ranges, add_removed_ranges, take_from_removed
from kafka_ingest.control.read_again import count_replayed_again
from kafka_ingest.control.row_sums import count_again
from kafka_ingest.control.rows import batch_row, gaps_of
from kafka_ingest.control.schema import LEDGER_KINDS, attempt, batch, event, gap, hold, stored_offset
from kafka_ingest.model.batch import ADOPTIONS, AttemptState, BatchState, Transition
from kafka_ingest.model.control_rows import FeedSnapshot, NewFeed
from kafka_ingest.model.published_output import AdoptedBatch, Adoption


class AdoptionStore(Store):
    """The step that adopts an output."""

    def adopt(self, feed: FeedSnapshot | NewFeed, adoption: Adoption, *, reason: str, actor: str) -> None:
        # A year of batches every five minutes is 105,000, too many for the time limit of a task's step.
        with transaction(self._engine, "rebuild") as connection:
            if isinstance(feed, NewFeed):
                values = {"topics": sorted(adoption.topics), "topic_pattern": adoption.topic_pattern}
                insert_feed(connection, feed, cluster_id=adoption.cluster_id, **values)
            else:
                require_revision(connection, feed)
                touch_feed(connection, feed.feed_id, cluster_id=adoption.cluster_id)
            adopt_ledger(connection, feed, adoption)
            if adoption.abandoned is not None:
                overtaken = batch_row(connection, adoption.abandoned, for_update=True)
                move_batch(
                    connection, transition_of(overtaken, BatchState.ABANDONED), reason=reason, abandoned_by=actor
                )
            adopt_batches(connection, feed, adoption.batches, actor)
            # A closed gap names the batch that read it.
            adopt_gaps(connection, feed, adoption)
            replace_stored(connection, feed, adoption)
            count_again(connection, feed.feed_id)
            count_replayed_again(connection, feed.feed_id, [adopted.plan.batch_id for adopted in adoption.batches])
            add_removed_ranges(connection, feed.feed_id, adoption.expired)
            take_from_removed(connection, feed.feed_id, adoption.back)
            add_lost_ranges(connection, feed.feed_id, adoption.lost)
            detail: dict[str, Any] = {
                "reason": reason,
                "batches": [str(adopted.plan.batch_id) for adopted in adoption.batches],
                "abandoned": str(adoption.abandoned) if adoption.abandoned else None,
                "partitions": [row_detail(row) for row in adoption.stored],
                "removed": [str(topic_partition) for topic_partition in adoption.removed],
            }
            if adoption.files:
                detail["files"] = {str(batch_id): found.state.value for batch_id, found in adoption.files.items()}
            append_event(connection, feed.feed_id, "adopted", actor, None, detail)


def adopt_ledger(connection: Connection, feed: FeedSnapshot | NewFeed, adoption: Adoption) -> None:
    """Write the seeds, gaps and resets of the receipts into the journal, except those it has already."""
    known = {
        (row.kind, row.at, row.actor)
        for row in connection.execute(
            select(event.c.kind, event.c.at, event.c.actor).where(
                event.c.feed_id == feed.feed_id, event.c.kind.in_(LEDGER_KINDS)
            )
        )
    }
    for carried in adoption.ledger:
        if (carried.kind, carried.at, carried.actor) not in known:
            connection.execute(
                insert(event).values(
                    feed_id=feed.feed_id,
                    kind=carried.kind,
                    at=carried.at,
                    actor=carried.actor,
                    detail=dict(carried.detail),
                )
            )


def adopt_gaps(connection: Connection, feed: FeedSnapshot | NewFeed, adoption: Adoption) -> None:
    """Replace the gaps with those of the receipts, and end what a reset ended since."""
    gap_ids = {found.gap_id for found in adoption.gaps}
    # Backfills split gaps, and another order gives other pieces: all pieces of one decision are replaced together.
    decided = {found.decision for found in adoption.gaps}
    replaced = {found.gap_id for found in gaps_of(connection, feed.feed_id) if found.decision in decided}
    connection.execute(delete(gap).where(gap.c.feed_id == feed.feed_id, gap.c.gap_id.in_(gap_ids | replaced)))
    insert_gaps(connection, feed.feed_id, adoption.gaps)
    # What an older backup has planned ahead, or left open, and a reset ended since.
    ended = [gap.c.topic.in_(adoption.reset), gap.c.closed_by_batch.is_(None), gap.c.gap_id.not_in(gap_ids)]
    connection.execute(delete(gap).where(gap.c.feed_id == feed.feed_id, *ended))
    connection.execute(delete(hold).where(hold.c.feed_id == feed.feed_id, hold.c.topic.in_(adoption.reset)))
    for topic, topic_id in {row.topic_partition.topic: row.topic_id for row in adoption.stored}.items():
        # Gaps ahead in an older backup, in a topic that was recreated since.
        of_older = [gap.c.topic == topic, gap.c.topic_id.is_distinct_from(topic_id), gap.c.applied_at.is_(None)]
        connection.execute(delete(gap).where(gap.c.feed_id == feed.feed_id, *of_older))


def adopt_batches(
    connection: Connection, feed: FeedSnapshot | NewFeed, batches: Collection[AdoptedBatch], actor: str
) -> None:
    """Write batches as COMMITTED, whether the control tables knew them in another state or not at all."""
    ledger = select(func.max(event.c.event_id)).where(event.c.feed_id == feed.feed_id, event.c.kind.in_(LEDGER_KINDS))
    upto = connection.execute(ledger).scalar_one() or 0
    query = select(batch.c.batch_id, batch.c.state).where(batch.c.feed_id == feed.feed_id)
    known = {batch_id: BatchState(state) for batch_id, state in connection.execute(query)}
    for adopted in batches:
        plan, receipt = adopted.plan, adopted.receipt
        found = known.get(plan.batch_id) or begin_adopted_batch(connection, plan, actor)
        committed = Transition(plan.batch_id, found, BatchState.COMMITTED, ADOPTIONS)
        of_batch = attempt.c.batch_id == plan.batch_id
        connection.execute(
            update(attempt)
            .where(of_batch, attempt.c.attempt != receipt.attempt, attempt.c.state != AttemptState.DISCARDED.value)
            .values(state=AttemptState.DISCARDED.value, reason="another attempt was published")
        )
        values = {
            "state": AttemptState.PINNED.value,
            "directory": str(adopted.attempt_directory),
            "document_sha256": receipt.document_sha256,
            "opened_at": plan.planned_at,
            "opened_by": receipt.written_by,
            "receipt_sha256": adopted.receipt_sha256,
            "reason": None,
        }
        pinned = connection.execute(
            update(attempt).where(of_batch, attempt.c.attempt == receipt.attempt).values(**values)
        )
        if not pinned.rowcount:
            connection.execute(insert(attempt).values(batch_id=plan.batch_id, attempt=receipt.attempt, **values))
        move_batch(
            connection,
            committed,
            pinned_attempt=receipt.attempt,
            rows=receipt.rows,
            size_bytes=receipt.size_bytes,
            written_at=receipt.written_at,
            left_out=left_out_document(receipt),
            ledger_after=0,
            ledger_upto=upto,
            # The receipt was written before the commit; when exactly that was, only the lost tables knew.
            committed_at=receipt.written_at,
            committed_by=actor,
            reason=None,
            abandoned_by=None,
        )
        set_range_counts(connection, plan, receipt, receipt.range_counts(plan))


def replace_stored(connection: Connection, feed: FeedSnapshot | NewFeed, adoption: Adoption) -> None:
    """Write stored offsets in place of those of the same partitions, and end those that are removed."""
    known = feed.stored if isinstance(feed, FeedSnapshot) else {}
    for topic_partition in known.keys() & {*adoption.removed, *(row.topic_partition for row in adoption.stored)}:
        connection.execute(
            delete(stored_offset).where(
                stored_offset.c.feed_id == feed.feed_id,
                stored_offset.c.topic == topic_partition.topic,
                stored_offset.c.partition == topic_partition.partition,
            )
        )
    insert_seeds(connection, feed.feed_id, adoption.stored)
