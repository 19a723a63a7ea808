"""Which offset is where: every method is one read transaction, so that its answer is of one instant."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, exists, func, select

from kafka_ingest.control.coverage_rows import committed_batches_after, copied_ranges, copy_outputs, coverage_rows
from kafka_ingest.control.database import Store, reads
from kafka_ingest.control.feed_snapshot import FEED_OF_NAME, snapshot
from kafka_ingest.control.log_cuts import Cuts, PlannedOn, resets
from kafka_ingest.control.output_rows import folded_ranges, kept, kept_of, lost_ranges
from kafka_ingest.control.passed_offsets import committed_ahead, committed_within
from kafka_ingest.control.read_again import held_ranges, replacements
from kafka_ingest.control.rows import OUTPUT, batch_row, events_of, gaps_of, output_of, stored_offsets
from kafka_ingest.control.schema import batch, batch_range, feed, folded_range, gap, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import CommittedBatch
from kafka_ingest.model.coverage import BatchOfOffset, CoverageRows, OffsetRows
from kafka_ingest.model.documents import range_of_row, read_row
from kafka_ingest.model.offsets import OffsetRange, TopicPartition


def offset_rows(
    connection: Connection, feed_name: str, topic_partition: TopicPartition, offset: int
) -> OffsetRows | None:
    row = connection.execute(select(feed.c.feed_id, feed.c.topics).where(feed.c.name == feed_name)).one_or_none()
    if row is None:
        return None
    stored = stored_offsets(connection, row.feed_id, *of_partition(stored_offset, topic_partition))
    gaps = gaps_of(connection, row.feed_id, *of_partition(gap, topic_partition), *holds_offset(gap, offset))
    largest = (
        select(stored_offset.c.topic, func.max(stored_offset.c.partition))
        .where(stored_offset.c.feed_id == row.feed_id)
        .group_by(stored_offset.c.topic)
    )
    return OffsetRows(
        feed_id=row.feed_id,
        stored=stored.get(topic_partition),
        topics=tuple(row.topics),
        largest_partitions=dict(sorted(tuple(found) for found in connection.execute(largest))),
        batches=[
            read_row(BatchOfOffset, found, output=output_of(found))
            for found in connection.execute(batches_of_offset(row.feed_id, topic_partition, offset)).mappings()
        ],
        gaps=sorted(gaps, key=lambda found: found.decided_at, reverse=True),
        resets=events_of(connection, row.feed_id, kinds=["reset"]),
        lost=[
            each
            for each in lost_ranges(connection, row.feed_id)
            if each.offset_range.topic_partition == topic_partition
            and each.offset_range.start_offset <= offset < each.offset_range.end_offset
        ],
        folded=folded_ranges(
            connection, row.feed_id, *of_partition(folded_range, topic_partition), *holds_offset(folded_range, offset)
        ),
        replacements=[
            each for each in replacements(connection, row.feed_id) if each.replaced.topic_partition == topic_partition
        ],
    )


def batches_of_offset(feed_id: UUID, topic_partition: TopicPartition, offset: int) -> Select[Any]:
    """Return the query of the batches that hold an offset, newest first.

    Ranges have no index by partition: it would slow down every commit, for a question that users rarely ask. So the
    query starts from the feed's batches, and finds each one's range of the partition by its primary key. Of a batch it
    reads only the id, from an index: the rows themselves, with their plans, are gigabytes after years.
    """
    holding = (
        select(batch_range.c.batch_id)
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .where(
            batch.c.feed_id == feed_id, *of_partition(batch_range, topic_partition), *holds_offset(batch_range, offset)
        )
    )
    columns = ("batch_id", "kind", "state", "planned_at", "planned_by", "committed_at", "committed_by", "reason")
    of_range = ("topic", "partition", "topic_id", "start_offset", "end_offset", "dead_letters", "filtered")
    return (
        select(*(batch.c[name] for name in columns), *(batch_range.c[name] for name in of_range), *OUTPUT)
        .join(batch_range, batch_range.c.batch_id == batch.c.batch_id)
        .where(batch.c.batch_id.in_(holding), *of_partition(batch_range, topic_partition))
        .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    )


def of_partition(table: Table, topic_partition: TopicPartition) -> tuple[ColumnElement[bool], ...]:
    return table.c.topic == topic_partition.topic, table.c.partition == topic_partition.partition


def holds_offset(table: Table, offset: int) -> tuple[ColumnElement[bool], ...]:
    return table.c.start_offset <= offset, table.c.end_offset > offset


class CoverageStore(Store):
    """Which offset is where."""

    offset_rows = reads(offset_rows)
    copied_ranges = reads(copied_ranges)
    copy_outputs = reads(copy_outputs)
    committed_within = reads(committed_within)
    held_ranges = reads(held_ranges)
    committed_ahead = reads(committed_ahead)

    def coverage(self, feed_name: str) -> CoverageRows | None:
        with self.reading() as connection:
            found = snapshot(connection, FEED_OF_NAME, {"name": feed_name})
            if found is None:
                return None
            rows = coverage_rows(connection, found)
            stored = {tp: row.next_offset or 0 for tp, row in found.stored.items()}
            went_back = any(
                each.offset_range.end_offset > stored.get(each.offset_range.topic_partition, 0) for each in rows.rewinds
            )
            ahead = committed_ahead(connection, found.feed_id) if went_back else ()
            return replace(rows, committed_ahead=ahead)

    def committed_batches(self, feed_id: UUID) -> Iterator[CommittedBatch]:
        newest: UUID | None = None
        while True:
            # A few at a time, each in its own transaction: reading years of them must not block other writers.
            with self.reading() as connection:
                found = committed_batches_after(connection, feed_id, newest)
            if not found:
                return
            yield from found
            newest = found[-1].batch_id

    def cut_off(self, batch_id: UUID) -> dict[TopicPartition, int]:
        with self.reading() as connection:
            row = batch_row(connection, batch_id)
            cuts, planned = Cuts.of(resets(connection, row["feed_id"])), PlannedOn.of_row(row)
            ranges = connection.execute(select(batch_range).where(batch_range.c.batch_id == batch_id)).mappings()
            logs = {range_of_row(each).topic_partition: each["topic_id"] for each in ranges}
            found = {tp: cuts.at(tp, topic_id, planned) for tp, topic_id in logs.items()}
            return {tp: offset for tp, offset in found.items() if offset is not None}

    def committed_ranges(self, batch_id: UUID) -> list[OffsetRange]:
        mine, theirs = batch_range.alias("mine"), batch_range.alias("theirs")
        this, other = batch.alias("this"), batch.alias("other")
        overlaps = and_(
            theirs.c.topic == mine.c.topic,
            theirs.c.partition == mine.c.partition,
            theirs.c.topic_id.is_not_distinct_from(mine.c.topic_id),
            theirs.c.start_offset < mine.c.end_offset,
            theirs.c.end_offset > mine.c.start_offset,
        )
        query = (
            select(theirs)
            .select_from(mine)
            .join(this, this.c.batch_id == mine.c.batch_id)
            .join(theirs, overlaps)
            .join(other, and_(other.c.batch_id == theirs.c.batch_id, other.c.feed_id == this.c.feed_id))
            .where(
                mine.c.batch_id == batch_id,
                other.c.state == BatchState.COMMITTED.value,
                other.c.kind.in_((BatchKind.LIVE.value, BatchKind.BACKFILL.value)),
            )
        )
        with self.reading() as connection:
            found = [(row["batch_id"], range_of_row(row)) for row in connection.execute(query).mappings()]
            of_feed = batch_row(connection, batch_id)["feed_id"]
            # Of each range of the batch: sums of years are as few rows as the feed has partitions.
            touching = and_(
                mine.c.batch_id == batch_id,
                mine.c.topic == folded_range.c.topic,
                mine.c.partition == folded_range.c.partition,
                mine.c.topic_id.is_not_distinct_from(folded_range.c.topic_id),
                folded_range.c.start_offset < mine.c.end_offset,
                folded_range.c.end_offset > mine.c.start_offset,
            )
            folded = folded_ranges(connection, of_feed, exists().where(touching))
            return sorted([*kept(connection, of_feed, found), *kept_of(connection, of_feed, folded, {})])
