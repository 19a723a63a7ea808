"""What is folded of a feed, and the step that folds the next old batches."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import uuid6
from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, exists, func, literal, or_, select, update

from kafka_ingest.control.database import Store, reads, transaction
from kafka_ingest.control.feed_statements import lock_feed
from kafka_ingest.control.output_rows import folded_batches, folded_by_id, folded_feed
from kafka_ingest.control.rows import insert_rows
from kafka_ingest.control.schema import FOLDED_KINDS, attempt, batch, batch_range, event, folded_range, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.documents import read_row, row_of
from kafka_ingest.model.folded import Chains, Foldable, FoldCut, Folded, FoldedRange

# Written out, not bound: SQLite takes a partial index only where it sees that its condition holds.
NOT_FOLDED = and_(
    batch.c.kind == literal(BatchKind.LIVE.value, literal_execute=True),
    batch.c.state == literal(BatchState.COMMITTED.value, literal_execute=True),
    batch.c.folded_at.is_(None),
)
STAGED = exists().where(attempt.c.batch_id == batch.c.batch_id, attempt.c.cleaned_at.is_(None))
"""The batch's attempts may have files in their directories; `clean` finds these through the attempts."""

# `dead-letters` and `locate` find them by the batch's own rows: such a batch is not summed up.
DEAD_LETTERS = exists().where(
    batch_range.c.batch_id == batch.c.batch_id, batch_range.c.dead_letters > literal(0, literal_execute=True)
)


def fold_batches(connection: Connection, feed_id: UUID, cut: FoldCut) -> Folded:
    """Fold the next of a feed's old batches: their ranges become chains, and their attempts go."""
    partitions = select(func.count()).select_from(stored_offset).where(stored_offset.c.feed_id == feed_id)
    at_once = cut.ranges_at_once // max(1, connection.execute(partitions).scalar_one())
    query = (
        select(batch.c.batch_id, batch.c.plan, batch.c.committed_at)
        .where(*old(feed_id, cut), ~batch.c.to_announce, ~STAGED, ~DEAD_LETTERS)
        .order_by(batch.c.committed_at, batch.c.batch_id)
        .limit(max(1, min(cut.batches_at_once, at_once)))
    )
    found = connection.execute(query).all()
    if not found:
        return Folded()
    ids = [row.batch_id for row in found]
    ranges = chain(connection, feed_id, {row.batch_id: row.committed_at for row in found})
    connection.execute(delete(batch_range).where(batch_range.c.batch_id.in_(ids)))
    connection.execute(
        update(batch)
        .where(batch.c.batch_id == bindparam("id"))
        .values(plan=bindparam("reduced"), pinned_attempt=None, folded_at=datetime.now(UTC)),
        [
            {"id": row.batch_id, "reduced": BatchPlan.from_document(row.plan).without_ranges().as_document()}
            for row in found
        ],
    )
    attempts = connection.execute(delete(attempt).where(attempt.c.batch_id.in_(ids))).rowcount
    return Folded(len(ids), ranges, attempts)


def old(feed_id: UUID, cut: FoldCut) -> Sequence[ColumnElement[bool]]:
    """Return the conditions that a batch is old enough, and none of the feed's newest."""
    newest = (
        select(batch.c.batch_id)
        .where(batch.c.feed_id == feed_id)
        .order_by(batch.c.planned_at.desc(), batch.c.batch_id.desc())
        .limit(cut.newest_stay)
        .subquery()
    )
    return (
        batch.c.feed_id == feed_id,
        NOT_FOLDED,
        batch.c.committed_at < cut.before,
        batch.c.batch_id.not_in(select(newest.c.batch_id)),
    )


def chain(connection: Connection, feed_id: UUID, committed_at: dict[UUID, datetime]) -> int:
    """Add the ranges of batches to the feed's folded ranges, oldest first; return how many they are."""
    rows = (
        connection.execute(select(batch_range).where(batch_range.c.batch_id.in_(list(committed_at)))).mappings().all()
    )
    known = folded_by_id(connection, feed_id)
    chains = Chains(known)
    order = {batch_id: number for number, batch_id in enumerate(committed_at)}
    for row in sorted(rows, key=lambda row: (order[row["batch_id"]], row["topic"], row["partition"])):
        at = committed_at[row["batch_id"]]
        chains.add(read_row(FoldedRange, row, batches=1, oldest=at, newest=at))
    if chains.gone:
        gone = [{"id": folded_id} for folded_id in chains.gone]
        connection.execute(delete(folded_range).where(folded_range.c.folded_id == bindparam("id")), gone)
    insert_rows(connection, folded_range, [folded_row(feed_id, each) for each in chains.new])
    return len(rows)


def folded_row(feed_id: UUID, folded: FoldedRange) -> dict[str, Any]:
    values = row_of(folded)
    oldest, newest = values.pop("oldest"), values.pop("newest")
    return {"folded_id": uuid6.uuid7(), "feed_id": feed_id, **values, "oldest_commit": oldest, "newest_commit": newest}


def fold_events(connection: Connection, feed_id: UUID, cut: FoldCut) -> int:
    """Delete the next of a feed's old lines that machines wrote, and return how many."""
    # Kind by kind: each has an index that leads to its oldest lines.
    gone = 0
    for kind in FOLDED_KINDS:
        oldest = select(event.c.event_id).where(*old_events(feed_id, cut, kind)).order_by(event.c.event_id)
        ids = connection.execute(oldest.limit(cut.events_at_once - gone)).scalars().all()
        if ids:
            through = event.c.event_id <= ids[-1]
            gone += connection.execute(delete(event).where(*old_events(feed_id, cut, kind), through)).rowcount
    return gone


def old_events(feed_id: UUID, cut: FoldCut, kind: str) -> Sequence[ColumnElement[bool]]:
    """Return the conditions that a line is of a kind, and old."""
    return event.c.feed_id == feed_id, event.c.kind == kind, event.c.at < cut.before


def foldable(connection: Connection, feed_id: UUID, cut: FoldCut) -> Foldable:
    def count(*conditions: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(batch).where(*old(feed_id, cut), *conditions)
        return connection.execute(query).scalar_one()

    events = (
        select(func.count()).select_from(event).where(or_(*(and_(*old_events(feed_id, cut, k)) for k in FOLDED_KINDS)))
    )
    return Foldable(
        batches=count(~batch.c.to_announce, ~STAGED, ~DEAD_LETTERS),
        events=connection.execute(events).scalar_one(),
        to_announce=count(batch.c.to_announce),
        staged=count(~batch.c.to_announce, STAGED),
        dead_letters=count(~batch.c.to_announce, ~STAGED, DEAD_LETTERS),
    )


class FoldingStore(Store):
    """Folded batches and their ranges."""

    folded = reads(folded_feed)
    folded_batches = reads(folded_batches)
    foldable = reads(foldable)

    def fold(self, feed_id: UUID, cut: FoldCut) -> Folded:
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            # The feed's revision stays: a concurrent decision on its rows rests on the same facts.
            return replace(fold_batches(connection, feed_id, cut), events=fold_events(connection, feed_id, cut))
