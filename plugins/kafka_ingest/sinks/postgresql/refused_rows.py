"""Which rows a table refuses: they are added in a transaction that the caller undoes, so other writers may wait."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import BigInteger, Column, Connection, FromClause, MetaData, Select, Table, func, insert, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.written_columns import POSITION

REFUSALS: Final = {"P0001", "428C9", "54000"}
"""A trigger's RAISE EXCEPTION, a value for a column that is GENERATED ALWAYS, and one that is too long for an index."""
BY_OTHER_ROWS: Final = {"P0001", "23503"}
"""A trigger and a foreign key may want another row of the batch, which comes later."""
NUMBER: Final = "kafka_number"
IMMEDIATE: Final = text("SET CONSTRAINTS ALL IMMEDIATE")

Add = Callable[[FromClause], object]
"""Adds rows to the table."""
Refused = tuple[TopicPartition, int, DBAPIError]
"""The partition and offset of a row that a table refuses, and the error."""


def is_refusal(error: DBAPIError) -> bool:
    """Whether the table refuses a row: by a constraint, its type, a trigger or a column that is always generated."""
    return isinstance(error, (IntegrityError, DataError)) or state_of(error) in REFUSALS


def state_of(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def cause_of(error: DBAPIError) -> str:
    """Return why a row is refused: PostgreSQL's name of the error, and of what refuses it. It holds no value."""
    said = getattr(error.orig, "diag", None)
    names = ((what, getattr(said, f"{what}_name", None)) for what in ("constraint", "column"))
    return ", ".join([type(error.orig).__name__, *(f"{what} {name}" for what, name in names if name)])


def refusal(connection: Connection, add: Add, rows: FromClause) -> DBAPIError | None:
    """Add rows, all or none; return why the table refuses them, None where they are there."""
    connection.exec_driver_sql("SAVEPOINT part")
    try:
        add(rows)
    except DBAPIError as error:
        if not is_refusal(error):
            raise
        # Rolled back alone, as SQLAlchemy does, it would stay: thousands within one another take all of the locks.
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT part")
        found: DBAPIError | None = error
    else:
        found = None
    connection.exec_driver_sql("RELEASE SAVEPOINT part")
    return found


def all_refused(connection: Connection, add: Add, copied: Table, most: int) -> list[Refused]:
    """Return which rows of a copy the table refuses, at most so many; most often it takes all of them at once."""
    connection.execute(IMMEDIATE)
    return (
        [] if refusal(connection, add, copied) is None else refused_rows(connection, add, select(copied), copied, most)
    )


def refused_rows(connection: Connection, add: Add, rows: Select[Any], copied: Table, most: int) -> list[Refused]:
    """Return the first rows that are refused by themselves or beside those before them, in the order of positions.

    The others are added. They are found by halves, each tried on top of the rows before it; constraints that wait for
    the commit are looked at with each. Then those are tried again that may have wanted a row behind them. ``copied``:
    the table that the rows are from.
    """
    connection.execute(IMMEDIATE)
    numbered, end = with_numbers(connection, rows, copied)
    number, found = numbered.c[NUMBER], dict[int, DBAPIError]()
    columns = [each for each in numbered.c if each is not number]

    def try_to_add(first: int, end: int) -> DBAPIError | None:
        return refusal(connection, add, select(*columns).where(number >= first, number < end).subquery())

    waiting = [(0, end)] if end else []
    while waiting and len(found) < most:
        first, end = waiting.pop()
        if (error := try_to_add(first, end)) is None:
            continue
        if end - first == 1:
            found[first] = error
        else:
            middle = (first + end) // 2
            waiting += [(middle, end), (first, middle)]
    early = [each for each, error in found.items() if state_of(error) in BY_OTHER_ROWS] if not waiting else []
    while taken := [each for each in early if try_to_add(each, each + 1) is None]:
        early = [each for each in early if each not in taken]
        found = {each: error for each, error in found.items() if each not in taken}
    position = select(*(numbered.c[name] for name in POSITION))
    at = {each: connection.execute(position.where(number == each)).one() for each in found}
    return [(TopicPartition(topic, part), offset, found[each]) for each, (topic, part, offset) in at.items()]


def with_numbers(connection: Connection, rows: Select[Any], copied: Table) -> tuple[Table, int]:
    """Return a table of rows with their numbers in the order of positions, from 0, by which any part is found at once.

    With how many they are. It is gone with the transaction.
    """
    found = rows.subquery()
    columns = (Column(each.key, each.type) for each in found.c)
    number = Column(NUMBER, BigInteger(), primary_key=True, autoincrement=False)
    name = f"{copied.name}_numbered"
    numbered = Table(name, MetaData(schema=copied.schema), number, *columns, prefixes=["UNLOGGED"])
    numbered.create(connection)
    order = func.row_number().over(order_by=[found.c[name] for name in POSITION]) - 1
    filled = insert(numbered).from_select([NUMBER, *found.c.keys()], select(order, *found.c))
    return numbered, connection.execution_options(preserve_rowcount=True).execute(filled).rowcount
