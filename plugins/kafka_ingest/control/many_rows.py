"""Many rows at once: a plan over 10,000 partitions writes 20,000, and a fleet has hundreds of feeds."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, cast, column, func, insert, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

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
