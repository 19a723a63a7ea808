"""Rows of what a feed's output holds no more, or only in sum: expired, lost, folded. Writing holds the feed's lock."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import uuid6
from sqlalchemy import ColumnElement, Connection, RowMapping, delete, select

from kafka_ingest.control.rows import OUTPUT, insert_rows, output_of
from kafka_ingest.control.schema import batch, folded_range, lost_range, removed_range
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.documents import read_row, row_of
from kafka_ingest.model.folded import FoldedBatch, FoldedFeed, FoldedRange, kept_of_folded
from kafka_ingest.model.gap import LostRange, RemovedRange
from kafka_ingest.model.offsets import OffsetRange, subtract, union


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


IdNow = Mapping[tuple[str, str | None], str | None]
"""(topic, id) → the current id of the same records, where an operator confirmed that they are the same."""


def folded_of(row: RowMapping) -> FoldedRange:
    return read_row(FoldedRange, row, oldest=row["oldest_commit"], newest=row["newest_commit"])


def folded_by_id(connection: Connection, feed_id: UUID) -> dict[UUID, FoldedRange]:
    """Return all that is folded of a feed, by the ids of the rows."""
    query = select(folded_range).where(folded_range.c.feed_id == feed_id)
    return {row["folded_id"]: folded_of(row) for row in connection.execute(query).mappings()}


def folded_ranges(connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]) -> list[FoldedRange]:
    query = select(folded_range).where(folded_range.c.feed_id == feed_id, *conditions)
    found = [folded_of(row) for row in connection.execute(query).mappings()]
    return sorted(found, key=lambda each: (each.offset_range, each.oldest))


def kept_of(
    connection: Connection,
    feed_id: UUID,
    folded: Iterable[FoldedRange],
    ids: IdNow,
    apart_from: tuple[UUID, Sequence[OffsetRange]] | None = None,
) -> list[OffsetRange]:
    """Return what folded batches still hold of some folded ranges.

    ``apart_from`` is a batch that does not count, with what it holds of these ranges in the topics' current ids.
    """
    lost = lost_ranges(connection, feed_id)
    are_folded = which_are_folded(
        connection, {each.batch_id for each in lost} | ({apart_from[0]} if apart_from else set())
    )
    found: list[OffsetRange] = []
    for (topic, id_now), ranges in by_topic(folded, ids).items():
        gone: dict[UUID, list[OffsetRange]] = {}
        for each in lost:
            if each.batch_id in are_folded and (each.offset_range.topic, id_of_now(ids, each)) == (topic, id_now):
                gone.setdefault(each.batch_id, []).append(each.offset_range)
        if apart_from is not None and apart_from[0] in are_folded:
            gone.setdefault(apart_from[0], []).extend(each for each in apart_from[1] if each.topic == topic)
        found += kept_of_folded(ranges, gone)
    return found


def by_topic(folded: Iterable[FoldedRange], ids: IdNow) -> dict[tuple[str, str | None], list[OffsetRange]]:
    """Return folded ranges by topic and the id that its records have now."""
    found: dict[tuple[str, str | None], list[OffsetRange]] = {}
    for each in folded:
        found.setdefault((each.offset_range.topic, id_of_now(ids, each)), []).append(each.offset_range)
    return found


def id_of_now(ids: IdNow, each: FoldedRange | LostRange) -> str | None:
    return ids.get((each.offset_range.topic, each.topic_id), each.topic_id)


def which_are_folded(connection: Connection, batch_ids: Collection[UUID]) -> set[UUID]:
    """Return which of some batches are folded."""
    if not batch_ids:
        return set()
    query = select(batch.c.batch_id).where(batch.c.batch_id.in_(batch_ids), batch.c.folded_at.is_not(None))
    return set(connection.execute(query).scalars())


def folded_feed(connection: Connection, feed_id: UUID) -> FoldedFeed:
    """Return which batches are folded, and what they have read."""
    query = select(batch.c.batch_id).where(batch.c.feed_id == feed_id, batch.c.folded_at.is_not(None))
    return FoldedFeed(frozenset(connection.execute(query).scalars()), folded_ranges(connection, feed_id))


def folded_batches(connection: Connection, feed_id: UUID, oldest: datetime, newest: datetime) -> list[FoldedBatch]:
    columns = ("batch_id", "plan_fingerprint", "planned_at", "planned_by", "committed_at", "committed_by")
    query = select(*(batch.c[name] for name in columns), *OUTPUT).where(
        batch.c.feed_id == feed_id,
        batch.c.kind == BatchKind.LIVE.value,
        batch.c.state == BatchState.COMMITTED.value,
        batch.c.folded_at.is_not(None),
        batch.c.committed_at.between(oldest, newest),
    )
    rows = connection.execute(query.order_by(batch.c.committed_at, batch.c.batch_id)).mappings()
    return [read_row(FoldedBatch, row, fingerprint=row["plan_fingerprint"], output=output_of(row)) for row in rows]
