"""Statements on backfills: their chunks, and the gaps that they close. Each runs inside a transaction with the feed's lock."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import Connection, and_, delete, func, or_, select

from kafka_ingest.batch import BatchKind, BatchState
from kafka_ingest.boundaries import BackfillRecord, FeedSnapshot
from kafka_ingest.control.batch_statements import insert_plan
from kafka_ingest.control.coverage_rows import COUNTS, ids_before, resets, rewinds_of, span_of_row
from kafka_ingest.control.feed_statements import append_event
from kafka_ingest.control.offset_statements import gap_of, insert_gaps, note_gaps, same_partition
from kafka_ingest.control.rows import gaps_of
from kafka_ingest.control.schema import batch, batch_range, gap, stored_offset
from kafka_ingest.errors import OffsetsMovedError, RangesTakenError
from kafka_ingest.gap import NewGap
from kafka_ingest.offset_sets import within
from kafka_ingest.offsets import OffsetRange, listing


def insert_backfill(connection: Connection, feed: FeedSnapshot, record: BackfillRecord, who: str) -> None:
    """Write a backfill's chunks and the gaps of what is gone; raises RangesTakenError and writes none."""
    for chunk in record.chunks:
        insert_plan(connection, chunk, who)
    check_apart(connection, feed.feed_id)
    for chunk in record.chunks:
        check_below_stored(connection, feed.feed_id, chunk.batch_id)
    insert_gaps_behind(connection, feed, record.gaps, who)
    chunks = [str(chunk.batch_id) for chunk in record.chunks]
    detail = {"request": dict(record.request), "kind": record.chunks[0].kind.value if chunks else None}
    append_event(connection, feed.feed_id, "backfill_planned", who, None, detail | {"chunks": chunks})


def insert_gaps_behind(connection: Connection, feed: FeedSnapshot, new_gaps: Sequence[NewGap], who: str) -> None:
    """File gaps below the stored offsets, which do not move."""
    if not new_gaps:
        return
    now = datetime.now(UTC)
    gaps = [
        gap_of(new, feed.stored[new.offset_range.topic_partition].topic_id, who, now, applied_at=now)
        for new in new_gaps
    ]
    insert_gaps(connection, feed.feed_id, gaps)
    note_gaps(connection, feed.feed_id, gaps, who, None)


def check_apart(connection: Connection, feed_id: UUID) -> None:
    """Raise RangesTakenError where two backfills of a feed, open or committed, read one offset."""
    query = (
        select(
            *(batch_range.c[name] for name in ("topic", "topic_id", "partition", "start_offset", "end_offset")),
            # The furthest that any range before this one reaches.
            func.max(batch_range.c.end_offset)
            .over(
                partition_by=(batch_range.c.topic, batch_range.c.topic_id, batch_range.c.partition),
                order_by=(batch_range.c.start_offset, batch_range.c.end_offset, batch_range.c.batch_id),
                rows=(None, -1),
            )
            .label("taken_to"),
        )
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .where(batch.c.feed_id == feed_id, batch.c.kind == BatchKind.BACKFILL.value, COUNTS)
        .subquery()
    )
    taken = connection.execute(select(query).where(query.c.start_offset < query.c.taken_to)).mappings().all()
    if taken:
        raise RangesTakenError(
            f"expected offsets that no other backfill of the feed reads, found {listing(span_of_row(row) for row in taken)}. "
            "Nothing was written; plan the backfill again."
        )


def check_below_stored(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise OffsetsMovedError where a backfill reads at or beyond a stored offset: those offsets are the live run's."""
    here = and_(
        stored_offset.c.feed_id == feed_id,
        same_partition(),
        stored_offset.c.topic_id.is_not_distinct_from(batch_range.c.topic_id),
    )
    query = (
        select(batch_range, stored_offset.c.next_offset)
        .select_from(batch_range.join(batch, batch.c.batch_id == batch_range.c.batch_id).join(stored_offset, here))
        .where(
            batch_range.c.batch_id == batch_id,
            batch.c.kind == BatchKind.BACKFILL.value,
            or_(stored_offset.c.next_offset.is_(None), batch_range.c.end_offset > stored_offset.c.next_offset),
        )
    )
    beyond = connection.execute(query).mappings().all()
    if beyond:
        found = listing(f"{span_of_row(row)}, stored offset {row['next_offset']}" for row in beyond)
        raise OffsetsMovedError(
            f"backfill {batch_id} reads offsets that are not below the stored ones: {found}. A live run reads those, so they "
            f"would come twice. Nothing was changed; give it up: `kafka-ingest abandon {batch_id} --reason …`."
        )


def check_not_overtaken(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise OffsetsMovedError where another backfill read a backfill's offsets, or a reset gave them to the live run, since.

    No operator resets offsets while a backfill is open. But a topic whose log was cut off goes back all the same; and in control
    tables that were restored from a backup one may be open that was given up since, and planned again, or reset away.
    """
    mine, other = batch_range.alias("mine"), batch_range.alias("other")
    same_log = and_(*(mine.c[name].is_not_distinct_from(other.c[name]) for name in ("topic", "partition", "topic_id")))
    read_by_another = (
        select(mine)
        .select_from(mine.join(other, same_log).join(batch, batch.c.batch_id == other.c.batch_id))
        .where(
            mine.c.batch_id == batch_id,
            other.c.batch_id != batch_id,
            mine.c.start_offset < other.c.end_offset,
            other.c.start_offset < mine.c.end_offset,
            batch.c.feed_id == feed_id,
            batch.c.kind == BatchKind.BACKFILL.value,
            batch.c.state == BatchState.COMMITTED.value,
        )
    )
    overtaken = {span_of_row(row) for row in connection.execute(read_by_another).mappings()}
    planned_at = connection.execute(select(batch.c.planned_at).where(batch.c.batch_id == batch_id)).scalar_one()
    decided = resets(connection, feed_id)
    rewinds = [rewind for reset in decided if reset.at > planned_at for rewind in rewinds_of(reset)]
    if rewinds:
        ids = ids_before(decided)
        for row in connection.execute(select(batch_range).where(batch_range.c.batch_id == batch_id)).mappings():
            id_now = ids.get((row["topic"], row["topic_id"]), row["topic_id"])
            same = [each.offset_range for each in rewinds if ids.get((row["topic"], each.topic_id), each.topic_id) == id_now]
            overtaken.update(within([span_of_row(row)], same))
    if overtaken:
        raise OffsetsMovedError(
            f"backfill {batch_id} reads offsets that another backfill has read, or that a reset gave to the live run, since it was "
            f"planned: {listing(sorted(overtaken))}. They would come twice. Nothing was changed; give it up: `kafka-ingest abandon "
            f"{batch_id} --reason …`, and plan what is left again."
        )


def close_gaps(connection: Connection, feed_id: UUID, batch_id: UUID, who: str) -> None:
    """Close the open gaps that a backfill has read; one of which it read only some is split."""
    # Where the same records got another topic id since the backfill was planned, so did the gaps.
    ids = ids_before(resets(connection, feed_id))
    read: dict[str | None, list[OffsetRange]] = {}
    for row in connection.execute(select(batch_range).where(batch_range.c.batch_id == batch_id)).mappings():
        topic_id = ids.get((row["topic"], row["topic_id"]), row["topic_id"])
        read.setdefault(topic_id, []).append(span_of_row(row))
    gaps = gaps_of(connection, feed_id, gap.c.applied_at.is_not(None), gap.c.closed_by_batch.is_(None))
    split = {found.gap_id: found.read_by(batch_id, read.get(found.topic_id, [])) for found in gaps}
    changed = {found.gap_id for found in gaps if split[found.gap_id] != [found]}
    if not changed:
        return
    for gap_id in changed:
        connection.execute(delete(gap).where(gap.c.gap_id == gap_id))
    pieces = [piece for gap_id in changed for piece in split[gap_id]]
    insert_gaps(connection, feed_id, pieces)
    closed = sorted((piece for piece in pieces if piece.closed_by_batch), key=lambda piece: piece.offset_range)
    append_event(connection, feed_id, "gap_closed", who, batch_id, {"gaps": [piece.as_document() for piece in closed]})
