"""Statements by which an operator's reset moves stored offsets. Each runs in a transaction with the feed's lock."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, select

from kafka_ingest.control.offset_statements import each_stored_offset, insert_gaps, row_detail, with_commas
from kafka_ingest.control.rows import gaps_of
from kafka_ingest.control.schema import batch, gap
from kafka_ingest.errors import BatchStateError, OffsetsMovedError
from kafka_ingest.model.batch import OPEN_STATES, BatchKind
from kafka_ingest.model.control_rows import FeedSnapshot, ResetMove
from kafka_ingest.model.offsets import StoredOffset, listing
from kafka_ingest.model.rewound import ended_gaps


def require_none_open(connection: Connection, feed: FeedSnapshot) -> None:
    """Raise BatchStateError where an open batch was planned on the stored offsets; copies do not depend on them."""
    query = select(batch.c.batch_id, batch.c.kind, batch.c.state).where(
        batch.c.feed_id == feed.feed_id,
        batch.c.kind != BatchKind.COPY.value,
        batch.c.state.in_([state.value for state in OPEN_STATES]),
    )
    found = connection.execute(query.order_by(batch.c.batch_id).limit(1)).one_or_none()
    if found is not None:
        raise BatchStateError(
            f"feed {feed.name}: {found.kind} batch {found.batch_id} is {found.state}: expected no open batch where "
            "stored offsets are reset. Finish it or abandon it, then reset. Nothing was changed."
        )


def reset_rows(feed: FeedSnapshot, moves: Sequence[ResetMove]) -> list[StoredOffset]:
    """Return the rows after the moves; raises OffsetsMovedError where a move does not begin at the stored offset."""
    elsewhere = [
        f"{move.topic_partition}: expected {move.from_offset:,}, found {with_commas(row.next_offset if row else None)}"
        for move in moves
        for row in [feed.stored.get(move.topic_partition)]
        if row is None or row.next_offset != move.from_offset
    ]
    if elsewhere:
        raise OffsetsMovedError(f"stored offsets are not where a reset begins: {listing(elsewhere)}. None was moved.")
    return [
        replace(
            row,
            first_offset=min(row.first_offset or 0, move.to_offset),
            next_offset=move.to_offset,
            batch_id=None,
            # The log reached the old offset; how far beyond is unknown.
            leader_epoch=row.leader_epoch if move.to_offset <= move.from_offset else None,
        )
        for move in moves
        for row in [feed.stored[move.topic_partition]]
    ]


def write_rows(connection: Connection, feed_id: UUID, rows: Sequence[StoredOffset], moves: Sequence[ResetMove]) -> None:
    """Write the rows; those that pass gaps stay, because the gaps move them."""
    connection.execute(
        each_stored_offset(feed_id).values(
            first_offset=bindparam("to_first"),
            next_offset=bindparam("to_next"),
            batch_id=None,
            leader_epoch=bindparam("to_epoch"),
            updated_at=datetime.now(UTC),
        ),
        [
            {
                "of_topic": row.topic_partition.topic,
                "of_partition": row.topic_partition.partition,
                "to_first": row.first_offset,
                "to_epoch": row.leader_epoch,
                "to_next": row.next_offset if move.jump is None else move.from_offset,
            }
            for row, move in zip(rows, moves, strict=True)
        ],
    )


def end_gaps(connection: Connection, feed_id: UUID, was: Sequence[StoredOffset], now: Sequence[StoredOffset]) -> None:
    """End the open gaps above stored offsets that went back in the same topic: what they hold is read now."""
    open_gaps = gaps_of(connection, feed_id, gap.c.applied_at.is_not(None), gap.c.closed_by_batch.is_(None))
    ended = ended_gaps(open_gaps, was, now)
    if ended:
        connection.execute(delete(gap).where(gap.c.gap_id == bindparam("ended")), [{"ended": each} for each in ended])
        insert_gaps(connection, feed_id, [left for left in ended.values() if left is not None])


def reset_detail(
    feed: FeedSnapshot, was: Sequence[StoredOffset], now: Sequence[StoredOffset], reason: str
) -> dict[str, Any]:
    """Return what the journal keeps of a reset: as of topics that start over, but the records are the same."""
    return {
        "reason": reason,
        "cluster_id": {"was": feed.cluster_id, "is": feed.cluster_id},
        "same_records": sorted({row.topic_partition.topic for row in now}),
        "untouched": [],
        "removed": [row_detail(row) for row in was],
        "partitions": [row_detail(row) for row in now],
    }
