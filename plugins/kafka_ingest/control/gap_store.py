"""What a feed does not read, gaps and holds, and the audit journal of it: its ledger of seeds, gaps and resets."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from kafka_ingest.control.database import Store, reads, transaction
from kafka_ingest.control.feed_statements import append_event, insert_holds, lock_feed, require_revision, touch_feed
from kafka_ingest.control.offset_statements import (
    apply_jumps,
    file_gaps_behind,
    gap_of,
    insert_gaps,
    note_gaps,
    seed_detail,
    upsert_seeds,
)
from kafka_ingest.control.output_rows import add_lost_ranges, add_removed_ranges, take_from_removed
from kafka_ingest.control.read_again import not_taken_over
from kafka_ingest.control.rows import batch_row, events_of, gaps_of
from kafka_ingest.control.schema import LEDGER_KINDS, event
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import Event, Gap, Jump, LostRange, NewGap, RemovedRange
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.offsets import StoredOffset


class GapStore(Store):
    """Gaps and holds."""

    gaps = reads(gaps_of)

    def file_gap(self, feed: FeedSnapshot, new_gap: NewGap, *, seed: StoredOffset | None, actor: str) -> Gap:
        topic_partition, span = new_gap.offset_range.topic_partition, new_gap.offset_range
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            if seed is not None:
                upsert_seeds(connection, feed.feed_id, [seed])
                append_event(connection, feed.feed_id, "seeded", actor, None, {"partitions": [seed_detail(seed)]})
            stored = seed or feed.stored[topic_partition]
            now = datetime.now(UTC)
            if stored.next_offset == span.start_offset:
                jump = Jump(topic_partition, span.start_offset, span.end_offset, (new_gap,))
                return apply_jumps(connection, feed.feed_id, [jump], actor=actor)[0]
            ahead = gap_of(new_gap, stored.topic_id, actor, now, applied_at=None)
            insert_gaps(connection, feed.feed_id, [ahead])
            note_gaps(connection, feed.feed_id, [ahead], actor, None)
            return ahead

    def acknowledge_gap(self, feed: FeedSnapshot, gap: Gap, reason: str, *, actor: str) -> None:
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            detail = {"gap": gap.as_document(), "reason": reason}
            append_event(connection, feed.feed_id, "gap_acknowledged", actor, None, detail)

    def hold(self, feed_id: UUID, hold: Hold) -> None:
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            touch_feed(connection, feed_id)
            insert_holds(connection, feed_id, [hold])

    def note_holds(self, feed: FeedSnapshot, holds: Sequence[Hold]) -> None:
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            insert_holds(connection, feed.feed_id, holds)


class OutputStore(Store):
    """Published ranges that the output holds no longer."""

    def record_lost(
        self, feed: FeedSnapshot, lost: Sequence[LostRange], gaps: Sequence[NewGap], *, reason: str, actor: str
    ) -> None:
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            add_lost_ranges(connection, feed.feed_id, lost)
            take_from_removed(connection, feed.feed_id, lost)
            filed = file_gaps_behind(connection, feed, gaps, actor)
            detail = {
                "gaps": [found.as_document() for found in filed],
                "lost": [each.as_document() for each in lost],
                "reason": reason,
            }
            append_event(connection, feed.feed_id, "gap", actor, lost[0].batch_id, detail)

    def record_removed(
        self, feed_id: UUID, batches: Sequence[UUID], ranges: Sequence[RemovedRange], *, reason: str, actor: str
    ) -> None:
        """Record which committed offsets have expired; repeating it adds only a line to the audit journal.

        An expiry may have been decided before rows were replaced: what another batch holds now is left out.
        """
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            touch_feed(connection, feed_id)
            add_removed_ranges(connection, feed_id, not_taken_over(connection, feed_id, ranges, batches))
            detail = {"reason": reason, "batches": [str(batch_id) for batch_id in batches]}
            append_event(connection, feed_id, "expired", actor, None, detail)


class JournalStore(Store):
    """The lines of the audit journal."""

    journal = reads(events_of)

    def backfill_request(self, feed_id: UUID, actor: str) -> Mapping[str, Any] | None:
        query = select(event.c.detail).where(
            event.c.feed_id == feed_id, event.c.kind == "backfill_planned", event.c.actor == actor
        )
        with self.reading() as connection:
            detail = connection.execute(query.order_by(event.c.event_id.desc()).limit(1)).scalar()
        return None if detail is None else detail.get("request")

    def ledger_of_feed(self, feed_id: UUID) -> list[Event]:
        with self.reading() as connection:
            return events_of(connection, feed_id, kinds=LEDGER_KINDS)[::-1]

    def ledger(self, batch_id: UUID) -> list[Event]:
        with self.reading() as connection:
            row = batch_row(connection, batch_id)
            if row["ledger_after"] is None:
                raise BatchStateError(
                    f"batch {batch_id} is {row['state']}: only a COMMITTING one has a place in the ledger"
                )
            after, upto = row["ledger_after"], row["ledger_upto"]
            found = events_of(connection, row["feed_id"], kinds=LEDGER_KINDS, after=after, before=upto + 1)
            return found[::-1]

    def record_event(
        self, feed_id: UUID, kind: str, *, actor: str, batch_id: UUID | None, detail: Mapping[str, Any]
    ) -> None:
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            append_event(connection, feed_id, kind, actor, batch_id, detail)
