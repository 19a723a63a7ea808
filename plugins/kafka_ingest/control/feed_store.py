"""Feeds: their rows as of one instant, their names, and a line for each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from kafka_ingest.control.database import Store, transaction
from kafka_ingest.control.feed_snapshot import (
    FEED_OF_ID,
    FEED_OF_NAME,
    FEEDS_OF_NAMES,
    last_committed_at,
    not_rows,
    open_live_batches,
    snapshot,
    snapshots,
)
from kafka_ingest.control.feed_statements import append_event, require_revision, touch_feed
from kafka_ingest.control.rows import batched
from kafka_ingest.control.schema import feed, file_topic, stored_offset, topics_file
from kafka_ingest.errors import FeedChangedError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.summaries import NONE_LEFT_OUT, FeedSummary
from kafka_ingest.model.topics import FilePlan, SeenTopic, TopicMemory
from kafka_ingest.model.waiting import UNANSWERED_FOR


class FeedStore(Store):
    """The rows of feeds."""

    def feed(self, name: str) -> FeedSnapshot | None:
        return self._snapshot(FEED_OF_NAME, name=name)

    def feeds(self, names: Collection[str]) -> dict[str, FeedSnapshot]:
        with self.reading() as connection:
            return {
                each.name: each
                for some in batched(sorted(names))
                for each in snapshots(connection, FEEDS_OF_NAMES, {"names": some})
            }

    def feed_of_id(self, feed_id: UUID) -> FeedSnapshot | None:
        return self._snapshot(FEED_OF_ID, of_feed=feed_id)

    def _snapshot(self, query: Select[Any], **which: object) -> FeedSnapshot | None:
        with self.reading() as connection:
            return snapshot(connection, query, which)

    def feed_summaries(self) -> list[FeedSummary]:
        with self.reading() as connection:
            counts = select(stored_offset.c.feed_id, func.count()).group_by(stored_offset.c.feed_id)
            partitions: dict[UUID, int] = dict(connection.execute(counts).all())
            open_batches, others = open_live_batches(connection), not_rows(connection)
            feeds = select(feed, last_committed_at(BatchKind.LIVE), last_committed_at(BatchKind.BACKFILL))
            return [
                FeedSummary(
                    name=row["name"],
                    cluster_id=row["cluster_id"],
                    partitions=partitions.get(row["feed_id"], 0),
                    open_batch=open_row.batch_id if open_row is not None else None,
                    open_batch_state=BatchState(open_row.state) if open_row is not None else None,
                    last_committed_at=max(filter(None, (row["last_live"], row["last_backfill"])), default=None),
                    rows_committed=row["rows_committed"],
                    not_rows=others.get(row["feed_id"], NONE_LEFT_OUT),
                )
                for row in connection.execute(feeds.order_by(feed.c.name)).mappings()
                for open_row in [open_batches.get(row["feed_id"])]
            ]

    def rename_feed(self, feed: FeedSnapshot, new_name: str, *, reason: str, actor: str) -> None:
        with transaction(self._engine, "write") as connection:
            require_revision(connection, feed)
            try:
                touch_feed(connection, feed.feed_id, name=new_name)
            except IntegrityError as error:
                raise FeedChangedError(
                    f"the control tables have another feed named {new_name!r}; a name belongs to one feed. Nothing was "
                    "changed."
                ) from error
            detail = {"reason": reason, "was": feed.name, "is": new_name}
            append_event(connection, feed.feed_id, "renamed", actor, None, detail)

    def claim_starts(self, positions: Mapping[UUID, str], now: datetime) -> set[UUID]:
        """Note that a start of these feeds is asked for, and return those that no other process asked for.

        A compare-and-set of each: its position is another one than noted, or the start was not answered for long.
        """
        claimed = set()
        with transaction(self._engine, "write") as connection:
            for feed_id, position in sorted(positions.items()):
                is_new = or_(
                    feed.c.start_position.is_distinct_from(position), feed.c.start_asked_at <= now - UNANSWERED_FOR
                )
                changed = connection.execute(
                    update(feed)
                    .where(feed.c.feed_id == feed_id, is_new)
                    .values(start_position=position, start_asked_at=now)
                )
                if changed.rowcount:
                    claimed.add(feed_id)
        return claimed


class TopicStore(Store):
    """The rows of files for many topics. No step of the protocol depends on them."""

    def topic_memory(self) -> TopicMemory:
        """Return what plans of all files have found, and which feeds there are."""
        with self.reading() as connection:
            plans = [read_row(FilePlan, row) for row in connection.execute(select(topics_file)).mappings()]
            seen = [read_row(SeenTopic, row) for row in connection.execute(select(file_topic)).mappings()]
            planned = connection.execute(select(feed.c.name, feed.c.topics))
            return TopicMemory(tuple(plans), tuple(seen), tuple((name, frozenset(topics)) for name, topics in planned))

    def note_topics(self, plan: FilePlan, seen: Sequence[SeenTopic]) -> None:
        """Note what a plan of a file has found, and forget those of its topics that are not among it.

        Of two plans at once the later one counts; a topic that became a feed is never forgotten, and how old a topic
        is stays as it was noted first.
        """
        try:
            self._note_topics(plan, seen)
        except IntegrityError:  # of two first plans the other was faster, and its row is there now
            self._note_topics(plan, seen)

    def _note_topics(self, plan: FilePlan, seen: Sequence[SeenTopic]) -> None:
        of_file, topic = file_topic.c.file == plan.file, file_topic.c.topic
        with transaction(self._engine, "write") as connection:
            values = {"planned_at": plan.planned_at, "pattern": plan.pattern}
            # Its row's lock orders plans of one file.
            if not connection.execute(
                update(topics_file).where(topics_file.c.file == plan.file).values(values)
            ).rowcount:
                connection.execute(insert(topics_file).values(file=plan.file, **values))
            known = {row.topic: row for row in connection.execute(select(file_topic).where(of_file))}
            if new := [asdict(each) for each in seen if each.topic not in known]:
                connection.execute(insert(file_topic), new)
            for each in seen:
                was = known.get(each.topic)
                now = {"conn_id": each.conn_id, "topic_id": each.topic_id, "feed": each.feed}
                if was is not None and now != {name: getattr(was, name) for name in now}:
                    connection.execute(update(file_topic).where(of_file, topic == each.topic).values(now))
            for name in known.keys() - {each.topic for each in seen}:
                connection.execute(delete(file_topic).where(of_file, topic == name, file_topic.c.feed.is_(None)))
