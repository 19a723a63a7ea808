"""Many rows at once: a plan over 10,000 partitions writes 20,000, and a fleet has hundreds of feeds."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, column, func, insert, select
from sqlalchemy.dialects.postgresql import ARRAY

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
    names = list(rows[0])
    arrays = [bindparam(name, [row[name] for row in rows], type_=ARRAY(table.c[name].type)) for name in names]
    columns = [column(name, table.c[name].type) for name in names]
    unnested = func.unnest(*arrays).table_valued(*columns).render_derived()
    connection.execute(insert(table).from_select(names, select(*(unnested.c[name] for name in names))))
