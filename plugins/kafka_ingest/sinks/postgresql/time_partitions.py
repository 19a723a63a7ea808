"""Range partitions of a table by ``kafka_timestamp``: made before the batch that needs them is COMMITTING.

The table is partitioned where it is made here, or was so by hand. What no partition takes goes to the DEFAULT one,
which a table made here always has: no timestamp stops a feed. A new partition takes over what of its period is there.
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
"""So many are made for a batch, those with most of its rows: timestamps are a producer's."""
MOST_MOVED: Final = 100_000
"""Of so many rows at most a new partition relieves the DEFAULT one, which is locked meanwhile."""
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
    "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid "
    "WHERE inhparent = to_regclass(:name)"
)


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
        missing = [each for each in periods_in(connection, copied, term) if not overlaps(each, spans, term)]
        if missing and not may_make:
            log.warning("%s: %s", table, NOT_THE_OWNER)
            return
        default = next((name for name, bound in partitions.items() if bound == "DEFAULT"), None)
        connection.execute(text(LOCK_TIMEOUT))
        for start in missing[:MOST_NEW]:
            try:
                with connection.begin_nested():
                    make_partition(connection, table, start, term, default)
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise
                log.warning("%s: no partition from %s: %s", table, start, table.database.cause(error))
                if getattr(error.orig, "sqlstate", None) == LOCK_NOT_AVAILABLE:
                    break
        if len(missing) > MOST_NEW:
            log.warning("%s: %d partitions more are missing than a batch makes", table, len(missing) - MOST_NEW)


NOT_THE_OWNER: Final = (
    "its partitions are made by its owner's roles alone, so rows of periods without one go to the DEFAULT one: let the "
    "connection's role be a member of the owner's, or make them beforehand"
)


def periods_in(connection: Connection, copied: Table, term: PartitionTerm) -> Sequence[datetime]:
    """Return the periods that copied rows are of, those with most rows first."""
    name = connection.dialect.identifier_preparer.format_table(copied)
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


def make_partition(
    connection: Connection, table: NamedTable, start: datetime, term: PartitionTerm, default: str | None
) -> None:
    """Make a partition, and move what the DEFAULT one has of its period, if that is not too much."""
    quoted = connection.dialect.identifier_preparer.quote
    schema, parent = quoted(table.schema), quoted(table.name)
    new = quoted(f"{table.name}_p{start.astimezone(UTC).strftime(NAMES[term.transform])}")
    first, end = start.isoformat(), (start + LENGTHS[term.transform]).isoformat()
    # CREATE TABLE … PARTITION OF would lock the table for readers.
    connection.exec_driver_sql(
        f"CREATE TABLE {schema}.{new} (LIKE {schema}.{parent} INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY)"
    )
    if default is not None:
        columns = table.columns_in(connection).items()
        there = ", ".join(quoted(name) for name, column in columns if not column.is_generated)
        rest = f"{schema}.{quoted(default)}"
        connection.exec_driver_sql(f"LOCK TABLE {rest} IN ACCESS EXCLUSIVE MODE")
        of_period = f"FROM {rest} WHERE {TIME} >= '{first}' AND {TIME} < '{end}'"
        counting = f"SELECT count(*) FROM (SELECT {of_period} LIMIT {MOST_MOVED + 1}) AS found"  # noqa: S608 - own names
        if (number := connection.exec_driver_sql(counting).scalar_one()) > MOST_MOVED:
            connection.exec_driver_sql(f"DROP TABLE {schema}.{new}")
            log.warning("%s: %s has more than %d rows from %s on, which stay there", table, default, MOST_MOVED, start)
            return
        if number:
            moving = f"WITH moved AS (DELETE {of_period} RETURNING {there}) INSERT INTO {schema}.{new} ({there})"
            connection.exec_driver_sql(f"{moving} SELECT {there} FROM moved")  # noqa: S608 - own names
    connection.exec_driver_sql(
        f"ALTER TABLE {schema}.{parent} ATTACH PARTITION {schema}.{new} FOR VALUES FROM ('{first}') TO ('{end}')"
    )


def what_doctor_says(table: NamedTable) -> str:
    """Return that partitions cannot be made, where that is so."""
    with table.transaction() as connection:
        may_make = connection.execute(IS_BY_TIME, table.named(table.name)).scalar_one_or_none()
    return f" {table}: {NOT_THE_OWNER}." if may_make is False else ""
