"""The statements that change the control tables. Each runs inside a transaction that holds the feed's lock."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import uuid6
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, bindparam, func, insert, not_, or_, select, update
from sqlalchemy.exc import IntegrityError

from kafka_ingest.batch import Attempt, BatchKind, BatchPlan, BatchState
from kafka_ingest.boundaries import FeedSnapshot, NewFeed
from kafka_ingest.control.reader import batch_row, stored_offsets
from kafka_ingest.control.schema import attempt, batch, batch_range, event, feed, gap, hold, stored_offset
from kafka_ingest.errors import BatchStateError, FeedChangedError, OffsetsMovedError, UnknownFeedError
from kafka_ingest.gap import Gap, Jump, NewGap
from kafka_ingest.hold import Hold
from kafka_ingest.offsets import StoredOffset, TopicPartition, listing
from kafka_ingest.receipt import RangeCount


def lock_feed(connection: Connection, feed_id: UUID) -> RowMapping:
    """Take the feed's lock. On SQLite the transaction itself is the lock (BEGIN IMMEDIATE)."""
    row = connection.execute(select(feed).where(feed.c.feed_id == feed_id).with_for_update()).mappings().one_or_none()
    if row is None:
        raise UnknownFeedError(
            f"expected a feed with id {feed_id} in the control tables, found none; nothing was written"
        )
    return row


def touch_feed(connection: Connection, feed_id: UUID, **values: object) -> None:
    """Note that the feed's control rows changed: whoever decided on older ones has to decide again."""
    connection.execute(
        update(feed)
        .where(feed.c.feed_id == feed_id)
        .values(revision=feed.c.revision + 1, updated_at=datetime.now(UTC), **values)
    )


def insert_feed(connection: Connection, new: NewFeed, **values: object) -> None:
    """Make the feed's row; of two first plans at once one wins."""
    now = datetime.now(UTC)
    try:
        connection.execute(
            insert(feed).values(
                feed_id=new.feed_id,
                name=new.name,
                revision=1,
                created_at=now,
                updated_at=now,
                **values,
            )
        )
    except IntegrityError as error:
        raise FeedChangedError(
            f"feed {new.name}: another first plan was faster. Nothing was written; plan again."
        ) from error


def upsert_seeds(connection: Connection, feed_id: UUID, seeds: Sequence[StoredOffset]) -> None:
    """Write the stored offsets of partitions that had none, and resolve those that were pending."""
    known = stored_offsets(connection, feed_id)
    now = datetime.now(UTC)
    insert_seeds(connection, feed_id, [seed for seed in seeds if seed.topic_partition not in known])
    for seed in seeds:
        if seed.topic_partition in known:
            resolved = connection.execute(
                update(stored_offset)
                .where(
                    stored_offset.c.feed_id == feed_id,
                    stored_offset.c.topic == seed.topic_partition.topic,
                    stored_offset.c.partition == seed.topic_partition.partition,
                    stored_offset.c.next_offset.is_(None),
                )
                .values(
                    first_offset=seed.first_offset,
                    next_offset=seed.next_offset,
                    seeded_by=seed.seeded_by,
                    leader_epoch=seed.leader_epoch,
                    updated_at=now,
                )
            ).rowcount
            if resolved != 1:
                raise FeedChangedError(
                    f"{seed.topic_partition} has a stored offset already; a start rule never moves one"
                )


def insert_seeds(connection: Connection, feed_id: UUID, seeds: Sequence[StoredOffset]) -> None:
    """Write the stored offsets of partitions that have none."""
    now = datetime.now(UTC)
    rows = [
        {
            "feed_id": feed_id,
            "topic": seed.topic_partition.topic,
            "partition": seed.topic_partition.partition,
            "topic_id": seed.topic_id,
            "first_offset": seed.first_offset,
            "next_offset": seed.next_offset,
            "seeded_by": seed.seeded_by,
            "leader_epoch": seed.leader_epoch,
            "batch_id": seed.batch_id,
            "updated_at": now,
        }
        for seed in seeds
    ]
    if rows:
        connection.execute(insert(stored_offset), rows)


def require_revision(connection: Connection, known: FeedSnapshot) -> None:
    """Take the feed's lock; raise FeedChangedError where somebody wrote to its control rows since they were read."""
    row = lock_feed(connection, known.feed_id)
    if row["revision"] != known.revision:
        raise FeedChangedError(
            f"feed {known.name}: somebody else wrote to its control rows while this was being decided (expected revision "
            f"{known.revision}, found {row['revision']}). Nothing was written; try again."
        )


def apply_jumps(
    connection: Connection, feed_id: UUID, jumps: Sequence[Jump], *, who: str, batch_id: UUID | None = None
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
            f"{jump.topic_partition}: expected {jump.from_offset:,}, found {with_commas(known[jump.topic_partition].next_offset)}"
            for jump in elsewhere
        )
        raise OffsetsMovedError(f"stored offsets are not where a gap begins: {texts}. None was moved; plan again.")
    key = ("topic", "partition")
    connection.execute(
        update(stored_offset)
        .where(stored_offset.c.feed_id == feed_id, *(stored_offset.c[name] == bindparam(f"at_{name}") for name in key))
        .values(next_offset=bindparam("to_offset"), updated_at=now),
        [
            {
                "at_topic": jump.topic_partition.topic,
                "at_partition": jump.topic_partition.partition,
                "to_offset": jump.to_offset,
            }
            for jump in jumps
        ],
    )
    gaps = [
        gap_of(new, known[jump.topic_partition].topic_id, who, now, applied_at=now)
        for jump in jumps
        for new in jump.gaps
    ]
    insert_gaps(connection, feed_id, gaps)
    passed = [replace(found, applied_at=now) for jump in jumps for found in jump.passed]
    if passed:
        connection.execute(
            update(gap).where(gap.c.gap_id.in_([found.gap_id for found in passed])).values(applied_at=now)
        )
    note_gaps(connection, feed_id, [*gaps, *passed], who, batch_id)
    return gaps


def gap_of(new: NewGap, topic_id: str | None, who: str, now: datetime, *, applied_at: datetime | None) -> Gap:
    """Return a new gap as it is stored."""
    return Gap(
        gap_id=uuid6.uuid7(),
        offset_range=new.offset_range,
        topic_id=topic_id,
        cause=new.cause,
        reason=new.reason,
        decided_by=who,
        decided_at=now,
        applied_at=applied_at,
    )


def insert_gaps(connection: Connection, feed_id: UUID, gaps: Sequence[Gap]) -> None:
    """Write gaps."""
    rows = [
        {
            "gap_id": new.gap_id,
            "feed_id": feed_id,
            "topic": new.offset_range.topic,
            "partition": new.offset_range.partition,
            "topic_id": new.topic_id,
            "start_offset": new.offset_range.start_offset,
            "end_offset": new.offset_range.end_offset,
            "cause": new.cause.value,
            "reason": new.reason,
            "decided_by": new.decided_by,
            "decided_at": new.decided_at,
            "applied_at": new.applied_at,
            "closed_by_batch": new.closed_by_batch,
        }
        for new in gaps
    ]
    if rows:
        connection.execute(insert(gap), rows)


def note_gaps(connection: Connection, feed_id: UUID, gaps: Sequence[Gap], who: str, batch_id: UUID | None) -> None:
    """Write gaps to the audit journal, whose ledger published receipts carry."""
    append_event(connection, feed_id, "gap", who, batch_id, {"gaps": [found.as_document() for found in gaps]})


def replace_holds(connection: Connection, feed_id: UUID, holds: Sequence[Hold]) -> None:
    """Write what a plan found instead of what the one before found."""
    connection.execute(hold.delete().where(hold.c.feed_id == feed_id))
    insert_holds(connection, feed_id, holds)


def insert_holds(connection: Connection, feed_id: UUID, holds: Sequence[Hold]) -> None:
    """Write holds."""
    rows = [
        {
            "hold_id": uuid6.uuid7(),
            "feed_id": feed_id,
            "topic": new.topic,
            "partition": new.partition,
            "cause": new.cause.value,
            "reason": new.reason,
            "at_offset": new.at_offset,
            "since": new.since,
        }
        for new in holds
    ]
    if rows:
        connection.execute(insert(hold), rows)


def insert_plan(connection: Connection, plan: BatchPlan, who: str) -> None:
    """Write the batch and its ranges; the unique index refuses a second open live batch."""
    try:
        connection.execute(insert(batch).values(**batch_values(plan, who)))
    except IntegrityError as error:
        raise FeedChangedError(
            f"feed {plan.feed_name}: another batch is open already. Nothing was written; plan again to take it on."
        ) from error
    insert_ranges(connection, plan)
    check_offsets_in_place(connection, plan.feed_id, plan.batch_id)


def batch_values(plan: BatchPlan, who: str) -> dict[str, object]:
    """Return a batch's row as it begins."""
    return {
        "batch_id": plan.batch_id,
        "feed_id": plan.feed_id,
        "kind": plan.kind.value,
        "state": BatchState.PLANNED.value,
        "plan": plan.as_document(),
        "plan_fingerprint": plan.fingerprint,
        "planned_at": plan.planned_at,
        "planned_by": who,
        "updated_at": plan.planned_at,
    }


def insert_ranges(connection: Connection, plan: BatchPlan) -> None:
    """Write a plan's ranges."""
    connection.execute(
        insert(batch_range),
        [
            {
                "batch_id": plan.batch_id,
                "topic": offset_range.topic,
                "partition": offset_range.partition,
                "topic_id": plan.topic_ids[offset_range.topic],
                "start_offset": offset_range.start_offset,
                "end_offset": offset_range.end_offset,
                "leader_epoch": plan.leader_epochs.get(offset_range.topic_partition),
            }
            for offset_range in plan.ranges
        ],
    )


def insert_attempt(connection: Connection, new: Attempt) -> None:
    """Write the attempt's row; of two drivers that open the same number one wins."""
    try:
        connection.execute(
            insert(attempt).values(
                batch_id=new.batch_id,
                attempt=new.attempt,
                state=new.state.value,
                directory=str(new.directory),
                document_sha256=new.document_sha256,
                opened_at=new.opened_at,
                opened_by=new.opened_by,
            )
        )
    except IntegrityError as error:
        raise FeedChangedError(f"batch {new.batch_id}: attempt {new.attempt} was opened by somebody else") from error


def set_batch(connection: Connection, row: RowMapping, **values: object) -> None:
    """Change a batch whose row is locked."""
    touch_feed(connection, row["feed_id"])
    connection.execute(
        update(batch).where(batch.c.batch_id == row["batch_id"]).values(updated_at=datetime.now(UTC), **values)
    )


def require_pinned(batch_id: UUID, row: RowMapping, attempt_number: int) -> None:
    """Raise BatchStateError unless this is the attempt whose receipt counts."""
    if row["pinned_attempt"] != attempt_number:
        raise BatchStateError(
            f"batch {batch_id}: expected attempt {attempt_number} to be the pinned one, found {row['pinned_attempt']} "
            f"in a {row['state']} batch. Nothing was changed."
        )


def set_range_counts(connection: Connection, batch_id: UUID, counts: Sequence[RangeCount]) -> None:
    """Write what the pinned receipt says of each range."""
    by_partition = {
        (row["topic"], row["partition"]): row
        for row in connection.execute(select(batch_range).where(batch_range.c.batch_id == batch_id)).mappings()
    }
    if by_partition.keys() != {(count.offset_range.topic, count.offset_range.partition) for count in counts}:
        raise ValueError(
            f"batch {batch_id}: expected a count of each of its {len(by_partition):,} ranges, found {len(counts):,}"
        )
    rows = [
        {
            **by_partition[(count.offset_range.topic, count.offset_range.partition)],
            "rows": count.rows,
            "filtered": 0,
            "dead_letters": 0,
            "invisible": count.invisible,
            "smallest_offset": count.smallest_offset,
            "largest_offset": count.largest_offset,
        }
        for count in counts
    ]
    # One bulk insert instead of an update a row: 10,000 partitions stay well under a second.
    connection.execute(batch_range.delete().where(batch_range.c.batch_id == batch_id))
    connection.execute(insert(batch_range), rows)


def clear_range_counts(connection: Connection, batch_id: UUID) -> None:
    """Forget what a receipt said that counts no more."""
    names = ("rows", "filtered", "dead_letters", "invisible", "smallest_offset", "largest_offset")
    connection.execute(update(batch_range).where(batch_range.c.batch_id == batch_id).values(dict.fromkeys(names)))


def advance_stored_offsets(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Move start → end of all partitions of a batch in one statement; raises OffsetsMovedError and moves none otherwise."""
    check_offsets_in_place(connection, feed_id, batch_id)
    expected = connection.execute(
        select(func.count()).select_from(batch_range).where(batch_range.c.batch_id == batch_id)
    ).scalar_one()
    moved = connection.execute(
        update(stored_offset)
        .where(stored_offset.c.feed_id == feed_id, batch_range.c.batch_id == batch_id, same_partition(), in_place())
        .values(
            next_offset=batch_range.c.end_offset,
            leader_epoch=func.coalesce(batch_range.c.leader_epoch, stored_offset.c.leader_epoch),
            batch_id=batch_id,
            updated_at=datetime.now(UTC),
        )
    ).rowcount
    if moved != expected:
        raise OffsetsMovedError(
            f"batch {batch_id}: {expected:,} stored offsets were to move, only {moved:,} were where the batch starts. None was "
            "moved. Somebody writes to the control tables without the feed's lock; find out who before going on."
        )


def same_partition() -> ColumnElement[bool]:
    """Return the condition that a stored offset and a range are of one partition."""
    return and_(stored_offset.c.topic == batch_range.c.topic, stored_offset.c.partition == batch_range.c.partition)


def in_place() -> ColumnElement[bool]:
    """Return the condition that a stored offset is where a range starts, in the same topic."""
    return and_(
        stored_offset.c.next_offset == batch_range.c.start_offset,
        stored_offset.c.topic_id.is_not_distinct_from(batch_range.c.topic_id),
    )


def check_offsets_in_place(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise OffsetsMovedError unless every range of a live batch starts at the stored offset, in the same topic."""
    if batch_row(connection, batch_id)["kind"] != BatchKind.LIVE.value:
        return
    here = and_(stored_offset.c.feed_id == feed_id, same_partition())
    elsewhere = connection.execute(
        select(
            batch_range.c.topic,
            batch_range.c.partition,
            batch_range.c.start_offset,
            batch_range.c.topic_id.label("planned_id"),
            stored_offset.c.next_offset,
            stored_offset.c.topic_id.label("found_id"),
        )
        .select_from(batch_range.outerjoin(stored_offset, here))
        .where(batch_range.c.batch_id == batch_id, or_(stored_offset.c.next_offset.is_(None), not_(in_place())))
        .order_by(batch_range.c.topic, batch_range.c.partition)
    ).all()
    if elsewhere:
        moved = listing(
            f"{TopicPartition(row.topic, row.partition)}: expected {row.start_offset:,}, found {with_commas(row.next_offset)}"
            + ("" if row.planned_id == row.found_id else f" (expected topic id {row.planned_id}, found {row.found_id})")
            for row in elsewhere
        )
        raise OffsetsMovedError(
            f"batch {batch_id}: stored offsets are not where the batch starts: {moved}. None was moved. "
            "Somebody reset them while the batch was open: reset them back, or abandon the batch unless it is COMMITTING."
        )


def with_commas(number: int | None) -> str:
    """Return a number for a message."""
    return "None" if number is None else f"{number:,}"


def append_event(
    connection: Connection, feed_id: UUID, kind: str, who: str, batch_id: UUID | None, detail: Mapping[str, Any]
) -> None:
    """Append a line to the audit journal."""
    connection.execute(
        insert(event).values(
            feed_id=feed_id, batch_id=batch_id, kind=kind, at=datetime.now(UTC), who=who, detail=dict(detail)
        )
    )


def row_detail(row: StoredOffset) -> dict[str, Any]:
    """Return what the journal keeps of a stored offset."""
    return {
        "topic": row.topic_partition.topic,
        "partition": row.topic_partition.partition,
        "topic_id": row.topic_id,
        "first_offset": row.first_offset,
        "next_offset": row.next_offset,
        "rule": row.seeded_by,
    }


def seed_detail(seed: StoredOffset) -> dict[str, Any]:
    """Return what the journal keeps of a seed."""
    return {
        "topic": seed.topic_partition.topic,
        "partition": seed.topic_partition.partition,
        "topic_id": seed.topic_id,
        "offset": seed.next_offset,
        "rule": seed.seeded_by,
    }
