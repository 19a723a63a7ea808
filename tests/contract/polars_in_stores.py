"""What Polars reads of tables in stores, in a process of its own.

For such reads it has a thread that looks at an environment variable again and again, also when all is read. In glibc
before 2.41 that ends a process whose environment is changed at that moment, and a test's commands change it.
"""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from typing import Any

import deltalake
import polars as pl
from pyiceberg.table import StaticTable, Table
from tests.contract.prepared_processes import prepared_processes

Rows = list[tuple[Any, ...]]


@cache
def other_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max_workers=1, mp_context=prepared_processes())


def delta_rows(uri: str, options: Mapping[str, str], columns: Sequence[str]) -> Rows:
    """Return the rows of a Delta table, none where there is no table."""
    read: Future[Rows] = other_process().submit(read_delta, uri, dict(options), list(columns))
    return read.result()


def iceberg_rows(table: Table, options: Mapping[str, str], columns: Sequence[str]) -> Rows:
    """Return the rows of an Iceberg table."""
    place = (table.metadata_location, dict(table.io.properties))
    read: Future[Rows] = other_process().submit(read_iceberg, *place, dict(options), list(columns))
    return read.result()


def read_delta(uri: str, options: dict[str, str], columns: list[str]) -> Rows:
    try:
        return pl.read_delta(uri, storage_options=options).select(columns).rows()
    except deltalake.exceptions.TableNotFoundError:
        return []


def read_iceberg(
    metadata_location: str, properties: dict[str, str], options: dict[str, str], columns: list[str]
) -> Rows:
    table = StaticTable.from_metadata(metadata_location, properties)
    with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
        return pl.scan_iceberg(table, storage_options=options).select(columns).collect().rows()
