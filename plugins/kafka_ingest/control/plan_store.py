"""What a plan decided, written down in one transaction before anything is read (invariant 1)."""

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import select, update

from kafka_ingest.control.backfill_statements import insert_backfill
from kafka_ingest.control.batch_statements import insert_plan
from kafka_ingest.control.database import Store, transaction
from kafka_ingest.control.feed_statements import append_event, insert_feed, replace_holds, require_revision, touch_feed
from kafka_ingest.control.many_rows import batched
from kafka_ingest.control.offset_statements import apply_jumps, note_leader_epochs, seed_detail, upsert_seeds
from kafka_ingest.control.schema import feed as feed_table
from kafka_ingest.model.control_rows import BackfillRecord, FeedSnapshot, NewFeed, PlanRecord


class PlanStore(Store):
    """The plans of batches."""

    def record_plan(self, feed: FeedSnapshot | NewFeed, record: PlanRecord, *, actor: str) -> None:
        """Write what a plan decided; raises FeedChangedError where the feed is not as in the snapshot any more."""
        values = {
            "topics": sorted(record.topics),
            "topic_pattern": record.topic_pattern,
            "waiting_since": record.waiting_since,
            "planned_at": record.planned_at,
        }
        with transaction(self._engine, "write") as connection:
            if isinstance(feed, NewFeed):
                insert_feed(connection, feed, cluster_id=record.cluster_id, **values)
            else:
                require_revision(connection, feed)
                touch_feed(connection, feed.feed_id, **values)
            if record.seeds:
                upsert_seeds(connection, feed.feed_id, record.seeds)
                detail = {"partitions": [seed_detail(seed) for seed in record.seeds]}
                append_event(connection, feed.feed_id, "seeded", actor, None, detail)
            apply_jumps(connection, feed.feed_id, record.jumps, actor=actor)
            note_leader_epochs(connection, feed.feed_id, record.leader_epochs)
            replace_holds(connection, feed.feed_id, record.holds)
            if record.plan is not None:
                insert_plan(connection, record.plan, actor, lag=record.lag)

    def note_unchanged(self, feeds: Collection[FeedSnapshot], planned_at: datetime) -> set[UUID]:
        """Note a plan of feeds that changed nothing else, and return those that are as in their snapshots."""
        known, noted = {each.feed_id: each.revision for each in feeds}, set[UUID]()
        for some in batched(sorted(known)):
            with transaction(self._engine, "write") as connection:
                rows = select(feed_table.c.feed_id, feed_table.c.revision).where(feed_table.c.feed_id.in_(some))
                locked = connection.execute(rows.order_by(feed_table.c.feed_id).with_for_update(skip_locked=True))
                same = [row.feed_id for row in locked if row.revision == known[row.feed_id]]
                values = {
                    "planned_at": planned_at,
                    "updated_at": datetime.now(UTC),
                    "revision": feed_table.c.revision + 1,
                }
                connection.execute(update(feed_table).where(feed_table.c.feed_id.in_(same)).values(values))
                noted.update(same)
        return noted

    def record_backfill(self, feed: FeedSnapshot, record: BackfillRecord, *, actor: str) -> None:
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            touch_feed(connection, feed.feed_id)
            insert_backfill(connection, feed, record, actor)
