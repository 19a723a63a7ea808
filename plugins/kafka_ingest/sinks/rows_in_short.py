"""The rows of a data file, to be shown: long values are cut, and few are in memory at a time."""

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet

from kafka_ingest.foundation.storage import Opened, open_to_read

ROWS_AT_ONCE = 10
LONGEST_VALUE = 200
MOST_VALUES = 20


def rows_in_short(path: Opened) -> list[dict[str, Any]]:
    """Return the rows by the names of their columns.

    Of a text or bytes the first 200 characters, of a list or map the first 20 values.
    """
    found: list[dict[str, Any]] = []
    with open_to_read(path) as file, pyarrow.parquet.ParquetFile(file) as rows:
        for batch in rows.iter_batches(ROWS_AT_ONCE):
            found += [{name: in_short(value) for name, value in row.items()} for row in batch.to_pylist()]
    return found


def in_short(value: object) -> object:
    """Return a value with what is long in it cut."""
    match value:
        case str() if len(value) > LONGEST_VALUE:
            return f"{value[:LONGEST_VALUE]}…"
        case bytes():
            return value[: LONGEST_VALUE + 1]
        case list() | tuple():
            return [in_short(each) for each in value[:MOST_VALUES]]
        case Mapping():
            return {name: in_short(each) for name, each in value.items()}
        case _:
            return value
