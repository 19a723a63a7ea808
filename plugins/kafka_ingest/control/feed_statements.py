"""Statements on a feed's row, its audit journal and its holds. Each runs inside a transaction."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import uuid6
from sqlalchemy import Connection, RowMapping, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from kafka_ingest.control.schema import LEDGER_KINDS, event, feed, hold
from kafka_ingest.errors import FeedChangedError, UnknownFeedError
from kafka_ingest.model.control_rows import FeedSnapshot, NewFeed
from kafka_ingest.model.documents import row_of
from kafka_ingest.model.hold import Hold

MAX_ENTRIES = 100
"""How many partitions, batches or gaps of one step the journal names; all of them are in their own rows."""

# Put together once: nearly every step takes the lock, touches the feed and writes a line. To put a statement together
# takes several times as long as to run it.
OF_FEED = feed.c.feed_id == bindparam("of_feed")
LOCKED_FEED = select(feed).where(OF_FEED).with_for_update()
TOUCH = (
    update(feed)
    .where(OF_FEED)
    # The column's type: PostgreSQL would take the default for a number of 32 bits.
    .values(
        revision=feed.c.revision + 1,
        rows_committed=feed.c.rows_committed + bindparam("more_rows", 0, type_=feed.c.rows_committed.type),
    )
)
NEW_EVENT = insert(event)


def lock_feed(connection: Connection, feed_id: UUID) -> RowMapping:
    """Take the feed's lock. On SQLite the transaction itself is the lock (BEGIN IMMEDIATE)."""
    row = connection.execute(LOCKED_FEED, {"of_feed": feed_id}).mappings().one_or_none()
    if row is None:
        raise UnknownFeedError(
            f"expected a feed with id {feed_id} in the control tables, found none; nothing was written"
        )
    return row


def touch_feed(connection: Connection, feed_id: UUID, **values: object) -> None:
    """Record that the feed's control rows changed: a decision on older ones has to be taken again.

    ``values`` are columns of its row, and ``more_rows``: how many rows were committed with it.
    """
    connection.execute(TOUCH, {"of_feed": feed_id, "updated_at": datetime.now(UTC), **values})


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


def require_revision(connection: Connection, known: FeedSnapshot) -> None:
    """Take the feed's lock; raise FeedChangedError where its control rows changed since they were read."""
    row = lock_feed(connection, known.feed_id)
    if row["revision"] != known.revision:
        raise FeedChangedError(
            f"feed {known.name}: another process wrote to its control rows while this was being decided (expected "
            f"revision {known.revision}, found {row['revision']}). Nothing was written; try again."
        )


def replace_holds(connection: Connection, feed_id: UUID, holds: Sequence[Hold]) -> None:
    """Write what a plan found instead of what the one before found."""
    connection.execute(hold.delete().where(hold.c.feed_id == feed_id))
    insert_holds(connection, feed_id, holds)


def insert_holds(connection: Connection, feed_id: UUID, holds: Sequence[Hold]) -> None:
    rows = [{"hold_id": uuid6.uuid7(), "feed_id": feed_id, **row_of(new)} for new in holds]
    if rows:
        connection.execute(insert(hold), rows)


def append_event(
    connection: Connection, feed_id: UUID, kind: str, actor: str, batch_id: UUID | None, detail: Mapping[str, Any]
) -> None:
    """Append a line to the audit journal. Only what rebuilds lost control tables is kept at full length."""
    kept = dict(detail) if kind in LEDGER_KINDS else shortened(detail)
    line = {"feed_id": feed_id, "batch_id": batch_id, "kind": kind, "at": datetime.now(UTC), "actor": actor}
    connection.execute(NEW_EVENT, line | {"detail": kept})


def shortened(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a line: the first entries of a long list, and the number of others as ``left_out``."""
    left_out = {
        name: len(value) - MAX_ENTRIES
        for name, value in detail.items()
        if isinstance(value, list) and len(value) > MAX_ENTRIES
    }
    if not left_out:
        return dict(detail)
    return {name: value[:MAX_ENTRIES] if name in left_out else value for name, value in detail.items()} | {
        "left_out": left_out
    }
