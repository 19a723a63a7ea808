"""What batches have read of a feed's topics with their current ids: their starts, and what is above stored offsets."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Table, and_, exists, func, or_, select

from kafka_ingest.control.log_cuts import ids_before, resets
from kafka_ingest.control.output_rows import folded_of, kept, kept_of
from kafka_ingest.control.rows import IN_LEDGER
from kafka_ingest.control.schema import batch, batch_range, folded_range, stored_offset
from kafka_ingest.errors import BatchFoldedError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.documents import range_of_row
from kafka_ingest.model.folded import FoldedRange
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, intersect

LAST_OFFSET = 2**63 - 1


def same_topic(connection: Connection, feed_id: UUID, ranges: Table = batch_range) -> ColumnElement[bool]:
    """Return the condition that a range, or a folded one, is of a stored offset's topic as it is now.

    Offsets of a deleted topic of the same name mean other records, unless an operator confirmed that they are the same.
    """
    of_one_id = [stored_offset.c.topic_id.is_not_distinct_from(ranges.c.topic_id)]
    for (topic, before), now in ids_before(resets(connection, feed_id)).items():
        was = (ranges.c.topic == topic) & ranges.c.topic_id.is_not_distinct_from(before)
        of_one_id.append(was & stored_offset.c.topic_id.is_not_distinct_from(now))
    return and_(
        stored_offset.c.feed_id == (batch.c.feed_id if ranges is batch_range else ranges.c.feed_id),
        stored_offset.c.topic == ranges.c.topic,
        stored_offset.c.partition == ranges.c.partition,
        or_(*of_one_id),
    )


def folded_now(
    connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]
) -> list[tuple[FoldedRange, int]]:
    """Return what is folded of the topics with their current ids, and the stored offsets."""
    query = (
        select(folded_range, stored_offset.c.next_offset)
        .join(stored_offset, same_topic(connection, feed_id, folded_range))
        .where(folded_range.c.feed_id == feed_id, *conditions)
    )
    return [(folded_of(row), row["next_offset"]) for row in connection.execute(query).mappings()]


def check_not_folded(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise BatchFoldedError where a batch or a later one is folded: the control tables lack its start offsets."""
    folded = select(batch.c.planned_at).where(
        batch.c.feed_id == feed_id, batch.c.batch_id >= batch_id, batch.c.folded_at.is_not(None)
    )
    if connection.execute(select(exists(folded))).scalar():
        planned_at = connection.execute(select(batch.c.planned_at).where(batch.c.batch_id == batch_id)).scalar_one()
        raise BatchFoldedError(
            f"expected a batch whose ranges are in the control tables, found {batch_id}, which is folded, or followed "
            f"by one that is. Nothing was changed. It was planned at {planned_at.isoformat()}: go back to that time "
            f"(`--to timestamp={planned_at.isoformat()}`), or to the offsets in its receipt beside the output (`--to "
            "offsets=…`)."
        )


def starts_since(connection: Connection, batch_id: UUID) -> dict[TopicPartition, int]:
    feed_id = connection.execute(select(batch.c.feed_id).where(batch.c.batch_id == batch_id)).scalar_one()
    check_not_folded(connection, feed_id, batch_id)
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
    topics = {interval.topic for interval in intervals}
    partitions = {interval.partition for interval in intervals}
    query = (
        select(batch_range)
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .join(stored_offset, same_topic(connection, feed_id))
        .where(
            batch.c.feed_id == feed_id,
            IN_LEDGER,
            batch.c.state == BatchState.COMMITTED.value,
            batch_range.c.topic.in_(topics),
            batch_range.c.partition.in_(partitions),
            *([batch_range.c.batch_id != apart_from] if apart_from is not None else []),
        )
    )
    found = [(row["batch_id"], range_of_row(row)) for row in connection.execute(query).mappings()]
    of_folded = (folded_range.c.topic.in_(topics), folded_range.c.partition.in_(partitions))
    folded = [each for each, _ in folded_now(connection, feed_id, *of_folded)]
    ids = ids_before(resets(connection, feed_id))
    apart = (apart_from, intervals) if apart_from is not None else None
    held = [*kept(connection, feed_id, found), *kept_of(connection, feed_id, folded, ids, apart)]
    return intersect(intervals, held)


def committed_ahead(connection: Connection, feed_id: UUID) -> list[OffsetRange]:
    query = (
        select(batch_range, stored_offset.c.next_offset)
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .join(stored_offset, same_topic(connection, feed_id))
        .where(
            batch.c.feed_id == feed_id,
            IN_LEDGER,
            batch.c.state == BatchState.COMMITTED.value,
            batch_range.c.end_offset > stored_offset.c.next_offset,
        )
    )
    ahead = [
        (row["batch_id"], range_of_row({**row, "start_offset": max(row["start_offset"], row["next_offset"])}))
        for row in connection.execute(query).mappings()
    ]
    folded = folded_now(connection, feed_id, folded_range.c.end_offset > stored_offset.c.next_offset)
    beyond = [OffsetRange(each.offset_range.topic_partition, stored, LAST_OFFSET) for each, stored in folded]
    ids = ids_before(resets(connection, feed_id))
    of_folded = intersect(kept_of(connection, feed_id, [each for each, _ in folded], ids), beyond)
    return sorted([*kept(connection, feed_id, ahead), *of_folded])
