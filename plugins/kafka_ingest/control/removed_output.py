"""Rows of what has expired or was lost in a feed's output. Writing runs in a transaction with the feed's lock."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import uuid6
from sqlalchemy import Connection, delete, select

from kafka_ingest.control.many_rows import insert_rows
from kafka_ingest.control.schema import lost_range, removed_range
from kafka_ingest.model.documents import read_row, row_of
from kafka_ingest.model.offset_sets import subtract, union
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.removal import LostRange, RemovedRange


def removed_ranges(connection: Connection, feed_id: UUID) -> list[RemovedRange]:
    query = select(removed_range).where(removed_range.c.feed_id == feed_id)
    return [read_row(RemovedRange, row) for row in connection.execute(query).mappings()]


def add_removed_ranges(connection: Connection, feed_id: UUID, ranges: Sequence[RemovedRange]) -> None:
    """Record that ranges have expired, in as few rows as possible: years of consecutive batches become one."""
    known = removed_ranges(connection, feed_id)
    union = union_of([*known, *ranges])
    if set(union) == set(known):
        return
    connection.execute(delete(removed_range).where(removed_range.c.feed_id == feed_id))
    rows = [{"range_id": uuid6.uuid7(), "feed_id": feed_id, **row_of(each)} for each in union]
    insert_rows(connection, removed_range, rows)


def union_of(ranges: Iterable[RemovedRange]) -> list[RemovedRange]:
    """Return the same offsets in as few ranges as possible; those of a recreated topic stay apart."""
    of_id: dict[str | None, list[OffsetRange]] = {}
    for each in ranges:
        of_id.setdefault(each.topic_id, []).append(each.offset_range)
    return [RemovedRange(each, topic_id) for topic_id, found in of_id.items() for each in union(found)]


def lost_ranges(connection: Connection, feed_id: UUID) -> list[LostRange]:
    query = select(lost_range).where(lost_range.c.feed_id == feed_id)
    return [read_row(LostRange, row) for row in connection.execute(query).mappings()]


def add_lost_ranges(connection: Connection, feed_id: UUID, lost: Sequence[LostRange]) -> None:
    """Record that files were lost, except those recorded before."""
    known = set(lost_ranges(connection, feed_id))
    rows = [{"feed_id": feed_id, **row_of(each)} for each in dict.fromkeys(lost) if each not in known]
    insert_rows(connection, lost_range, rows)


def take_from_removed(connection: Connection, feed_id: UUID, others: Sequence[LostRange | RemovedRange]) -> None:
    """Record that what was lost or is back does not count as removed on purpose, even if it was recorded as such."""
    known = removed_ranges(connection, feed_id)
    left = [
        RemovedRange(piece, each.topic_id)
        for each in known
        for piece in subtract(
            [each.offset_range], [other.offset_range for other in others if other.topic_id == each.topic_id]
        )
    ]
    if left != known:
        connection.execute(delete(removed_range).where(removed_range.c.feed_id == feed_id))
        add_removed_ranges(connection, feed_id, left)


def lost_of_batches(connection: Connection, feed_id: UUID) -> Mapping[UUID, list[OffsetRange]]:
    found: dict[UUID, list[OffsetRange]] = {}
    for each in lost_ranges(connection, feed_id):
        found.setdefault(each.batch_id, []).append(each.offset_range)
    return found


def kept(connection: Connection, feed_id: UUID, committed: Iterable[tuple[UUID, OffsetRange]]) -> list[OffsetRange]:
    """Return what batches still hold of ranges that they committed."""
    lost = lost_of_batches(connection, feed_id)
    left: list[OffsetRange] = []
    for batch_id, offset_range in committed:
        left += subtract([offset_range], lost[batch_id]) if batch_id in lost else [offset_range]
    return left
