"""What was removed from a feed's output: published files that were lost or have expired."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from kafka_ingest.control.database import Store, transaction
from kafka_ingest.control.feed_statements import append_event, lock_feed, require_revision, touch_feed
from kafka_ingest.control.offset_statements import gap_of, insert_gaps
from kafka_ingest.control.removed_output import add_lost_ranges, add_removed_ranges, take_from_removed
from kafka_ingest.control.replacements import not_taken_over
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import NewGap
from kafka_ingest.model.removal import LostRange, RemovedRange


class OutputStore(Store):
    """Published ranges that the output holds no longer."""

    def record_lost(
        self, feed: FeedSnapshot, lost: Sequence[LostRange], gaps: Sequence[NewGap], *, reason: str, actor: str
    ) -> None:
        """Write that published files were lost, and the gaps of what no other batch holds; no stored offset moves."""
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            add_lost_ranges(connection, feed.feed_id, lost)
            take_from_removed(connection, feed.feed_id, lost)
            now = datetime.now(UTC)
            filed = [
                gap_of(new, feed.stored[new.offset_range.topic_partition].topic_id, actor, now, applied_at=now)
                for new in gaps
            ]
            insert_gaps(connection, feed.feed_id, filed)
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
