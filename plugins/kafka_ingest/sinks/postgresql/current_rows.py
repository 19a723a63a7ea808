"""A batch's events become the newest state of each key: which of them win, and what they do to the table.

All in a few statements over all keys. Of a key the event wins that :mod:`kafka_ingest.model.table_options` says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    Text,
    Uuid,
    and_,
    case,
    cast,
    delete,
    func,
    literal,
    not_,
    or_,
    select,
    text,
)
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, distinct_on, insert

from kafka_ingest.model.table_options import (
    CHANGE,
    DELETES,
    IS_DELETED,
    IS_SNAPSHOT,
    NOTHING,
    READS,
    TRUNCATES,
    UNAVAILABLE_COLUMNS,
    CurrentState,
)
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.postgresql.columns import Column

ONE_LOG = ("kafka_topic", "kafka_topic_id", "kafka_partition")
IS_KNOWN, IS_UNKNOWN, IS_MOVED = "kafka_is_known", "kafka_is_unknown", "kafka_is_moved"
"""Of an event within the statement: its key has a row; a value of it is not known; its key's row is of another log."""
OF_CHANGES = literal(2**62, BigInteger())
"""More than any offset."""
HAS_TRUNCATIONS = text("jsonb_array_length(changes -> 'truncations') > 0")
"""Which marks have some; without parameters, so that the index of these marks is used."""
ENOUGH_MEMORY: Final = text(
    "SELECT set_config('work_mem', '64MB', true) WHERE pg_size_bytes(current_setting('work_mem')) < 64 * 1024 * 1024"
)
"""For one transaction: with PostgreSQL's 4 MB, the keys of a batch are grouped and joined in files."""
Condition = ColumnElement[bool]
Truncation = tuple[str, str | None, int, int]
"""A topic, its id, its only partition, and the offset before which all of it was removed."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a batch did to the rows of keys, each of which one record has changed; all others are ``ignored``.

    ``unknown`` rows have a null for a value that neither the batch nor the table had. ``truncated`` rows were removed
    by truncations, whose topics, with their ids and the offsets, are listed.
    """

    records: int
    inserted: int
    updated: int
    deleted: int
    unknown: int
    truncated: int = 0
    truncations: Sequence[Truncation] = ()

    def as_document(self) -> dict[str, Any]:
        ignored = self.records - self.inserted - self.updated - self.deleted - len(self.truncations)
        return {**asdict(self), "ignored": ignored}


@dataclass(frozen=True, slots=True)
class StagedEvents:
    """The copied events of a batch, beside the table that they change; ``key``: the names of its key's columns.

    ``columns`` are those of the table.
    """

    events: FromClause
    table: Table
    key: Sequence[str]
    columns: Mapping[str, Column]

    def moved(self, connection: Connection, truncations: Iterable[Truncation]) -> list[str]:
        """Return which keys are in another partition, topic or topic id than before: no offset orders their events.

        One of each kind, by its position; a truncation orders one partition alone.
        """
        e, t = self.events.c, self.table.c
        connection.execute(ENOUGH_MEMORY)
        of_rows = e[CHANGE].not_in([TRUNCATES, NOTHING])
        keys = [each.label(f"key_{number}") for number, each in enumerate(self._keys(e))]
        logs = [e[name] for name in ONE_LOG]
        placed = select(*keys, *logs, func.max(e.kafka_offset).label("last")).where(of_rows).group_by(*keys, *logs)
        p = placed.subquery("placed").c
        twice = (
            select(func.max(p.kafka_topic), func.max(p.kafka_partition), func.max(p.last))
            .group_by(*(p[each.name] for each in keys))
            .having(func.count() > 1)
        )
        found = [
            f"a key of {topic}-{partition} that is in another partition or topic, too, at offset {offset} at most"
            for topic, partition, offset in one_of(connection, twice)
        ]
        there = (t[name] for name in (*ONE_LOG, "kafka_offset"))
        before = (
            select(e.kafka_topic, e.kafka_partition, e.kafka_offset, e.kafka_topic_id, *there)
            .join_from(self.events, self.table, self._same(e, t))
            .where(of_rows, in_other_log(e, t))
        )
        found += [
            f"at {topic}-{partition}@{offset} of topic id {topic_id} a key whose row is from "
            f"{of}-{number}@{last} of topic id {of_id}"
            for topic, partition, offset, topic_id, of, of_id, number, last in one_of(connection, before)
        ]
        for columns, some in ((e, truncations), (t, self.truncations(connection))):
            for topic, topic_id, partition, _ in some:
                elsewhere = and_(of_topic(columns, topic, topic_id), columns.kafka_partition != partition)
                if (
                    one := connection.execute(select(columns.kafka_partition).where(elsewhere).limit(1)).first()
                ) is not None:
                    found.append(f"a truncation of topic {topic}, which has the partitions {partition} and {one[0]}")
        return found

    def truncations(self, connection: Connection) -> list[Truncation]:
        """Return the newest truncation of each topic in the batch."""
        e = self.events.c
        log = (e.kafka_topic, e.kafka_topic_id, e.kafka_partition)
        query = select(*log, func.max(e.kafka_offset)).where(e[CHANGE] == TRUNCATES).group_by(*log)
        return [
            (topic, topic_id, partition, offset) for topic, topic_id, partition, offset in connection.execute(query)
        ]

    def apply(
        self,
        connection: Connection,
        batch_id: UUID,
        state: CurrentState,
        truncations: Sequence[Truncation],
    ) -> tuple[int, int, Changes]:
        """Change the table; return how many keys have moved, how many rows have not changed, and what was done.

        What has moved is left as it is, and counts among what has not changed. ``truncations``: of the batch and of
        all before it.
        """
        t, e = self.table.c, self.events.c
        connection.execute(ENOUGH_MEMORY)
        counting = connection.execution_options(preserve_rowcount=True)
        truncated = 0
        for each in self.truncations(connection):
            truncated += counting.execute(delete(self.table).where(older(t, each))).rowcount
        records = connection.execute(select(func.count()).select_from(self.events)).scalar_one()
        hidden = connection.execute(
            select(e[UNAVAILABLE_COLUMNS]).distinct().where(e[UNAVAILABLE_COLUMNS].is_not(None))
        )
        unavailable = sorted({name for (each,) in hidden for name in each.split("\n") if name})
        newest = self.newest(truncations).cte("newest")
        winning = self._winning(newest, unavailable, truncations, removes=state.removes).cte("winning")
        w = winning.c
        names = [each.name for each in e if each.name not in {CHANGE, UNAVAILABLE_COLUMNS}]
        into = [*names, IS_DELETED, IS_SNAPSHOT, BATCH_COLUMN]
        rows = select(
            *(cast(w[name], JSONB) if self.columns[name].type == "jsonb" else w[name] for name in names),
            w[CHANGE] == DELETES,
            w[CHANGE] == READS,
            literal(batch_id, Uuid()),
        )
        # What records have no more would outlive the deletion.
        others = [each.name for each in self.columns.values() if each.name not in into and each.can_be_null]
        is_deletion, stays = w[CHANGE] == DELETES, not_(w[IS_MOVED])
        if state.removes:
            rows = rows.where(not_(is_deletion))
        adding = insert(self.table).from_select(into, rows.where(not_(w[IS_KNOWN])))
        added = adding.on_conflict_do_nothing(index_elements=list(self.key)).returning(t.kafka_offset).cte("added")
        own = {name: value for name, value in zip(into, rows.selected_columns, strict=True) if name not in self.key}
        own |= {name: case((not_(is_deletion), t[name])) for name in others}
        known = [w[IS_KNOWN], stays, *([not_(is_deletion)] if state.removes else [])]
        updated = (
            sql_update(self.table)
            .values(own)
            .where(self._same(w, t), *known, rank(w) > rank_of_row(t))
            .returning(t.kafka_offset)
            .cte("updated")
        )
        removed = (
            delete(self.table).where(self._same(w, t), is_deletion, stays).returning(t.kafka_offset).cte("removed")
        )
        done = [added, updated, *([removed] if state.removes else [])]
        counts = select(
            func.count().filter(not_(w[IS_KNOWN]), not_(is_deletion)),
            func.count().filter(w[IS_KNOWN], not_(is_deletion)),
            func.count().filter(is_deletion),
            func.count().filter(w[IS_UNKNOWN]),
            func.count().filter(w[IS_MOVED]),
            *(select(func.count()).select_from(each).scalar_subquery() for each in done),
        ).select_from(winning)
        inserted, updated_, deleted, unknown, moved, *changed = connection.execute(counts).one()
        changes = Changes(records, inserted, updated_, deleted, unknown, truncated)
        return moved, inserted + updated_ + deleted - sum(changed), changes

    def newest(self, truncations: Sequence[Truncation] = ()) -> Select[Any]:
        """Return the event of each key that wins among the batch's: found by keys and ranks, which need no sorting.

        None has more than the largest rank; by "equal to it" PostgreSQL would expect few, and look rows up one by one.
        """
        e = self.events.c
        keys = [each.label(f"key_{number}") for number, each in enumerate(self._keys(e))]
        last = select(*keys, func.max(rank(e)).label("rank")).where(*self._of_rows(e, truncations)).group_by(*keys)
        of_key = last.subquery("last")
        same = (each == of_key.c[f"key_{number}"] for number, each in enumerate(self._keys(e)))
        return select(self.events).join_from(self.events, of_key, and_(*same, rank(e) >= of_key.c.rank))

    def _winning(
        self,
        newest: FromClause,
        unavailable: Sequence[str],
        truncations: Sequence[Truncation],
        *,
        removes: bool,
    ) -> Select[Any]:
        """Return the events that win over the table's rows, with the values that they do not have themselves."""
        n, t = newest.c, self.table.c
        joined: FromClause = newest.outerjoin(self.table, self._same(n, t))
        is_known = t.kafka_offset.is_not(None)
        found: dict[str, ColumnElement[Any]] = {each.name: each for each in n}
        lacking: list[Condition] = []
        for number, name in enumerate(unavailable):
            earlier = self._earlier(newest, name, truncations).subquery(f"earlier_{number}")
            joined = joined.outerjoin(earlier, self._same(n, earlier.c))
            own = cast(t[name], Text()) if self.columns[name].type == "jsonb" else t[name]
            in_batch = and_(
                earlier.c.kafka_offset.is_not(None),
                or_(not_(is_known), rank(earlier.c) > rank_of_row(t)),
            )
            hidden = lists(n[UNAVAILABLE_COLUMNS], name)
            found[name] = case((not_(hidden), n[name]), (in_batch, earlier.c[name]), else_=own)
            lacking.append(and_(hidden, not_(is_known), earlier.c.kafka_offset.is_(None)))
        is_moved = and_(is_known, in_other_log(n, t))
        wins = or_(not_(is_known), is_moved, rank(n) > rank_of_row(t))
        takes = or_(n[CHANGE] != DELETES, is_known) if removes else literal(value=True)
        unknown = or_(*lacking) if lacking else literal(value=False)
        labelled = [each.label(name) for name, each in found.items()]
        return (
            select(*labelled, is_known.label(IS_KNOWN), unknown.label(IS_UNKNOWN), is_moved.label(IS_MOVED))
            .select_from(joined)
            .where(wins, takes)
        )

    def _earlier(self, newest: FromClause, name: str, truncations: Sequence[Truncation]) -> Select[Any]:
        """Return of each key the newest event before its newest one that has a column's value."""
        e, n = self.events.c, newest.c
        return (
            select(self.events)
            .ext(distinct_on(*self._keys(e)))
            .join_from(self.events, newest, self._same(e, n))
            .where(*self._of_rows(e, truncations), e.kafka_offset < n.kafka_offset)
            .where(not_(lists(e[UNAVAILABLE_COLUMNS], name)))
            .order_by(*self._keys(e), rank(e).desc())
        )

    def _of_rows(self, e: Any, truncations: Sequence[Truncation]) -> list[Condition]:  # noqa: ANN401
        """Return which events are of a key, and not before a truncation of their topic."""
        return [e[CHANGE].not_in([TRUNCATES, NOTHING]), *(not_(older(e, each)) for each in truncations)]

    def _keys(self, columns: Any) -> list[ColumnElement[Any]]:  # noqa: ANN401 - SQLAlchemy's collections
        """Return a key's columns; what has parts is text in events."""
        return [
            cast(columns[name], JSONB) if self.columns[name].type == "jsonb" else columns[name] for name in self.key
        ]

    def _same(self, some: Any, others: Any) -> Condition:  # noqa: ANN401 - SQLAlchemy's collections
        return and_(*(a == b for a, b in zip(self._keys(some), self._keys(others), strict=True)))


def known_truncations(connection: Connection, marks: Table) -> list[Truncation]:
    """Return the truncations of all published batches, which an index finds."""
    found = connection.execute(select(marks.c.changes["truncations"]).where(HAS_TRUNCATIONS))
    return [(*log, partition, offset) for (each,) in found for *log, partition, offset in each]


def older(columns: Any, truncation: Truncation) -> Condition:  # noqa: ANN401 - SQLAlchemy's
    topic, topic_id, _, offset = truncation
    return and_(of_topic(columns, topic, topic_id), columns.kafka_offset < literal(offset, BigInteger()))


def of_topic(columns: Any, topic: str, topic_id: str | None) -> Condition:  # noqa: ANN401 - SQLAlchemy's
    of_id = columns.kafka_topic_id.is_not_distinct_from(cast(literal(topic_id, Text()), Text()))
    return and_(columns.kafka_topic == topic, of_id)


def in_other_log(some: Any, others: Any) -> Condition:  # noqa: ANN401 - SQLAlchemy's collections
    return or_(*(some[name].is_distinct_from(others[name]) for name in ONE_LOG))


def one_of(connection: Connection, query: Select[Any]) -> Sequence[Any]:
    """Return one row of those that are nearly always none: a limit makes PostgreSQL look keys up one by one."""
    if connection.execute(select(func.count()).select_from(query.subquery())).scalar_one():
        return connection.execute(query.limit(1)).all()
    return ()


def rank(events: Any) -> ColumnElement[int]:  # noqa: ANN401 - SQLAlchemy's collections
    """Return what of two events of a key the winning one has more of: any change has more than any snapshot's read."""
    return case((events[CHANGE] == READS, events.kafka_offset), else_=events.kafka_offset + OF_CHANGES)


def rank_of_row(rows: Any) -> ColumnElement[int]:  # noqa: ANN401 - SQLAlchemy's collections
    return case((rows[IS_SNAPSHOT], rows.kafka_offset), else_=rows.kafka_offset + OF_CHANGES)


def lists(lines: ColumnElement[Any], name: str) -> Condition:
    """Whether a column is among the names of those without a value."""
    found = func.coalesce(func.string_to_array(lines, "\n"), cast([], ARRAY(Text())))
    return literal(name) == func.any(found)
