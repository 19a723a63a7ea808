"""What batches have read of a feed's topics as they are now: where each began, and what lies above the stored offsets."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from kafka_ingest.batch import BatchKind, BatchState
from kafka_ingest.control.coverage_rows import ids_before, resets
from kafka_ingest.control.removed_output import kept
from kafka_ingest.control.schema import batch, batch_range, stored_offset
from kafka_ingest.offset_sets import within
from kafka_ingest.offsets import OffsetRange, TopicPartition


def same_topic(connection: Connection, feed_id: UUID) -> ColumnElement[bool]:
    """Return the condition that a range is of a stored offset's topic as it is now.

    Offsets of a topic of that name that is not there any more mean other records, unless an operator said that they are the same.
    """
    of_one_id = [stored_offset.c.topic_id.is_not_distinct_from(batch_range.c.topic_id)]
    for (topic, before), now in ids_before(resets(connection, feed_id)).items():
        was = (batch_range.c.topic == topic) & batch_range.c.topic_id.is_not_distinct_from(before)
        of_one_id.append(was & stored_offset.c.topic_id.is_not_distinct_from(now))
    return and_(
        stored_offset.c.feed_id == batch.c.feed_id,
        stored_offset.c.topic == batch_range.c.topic,
        stored_offset.c.partition == batch_range.c.partition,
        or_(*of_one_id),
    )


def starts_since(connection: Connection, batch_id: UUID) -> dict[TopicPartition, int]:
    """Return where a live batch began in each partition, or the first one after it that read the partition."""
    feed_id = connection.execute(select(batch.c.feed_id).where(batch.c.batch_id == batch_id)).scalar_one()
    place = (batch_range.c.topic, batch_range.c.partition)
    numbered = (
        select(
            *place,
            batch_range.c.start_offset,
            func.row_number().over(partition_by=place, order_by=batch_range.c.batch_id).label("number"),
        )
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .join(stored_offset, same_topic(connection, feed_id))
        .where(
            batch.c.feed_id == feed_id,
            batch.c.batch_id >= batch_id,
            batch.c.kind == BatchKind.LIVE.value,
            batch.c.state == BatchState.COMMITTED.value,
        )
        .subquery()
    )
    first = select(numbered.c.topic, numbered.c.partition, numbered.c.start_offset).where(numbered.c.number == 1)
    return {TopicPartition(row.topic, row.partition): row.start_offset for row in connection.execute(first)}


def committed_within(
    connection: Connection, feed_id: UUID, intervals: Sequence[OffsetRange], *, apart_from: UUID | None = None
) -> list[OffsetRange]:
    """Return what committed batches hold of intervals, sorted; copies are not among them, and nothing that was lost."""
    topics = {interval.topic for interval in intervals}
    partitions = {interval.partition for interval in intervals}
    query = (
        select(batch_range)
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .join(stored_offset, same_topic(connection, feed_id))
        .where(
            batch.c.feed_id == feed_id,
            batch.c.kind != BatchKind.COPY.value,
            batch.c.state == BatchState.COMMITTED.value,
            batch_range.c.topic.in_(topics),
            batch_range.c.partition.in_(partitions),
            *([batch_range.c.batch_id != apart_from] if apart_from is not None else []),
        )
    )
    found = [
        (row.batch_id, OffsetRange(TopicPartition(row.topic, row.partition), row.start_offset, row.end_offset))
        for row in connection.execute(query)
    ]
    return within(intervals, kept(connection, feed_id, found))


def committed_ahead(connection: Connection, feed_id: UUID) -> list[OffsetRange]:
    """Return what committed batches hold at or above the stored offsets, sorted; nothing before an operator went back."""
    query = (
        select(batch_range, stored_offset.c.next_offset)
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .join(stored_offset, same_topic(connection, feed_id))
        .where(
            batch.c.feed_id == feed_id,
            batch.c.kind != BatchKind.COPY.value,
            batch.c.state == BatchState.COMMITTED.value,
            batch_range.c.end_offset > stored_offset.c.next_offset,
        )
    )
    ahead = [
        (
            row.batch_id,
            OffsetRange(
                TopicPartition(row.topic, row.partition), max(row.start_offset, row.next_offset), row.end_offset
            ),
        )
        for row in connection.execute(query)
    ]
    return sorted(kept(connection, feed_id, ahead))
