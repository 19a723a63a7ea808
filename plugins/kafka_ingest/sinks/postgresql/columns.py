"""The columns of a table by the types that values are stored as, and what differs between them and a feed's.

Types of records are called as receipts list them: ``bigint``, ``decimal(12,2)``, ``struct``. What has parts is jsonb.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Date,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    Text,
    Uuid,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import DOUBLE_PRECISION, JSONB, REAL, TIMESTAMP
from sqlalchemy.types import TypeEngine

from kafka_ingest.model.record_schema import DECIMAL
from kafka_ingest.model.table_options import IS_DELETED, IS_SNAPSHOT, OF_RECORDS, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, KAFKAS_OWN, NEVER_NULL, WrittenColumns, names_in

TYPES: Final[Mapping[str, TypeEngine[Any]]] = {
    "string": Text(),
    "boolean": Boolean(),
    "tinyint": SmallInteger(),
    "smallint": SmallInteger(),
    "int": Integer(),
    "bigint": BigInteger(),
    "float": REAL(),
    "double": DOUBLE_PRECISION(),
    "date": Date(),
    "timestamp": TIMESTAMP(timezone=True),
    "timestamp_ntz": TIMESTAMP(),
    "binary": LargeBinary(),
}
WIDER: Final[Mapping[str, Collection[str]]] = {
    "string": ("character varying",),
    "tinyint": ("integer", "bigint", "numeric"),
    "smallint": ("integer", "bigint", "numeric"),
    "int": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "float": ("double precision",),
}
"""Types of an existing column that hold each value unchanged, too; so does ``numeric`` any decimal."""
OWN: Final[Mapping[str, str]] = {
    **{name: kind for name, kind in KAFKAS_OWN.items() if name != BATCH_COLUMN},
    "kafka_headers": "array",
    **dict.fromkeys(sorted(OF_RECORDS), "binary"),
}
"""The columns of the raw format; that of the batch is added by the table's own statement."""
OF_STATES: Final = (IS_DELETED, IS_SNAPSHOT)
"""The columns that only a table of the newest state of each key has; the table's own statement adds them, too."""
JSON: Final = "jsonb"
LONGEST_NAME: Final = 63
"""Bytes of a name; PostgreSQL would cut a longer one."""
SYSTEM_COLUMNS: Final = {"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"}
"""Of each table: https://www.postgresql.org/docs/18/ddl-system-columns.html."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an existing table, its type as PostgreSQL names it."""

    name: str
    type: str
    is_required: bool
    """Whether it has to be written: it allows no nulls, and has no default."""
    is_generated: bool
    can_be_null: bool
    """Whether a null can be written into it."""


def type_of(kind: str) -> TypeEngine[Any]:
    if (found := DECIMAL.fullmatch(kind)) is not None:
        return Numeric(int(found[1]), int(found[2]))
    return TYPES.get(kind, JSONB())


def has_parts(kind: str) -> bool:
    return isinstance(type_of(kind), JSONB)


def in_words(kind: str) -> str:
    """Return the type as PostgreSQL's ``format_type`` names it."""
    found = Uuid() if kind == BATCH_COLUMN else type_of(kind)
    return found.compile(dialect=postgresql.dialect()).lower().replace(", ", ",")


def own_columns(options: TableOptions) -> dict[str, str]:
    """Return the columns that a feed writes beside those of its records."""
    own = {name: kind for name, kind in OWN.items() if not options.is_of_records(name)}
    return own if options.current is None else own | dict.fromkeys(OF_STATES, "boolean")


def columns_in(written: WrittenColumns) -> dict[str, str]:
    """Return the types of columns by their names, without what is in them."""
    paths = {path: names_in(path) for path in written if not path.endswith("[]")}
    return {names[0]: written[path] for path, names in paths.items() if len(names) == 1}


def differences_of_table(there: Mapping[str, Column], options: TableOptions) -> Iterator[str]:
    """Yield why records cannot be added to an existing table, decoded columns apart."""
    own = own_columns(options)
    yield from differences(there, {name: kind for name, kind in own.items() if name in there})
    if options.current is None and IS_DELETED in there:
        yield f"column {IS_DELETED}: its rows are the newest states of keys, for a feed with sink.mode: current"
    for name, kind in own.items():
        if name not in there and not options.takes_without(name):
            yield f"column {name}: expected {in_words(kind)}, found none"
    found = there[BATCH_COLUMN].type if BATCH_COLUMN in there else "none"
    if found != in_words(BATCH_COLUMN):
        yield f"column {BATCH_COLUMN}: expected {in_words(BATCH_COLUMN)}, found {found}"
    if not options.decoded and options.current is None:
        yield from unwritten(there, own)


def differences(there: Mapping[str, Column], written: Mapping[str, str], key: Collection[str] = ()) -> Iterator[str]:
    """Yield which columns that are to be written a table has otherwise, or cannot have; those of a key have values."""
    for name, kind in written.items():
        if not 0 < len(name.encode()) <= LONGEST_NAME:
            yield f"column {name}: expected a name of up to {LONGEST_NAME} bytes"
        if name in SYSTEM_COLUMNS:
            yield f"column {name}: expected another name, as PostgreSQL has a column of its own under this one"
        if (column := there.get(name)) is None:
            continue
        also = WIDER.get(kind, ("numeric",) if DECIMAL.fullmatch(kind) else ())
        if column.type not in {in_words(kind), *also}:
            yield f"column {name}: expected {in_words(kind)}, found {column.type}"
        elif column.is_generated:
            yield f"column {name}: it is generated, so nothing can be written into it"
        elif column.is_required and name not in {*NEVER_NULL, *OF_STATES, *key}:
            yield f"column {name}: expected one that allows nulls, found NOT NULL"


def unwritten(there: Mapping[str, Column], written: Collection[str]) -> Iterator[str]:
    """Yield which columns of a table need a value that nothing would write."""
    for name, column in there.items():
        if column.is_required and name not in {*written, *OF_STATES, BATCH_COLUMN}:
            yield f"column {name}: it is NOT NULL without a default, and nothing would be written into it"
