"""What Polars reads of tables in stores, in a process of its own, which ends when all is read.

For such reads it has threads that look at an environment variable again and again, also when all is read. In glibc
before 2.41 that ends a process whose environment is changed at that moment, and a test's commands change it. And it
takes 4 % of a processor until the process ends.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

import deltalake
import polars as pl
from pyiceberg.table import StaticTable, Table
from tests.contract.prepared_processes import prepared_processes


def in_another_process(read: Callable[..., pl.DataFrame], *arguments: object) -> pl.DataFrame:
    """Call a function in a process that ends then, and return the rows that it has read."""
    with ProcessPoolExecutor(max_workers=1, mp_context=prepared_processes()) as process:
        return process.submit(read, *arguments).result()


def delta_rows(uri: str, options: Mapping[str, str], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the rows of a Delta table, none where there is no table; all columns, or some."""
    return in_another_process(read_delta, uri, dict(options), columns)


def iceberg_rows(table: Table, options: Mapping[str, str], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the rows of an Iceberg table; all columns, or some."""
    return in_another_process(read_iceberg, table.metadata_location, dict(table.io.properties), dict(options), columns)


def read_delta(uri: str, options: dict[str, str], columns: Sequence[str] | None) -> pl.DataFrame:
    try:
        return read_of(pl.scan_delta(uri, storage_options=options), columns)
    except deltalake.exceptions.TableNotFoundError:
        return pl.DataFrame(schema=columns)


def read_iceberg(
    metadata_location: str, properties: dict[str, str], options: dict[str, str], columns: Sequence[str] | None
) -> pl.DataFrame:
    table = StaticTable.from_metadata(metadata_location, properties)
    with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
        return read_of(pl.scan_iceberg(table, storage_options=options), columns)


def read_of(rows: pl.LazyFrame, columns: Sequence[str] | None) -> pl.DataFrame:
    return (rows if columns is None else rows.select(columns)).collect()
