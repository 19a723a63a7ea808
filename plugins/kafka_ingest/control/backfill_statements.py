"""Statements on backfills: their chunks and the gaps they close. Each runs in a transaction with the feed's lock."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, update

from kafka_ingest.control.batch_statements import insert_plan
from kafka_ingest.control.coverage_rows import backfill_ranges
from kafka_ingest.control.feed_statements import append_event
from kafka_ingest.control.log_cuts import PLANNED_ON, Cuts, PlannedOn, ids_before, read_again_since, resets
from kafka_ingest.control.offset_statements import file_gaps_behind, insert_gaps, note_gaps, same_partition
from kafka_ingest.control.output_rows import kept
from kafka_ingest.control.read_again import check_not_replayed
from kafka_ingest.control.rows import COUNTS, gaps_of, newest_ledger_event, of_newest_published
from kafka_ingest.control.schema import batch, batch_range, gap, stored_offset
from kafka_ingest.errors import OffsetsMovedError, RangesTakenError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, FeedSnapshot
from kafka_ingest.model.coverage import BackfillRange
from kafka_ingest.model.documents import range_of_row
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, intersect, listing
from kafka_ingest.model.offsets import shared as offsets_shared
from kafka_ingest.model.place import OutputLocation


def insert_backfill(connection: Connection, feed: FeedSnapshot, record: BackfillRecord, actor: str) -> None:
    """Write a backfill's chunks and the gaps over deleted records; raises RangesTakenError and writes none."""
    for chunk in record.chunks:
        insert_plan(connection, chunk, actor)
    check_apart(connection, feed.feed_id, record.chunks)
    check_not_replayed(connection, feed.feed_id, record.chunks)
    for chunk in record.chunks:
        check_below_stored(connection, feed.feed_id, chunk.batch_id)
    if record.gaps:
        note_gaps(connection, feed.feed_id, file_gaps_behind(connection, feed, record.gaps, actor), actor, None)
    for chunk in record.chunks:
        note_ledger(connection, chunk)
    chunks = [str(chunk.batch_id) for chunk in record.chunks]
    detail = {"request": dict(record.request), "kind": record.chunks[0].kind.value if chunks else None}
    append_event(connection, feed.feed_id, "backfill_planned", actor, None, detail | {"chunks": chunks})


def note_ledger(connection: Connection, chunk: BatchPlan) -> None:
    """Record which seeds, gaps and resets a chunk was planned on: its receipt carries those since the newest live one.

    Without them, holes that were passed and filled since then would be read again after the control tables are lost.
    Events after its plan are not among them: receipts are replayed in the order of batch ids, that is of plans.
    """
    upto = newest_ledger_event(connection, chunk.feed_id)
    query = of_newest_published(select(batch.c.plan["sink"], batch.c.ledger_upto), chunk.feed_id)
    published = connection.execute(query).one_or_none()
    if published is None:
        # There is no receipt yet: what was passed before the first live batch has to be carried, too.
        after = 0 if chunk.kind is BatchKind.BACKFILL else upto
    else:
        after = (published[1] or 0) if OutputLocation.from_document(published[0]) == chunk.output else upto
    of_chunk = update(batch).where(batch.c.batch_id == chunk.batch_id)
    connection.execute(of_chunk.values(ledger_after=after, ledger_upto=upto))


def check_apart(connection: Connection, feed_id: UUID, chunks: Sequence[BatchPlan]) -> None:
    """Raise RangesTakenError where chunks read an offset of another backfill of the feed, open or committed."""
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
    shared = connection.execute(select(query).where(query.c.start_offset < query.c.taken_to)).mappings()
    taken = intersect([planned for chunk in chunks for planned in chunk.ranges], map(range_of_row, shared))
    if taken:
        taken = taken_by_others(connection, feed_id, chunks)
    if taken and any(chunk.kind is BatchKind.BACKFILL for chunk in chunks):
        raise RangesTakenError(
            f"expected offsets that no other backfill of the feed reads, found {listing(taken)}. "
            "Nothing was written; plan the backfill again."
        )


def taken_by_others(connection: Connection, feed_id: UUID, chunks: Sequence[BatchPlan]) -> list[OffsetRange]:
    """Return the chunks' ranges that overlap each other or, lost offsets apart, an open or committed backfill."""
    mine = {chunk.batch_id for chunk in chunks}
    found = backfill_ranges(connection, feed_id, batch.c.kind == BatchKind.BACKFILL.value)
    ids = {(planned.topic, chunk.topic_ids[planned.topic]) for chunk in chunks for planned in chunk.ranges}
    same = [each for each in found if (each.offset_range.topic, each.topic_id) in ids]
    others = [(each.batch_id, held) for each in same if each.batch_id not in mine for held in each.held]
    planned = [planned for chunk in chunks for planned in chunk.ranges]
    held = [*kept(connection, feed_id, others), *offsets_shared(planned)]
    return [each for each in planned if intersect([each], held)]


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
            batch.c.kind.in_((BatchKind.BACKFILL.value, BatchKind.REPLACE.value)),
            or_(stored_offset.c.next_offset.is_(None), batch_range.c.end_offset > stored_offset.c.next_offset),
        )
    )
    beyond = connection.execute(query).mappings().all()
    if beyond:
        found = listing(f"{range_of_row(row)}, stored offset {row['next_offset']}" for row in beyond)
        raise OffsetsMovedError(
            f"backfill {batch_id} reads offsets that are not below the stored ones: {found}. A live run reads those, "
            f"so they would be in the output twice. Nothing was changed; abandon it: `kafka-ingest abandon {batch_id} "
            "--reason …`."
        )


def check_not_overtaken(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise OffsetsMovedError where another backfill has read the offsets since, or a reset gave them to the live run.

    No operator resets offsets while a backfill is open. But a truncated topic moves back all the same; and control
    tables restored from a backup may have an open backfill that was since abandoned and planned again, or whose offsets
    were reset.
    """
    mine, other = batch_range.alias("mine"), batch_range.alias("other")
    # Compared with =, which PostgreSQL can look up: it can neither hash nor search what is "not distinct".
    same_partition = (mine.c.topic == other.c.topic) & (mine.c.partition == other.c.partition)
    same_log = same_partition & mine.c.topic_id.is_not_distinct_from(other.c.topic_id)
    read_by_another = (
        select(
            mine,
            other.c.batch_id.label("by"),
            other.c.start_offset.label("by_start"),
            other.c.end_offset.label("by_end"),
            *PLANNED_ON,
        )
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
    decided = resets(connection, feed_id)
    cuts = Cuts.of(decided)
    overtaken: set[OffsetRange] = set()
    for row in connection.execute(read_by_another).mappings():
        span = range_of_row(row)
        read = OffsetRange(span.topic_partition, row["by_start"], row["by_end"])
        cut = cuts.at(span.topic_partition, row["topic_id"], PlannedOn.of_row(row))
        by = BackfillRange(row["by"], BatchState.COMMITTED, read, row["topic_id"], cut)
        if intersect([span], kept(connection, feed_id, [(by.batch_id, held) for held in by.held])):
            overtaken.add(span)
    if decided:
        known = connection.execute(select(batch.c.ledger_upto).where(batch.c.batch_id == batch_id)).scalar_one()
        ranges = connection.execute(select(batch_range).where(batch_range.c.batch_id == batch_id)).mappings().all()
        again = read_again_since(decided, known, {row["topic"]: row["topic_id"] for row in ranges})
        overtaken.update(intersect(map(range_of_row, ranges), again))
    if overtaken:
        raise OffsetsMovedError(
            f"backfill {batch_id} reads offsets that another backfill has read, or that a reset gave to the live run, "
            f"since it was planned: {listing(sorted(overtaken))}. They would be in the output twice. Nothing was "
            f"changed; abandon it: `kafka-ingest abandon {batch_id} --reason …`, and plan what is left again."
        )


def close_gaps(connection: Connection, feed_id: UUID, batch_id: UUID, actor: str) -> None:
    """Close the open gaps that a backfill has read; one of which it read only some is split."""
    # Where the same records got another topic id since the backfill was planned, so did the gaps.
    ids = ids_before(resets(connection, feed_id))
    read: dict[tuple[TopicPartition, str | None], OffsetRange] = {}
    for row in connection.execute(select(batch_range).where(batch_range.c.batch_id == batch_id)).mappings():
        span = range_of_row(row)
        read[span.topic_partition, ids.get((row["topic"], row["topic_id"]), row["topic_id"])] = span
    split = {
        found.gap_id: (found, found.read_by(batch_id, [planned]))
        for found in gaps_of(connection, feed_id, gap.c.applied_at.is_not(None), gap.c.closed_by_batch.is_(None))
        for planned in [read.get((found.offset_range.topic_partition, found.topic_id))]
        if planned is not None
    }
    changed = {gap_id: pieces for gap_id, (found, pieces) in split.items() if pieces != [found]}
    if not changed:
        return
    connection.execute(delete(gap).where(gap.c.gap_id == bindparam("id")), [{"id": gap_id} for gap_id in changed])
    pieces = [piece for of_gap in changed.values() for piece in of_gap]
    insert_gaps(connection, feed_id, pieces)
    closed = sorted((piece for piece in pieces if piece.closed_by_batch), key=lambda piece: piece.offset_range)
    append_event(
        connection, feed_id, "gap_closed", actor, batch_id, {"gaps": [piece.as_document() for piece in closed]}
    )
