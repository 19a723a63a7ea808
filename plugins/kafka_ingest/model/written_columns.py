"""The columns of this project's own, those that a batch's files have, and how a later batch's differ from them.

Columns are listed flat, each field by its path: ``value`` is a struct, ``value.tags`` an array of it, and
``value.tags[]`` what the array holds. So a field that is added deep inside shows as one line. A row names its batch: of
a table the column is written, of a directory readers take it from the path.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_ingest.model.documents import Documented
from kafka_ingest.model.record_schema import ArrayOf, Field, MapOf, RecordType, Scalar, Struct, quoted


@dataclass(frozen=True, slots=True)
class SelectedColumn(Documented):
    """A column: its name, its type in Spark's DDL, and the Spark SQL expression that gives exactly that type."""

    name: str
    type: str
    sql: str


@dataclass(frozen=True, slots=True)
class Shape(Documented):
    """How decoded records are filtered and reshaped.

    ``where``: a Spark SQL expression; records for which it is not true are filtered. ``select``: the columns in the
    place of key and value; none leaves these. ``keeps_others``: the others stay beside these. ``transform``:
    ``package.module:function``, which is given all rows.
    """

    select: tuple[SelectedColumn, ...] = ()
    where: str | None = None
    transform: str | None = None
    keeps_others: bool = False

    def __bool__(self) -> bool:
        """Whether records become anything but what they are decoded to."""
        return bool(self.select) or self.where is not None or self.transform is not None

    @property
    def has_expressions(self) -> bool:
        """Whether a record can be a dead letter since an expression fails for it."""
        return bool(self.select) or self.where is not None

    def columns(self, decoded: Sequence[str]) -> list[str]:
        """Return the names of the columns, of which ``decoded`` are there without ``select``.

        Where the others stay, a column is in the place of the one of its name, in any case of letters, or behind all.
        """
        if not self.select:
            return list(decoded)
        selected = {column.name.lower(): column.name for column in self.select}
        kept = [selected.pop(name.lower(), name) for name in decoded] if self.keeps_others else []
        return [*kept, *selected.values()]


AS_DECODED = Shape()
"""Records become the rows that they are decoded to."""


BATCH_COLUMN: Final = "kafka_batch"
POSITION: Final = ("kafka_topic", "kafka_partition", "kafka_offset")
NEVER_NULL: Final = frozenset({*POSITION, BATCH_COLUMN})
"""The columns that have a value in each row, although tables allow nulls in all."""

KAFKAS_OWN: Final[Mapping[str, str]] = {
    "kafka_topic": "string",
    "kafka_partition": "int",
    "kafka_offset": "bigint",
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_ms": "bigint",
    "kafka_topic_id": "string",
    BATCH_COLUMN: "string",
}


MOST_SHOWN = 20
"""So many differing fields are named in an error."""

PATH_WIDTH, TYPE_WIDTH = 60, 20

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

NAMES = re.compile(r"(\w+)|`((?:[^`]|``)*)`", re.ASCII)
"""A plain name in a path, or the text of a quoted one."""

WrittenColumns = Mapping[str, str]
"""Types by the paths of fields: ``bigint``, ``decimal(12,2)``, ``struct``, ``array`` or ``map of string``."""


class OnNewFields(StrEnum):
    """What to do with fields that the files of the output do not have yet."""

    ADD = "add"
    """New files have them."""

    IGNORE = "ignore"
    """They are left out."""

    STOP = "stop"
    """The feed stops until an operator decides."""


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """How columns differ from those before: paths of fields, in order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    retyped: tuple[str, ...]


def written_columns(columns: Struct) -> dict[str, str]:
    return dict(listed(columns, ""))


def listed(found: RecordType, path: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a type, itself first, except for the columns as a whole."""
    if path:
        yield path, kind_of(found)
    match found:
        case Scalar():
            pass
        case Struct(fields):
            for field in fields:
                yield from listed(field.type, path_of(path, field.name))
        case ArrayOf(element):
            yield from listed(element, f"{path}[]")
        case MapOf(value):
            yield from listed(value, f"{path}[]")


def kind_of(found: RecordType) -> str:
    """Return a type without what is in it."""
    match found:
        case Scalar(name):
            return name
        case Struct():
            return "struct"
        case ArrayOf():
            return "array"
        case MapOf(_, key):
            return f"map of {key}"


def path_of(path: str, name: str) -> str:
    shown = name if PLAIN.issuperset(name) else quoted(name)
    return f"{path}.{shown}" if path else shown


def names_in(path: str) -> list[str]:
    return [plain or text.replace("``", "`") for plain, text in NAMES.findall(path)]


def changes(before: WrittenColumns, now: WrittenColumns) -> ColumnChanges:
    """Return how columns differ from those before. Names count with the case of their letters, as pyarrow does."""
    return ColumnChanges(
        added=tuple(path for path in now if path not in before),
        removed=tuple(path for path in before if path not in now),
        retyped=tuple(path for path, kind in now.items() if before.get(path, kind) != kind),
    )


def side_by_side(
    before: WrittenColumns, now: WrittenColumns, paths: Collection[str], *, before_is: str = "in the output"
) -> str:
    """Return the types of fields before and now, a line for each."""
    chosen = list(paths)[:MOST_SHOWN]
    shown = [shortened(path) for path in chosen]
    width = max(map(len, ["field", *shown]))
    lines = [f"{'field':{width}}  {before_is:{TYPE_WIDTH}}  now"]
    for path, name in zip(chosen, shown, strict=True):
        lines.append(f"{name:{width}}  {before.get(path, '(none)'):{TYPE_WIDTH}}  {now.get(path, '(none)')}")
    if len(paths) > len(chosen):
        lines.append(f"and {len(paths) - len(chosen):,} more")
    return "\n".join(f"  {line}" for line in lines)


def shortened(path: str) -> str:
    """Return a path for a line; of a long one the end."""
    return path if len(path) <= PATH_WIDTH else f"…{path[1 - PATH_WIDTH :]}"


def columns_without_new(
    columns: Struct, before: WrittenColumns, selected: Sequence[SelectedColumn] = ()
) -> tuple[SelectedColumn, ...]:
    """Return expressions for the columns, without all fields that are not among those before.

    ``selected``: the expressions that give the columns, where they are not decoded ones. Each field before must be
    there, of the same type.
    """
    expressions = {column.name: column.sql for column in selected}
    made: list[SelectedColumn] = []
    for column in columns.fields:
        path = path_of("", column.name)
        if path not in before:
            continue
        kept = without_new(column.type, path, before)
        sql = expressions.get(column.name, quoted(column.name))
        if column.name in expressions and kept != column.type:  # evaluated once, though all of its fields are taken
            sql = f"transform(array({sql}), kafka_e -> {projected('kafka_e', column.type, kept)})[0]"
        else:
            sql = projected(sql, column.type, kept)
        made.append(SelectedColumn(column.name, kept.ddl, sql))
    return tuple(made)


def without_new(found: RecordType, path: str, before: WrittenColumns) -> RecordType:
    """Return a type without the fields that are not among those before."""
    match found:
        case Scalar():
            return found
        case ArrayOf(element):
            return ArrayOf(without_new(element, f"{path}[]", before))
        case MapOf(value, key):
            return MapOf(without_new(value, f"{path}[]", before), key)
        case Struct(fields):
            paths = [(field, path_of(path, field.name)) for field in fields]
            return Struct(
                tuple(Field(field.name, without_new(field.type, at, before)) for field, at in paths if at in before)
            )


def projected(sql: str, found: RecordType, wanted: RecordType, depth: int = 0) -> str:
    """Return the SQL of a value with only the fields that are wanted; null stays null."""
    if found == wanted:
        return sql
    match found, wanted:
        case ArrayOf(element), ArrayOf(less):
            return f"transform({sql}, kafka_e{depth} -> {projected(f'kafka_e{depth}', element, less, depth + 1)})"
        case MapOf(value), MapOf(less):
            inner = projected(f"kafka_e{depth}", value, less, depth + 1)
            return f"transform_values({sql}, (kafka_k{depth}, kafka_e{depth}) -> {inner})"
        case Struct(fields), Struct(fewer):
            types = {field.name: field.type for field in fields}
            values = {
                field.name: projected(f"{sql}.{quoted(field.name)}", types[field.name], field.type, depth)
                for field in fewer
            }
            pairs = ", ".join(f"{literal(name)}, {value}" for name, value in values.items())
            return f"if({sql} is null, null, named_struct({pairs}))"
    raise ValueError(f"expected a type of the same kind, found {found.ddl} and {wanted.ddl}")


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


FIRST_SECOND: Final = -62_135_596_800
END_OF_SECONDS: Final = 253_402_300_800
"""0001-01-01 and the end of 9999-12-31, in seconds since 1970. The end is not stored."""

FIRST_DAY, LAST_DAY = "0001-01-01", "9999-12-31"
FIRST_TIME, LAST_TIME = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
"""The first and the last of them, both stored, as SQL writes them in literals (the times without a zone)."""
