"""Range partitions of a table by ``kafka_timestamp``: made before the batch that needs them is COMMITTING.

The table is partitioned where it is made here, or was so by hand. What no partition takes goes to the DEFAULT one,
which a table made here always has: no timestamp stops a feed. Rows stay where they are: taking them out of there would
be a deletion to triggers and to tables that refer to them.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from kafka_ingest.model.partition_term import TIME, PartitionTerm, Transform
from kafka_ingest.sinks.postgresql.database import LOCK_NOT_AVAILABLE
from kafka_ingest.sinks.postgresql.named_table import NamedTable

log = logging.getLogger(__name__)

MOST_NEW: Final = 400
"""So many are made for a batch, those with most of its rows first: timestamps are a producer's."""
NEAR: Final = 400
"""So many periods from the one with most of a batch's rows, or from now: other times are a producer's mistakes."""
MOST_SCANNED: Final = 2**30
"""So many bytes at most are read of the locked DEFAULT partition for a batch: each new partition reads it whole."""
LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '2s'"
"""A lock that waits keeps readers waiting; a later batch tries again."""
YEARS: Final = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
LENGTHS: Final = {Transform.DAY: timedelta(days=1), Transform.HOUR: timedelta(hours=1)}
NAMES: Final = {Transform.DAY: "%Y%m%d", Transform.HOUR: "%Y%m%d%H"}
BOUND: Final = re.compile(r"FOR VALUES FROM \(('[^']+'|MINVALUE)\) TO \(('[^']+'|MAXVALUE)\)")

IS_BY_TIME: Final = text(
    "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class JOIN pg_partitioned_table ON partrelid = oid WHERE oid = "
    "to_regclass(:name) AND partstrat = 'r' AND partnatts = 1 AND partattrs[0] = (SELECT attnum FROM pg_attribute "
    "WHERE attrelid = oid AND attname = 'kafka_timestamp')"
)
PARTITIONS: Final = text(
    "SELECT inhrelid::regclass::text, pg_get_expr(relpartbound, oid) FROM pg_inherits JOIN pg_class ON oid = inhrelid "
    "WHERE inhparent = to_regclass(:name)"
)
SIZE: Final = text("SELECT pg_relation_size(to_regclass(:name))")
MOST: Final = text(
    "SELECT current_setting('max_locks_per_transaction')::int * current_setting('max_connections')::int / 2 / "
    "(1 + count(*)) FROM pg_index WHERE indrelid = to_regclass(:name)"
)
"""Of so many partitions a query of the table takes half the locks that the server has, with those of their indexes."""


def make_partitions(table: NamedTable, copied: Table, term: PartitionTerm) -> None:
    """Make the partitions that copied rows lack, as many as there may be; what fails leaves rows to the DEFAULT one."""
    with table.database.one_at_a_time(str(table)) as connection:
        connection.execute(text("SET LOCAL timezone = 'UTC'"))
        connection.execute(text("SET LOCAL datestyle = 'ISO'"))
        may_make = connection.execute(IS_BY_TIME, table.named(table.name)).scalar_one_or_none()
        if may_make is None:
            return  # made by hand, and partitioned by something else or not at all
        partitions = dict(map(tuple, connection.execute(PARTITIONS, table.named(table.name))))
        spans = list(spans_of(partitions.values()))
        copy = connection.dialect.identifier_preparer.format_table(copied)
        wanted = wanted_of(periods_in(connection, copy, term), LENGTHS[term.transform])
        if not (missing := [each for each in wanted if not overlaps(each, spans, term)]):
            return
        if not may_make:
            log.warning("%s: %s", table, NOT_THE_OWNER)
            return
        most = min(MOST_NEW, max(0, connection.execute(MOST, table.named(table.name)).scalar_one() - len(partitions)))
        for rest in (name for name, bound in partitions.items() if bound == "DEFAULT"):
            there = set(periods_in(connection, rest, term))
            if found := there.intersection(missing):
                log.warning("%s: %s has rows from %s on, so those of that time stay there", table, rest, min(found))
            missing = [each for each in missing if each not in there]
            most = min(most, max(1, MOST_SCANNED // max(1, connection.execute(SIZE, {"name": rest}).scalar_one())))
        make(connection, table, missing[:most], term)
        if len(missing) > most:
            log.warning("%s: %d partitions more are missing than may be made now", table, len(missing) - most)


def make(connection: Connection, table: NamedTable, missing: Iterable[datetime], term: PartitionTerm) -> None:
    connection.execute(text(LOCK_TIMEOUT))
    for start in missing:
        try:
            with connection.begin_nested():
                make_partition(connection, table, start, term)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            log.warning("%s: no partition from %s: %s", table, start, table.database.cause(error))
            if getattr(error.orig, "sqlstate", None) == LOCK_NOT_AVAILABLE:
                return


NOT_THE_OWNER: Final = (
    "its partitions are made by its owner's roles alone, so rows of periods without one go to the DEFAULT one: let the "
    "connection's role be a member of the owner's, or make them beforehand"
)


def wanted_of(periods: Sequence[datetime], length: timedelta) -> list[datetime]:
    """Return the periods that are to have partitions, and then the next ones: those are made in time."""
    known = (*periods[:1], datetime.now(UTC))
    near = [each for each in periods if any(abs(each - other) <= NEAR * length for other in known)]
    return list(dict.fromkeys([*near, *(each + length for each in near)]))


def periods_in(connection: Connection, name: str, term: PartitionTerm) -> Sequence[datetime]:
    """Return the periods that a table's rows are of, those with most rows first."""
    counted = text(
        f"SELECT date_trunc('{term.transform}', {TIME}, 'UTC') AS period FROM {name} "  # noqa: S608 - own names
        f"WHERE {TIME} >= :first AND {TIME} < :end GROUP BY period ORDER BY count(*) DESC, period"
    )
    first, end = YEARS
    return connection.execute(counted, {"first": first, "end": end}).scalars().all()


def spans_of(bounds: Iterable[str]) -> Iterator[tuple[datetime, datetime]]:
    for bound in bounds:
        if (found := BOUND.fullmatch(bound)) is not None:
            try:
                first, end = (None if each[0] == "M" else datetime.fromisoformat(each[1:-1]) for each in found.groups())
            except ValueError:
                continue  # a year that Python does not know: the server refuses what overlaps
            yield first or datetime.min.replace(tzinfo=UTC), end or datetime.max.replace(tzinfo=UTC)


def overlaps(start: datetime, spans: Sequence[tuple[datetime, datetime]], term: PartitionTerm) -> bool:
    end = start + LENGTHS[term.transform]
    return any(first < end and start < last for first, last in spans)


def make_partition(connection: Connection, table: NamedTable, start: datetime, term: PartitionTerm) -> None:
    quoted = connection.dialect.identifier_preparer.quote
    schema, parent = quoted(table.schema), quoted(table.name)
    new = quoted(f"{table.name}_p{start.astimezone(UTC).strftime(NAMES[term.transform])}")
    first, end = start.isoformat(), (start + LENGTHS[term.transform]).isoformat()
    # CREATE TABLE … PARTITION OF would lock the table for readers.
    connection.exec_driver_sql(
        f"CREATE TABLE {schema}.{new} (LIKE {schema}.{parent} INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY)"
    )
    connection.exec_driver_sql(
        f"ALTER TABLE {schema}.{parent} ATTACH PARTITION {schema}.{new} FOR VALUES FROM ('{first}') TO ('{end}')"
    )


def what_doctor_says(table: NamedTable) -> str:
    """Return that partitions cannot be made, where that is so."""
    with table.transaction() as connection:
        may_make = connection.execute(IS_BY_TIME, table.named(table.name)).scalar_one_or_none()
    return f" {table}: {NOT_THE_OWNER}." if may_make is False else ""
