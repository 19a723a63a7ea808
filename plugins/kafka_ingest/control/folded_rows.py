"""Reading what is folded of a feed: chains of old ranges. Each query runs inside a transaction."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, RowMapping, select

from kafka_ingest.control.output_columns import OUTPUT, output_of
from kafka_ingest.control.removed_output import lost_ranges
from kafka_ingest.control.schema import batch, folded_range
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FoldedBatch, FoldedFeed
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.folded import FoldedRange, kept_of_folded
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.removal import LostRange

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
    """Return the folded batches that were committed between two times, in the order of their commits."""
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
