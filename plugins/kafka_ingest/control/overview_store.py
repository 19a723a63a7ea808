"""Where all feeds stand, and lists of batches without their ranges: what a page shows in a few statements."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Connection, Text, and_, case, cast, extract, func, select

from kafka_ingest.control.database import Store
from kafka_ingest.control.feed_snapshot import ALL_STORED, last_committed_at, not_rows, open_live_batches, stored_of
from kafka_ingest.control.row_sums import OF_THE_OUTPUT
from kafka_ingest.control.rows import batched, gaps_of
from kafka_ingest.control.schema import batch, event, feed, gap, hold
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.gap import ACKNOWLEDGED, DECIDED, Gap, GapCause
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.summaries import NONE_LEFT_OUT, BatchLine, FeedOverview, GapDecision, NotRows, OpenGaps

HOUR_S = 3600
IS_OPEN, IS_UNDECIDED = gap.c.closed_by_batch.is_(None), gap.c.cause.not_in(DECIDED)


class OverviewStore(Store):
    """Lists over feeds and batches. The number of statements does not grow with what they list."""

    def feed_overviews(self) -> list[FeedOverview]:
        with self.reading() as connection:
            gaps, others = all_open_gaps(connection), not_rows(connection)
            times = select(feed.c.feed_id, last_committed_at(BatchKind.LIVE), last_committed_at(BatchKind.BACKFILL))
            last = {feed_id: max(filter(None, both), default=None) for feed_id, *both in connection.execute(times)}
            return [
                replace(
                    each,
                    last_committed_at=last[each.feed_id],
                    open_gaps=gaps.get(each.feed_id, OpenGaps()),
                    not_rows=others.get(each.feed_id, NONE_LEFT_OUT),
                )
                for each in all_standings(connection)
            ]

    def feed_standings(self) -> list[FeedOverview]:
        """Return where feeds stand without gaps, records that became no row, and when something was committed last."""
        with self.reading() as connection:
            return all_standings(connection)

    def not_rows(self, feed_id: UUID) -> NotRows:
        with self.reading() as connection:
            return not_rows(connection).get(feed_id, NONE_LEFT_OUT)

    def batch_lines(self, feed_id: UUID, *, before: UUID | None = None, limit: int) -> list[BatchLine]:
        columns = [each for each in batch.c if each not in {batch.c.plan, batch.c.left_out}]
        query = select(*columns).where(batch.c.feed_id == feed_id)
        if before is not None:
            query = query.where(batch.c.batch_id < before)
        # By id, which is ordered by time: a page that continues another one is found in the index.
        query = query.order_by(batch.c.batch_id.desc()).limit(limit)
        with self.reading() as connection:
            return [
                read_row(BatchLine, row, attempt=row["pinned_attempt"], folded=row["folded_at"] is not None)
                for row in connection.execute(query).mappings()
            ]

    def rows_by_hour(self, feed_ids: Collection[UUID], since: datetime) -> dict[UUID, dict[datetime, int]]:
        is_committed = and_(batch.c.kind.in_(OF_THE_OUTPUT), batch.c.state == BatchState.COMMITTED.value)
        return self._by_hour(func.sum(batch.c["rows"]), batch.c.committed_at, is_committed, feed_ids, since)

    def lag_by_hour(self, feed_ids: Collection[UUID], since: datetime) -> dict[UUID, dict[datetime, int]]:
        return self._by_hour(func.max(batch.c.lag), batch.c.planned_at, batch.c.lag.is_not(None), feed_ids, since)

    def _by_hour(
        self,
        value: ColumnElement[int],
        at: ColumnElement[datetime],
        counts: ColumnElement[bool],
        feed_ids: Collection[UUID],
        since: datetime,
    ) -> dict[UUID, dict[datetime, int]]:
        seconds = extract("epoch", at)
        # Not divided: PostgreSQL's seconds have a fraction, SQLite's have none.
        hour = cast(seconds - seconds % HOUR_S, BigInteger).label("hour")
        query = (
            select(batch.c.feed_id, hour, value.label("total"))
            .where(counts, batch.c.planned_at >= since)
            .group_by(batch.c.feed_id, hour)
        )
        found: dict[UUID, dict[datetime, int]] = {}
        with self.reading() as connection:
            for some in batched(sorted(feed_ids)):
                for row in connection.execute(query.where(batch.c.feed_id.in_(some))):
                    begins = datetime.fromtimestamp(row.hour, UTC)
                    found.setdefault(row.feed_id, {})[begins] = int(row.total)
        return found

    def gap_decisions(self) -> dict[UUID, list[GapDecision]]:
        made = (gap.c.feed_id, gap.c.cause, gap.c.decided_at, gap.c.decided_by)
        places = func.count(func.distinct(gap.c.topic + "-" + cast(gap.c.partition, Text)))
        offsets = func.sum(gap.c.end_offset - gap.c.start_offset)
        query = (
            select(*made, func.min(gap.c.reason).label("reason"), places.label("places"), offsets.label("offsets"))
            .where(IS_OPEN)
            .group_by(*made)
            .order_by(gap.c.decided_at, gap.c.cause)
        )
        found: dict[UUID, list[GapDecision]] = {}
        with self.reading() as connection:
            for row in connection.execute(query.where(gap.c.gap_id.not_in(acknowledged_gaps(connection)))):
                found.setdefault(row.feed_id, []).append(
                    GapDecision(
                        GapCause(row.cause), row.decided_at, row.decided_by, row.reason, row.places, int(row.offsets)
                    )
                )
        return found


def all_standings(connection: Connection) -> list[FeedOverview]:
    """Return where all feeds stand, by name, without sums over their history."""
    stored, holds = stored_of(connection, ALL_STORED, {}), all_holds(connection)
    open_batches = open_live_batches(connection)
    found = [
        read_row(
            FeedOverview,
            row,
            topics=tuple(row["topics"]),
            stored=stored.get(row["feed_id"], {}),
            open_batch=open_row.batch_id if open_row is not None else None,
            open_batch_state=BatchState(open_row.state) if open_row is not None else None,
            open_since=open_row.updated_at if open_row is not None else None,
            holds=tuple(holds.get(row["feed_id"], ())),
            last_committed_at=None,
            open_gaps=OpenGaps(),
            not_rows=NONE_LEFT_OUT,
        )
        for row in connection.execute(select(feed)).mappings()
        for open_row in [open_batches.get(row["feed_id"])]
    ]
    # Not by the database: databases differ in the order of names.
    return sorted(found, key=lambda each: each.name)


def all_holds(connection: Connection) -> dict[UUID, list[Hold]]:
    found: dict[UUID, list[Hold]] = {}
    for row in connection.execute(select(hold).order_by(hold.c.since)).mappings():
        found.setdefault(row["feed_id"], []).append(read_row(Hold, row))
    return found


def all_open_gaps(connection: Connection) -> dict[UUID, OpenGaps]:
    """Return how many gaps of each feed are not closed, their offsets, and how many no operator has decided."""
    offsets = func.sum(gap.c.end_offset - gap.c.start_offset)
    undecided = func.sum(case((IS_UNDECIDED, 1), else_=0))
    query = select(gap.c.feed_id, func.count(), offsets, undecided).where(IS_OPEN).group_by(gap.c.feed_id)
    found = {feed_id: OpenGaps(*map(int, counts)) for feed_id, *counts in connection.execute(query)}
    for feed_id, count in Counter(acknowledged_gaps(connection).values()).items():
        found[feed_id] = replace(found[feed_id], undecided=found[feed_id].undecided - count)
    return found


def acknowledged_gaps(connection: Connection) -> dict[UUID, UUID]:
    """Return the feed of each gap that is not closed and stays, as an operator decided after it was filed."""
    in_question = event.c.feed_id.in_(select(gap.c.feed_id).where(IS_OPEN, IS_UNDECIDED))
    events = select(event.c.feed_id, event.c.detail).where(event.c.kind == ACKNOWLEDGED, in_question)
    decided: dict[UUID, list[Gap]] = {}
    for feed_id, detail in connection.execute(events):
        decided.setdefault(feed_id, []).append(Gap.from_document(detail["gap"]))
    return {
        each.gap_id: feed_id
        for feed_id, by_operators in decided.items()
        for each in gaps_of(connection, feed_id, IS_OPEN, IS_UNDECIDED)
        if each.is_decided(by_operators)
    }
