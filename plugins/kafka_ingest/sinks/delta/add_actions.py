"""What a commit records of each staged file: its place, its size, and the statistics by which queries skip it.

Importing this imports pyarrow.
"""

import contextlib
import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.parquet

from kafka_ingest.foundation.storage import Opened, changed_at
from kafka_ingest.model.partition_term import PartitionTerm
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.delta.columns import RAW_COLUMNS
from kafka_ingest.sinks.delta.log_entry import AddedFile
from kafka_ingest.sinks.tables.file_partition import partition_values
from kafka_ingest.sinks.tables.staged_checks import footer

Bound = str | int | float | bytes | datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

WITH_BOUNDS = RAW_COLUMNS.keys() - {"key", "value"}
"""Queries do not search for ranges of raw bytes, and the Delta protocol has no bounds for them."""


def added_files(
    folder: str, data: Opened, receipt: Receipt, partition_by: Sequence[PartitionTerm] = ()
) -> list[AddedFile]:
    """Return what makes a batch's files part of the table; ``folder`` is their place in it."""
    found: list[AddedFile] = []
    for file in receipt.files:
        path = data / file.name
        metadata = footer(path)
        values = partition_values(path, metadata, partition_by, own_columns=True)
        added = AddedFile(
            path=f"{folder}/{file.name}",
            size=file.size_bytes,
            partition_values=dict(zip((term.own_column for term in partition_by), values, strict=True)),
            modification_time=round(changed_at(path) * 1000),
            stats=json.dumps(statistics(metadata, file.rows, {term.own_column for term in partition_by})),
        )
        found.append(added)
    return found


def statistics(
    metadata: "pyarrow.parquet.FileMetaData", rows: int, partitioned_by: Collection[str] = ()
) -> dict[str, Any]:
    """Return the statistics of a file as the Delta protocol writes them, out of its footer.

    Columns that the table is partitioned by have none there. A column without statistics in some row group is left
    out: a reader then assumes that any value is possible. So it does of other programs' columns, whose nulls alone are
    counted, and of times that no datetime can hold.
    """
    found: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        if "." in name or name in partitioned_by:
            continue
        groups = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        known = [group for group in groups if group is not None]
        if len(known) != len(groups):
            continue
        nulls = [group.null_count for group in known]
        if any(count is None for count in nulls):
            continue
        found["nullCount"][name] = sum(count or 0 for count in nulls)
        filled = [group for group in known if group.has_min_max]
        if name not in WITH_BOUNDS or found["nullCount"][name] + sum(group.num_values for group in filled) < rows:
            continue
        if not filled:
            continue
        with contextlib.suppress(OverflowError, ValueError):
            smallest, largest = zip(*map(extremes, filled), strict=True)
            bounds = lower(min(smallest)), upper(max(largest))
            found["minValues"][name], found["maxValues"][name] = bounds
    return found


def extremes(group: pyarrow.parquet.Statistics) -> tuple[Any, Any]:
    """Return a row group's smallest and largest value. For times Arrow would import pandas, a third of a second."""
    kind = json.loads(group.logical_type.to_json())
    if (kind["Type"], kind.get("timeUnit"), kind.get("isAdjustedToUTC")) != ("Timestamp", "microseconds", True):
        return group.min, group.max
    raw: tuple[Any, Any] = group.min_raw, group.max_raw
    smallest, largest = (EPOCH + timedelta(microseconds=each) for each in raw)
    return smallest, largest


def lower(value: Bound) -> Bound:
    """Return the smallest value as JSON has it; timestamps are truncated to milliseconds, as the protocol requires."""
    return in_milliseconds(value) if isinstance(value, datetime) else value


def upper(value: Bound) -> Bound:
    """Return the largest value as JSON has it, never less than it is."""
    if not isinstance(value, datetime):
        return value
    return in_milliseconds(value + timedelta(microseconds=-value.microsecond % 1000))


def in_milliseconds(value: datetime) -> str:
    """Return a time in UTC as the protocol writes it."""
    at = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
