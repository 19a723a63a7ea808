"""Insert many rows at once: a plan over 10,000 partitions writes 20,000."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, column, func, insert, select
from sqlalchemy.dialects.postgresql import ARRAY


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
