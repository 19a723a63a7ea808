"""What the soak compares with: that it sees a record that is missing, twice, or another."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest
from tests.quick_project import QuickProject

from compare_output import Comparison, compare


@pytest.fixture
def compared(quick: QuickProject, servers: str, orders: str) -> Callable[[], Comparison]:
    quick.write_feed(orders)
    quick.run()
    return lambda: compare(servers, orders, quick.output / "orders")


def change(quick: QuickProject, changed: Callable[[pa.Table], pa.Table]) -> None:
    """Change the published file that holds partition 0."""
    [file] = [path for path in Path(quick.output, "orders").rglob("*.parquet") if partition_of(path) == 0]
    pyarrow.parquet.write_table(changed(pyarrow.parquet.read_table(file, partitioning=None)), file)


def partition_of(file: Path) -> int:
    return int(pyarrow.parquet.read_table(file, partitioning=None)["kafka_partition"][0].as_py())


def test_an_output_that_holds_the_topic_is_equal(compared: Callable[[], Comparison]) -> None:
    found = compared()
    assert (found.records, found.is_equal, str(found)) == (15, True, "15 records compared: all equal")


def test_a_record_that_is_missing_is_seen(quick: QuickProject, compared: Callable[[], Comparison]) -> None:
    change(quick, lambda table: table.slice(1))
    found = compared()
    assert (found.missing, found.twice, found.other) == ([(0, 0)], [], [])


def test_a_record_that_is_there_twice_is_seen(quick: QuickProject, compared: Callable[[], Comparison]) -> None:
    change(quick, lambda table: pa.concat_tables([table, table.slice(3, 1)]))
    found = compared()
    assert (found.missing, found.twice, found.other) == ([], [(0, 3)], [])


@pytest.mark.parametrize("column", ["value", "key", "kafka_timestamp"])
def test_a_record_that_is_another_is_seen(quick: QuickProject, compared: Callable[[], Comparison], column: str) -> None:
    def reversed_column(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        assert len(set(values)) == len(values)
        return table.set_column(table.schema.get_field_index(column), table.schema.field(column), [values[::-1]])

    change(quick, reversed_column)
    found = compared()
    assert not found.is_equal
    assert len(found.other) == 10
