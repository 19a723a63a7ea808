"""Rows with values of every type that a table may have, and conditions on them in the words of each reader of tables.

Four batches: extremes, and values whose bounds are easily wrong; nulls, and values without bounds; one whose files lack
most columns; and a range of plain values, which many conditions let a reader skip. Two columns come after the first.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg import expressions as iceberg

Row = Mapping[str, Any]

UTC_TIME, LOCAL_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")
TYPES: Final[Mapping[str, pa.DataType]] = {
    "number": pa.int64(),
    "yes": pa.bool_(),
    "small": pa.int16(),
    "count": pa.int32(),
    "ratio": pa.float32(),
    "real": pa.float64(),
    "price": pa.decimal128(9, 2),
    "wide": pa.decimal128(38, 10),
    "text": pa.string(),
    "huge": pa.string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "moment": UTC_TIME,
    "local": LOCAL_TIME,
    "never": pa.string(),
    "value": pa.struct([("id", pa.int64()), ("city", pa.string()), ("real", pa.float64()), ("moment", UTC_TIME)]),
    "tags": pa.list_(pa.string()),
    "labels": pa.map_(pa.string(), pa.int64()),
    "late": pa.int64(),
    "later": pa.float64(),
}
LATE = {"late", "later"}

NAN, INFINITE = math.nan, math.inf
LONG = "x" * 31
"""One character less than bounds have in Delta."""
LAST, SMILE, BEFORE_HALVES = "\U0010ffff", "\U0001f600", "\ud7ff"
BEGIN, END = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
MOST = Decimal(f"{'9' * 28}.{'9' * 10}")


def day(number: int) -> datetime:
    return datetime(2026, 1, 1, 3, 4, 5, 678_901, UTC) + timedelta(number)


def local(time: datetime) -> datetime:
    return time.replace(tzinfo=None)


def plain(number: int, **others: Any) -> Row:
    """Return a row of ordinary values, which grow with its number, but for some others."""
    return {
        "number": number,
        "yes": True,
        "small": number,
        "count": number,
        "ratio": number + 0.1,
        "real": number + 0.1,
        "price": Decimal(number).scaleb(-2),
        "wide": Decimal(number).scaleb(-10),
        "text": f"name {number}",
        "huge": f"text {number}",
        "raw": bytes([number]),
        "day": day(number).date(),
        "moment": day(number),
        "local": local(day(number)),
        "never": None,
        "value": {"id": number, "city": f"city {number}", "real": number + 0.1, "moment": day(number)},
        "tags": ["a", None],
        "labels": [("x", number)],
        "late": number,
        "later": number + 0.1,
    } | others


def ends(number: int, way: int, time: datetime, text: str, raw: bytes) -> Row:
    """Return a row of the smallest values that a table holds (``way`` -1), or of the largest (1)."""
    return plain(
        number,
        yes=way > 0,
        small=way * 2**15 - (way > 0),
        count=way * 2**31 - (way > 0),
        ratio=way * INFINITE,
        real=way * INFINITE,
        price=way * Decimal("9999999.99"),
        wide=MOST.copy_sign(way),
        text=text,
        raw=raw,
        day=time.date(),
        moment=time,
        local=local(time),
        value={"id": way * 2**62, "city": text, "real": way * INFINITE, "moment": time},
    )


EXTREMES = [
    ends(10, -1, BEGIN, "", b""),
    ends(11, 1, END, LAST * 40, b"\xff" * 40),
    plain(12, ratio=-0.0, real=-0.0, text=f"{LONG}{BEFORE_HALVES}b"),
    plain(13, text=f"{LONG}{SMILE}{SMILE}"),
    plain(14, text=f"{LONG}{LAST}c", value={"id": 1, "city": f"{LONG}{SMILE}b", "real": NAN, "moment": None}),
    *map(plain, range(15, 20)),
]
HARD = [
    *(dict.fromkeys(TYPES) | {"number": number} for number in range(20, 23)),
    plain(23, ratio=NAN, real=NAN, later=NAN, huge="a" * 5_000),
    plain(24, ratio=NAN, real=NAN, later=NAN, huge="z" * 5_000, value=dict.fromkeys(["id", "city", "real", "moment"])),
    plain(25, tags=[], labels=[]),
    *map(plain, range(26, 30)),
]
BATCHES: Final[Sequence[Sequence[Row]]] = (
    [{name: value for name, value in row.items() if name not in LATE} for row in EXTREMES],
    HARD,
    [{"number": number, "count": number} for number in range(10)],
    [*map(plain, range(30, 40))],
)
ROWS = sorted((dict.fromkeys(TYPES) | dict(row) for batch in BATCHES for row in batch), key=lambda row: row["number"])


def columns_of(batch: Sequence[Row]) -> dict[str, "pa.Array[Any]"]:
    """Return a batch's columns as its files have them."""
    return {name: pa.array([row[name] for row in batch], TYPES[name]) for name in batch[0]}


@dataclass(frozen=True)
class Condition:
    """What a query asks of a column, or of a field in it."""

    path: str
    question: str
    values: tuple[Any, ...] = ()

    @property
    def names(self) -> list[str]:
        return self.path.split(".")

    @property
    def kind(self) -> pa.DataType:
        kind: Any = TYPES[self.names[0]]
        for name in self.names[1:]:
            kind = kind.field(name).type
        return kind

    @property
    def is_of_nan(self) -> bool:
        return any(each != each for each in self.values)  # noqa: PLR0124 - NaN alone

    def __str__(self) -> str:
        return f"{self.path} {self.question} {', '.join(str(each)[:45] for each in self.values)}"


SOUGHT: Final[Mapping[str, Sequence[Any]]] = {
    "number": [100, 35],
    "yes": [True, False],
    "small": [-(2**15), 2**15 - 1, 35],
    "count": [-(2**31), 2**31 - 1, 3, 35],
    "ratio": [INFINITE, -INFINITE, NAN, 1e30],
    "real": [INFINITE, -INFINITE, NAN, 35.1],
    "price": [Decimal("9999999.99"), Decimal("-9999999.99"), Decimal("0.35")],
    "wide": [MOST, MOST.copy_sign(-1), Decimal(f"{'9' * 28}.{'9' * 9}8"), Decimal("0.0000000035")],
    "text": ["", LAST * 40, LAST * 32, f"{LONG}{BEFORE_HALVES}b", f"{LONG}{SMILE}{SMILE}", f"{LONG}{LAST}c", "name 35"],
    "huge": ["a" * 5_000, "z" * 5_000, "b", "text 35"],
    "raw": [b"", b"\xff" * 40, bytes([35])],
    "day": [BEGIN.date(), END.date(), date(2026, 2, 5)],
    "moment": [BEGIN, END, END - timedelta(microseconds=1), day(35)],
    "local": [local(BEGIN), local(END), local(day(35))],
    "never": ["a"],
    "value.id": [-(2**62), 2**62, 35],
    "value.city": ["", f"{LONG}{SMILE}b", "city 35"],
    "value.real": [-INFINITE, NAN, 35.1],
    "value.moment": [BEGIN, END, day(35)],
    "late": [35],
    "later": [NAN, 35.1],
}
CONDITIONS: Final = [
    *(Condition(path, ask) for path in (*SOUGHT, "value", "tags", "labels") for ask in ("is null", "is not null")),
    *(Condition(path, "=", (value,)) for path, values in SOUGHT.items() for value in values),
    *(Condition(path, ask, (values[-1],)) for path, values in SOUGHT.items() for ask in ("!=", "<", ">=")),
    *(Condition(path, "in", tuple(each for each in values if each == each)[:2]) for path, values in SOUGHT.items()),  # noqa: PLR0124
]


# ── What is expected ──────────────────────────────────────────────────────────────────────────────────────────────────


def numbers_of(condition: Condition, *, nan_is_largest: bool = True) -> list[int]:
    """Return the numbers of the rows of a condition: NaN is larger than all others to SQL, and unequal to all to Arrow.

    Arrow's own filter agrees.
    """
    return [row["number"] for row in ROWS if holds(value_in(row, condition.names), condition, nan_is_largest)]


def value_in(row: Row, names: Sequence[str]) -> Any:
    value: Any = row
    for name in names:
        value = None if value is None else value[name]
    return value


def holds(value: Any, condition: Condition, nan_is_largest: bool) -> bool:  # noqa: FBT001
    def key(each: Any) -> Any:
        """Return what compares as the column's values do."""
        if not isinstance(each, float):
            return each
        narrow = pa.scalar(each, condition.kind).as_py()
        return (narrow != narrow, 0.0 if narrow != narrow else narrow) if nan_is_largest else narrow  # noqa: PLR0124

    found, values = None if value is None else key(value), [*map(key, condition.values)]
    compare: Mapping[str, Callable[[], bool]] = {
        "is null": lambda: value is None,
        "is not null": lambda: value is not None,
        "=": lambda: found == values[0],
        "!=": lambda: found != values[0],
        "<": lambda: found < values[0],
        ">=": lambda: found >= values[0],
        "in": lambda: any(found == each for each in values),
    }
    return compare[condition.question]() if value is not None or not values else False


# ── How readers are asked ─────────────────────────────────────────────────────────────────────────────────────────────


def for_arrow(condition: Condition) -> ds.Expression:
    field, kind = ds.field(*condition.names), condition.kind
    values = [pa.scalar(each, kind) for each in condition.values]
    asked: Mapping[str, Callable[[], ds.Expression]] = {
        "is null": field.is_null,
        "is not null": field.is_valid,
        "=": lambda: field == values[0],
        "!=": lambda: field != values[0],
        "<": lambda: field < values[0],
        ">=": lambda: field >= values[0],
        "in": lambda: field.isin(pa.array(list(condition.values), kind)),
    }
    return asked[condition.question]()


def for_polars(condition: Condition) -> pl.Expr:
    field = pl.col(condition.names[0])
    for name in condition.names[1:]:
        field = field.struct.field(name)
    kind = pl.Series(pa.array([], condition.kind)).dtype
    values = [pl.lit(each, dtype=kind) for each in condition.values]
    asked: Mapping[str, Callable[[], pl.Expr]] = {
        "is null": field.is_null,
        "is not null": field.is_not_null,
        "=": lambda: field == values[0],
        "!=": lambda: field != values[0],
        "<": lambda: field < values[0],
        ">=": lambda: field >= values[0],
        "in": lambda: field.is_in(pl.Series(condition.values, dtype=kind).implode()),
    }
    return asked[condition.question]()


def for_iceberg(condition: Condition) -> iceberg.BooleanExpression:
    path, values = condition.path, condition.values
    asked: Mapping[str, Callable[[], iceberg.BooleanExpression]] = {
        "is null": lambda: iceberg.IsNull(path),
        "is not null": lambda: iceberg.NotNull(path),
        "=": lambda: iceberg.EqualTo(path, values[0]),
        "<": lambda: iceberg.LessThan(path, values[0]),
        ">=": lambda: iceberg.GreaterThanOrEqual(path, values[0]),
        "in": lambda: iceberg.In(path, values),
    }
    return asked[condition.question]()


Literal = Callable[[Any, pa.DataType], str]


def in_sql(condition: Condition, literal: Literal, path: str | None = None) -> str:
    """Return a condition in SQL; ``path``: how the engine names the column or field, where not as others do."""
    values = ", ".join(literal(each, condition.kind) for each in condition.values)
    inner = f"({values})" if condition.question == "in" else values
    return f"{path or condition.path} {condition.question} {inner}"


def in_words(value: Any) -> str:
    return (
        value.isoformat(sep=" ")
        if isinstance(value, datetime)
        else f"{value:f}"
        if isinstance(value, Decimal)
        else value
    )


def cast(value: Any, name: str) -> str:
    return f"cast('{in_words(value)}' as {name})"


def type_name(kind: pa.DataType) -> str:
    """Return what DuckDB and Spark call a type, but for times."""
    if isinstance(kind, pa.Decimal128Type):
        return f"decimal({kind.precision},{kind.scale})"
    names = {"int16": "smallint", "int32": "int", "int64": "bigint", "bool": "boolean", "date32[day]": "date"}
    return names.get(str(kind), str(kind))


def in_duckdb(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    return cast(value, {UTC_TIME: "timestamptz", LOCAL_TIME: "timestamp"}.get(kind, type_name(kind)))


def in_spark(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return cast(value, {UTC_TIME: "timestamp", LOCAL_TIME: "timestamp_ntz"}.get(kind, type_name(kind)))


def in_datafusion(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    names = {UTC_TIME: 'Timestamp(Microsecond, Some("UTC"))', LOCAL_TIME: "Timestamp(Microsecond, None)"}
    names |= {pa.float32(): "Float32", pa.float64(): "Float64", pa.string(): "Utf8", pa.bool_(): "Boolean"}
    names |= {pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64", pa.date32(): "Date32"}
    name = f"Decimal128({kind.precision}, {kind.scale})" if isinstance(kind, pa.Decimal128Type) else names[kind]
    return f"arrow_cast('{in_words(value)}', '{name}')"


def at_once(conditions: Sequence[Condition], source: str, literal: Literal) -> str:
    """Return a query that asks all conditions, each with a scan of its own, for pairs of its place and a number."""
    asked = enumerate(in_sql(each, literal) for each in conditions)
    parts = (f"select {place}, number from {source} where {condition}" for place, condition in asked)  # noqa: S608
    return " union all ".join(parts)
