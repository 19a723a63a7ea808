"""The steps that only an operator takes. Each is one transaction, and refused where the feed changed since it was shown."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, delete, false, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from kafka_ingest.control.batch_statements import batch_values, left_out_document, set_range_counts
from kafka_ingest.control.database import transaction
from kafka_ingest.control.feed_statements import append_event, insert_feed, lock_feed, require_revision, touch_feed
from kafka_ingest.control.folding_writer import SqlFoldingTables
from kafka_ingest.control.offset_statements import (
    apply_jumps,
    gap_of,
    insert_gaps,
    insert_seeds,
    note_gaps,
    row_detail,
    seed_detail,
    upsert_seeds,
)
from kafka_ingest.control.removed_output import add_lost_ranges, add_removed_ranges, take_from_removed
from kafka_ingest.control.reset_statements import end_gaps, require_none_open, reset_detail, reset_rows, write_rows
from kafka_ingest.control.row_sums import (
    count_again,
    count_partitions,
    rows_kept,
    topics_that_came_back,
    write_rows_kept,
)
from kafka_ingest.control.rows import batch_row, gaps_of
from kafka_ingest.control.schema import LEDGER_KINDS, attempt, batch, event, gap, hold, stored_offset
from kafka_ingest.control.writer import abandon_batch
from kafka_ingest.errors import FeedChangedError
from kafka_ingest.model.batch import AttemptState, BatchState
from kafka_ingest.model.control_rows import AdoptedBatch, Adoption, FeedSnapshot, NewFeed, ResetMove, StartOver
from kafka_ingest.model.gap import Gap, Jump, NewGap
from kafka_ingest.model.hold import DECIDED_BY_TOPIC
from kafka_ingest.model.offsets import StoredOffset
from kafka_ingest.model.removal import LostRange, RemovedRange


class SqlOperatorTables(SqlFoldingTables):
    """The control tables, with what only an operator writes to them."""

    def file_gap(self, feed: FeedSnapshot, new_gap: NewGap, *, seed: StoredOffset | None, who: str) -> Gap:
        """File a gap, and move the stored offset over it where it begins there; ``seed`` is the row of a new partition."""
        topic_partition, span = new_gap.offset_range.topic_partition, new_gap.offset_range
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            if seed is not None:
                upsert_seeds(connection, feed.feed_id, [seed])
                append_event(connection, feed.feed_id, "seeded", who, None, {"partitions": [seed_detail(seed)]})
            stored = seed or feed.stored[topic_partition]
            now = datetime.now(UTC)
            if stored.next_offset == span.start_offset:
                jump = Jump(topic_partition, span.start_offset, span.end_offset, (new_gap,))
                return apply_jumps(connection, feed.feed_id, [jump], who=who)[0]
            ahead = gap_of(new_gap, stored.topic_id, who, now, applied_at=None)
            insert_gaps(connection, feed.feed_id, [ahead])
            note_gaps(connection, feed.feed_id, [ahead], who, None)
            return ahead

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
        """Replace the stored offsets of topics that are not the ones they were counted in any more, and end their holds."""
        names = [topic.topic for topic in topics]
        rows = [row for topic in topics for row in topic.rows]
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id, cluster_id=cluster_id, **topics_known(feed, cluster_id))
            if abandoned is not None:
                row = batch_row(connection, abandoned, for_update=True)
                abandon_batch(connection, row, reason=reason, who=who, only_from={BatchState.PLANNED})
            old = [row for row in feed.stored.values() if row.topic_partition.topic in names]
            came_back = topics_that_came_back(connection, feed, topics)
            kept = rows_kept(connection, feed.feed_id, topics)
            connection.execute(
                delete(stored_offset).where(stored_offset.c.feed_id == feed.feed_id, stored_offset.c.topic.in_(names))
            )
            insert_seeds(connection, feed.feed_id, rows)
            write_rows_kept(connection, feed.feed_id, kept)
            end_gaps(connection, feed.feed_id, old, rows)
            keep_gaps(connection, feed, topics)
            end_holds(connection, feed, topics)
            detail = {
                "reason": reason,
                "cluster_id": {"was": feed.cluster_id, "is": cluster_id},
                "same_records": [topic.topic for topic in topics if topic.same_records],
                "untouched": [str(tp) for topic in topics for tp in topic.untouched],
                "removed": [row_detail(row) for row in old],
                "partitions": [row_detail(row) for row in rows],
            }
            append_event(connection, feed.feed_id, "reset", who, None, detail)
            if came_back:
                count_partitions(connection, feed.feed_id, came_back)

    def reset_offsets(self, feed: FeedSnapshot, moves: Sequence[ResetMove], *, reason: str, who: str) -> None:
        """Move stored offsets, all or none; raises FeedChangedError, or BatchStateError where a batch is open."""
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            require_none_open(connection, feed)
            touch_feed(connection, feed.feed_id)
            now = reset_rows(feed, moves)
            was = [feed.stored[move.topic_partition] for move in moves]
            write_rows(connection, feed.feed_id, now, moves)
            end_gaps(connection, feed.feed_id, was, now)
            # The gaps of what is skipped come after it in the journal: whoever tells it again finds the rows moved already.
            append_event(connection, feed.feed_id, "reset", who, None, reset_detail(feed, was, now, reason))
            apply_jumps(connection, feed.feed_id, [move.jump for move in moves if move.jump is not None], who=who)

    def record_lost(
        self,
        feed: FeedSnapshot,
        lost: Sequence[LostRange],
        gaps: Sequence[NewGap],
        *,
        reason: str,
        who: str,
    ) -> None:
        """Write that published files were lost, and the gaps of what no other batch holds; no stored offset moves."""
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            add_lost_ranges(connection, feed.feed_id, lost)
            take_from_removed(connection, feed.feed_id, lost)
            now = datetime.now(UTC)
            filed = [
                gap_of(new, feed.stored[new.offset_range.topic_partition].topic_id, who, now, applied_at=now)
                for new in gaps
            ]
            insert_gaps(connection, feed.feed_id, filed)
            detail = {
                "gaps": [found.as_document() for found in filed],
                "lost": [each.as_document() for each in lost],
                "reason": reason,
            }
            append_event(connection, feed.feed_id, "gap", who, lost[0].batch_id, detail)

    def record_removed(
        self, feed_id: UUID, batches: Sequence[UUID], ranges: Sequence[RemovedRange], *, reason: str, who: str
    ) -> None:
        """Write which committed offsets were let expire; again changes nothing but the audit journal."""
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            touch_feed(connection, feed_id)
            add_removed_ranges(connection, feed_id, ranges)
            detail = {"reason": reason, "batches": [str(batch_id) for batch_id in batches]}
            append_event(connection, feed_id, "expired", who, None, detail)

    def rename_feed(self, feed: FeedSnapshot, new_name: str, *, reason: str, who: str) -> None:
        """Give the feed another name; raises FeedChangedError where it is taken."""
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            try:
                touch_feed(connection, feed.feed_id, name=new_name)
            except IntegrityError as error:
                raise FeedChangedError(
                    f"the control tables know another feed as {new_name!r}; a name is one feed's. Nothing was changed."
                ) from error
            detail = {"reason": reason, "was": feed.name, "is": new_name}
            append_event(connection, feed.feed_id, "renamed", who, None, detail)

    def adopt(self, feed: FeedSnapshot | NewFeed, adoption: Adoption, *, reason: str, who: str) -> None:
        """Write what the output tells of a feed."""
        # A year of batches every five minutes is 105,000, which no limit of a task's step has room for.
        with transaction(self._engine, "rebuild") as connection:
            if isinstance(feed, NewFeed):
                values = {"topics": sorted(adoption.topics), "topic_pattern": adoption.topic_pattern}
                insert_feed(connection, feed, cluster_id=adoption.cluster_id, **values)
            else:
                require_revision(connection, feed)
                touch_feed(connection, feed.feed_id, cluster_id=adoption.cluster_id)
            adopt_ledger(connection, feed, adoption)
            if adoption.abandoned is not None:
                connection.execute(
                    update(batch)
                    .where(batch.c.batch_id == adoption.abandoned)
                    .values(
                        state=BatchState.ABANDONED.value,
                        reason=reason,
                        abandoned_by=who,
                        updated_at=datetime.now(UTC),
                    )
                )
            adopt_batches(connection, feed, adoption.batches, who)
            # A closed gap names the batch that read it.
            adopt_gaps(connection, feed, adoption)
            replace_stored(connection, feed, adoption)
            count_again(connection, feed.feed_id)
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
            append_event(connection, feed.feed_id, "adopted", who, None, detail)


def topics_known(feed: FeedSnapshot, cluster_id: str) -> dict[str, object]:
    """Return the feed's topics as the next plan is to know them: on another cluster nothing was made since the last one."""
    return {} if cluster_id == feed.cluster_id else {"topics": [], "topic_pattern": None}


def keep_gaps(connection: Connection, feed: FeedSnapshot, topics: Sequence[StartOver]) -> None:
    """Take gaps along where the records are the same; elsewhere those that lie ahead mean nothing any more."""
    for topic in topics:
        of_topic = [gap.c.feed_id == feed.feed_id, gap.c.topic == topic.topic]
        if topic.same_records:
            # Those of a topic that had the name before it are of other records.
            ids = {row.topic_id for tp, row in feed.stored.items() if tp.topic == topic.topic}
            same = or_(false(), *(gap.c.topic_id.is_not_distinct_from(topic_id) for topic_id in ids))
            connection.execute(update(gap).where(*of_topic, same).values(topic_id=topic.topic_id))
        else:
            stay = [tp.partition for tp in topic.untouched]
            connection.execute(delete(gap).where(*of_topic, gap.c.applied_at.is_(None), gap.c.partition.not_in(stay)))


def end_holds(connection: Connection, feed: FeedSnapshot, topics: Sequence[StartOver]) -> None:
    """End the holds that were decided on, and those on offsets that mean other records now."""
    for topic in topics:
        of_topic = [hold.c.feed_id == feed.feed_id, hold.c.topic == topic.topic]
        stay = [tp.partition for tp in topic.untouched]
        is_decided = hold.c.cause.in_([cause.value for cause in DECIDED_BY_TOPIC])
        means_others = or_(hold.c.partition.is_(None), hold.c.partition.not_in(stay))
        connection.execute(
            delete(hold).where(*of_topic, is_decided if topic.same_records else is_decided | means_others)
        )


def adopt_ledger(connection: Connection, feed: FeedSnapshot | NewFeed, adoption: Adoption) -> None:
    """Write the journal of seeds, gaps and resets that the receipts carry, apart from what is known."""
    known = {
        (row.kind, row.at, row.who)
        for row in connection.execute(
            select(event.c.kind, event.c.at, event.c.who).where(
                event.c.feed_id == feed.feed_id, event.c.kind.in_(LEDGER_KINDS)
            )
        )
    }
    for told in adoption.ledger:
        if (told.kind, told.at, told.who) not in known:
            connection.execute(
                insert(event).values(
                    feed_id=feed.feed_id, kind=told.kind, at=told.at, who=told.who, detail=dict(told.detail)
                )
            )


def adopt_gaps(connection: Connection, feed: FeedSnapshot | NewFeed, adoption: Adoption) -> None:
    """Write the gaps that the receipts tell, in place of those that are known, and end what a reset ended since."""
    gap_ids = {found.gap_id for found in adoption.gaps}
    # Backfills split gaps, and in another order into other pieces: all that came of one decision goes with it.
    decided = {found.decision for found in adoption.gaps}
    replaced = {found.gap_id for found in gaps_of(connection, feed.feed_id) if found.decision in decided}
    connection.execute(delete(gap).where(gap.c.feed_id == feed.feed_id, gap.c.gap_id.in_(gap_ids | replaced)))
    insert_gaps(connection, feed.feed_id, adoption.gaps)
    # What an older backup has planned ahead, or left open, and a reset ended since.
    ended = [gap.c.topic.in_(adoption.reset), gap.c.closed_by_batch.is_(None), gap.c.gap_id.not_in(gap_ids)]
    connection.execute(delete(gap).where(gap.c.feed_id == feed.feed_id, *ended))
    connection.execute(delete(hold).where(hold.c.feed_id == feed.feed_id, hold.c.topic.in_(adoption.reset)))
    for topic, topic_id in {row.topic_partition.topic: row.topic_id for row in adoption.stored}.items():
        # What an older backup has planned ahead in a topic that was made again since.
        of_older = [gap.c.topic == topic, gap.c.topic_id.is_distinct_from(topic_id), gap.c.applied_at.is_(None)]
        connection.execute(delete(gap).where(gap.c.feed_id == feed.feed_id, *of_older))


def adopt_batches(
    connection: Connection, feed: FeedSnapshot | NewFeed, batches: Collection[AdoptedBatch], who: str
) -> None:
    """Write batches as COMMITTED, whether the control tables knew them in another state or not at all."""
    ledger = select(func.max(event.c.event_id)).where(event.c.feed_id == feed.feed_id, event.c.kind.in_(LEDGER_KINDS))
    upto = connection.execute(ledger).scalar_one() or 0
    known = set(connection.execute(select(batch.c.batch_id).where(batch.c.feed_id == feed.feed_id)).scalars())
    for adopted in batches:
        plan, receipt = adopted.plan, adopted.receipt
        if plan.batch_id not in known:
            # Committed below; PLANNED it could not be beside an open batch, not even until then.
            values = batch_values(plan, who) | {"state": BatchState.ABANDONED.value, "reason": "being adopted"}
            connection.execute(insert(batch).values(**values))
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
        connection.execute(
            update(batch)
            .where(batch.c.batch_id == plan.batch_id)
            .values(
                state=BatchState.COMMITTED.value,
                pinned_attempt=receipt.attempt,
                rows=receipt.rows,
                size_bytes=receipt.size_bytes,
                written_at=receipt.written_at,
                left_out=left_out_document(receipt),
                ledger_after=0,
                ledger_upto=upto,
                # The receipt was written before the commit; when exactly that was, only the lost tables knew.
                committed_at=receipt.written_at,
                committed_by=who,
                reason=None,
                abandoned_by=None,
                updated_at=datetime.now(UTC),
            )
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
