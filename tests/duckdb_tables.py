"""DuckDB reads Delta and Iceberg tables with its own extensions, which come as packages of the same version."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa

EXTENSIONS = ("avro", "iceberg", "delta")
"""Iceberg's manifests are Avro files."""


@cache
def with_extensions() -> duckdb.DuckDBPyConnection:
    """Return a connection that reads tables. Nothing is installed: extensions are loaded from where they are."""
    found = duckdb.connect(config={"autoinstall_known_extensions": False})
    for name in EXTENSIONS:
        folder = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        found.load_extension(str(folder / f"{name}.duckdb_extension"))
    return found


def rows_by_duckdb(form: str, place: str, condition: str = "true") -> pa.Table:
    """Return the rows of a Delta table's directory, or of an Iceberg table's metadata file."""
    query = f"select * from {scan(form, place)} where {condition}"  # noqa: S608
    rows: pa.Table = with_extensions().sql(query).arrow().read_all()
    return rows


def files_read_by_duckdb(form: str, place: str, condition: str) -> int:
    """Return how many data files a query with a condition has read, as DuckDB shows it in the plan that it ran."""
    query = f"explain (analyze, format json) select * from {scan(form, place)} where {condition}"  # noqa: S608
    [[_, plan]] = with_extensions().sql(query).fetchall()
    return sum(int(each["extra_info"].get("Total Files Read", 0)) for each in nodes_of(json.loads(plan)))


def nodes_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a plan's nodes, from the top."""
    return [each for child in plan["children"] for each in (child, *nodes_of(child))]


def scan(form: str, place: str) -> str:
    return f"{form}_scan('{place}')"
