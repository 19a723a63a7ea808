"""What the rows of the control tables mean: each becomes one of the nouns."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    RowMapping,
    ScalarSelect,
    Select,
    Table,
    and_,
    bindparam,
    cast,
    column,
    func,
    insert,
    literal,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

from kafka_ingest.control.schema import LEDGER_KINDS, batch, batch_range, event, feed, gap, stored_offset
from kafka_ingest.errors import ControlSchemaError, UnknownBatchError
from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.model.batch import OPEN_STATES, Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import PublishedBatch
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.gap import Event, Gap, GapCause
from kafka_ingest.model.offsets import StoredOffset, TopicPartition
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.summaries import BatchRange

SINK = batch.c.plan["sink"]
OUTPUT = (
    SINK["format"].as_string().label("sink_format"),
    SINK["path"].as_string().label("output_path"),
    SINK["options"].as_string().label("sink_options"),
)
"""Columns of a query on batches, for :func:`output_of`. Texts, so that rows can be compared: DISTINCT."""


def output_of(row: RowMapping) -> OutputLocation:
    options: dict[str, Any] = json.loads(row["sink_options"]) if row["sink_options"] else {}
    return OutputLocation(row["sink_format"], row["output_path"], tuple(sorted(options.items())))


def stored_offsets(
    connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]
) -> dict[TopicPartition, StoredOffset]:
    query = STORED_OFFSETS.where(*conditions) if conditions else STORED_OFFSETS
    rows = sorted(connection.execute(query, {"feed_id": feed_id}), key=lambda row: (row.topic, row.partition))
    return {tp: StoredOffset(tp, *values) for topic, number, *values in rows for tp in [TopicPartition(topic, number)]}


def gaps_of(connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]) -> list[Gap]:
    query = GAPS.where(*conditions) if conditions else GAPS
    gaps = [read_row(Gap, row) for row in connection.execute(query, {"feed_id": feed_id}).mappings()]
    return sorted(gaps, key=lambda gap: (gap.offset_range, gap.decided_at))


OF_FEEDS = bindparam("feed_ids", type_=feed.c.feed_id.type, expanding=True)


def _behind_losses() -> Select[Any]:
    before = gap.alias("before")
    follows = and_(
        before.c.feed_id == gap.c.feed_id,
        before.c.topic == gap.c.topic,
        before.c.partition == gap.c.partition,
        before.c.topic_id.is_not_distinct_from(gap.c.topic_id),
        before.c.end_offset == gap.c.start_offset,
    )
    ends_there = and_(
        gap.c.feed_id == stored_offset.c.feed_id,
        gap.c.topic == stored_offset.c.topic,
        gap.c.partition == stored_offset.c.partition,
        gap.c.topic_id.is_not_distinct_from(stored_offset.c.topic_id),
        gap.c.end_offset == stored_offset.c.next_offset,
    )
    return (
        select(stored_offset.c.feed_id, stored_offset.c.topic, stored_offset.c.partition)
        .join(gap, ends_there)
        .join(before, follows)
        .where(
            stored_offset.c.feed_id.in_(OF_FEEDS),
            *(each.c.cause == GapCause.RETENTION.value for each in (before, gap)),
            *(each.c.applied_at.is_not(None) for each in (before, gap)),
        )
    )


# Put together once: a feed's rows are asked for before and after nearly every step.
BEHIND_LOSSES = _behind_losses()
OF_STORED_OFFSETS = [
    stored_offset.c[name]
    for name in ("topic", "partition", *(each.name for each in fields(StoredOffset) if each.name != "topic_partition"))
]
STORED_OFFSETS = select(*OF_STORED_OFFSETS).where(stored_offset.c.feed_id == bindparam("feed_id"))
GAPS = select(gap).where(gap.c.feed_id == bindparam("feed_id"))
BATCH = select(batch, feed.c.name.label("feed_name")).join(feed).where(batch.c.batch_id == bindparam("batch_id"))
LOCKED_BATCH = BATCH.with_for_update(of=batch)


def ranges_of(connection: Connection, batch_ids: Select[Any] | Sequence[UUID]) -> dict[UUID, list[BatchRange]]:
    """Return the ranges of some batches; many are better named by a query than one by one."""
    ranges: dict[UUID, list[BatchRange]] = {}
    query = (
        select(batch_range)
        .where(batch_range.c.batch_id.in_(batch_ids))
        .order_by(batch_range.c.topic, batch_range.c.partition)
    )
    for row in connection.execute(query).mappings():
        ranges.setdefault(row["batch_id"], []).append(
            BatchRange(**{name: row[name] for name in BatchRange.__dataclass_fields__})
        )
    return ranges


def batch_row(connection: Connection, batch_id: UUID, *, for_update: bool = False) -> RowMapping:
    """Return a batch's row; raises UnknownBatchError."""
    query = LOCKED_BATCH if for_update else BATCH
    row = connection.execute(query, {"batch_id": batch_id}).mappings().one_or_none()
    if row is None:
        raise UnknownBatchError(f"no batch {batch_id} in the control tables; `kafka-ingest batches` lists them")
    return row


def batch_of(row: Mapping[Any, Any]) -> Batch:
    try:
        plan = BatchPlan.from_document(row["plan"])
    except ForeignJsonError as error:
        raise ControlSchemaError(
            f"batch {row['batch_id']}: its plan cannot be read ({error}). Finish or abandon it with the version that "
            "made it."
        ) from error
    if plan.fingerprint != row["plan_fingerprint"]:
        raise ControlSchemaError(
            f"batch {row['batch_id']}: expected the plan with fingerprint {row['plan_fingerprint']}, found "
            f"{plan.fingerprint}. Plans never change, so the control tables were changed by hand. Nothing was done."
        )
    return read_row(Batch, row, plan=plan, left_out=left_out_of(row))


def left_out_of(row: Mapping[Any, Any]) -> tuple[LeftOut, ...]:
    return tuple(LeftOut.from_document(entry) for entry in row["left_out"] or ())


def is_dag_run(actor: str) -> bool:
    """Whether who acted is a task of a DAG run: ``airflow:DAG/RUN``."""
    return actor.startswith("airflow:")


def is_of_run(actor: str | None, run_id: str) -> bool:
    """Whether who acted is a task of this DAG run; a DAG's id has no slash, and a run's may have one."""
    return actor is not None and is_dag_run(actor) and actor.partition("/")[2] == run_id


def event_of(row: Mapping[Any, Any]) -> Event:
    return read_row(Event, row, actor=row["who"])


def events_of(
    connection: Connection,
    feed_id: UUID,
    *,
    kinds: Collection[str] = (),
    since: datetime | None = None,
    after: int | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> list[Event]:
    """Return a feed's events, newest first; of all kinds where none is named. Between two of them, by their numbers."""
    query = select(event).where(event.c.feed_id == feed_id)
    if after is not None:
        query = query.where(event.c.event_id > after)
    if before is not None:
        query = query.where(event.c.event_id < before)
    if kinds:
        query = query.where(event.c.kind.in_(sorted(kinds)))
    if since is not None:
        query = query.where(event.c.at >= since)
    query = query.order_by(event.c.event_id.desc()).limit(limit)
    return [event_of(row) for row in connection.execute(query).mappings()]


def newest_published(connection: Connection, feed_id: UUID) -> PublishedBatch | None:
    row = connection.execute(NEWEST_PUBLISHED, {"feed_id": feed_id}).mappings().one_or_none()
    return PublishedBatch(row["batch_id"], output_of(row)) if row is not None else None


def of_newest_published(
    query: Select[Any], feed_id: UUID | BindParameter[UUID], kind: BatchKind = BatchKind.LIVE
) -> Select[Any]:
    """Narrow a query on batches to a feed's newest one of a kind that was committed."""
    is_published = (batch.c.kind == kind.value) & (batch.c.state == BatchState.COMMITTED.value)
    published = select(batch.c.batch_id).where(batch.c.feed_id == feed_id, is_published)
    # By id alone: sorted with all selected columns, every plan of years would be read.
    newest = published.order_by(batch.c.batch_id.desc()).limit(1).scalar_subquery()
    return query.where(batch.c.batch_id == newest)


PUBLISHED_TO = select(batch.c.batch_id, batch.c.kind, *OUTPUT)
NEWEST_PUBLISHED = of_newest_published(PUBLISHED_TO, bindparam("feed_id"))
NEWEST_OF_KINDS = union_all(*(of_newest_published(PUBLISHED_TO, bindparam("feed_id"), kind) for kind in BatchKind))


def _newest_ledger_event() -> ScalarSelect[int]:
    # Kind by kind: each is one index lookup; all at once would read every line of the journal.
    newest = select(func.max(event.c.event_id).label("newest")).where(event.c.feed_id == bindparam("of_feed"))
    of_kinds = union_all(*(newest.where(event.c.kind == kind) for kind in LEDGER_KINDS)).subquery()
    return select(func.coalesce(func.max(of_kinds.c.newest), 0)).scalar_subquery()


NEWEST_LEDGER_EVENT = _newest_ledger_event()
"""The number of the newest seed, gap or reset of the feed ``of_feed``; 0 where there is none."""
NEWEST_LEDGER_EVENT_ALONE = select(NEWEST_LEDGER_EVENT)


def newest_ledger_event(connection: Connection, feed_id: UUID) -> int:
    """Return the number of a feed's newest seed, gap or reset; 0 where there is none."""
    return int(connection.execute(NEWEST_LEDGER_EVENT_ALONE, {"of_feed": feed_id}).scalar_one())


# Written out, not bound: SQLite takes a partial index only where it sees that its condition holds.
NOT_COMMITTED = batch.c.state != literal(BatchState.COMMITTED.value, literal_execute=True)
NOT_LIVE = batch.c.kind != literal(BatchKind.LIVE.value, literal_execute=True)


def not_live_of(feed_id: UUID) -> ColumnElement[bool]:
    """Return the condition that a batch is one of a feed's that are not live.

    On its own in a statement: beside other conditions SQLite reads all of years of batches, once ANALYZE has counted
    those of one feed.
    """
    return batch.c.batch_id.in_(select(batch.c.batch_id).where(batch.c.feed_id == feed_id, NOT_LIVE))


COUNTS = batch.c.state.in_(sorted(state.value for state in {*OPEN_STATES, BatchState.COMMITTED}))
"""A batch that is abandoned holds nothing."""

OF_THE_FEED = batch.c.kind != BatchKind.COPY.value
"""Ranges in another output do not count for the feed's own."""

IN_LEDGER = batch.c.kind.in_((BatchKind.LIVE.value, BatchKind.BACKFILL.value))
"""The batches that have committed offsets. One that replaces rows reads offsets that others have committed."""


AT_ONCE = 500
"""A statement has a limited number of parameters."""

Item = TypeVar("Item")


def batched(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Return items in parts that a statement can name."""
    return [items[first : first + AT_ONCE] for first in range(0, len(items), AT_ONCE)]


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that have the same columns; none is nothing to do.

    PostgreSQL takes them as one array a column: row by row its driver needs twice as long (bench/README.md).
    """
    if not rows:
        return
    if connection.dialect.name != "postgresql":
        connection.execute(insert(table), list(rows))
        return
    sent = {name: table.c[name].type for name in rows[0]}
    insert_arrays(connection, table, {name: [row[name] for row in rows] for name in sent}, sent)


def insert_arrays(
    connection: Connection,
    table: Table,
    values: Mapping[str, Sequence[object]],
    sent: Mapping[str, TypeEngine[Any]],
) -> None:
    """Insert rows into a table of PostgreSQL as an array of each column's ``values``, of the types ``sent``."""
    arrays = [bindparam(name, list(given), type_=ARRAY(sent[name])) for name, given in values.items()]
    unnested = func.unnest(*arrays).table_valued(*(column(name, sent[name]) for name in values)).render_derived()
    kept = {name: table.c[name].type for name in values}
    taken = [unnested.c[name] if sent[name] is kept[name] else cast(unnested.c[name], kept[name]) for name in values]
    connection.execute(insert(table).from_select(list(values), select(*taken)))
