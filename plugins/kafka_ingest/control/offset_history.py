"""What the control rows say about one offset. Each query runs inside a read transaction."""

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, func, select

from kafka_ingest.control.folded_rows import folded_ranges
from kafka_ingest.control.output_columns import OUTPUT, output_of
from kafka_ingest.control.removed_output import lost_ranges
from kafka_ingest.control.replacements import replacements
from kafka_ingest.control.rows import events_of, gaps_of, stored_offsets
from kafka_ingest.control.schema import batch, batch_range, feed, folded_range, gap, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.offset_rows import BatchOfOffset, OffsetRows
from kafka_ingest.model.offsets import OffsetRange, TopicPartition


def offset_rows(
    connection: Connection, feed_name: str, topic_partition: TopicPartition, offset: int
) -> OffsetRows | None:
    """Return what the control rows say about one offset; None where the feed was never planned."""
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
            batch_of_offset(found)
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
            batch.c.feed_id == feed_id,
            *of_partition(batch_range, topic_partition),
            *holds_offset(batch_range, offset),
        )
    )
    columns = ("batch_id", "kind", "state", "planned_at", "planned_by", "committed_at", "committed_by", "reason")
    of_range = ("topic", "partition", "topic_id", "start_offset", "end_offset", "dead_letters", "filtered")
    return (
        select(
            *(batch.c[name] for name in columns),
            *(batch_range.c[name] for name in of_range),
            *OUTPUT,
        )
        .join(batch_range, batch_range.c.batch_id == batch.c.batch_id)
        .where(batch.c.batch_id.in_(holding), *of_partition(batch_range, topic_partition))
        .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
    )


def of_partition(table: Table, topic_partition: TopicPartition) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a row is of one partition."""
    return table.c.topic == topic_partition.topic, table.c.partition == topic_partition.partition


def holds_offset(table: Table, offset: int) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a row's range holds an offset."""
    return table.c.start_offset <= offset, table.c.end_offset > offset


def batch_of_offset(row: RowMapping) -> BatchOfOffset:
    """Return the batch that a row of that query describes."""
    return BatchOfOffset(
        batch_id=row["batch_id"],
        kind=BatchKind(row["kind"]),
        state=BatchState(row["state"]),
        planned_at=row["planned_at"],
        planned_by=row["planned_by"],
        committed_at=row["committed_at"],
        committed_by=row["committed_by"],
        reason=row["reason"],
        offset_range=OffsetRange(
            TopicPartition(row["topic"], row["partition"]), row["start_offset"], row["end_offset"]
        ),
        topic_id=row["topic_id"],
        dead_letters=row["dead_letters"],
        filtered=row["filtered"],
        output=output_of(row),
    )
