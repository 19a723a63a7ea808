"""Conditions on columns of every type find exactly their rows, whichever files a reader skips."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.expressions import IsNaN
from tests.contract.decoded_rows import DECODED, publish_decoded
from tests.contract.sink_outputs import DeltaOutput, IcebergOutput, plan_to
from tests.contract.table_filters import (
    BATCHES,
    CONDITIONS,
    Condition,
    at_once,
    columns_of,
    for_arrow,
    for_iceberg,
    for_polars,
    in_datafusion,
    in_duckdb,
    in_sql,
    numbers_of,
)
from tests.duckdb_tables import scan, with_extensions
from tests.iceberg_lake import table_at

pytestmark = pytest.mark.long

NUMBER = ["number"]


def published(output: Any) -> Any:
    output.sink.publisher.prepare()
    for number, batch in enumerate(BATCHES, start=1):
        publish_decoded(output, plan_to(output, number, partitions=1), columns_of(batch))
    return output


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(DeltaOutput(tmp_path_factory.mktemp("delta") / "orders", DECODED)).path


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(IcebergOutput(tmp_path_factory.mktemp("iceberg") / "orders", DECODED)).path


def wrong(found: Iterator[tuple[Condition, Any]], *, nan_is_largest: bool = True, below: int = 40) -> list[str]:
    """Return the conditions that found other rows than theirs, in a table of numbers below one."""
    return [
        str(asked)
        for asked, numbers in found
        if sorted(numbers) != [each for each in numbers_of(asked, nan_is_largest=nan_is_largest) if each < below]
    ]


def wrong_in_dataset(path: Path, below: int = 40) -> list[str]:
    """Return the same of the dataset that delta-rs makes of a table."""
    dataset = DeltaTable(str(path)).to_pyarrow_dataset()
    asked = ((each, dataset.to_table(NUMBER, for_arrow(each))["number"].to_pylist()) for each in CONDITIONS)
    return wrong(asked, nan_is_largest=False, below=below)


def by_duckdb(
    source: str, connection: duckdb.DuckDBPyConnection, conditions: Sequence[Condition]
) -> Iterator[tuple[Condition, Sequence[int]]]:
    """Ask DuckDB some conditions at once."""
    connection.sql("set timezone = 'UTC'")
    found: list[list[int]] = [[] for _ in conditions]
    for place, number in connection.sql(at_once(conditions, source, in_duckdb)).fetchall():
        found[place].append(number)
    yield from zip(conditions, found, strict=True)


def test_datasets_of_a_delta_table_find_the_rows_of_every_condition(delta: Path) -> None:
    table = DeltaTable(str(delta))
    assert wrong_in_dataset(delta) == []
    rows = table.to_pandas(filters=[("real", ">", 39.0)], columns=NUMBER)
    assert sorted(rows["number"]) == [11, 39]
    # DuckDB leaves the filter to Arrow.
    conditions = [each for each in CONDITIONS if not each.is_of_nan]
    orders = duckdb.connect().register("orders", table.to_pyarrow_dataset())
    answers = by_duckdb("orders", orders, conditions)
    assert wrong(answers, nan_is_largest=False) == []


def test_readers_of_the_log_of_a_delta_table_find_the_rows_of_every_condition(delta: Path) -> None:
    query = QueryBuilder().register("orders", DeltaTable(str(delta)))
    frame = pl.scan_delta(str(delta))

    def by_delta_rs(asked: Condition) -> list[int]:
        path = "".join(f"['{name}']" if number else f'"{name}"' for number, name in enumerate(asked.names))
        sql = f"select number from orders where {in_sql(asked, in_datafusion, path)}"  # noqa: S608
        return pa.table(query.execute(sql).read_all())["number"].to_pylist()

    assert wrong((each, by_delta_rs(each)) for each in CONDITIONS[::2]) == []
    assert wrong((each, by_polars(frame, each)) for each in CONDITIONS[1::2]) == []
    duck = with_extensions()
    duck.sql(f"attach '{delta}' as filtered (type delta, pin_snapshot)")  # the log is read once
    assert wrong(by_duckdb("filtered", duck, CONDITIONS[::2])) == []


def by_polars(frame: pl.LazyFrame, asked: Condition) -> list[int]:
    return frame.filter(for_polars(asked)).select("number").collect()["number"].to_list()


def test_readers_of_an_iceberg_table_find_the_rows_of_every_condition(iceberg: Path) -> None:
    table = table_at(iceberg)
    frame = pl.scan_iceberg(table)

    def can_ask(asked: Condition) -> bool:
        """Whether PyIceberg has such conditions; those with `!=` hold for nulls of files without the column to it."""
        of_floats = asked.path == "ratio" and asked.question != "is null"  # compared with doubles
        return not (of_floats or asked.is_of_nan or asked.path in {"tags", "labels"} or asked.question == "!=")

    # Each reads the whole metadata for every condition: so they ask one after another.
    asked = [each for each in CONDITIONS[::4] if can_ask(each)]
    rows = ((each, table.scan(for_iceberg(each), ("number",)).to_arrow()["number"].to_pylist()) for each in asked)
    assert wrong(rows, nan_is_largest=False) == []
    assert sorted(table.scan(IsNaN("real"), ("number",)).to_arrow()["number"].to_pylist()) == [23, 24]
    assert wrong((each, by_polars(frame, each)) for each in CONDITIONS[2::4]) == []
    assert wrong(by_duckdb(scan("iceberg", table.metadata_location), with_extensions(), CONDITIONS[1::4])) == []
