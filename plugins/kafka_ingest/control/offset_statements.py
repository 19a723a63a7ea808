"""Statements that write stored offsets and gaps. Each runs inside a transaction that holds the feed's lock."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import uuid6
from sqlalchemy import ColumnElement, Connection, Update, and_, bindparam, func, insert, not_, or_, select, update

from kafka_ingest.control.feed_statements import append_event
from kafka_ingest.control.rows import insert_rows, stored_offsets
from kafka_ingest.control.schema import batch, batch_range, gap, stored_offset
from kafka_ingest.errors import FeedChangedError, OffsetsMovedError
from kafka_ingest.model.batch import Batch, BatchKind
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.documents import row_of
from kafka_ingest.model.gap import Gap, Jump, NewGap
from kafka_ingest.model.offsets import StoredOffset, TopicPartition, listing


def same_partition() -> ColumnElement[bool]:
    return and_(stored_offset.c.topic == batch_range.c.topic, stored_offset.c.partition == batch_range.c.partition)


def in_place() -> ColumnElement[bool]:
    return and_(
        stored_offset.c.next_offset == batch_range.c.start_offset,
        stored_offset.c.topic_id.is_not_distinct_from(batch_range.c.topic_id),
    )


# Put together once, like those of kafka_ingest.control.feed_statements.
OF_THE_BATCH = batch_range.c.batch_id == bindparam("of_batch")
OF_THE_FEED = stored_offset.c.feed_id == bindparam("of_feed")
ELSEWHERE = (
    select(
        batch_range.c.topic,
        batch_range.c.partition,
        batch_range.c.start_offset,
        batch_range.c.topic_id.label("planned_id"),
        stored_offset.c.next_offset,
        stored_offset.c.topic_id.label("found_id"),
    )
    .select_from(batch_range.outerjoin(stored_offset, and_(OF_THE_FEED, same_partition())))
    .join(batch, and_(batch.c.batch_id == batch_range.c.batch_id, batch.c.kind == BatchKind.LIVE.value))
    .where(OF_THE_BATCH, or_(stored_offset.c.next_offset.is_(None), not_(in_place())))
    .order_by(batch_range.c.topic, batch_range.c.partition)
)


def advance_where(condition: ColumnElement[bool]) -> Update:
    """Return the statement that moves the stored offsets of a batch that meet a condition, from start to end."""
    return (
        update(stored_offset)
        .where(OF_THE_FEED, OF_THE_BATCH, same_partition(), condition)
        .values(
            next_offset=batch_range.c.end_offset,
            leader_epoch=batch_range.c.leader_epoch,
            batch_id=batch_range.c.batch_id,
            rows=stored_offset.c["rows"] + func.coalesce(batch_range.c["rows"], 0),
            filtered=stored_offset.c.filtered + func.coalesce(batch_range.c.filtered, 0),
            updated_at=bindparam("now"),
        )
    )


ADVANCE = advance_where(in_place())


def upsert_seeds(connection: Connection, feed_id: UUID, seeds: Sequence[StoredOffset]) -> None:
    """Write the stored offsets of partitions that had none, and resolve those that were pending."""
    known = stored_offsets(connection, feed_id)
    now = datetime.now(UTC)
    insert_seeds(connection, feed_id, [seed for seed in seeds if seed.topic_partition not in known])
    for seed in seeds:
        if seed.topic_partition in known:
            resolved = connection.execute(
                each_stored_offset(feed_id)
                .where(stored_offset.c.next_offset.is_(None))
                .values(
                    first_offset=seed.first_offset,
                    next_offset=seed.next_offset,
                    seeded_by=seed.seeded_by,
                    leader_epoch=seed.leader_epoch,
                    updated_at=now,
                ),
                place_of(seed.topic_partition),
            ).rowcount
            if resolved != 1:
                raise FeedChangedError(
                    f"{seed.topic_partition} has a stored offset already; a start rule never moves one"
                )


def insert_seeds(connection: Connection, feed_id: UUID, seeds: Sequence[StoredOffset]) -> None:
    now = datetime.now(UTC)
    rows = [row_of(seed) | {"feed_id": feed_id, "updated_at": now} for seed in seeds]
    insert_rows(connection, stored_offset, rows)


def apply_jumps(
    connection: Connection, feed_id: UUID, jumps: Sequence[Jump], *, actor: str, batch_id: UUID | None = None
) -> list[Gap]:
    """Move stored offsets over gaps, file the new ones and return them.

    Raises OffsetsMovedError, and moves none, where a stored offset is not where its jump begins.
    """
    if not jumps:
        return []
    now = datetime.now(UTC)
    known = stored_offsets(connection, feed_id)
    elsewhere = [jump for jump in jumps if known[jump.topic_partition].next_offset != jump.from_offset]
    if elsewhere:
        texts = listing(
            f"{jump.topic_partition}: expected {jump.from_offset:,}, found "
            f"{with_commas(known[jump.topic_partition].next_offset)}"
            for jump in elsewhere
        )
        raise OffsetsMovedError(f"stored offsets are not where a gap begins: {texts}. None was moved; plan again.")
    connection.execute(
        # The epoch belongs to the old offset; the next plan notes that of the new one.
        each_stored_offset(feed_id).values(next_offset=bindparam("to_offset"), leader_epoch=None, updated_at=now),
        [{**place_of(jump.topic_partition), "to_offset": jump.to_offset} for jump in jumps],
    )
    gaps = [
        gap_of(new, known[jump.topic_partition].topic_id, actor, now, applied_at=now)
        for jump in jumps
        for new in jump.gaps
    ]
    insert_gaps(connection, feed_id, gaps)
    passed = [replace(found, applied_at=now) for jump in jumps for found in jump.passed]
    if passed:
        connection.execute(
            update(gap).where(gap.c.gap_id.in_([found.gap_id for found in passed])).values(applied_at=now)
        )
    note_gaps(connection, feed_id, [*gaps, *passed], actor, batch_id)
    return gaps


def each_stored_offset(feed_id: UUID) -> Update:
    """Return an update of one stored offset at a time, by the parameters of :func:`place_of`."""
    return update(stored_offset).where(
        stored_offset.c.feed_id == feed_id,
        stored_offset.c.topic == bindparam("of_topic"),
        stored_offset.c.partition == bindparam("of_partition"),
    )


def place_of(topic_partition: TopicPartition) -> dict[str, Any]:
    return {"of_topic": topic_partition.topic, "of_partition": topic_partition.partition}


def note_leader_epochs(connection: Connection, feed_id: UUID, epochs: Mapping[TopicPartition, int]) -> None:
    if not epochs:
        return
    connection.execute(
        each_stored_offset(feed_id).values(leader_epoch=bindparam("seen_epoch")),
        [{**place_of(tp), "seen_epoch": epoch} for tp, epoch in sorted(epochs.items())],
    )


def gap_of(new: NewGap, topic_id: str | None, actor: str, now: datetime, *, applied_at: datetime | None) -> Gap:
    return Gap(
        gap_id=uuid6.uuid7(),
        offset_range=new.offset_range,
        topic_id=topic_id,
        cause=new.cause,
        reason=new.reason,
        decided_by=actor,
        decided_at=now,
        applied_at=applied_at,
    )


def insert_gaps(connection: Connection, feed_id: UUID, gaps: Sequence[Gap]) -> None:
    rows = [{"feed_id": feed_id, **row_of(new)} for new in gaps]
    if rows:
        connection.execute(insert(gap), rows)


def file_gaps_behind(connection: Connection, feed: FeedSnapshot, new_gaps: Sequence[NewGap], actor: str) -> list[Gap]:
    """File gaps below the stored offsets, which do not move, and return them."""
    now = datetime.now(UTC)
    gaps = [
        gap_of(new, feed.stored[new.offset_range.topic_partition].topic_id, actor, now, applied_at=now)
        for new in new_gaps
    ]
    insert_gaps(connection, feed.feed_id, gaps)
    return gaps


def note_gaps(connection: Connection, feed_id: UUID, gaps: Sequence[Gap], actor: str, batch_id: UUID | None) -> None:
    """Write gaps to the audit journal, whose ledger published receipts carry."""
    append_event(connection, feed_id, "gap", actor, batch_id, {"gaps": [found.as_document() for found in gaps]})


def advance_stored_offsets(connection: Connection, batch: Batch) -> None:
    """Move all partitions of a batch from start to end in one statement, or none: then it raises OffsetsMovedError."""
    check_offsets_in_place(connection, batch.plan.feed_id, batch.batch_id)
    which = {"of_feed": batch.plan.feed_id, "of_batch": batch.batch_id}
    moved = connection.execute(ADVANCE, which | {"now": datetime.now(UTC)}).rowcount
    if moved != (expected := len(batch.ranges_read)):
        raise OffsetsMovedError(
            f"batch {batch.batch_id}: {expected:,} stored offsets were to move, only {moved:,} were where the batch "
            "starts. None was moved. Another process writes to the control tables without the feed's lock; find it "
            "before you continue."
        )


def check_offsets_in_place(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise OffsetsMovedError unless every range of a live batch starts at the stored offset, in the same topic."""
    elsewhere = connection.execute(ELSEWHERE, {"of_feed": feed_id, "of_batch": batch_id}).all()
    if elsewhere:
        moved = listing(
            f"{TopicPartition(row.topic, row.partition)}: expected {row.start_offset:,}, found "
            f"{with_commas(row.next_offset)}"
            + ("" if row.planned_id == row.found_id else f" (expected topic id {row.planned_id}, found {row.found_id})")
            for row in elsewhere
        )
        raise OffsetsMovedError(
            f"batch {batch_id}: stored offsets are not where the batch starts: {moved}. None was moved. Another "
            "process moved them while the batch was open. Restore them, or abandon the batch: `kafka-ingest abandon "
            f"{batch_id} --reason …`, and the next plan begins at the stored offsets; a batch that is published "
            "already can only be finished; where it is unknown what was moved, `kafka-ingest adopt` rebuilds them "
            "from the output."
        )


def with_commas(number: int | None) -> str:
    return "None" if number is None else f"{number:,}"


def row_detail(row: StoredOffset) -> dict[str, Any]:
    return row_of(row, "topic_partition", "topic_id", "first_offset", "next_offset") | {"rule": row.seeded_by}


def seed_detail(seed: StoredOffset) -> dict[str, Any]:
    return row_of(seed, "topic_partition", "topic_id") | {"offset": seed.next_offset, "rule": seed.seeded_by}
