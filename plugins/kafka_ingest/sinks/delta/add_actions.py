"""What a commit records of each staged file: its place, its size, and the statistics by which queries skip it.

And its columns as a Delta schema holds them. The library does the same for any type; for those of the raw format it
need not be loaded, which takes as long as the rest of a small commit. Importing this imports pyarrow.
"""

import contextlib
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from kafka_ingest.foundation.storage import Opened, changed_at
from kafka_ingest.model.partition_term import PartitionTerm
from kafka_ingest.model.published_output import TableStatistics
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.delta.columns import RAW_COLUMNS, Fields, nullable
from kafka_ingest.sinks.delta.library import delta_lake
from kafka_ingest.sinks.delta.log_entry import AddedFile
from kafka_ingest.sinks.delta.table_fit import FileStatistics, with_bounds
from kafka_ingest.sinks.tables.staged_checks import footer, partition_values, schema_of_files

if TYPE_CHECKING:
    from deltalake import DeltaTable

Bound = str | int | float | bytes | date
SURROGATES = range(0xD800, 0xE000)
"""Halves of characters, which no text in UTF-8 has."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MILLISECOND = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
"""A later time cannot be rounded up to milliseconds: no datetime holds the year 10000."""

WHOLE = RAW_COLUMNS.keys() - {"key", "value"}
"""Columns whose bounds are not shortened: they are short, and queries search for whole ids of batches."""

KINDS = frozenset({"String", "Int", "Date", "Timestamp"})
"""What has bounds: the types of :data:`.table_fit.BOUNDED` as Parquet calls them."""

INTEGERS = frozenset({"INT32", "INT64"})
LONGEST_BOUND = 32
"""How many characters of a text its bounds have, as in Delta's own files."""


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
            statistics=statistics(metadata, file.rows, {term.own_column for term in partition_by}),
        )
        found.append(added)
    return found


def statistics(
    metadata: "pyarrow.parquet.FileMetaData", rows: int, partitioned_by: Collection[str] = ()
) -> FileStatistics:
    """Return what a file's footer says of its columns.

    Columns that the table is partitioned by have no statistics in Delta. Of columns without statistics in some row
    group, of fields within others, of other kinds of values, and of times that no datetime can hold, no bounds are
    known.
    """
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    found = FileStatistics(rows, frozenset(path.split(".")[0] for path in paths))
    for number, name in enumerate(paths):
        if "." in name or name in partitioned_by:
            continue
        groups = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        known = [group for group in groups if group is not None and group.null_count is not None]
        if len(known) != len(groups):
            continue
        found.nulls[name] = sum(group.null_count or 0 for group in known)
        filled = [group for group in known if group.has_min_max]
        if found.nulls[name] + sum(group.num_values for group in filled) < rows or not filled:
            continue  # of some rows no bounds are known
        if not all(map(has_bounds, filled)):
            continue
        with contextlib.suppress(OverflowError, ValueError):
            smallest, largest = zip(*map(extremes, filled), strict=True)
            least, most = lower(min(smallest)), upper(max(largest))
            found.smallest[name] = least if name in WHOLE else shortened(least)
            found.largest[name] = most if name in WHOLE else shortened_up(most)
    return found


def has_bounds(group: pyarrow.parquet.Statistics) -> bool:
    """Whether the smallest and largest value of a row group are bounds in every reader of the table."""
    kind = json.loads(group.logical_type.to_json())
    if kind["Type"] == "None":
        return group.physical_type in INTEGERS
    return kind["Type"] in KINDS and (kind["Type"] != "Timestamp" or bool(kind["isAdjustedToUTC"]))


def shortened(smallest: Bound) -> Bound:
    """Return a lower bound that is no longer than bounds are."""
    return smallest[:LONGEST_BOUND] if isinstance(smallest, str) else smallest


def shortened_up(largest: Bound) -> Bound:
    """Return an upper bound that is no longer; of a text one that is not below it in the order of its characters.

    Where there is none, it is not shortened.
    """
    if not isinstance(largest, str) or len(largest) <= LONGEST_BOUND:
        return largest
    for end in range(LONGEST_BOUND, 0, -1):
        code = ord(largest[end - 1]) + 1
        if code in SURROGATES:
            code = SURROGATES.stop
        if code <= sys.maxunicode:
            return largest[: end - 1] + chr(code)
    return largest


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
    if isinstance(value, datetime):
        return in_milliseconds(value)
    return value.isoformat() if isinstance(value, date) else value


def upper(value: Bound) -> Bound:
    """Return the largest value as JSON has it, never less than it is; the last millisecond of all with its end."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    if (at := in_utc(value)) >= LAST_MILLISECOND:
        return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return in_milliseconds(at + timedelta(microseconds=-at.microsecond % 1000))


def in_milliseconds(value: datetime) -> str:
    return in_utc(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def statistics_of(table: "DeltaTable", searched: Mapping[str, object]) -> TableStatistics:
    """Return how many of a snapshot's files lack bounds for which readers look, and which columns have all."""
    actions = pa.table(table.get_add_actions(flatten=False))
    bounds = actions.schema.field("min").type if "min" in actions.column_names else pa.struct([])
    files = actions.to_pylist()
    lacking = {
        each.name: sum(lacks(file, each.name, is_counted=isinstance(searched[each.name], str)) for file in files)
        for each in bounds
        if each.name in searched
    }
    complete = with_bounds({name: kind for name, kind in searched.items() if not lacking.get(name)})
    return TableStatistics(len(files), {name: count for name, count in lacking.items() if count}, tuple(complete))


def lacks(file: Mapping[str, Any], column: str, *, is_counted: bool) -> bool:
    """Whether a bound of a column is missing beside those of others; nulls alone need none."""
    if file["min"] is None or None not in (file["min"][column], (file["max"] or {}).get(column)):
        return False
    return not is_counted or (file["null_count"] or {}).get(column) != file["num_records"]


TYPES: Mapping[pa.DataType, str] = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.int16(): "short",
    pa.bool_(): "boolean",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


def schema_of(found: pa.Schema) -> dict[str, Any]:
    """Return a file's columns as the Delta protocol writes them."""
    try:
        return struct_of(found)
    except KeyError:
        schema: dict[str, Any] = json.loads(delta_lake().Schema.from_arrow(found).to_json())
        return schema


def columns_of_files(data: Opened, receipt: Receipt) -> Fields:
    schema = schema_of_files(data, receipt)
    return () if schema is None else schema_of(schema)["fields"]


def struct_of(fields: "pa.Schema | pa.StructType") -> dict[str, Any]:
    """Return fields as the protocol writes them; raises KeyError for a type that the raw format has not."""
    return {
        "type": "struct",
        "fields": [nullable(each.name, type_of(each.type)) | {"nullable": each.nullable} for each in fields],
    }


def type_of(kind: pa.DataType) -> object:
    """Return a type as the protocol writes it; raises KeyError as above."""
    if isinstance(kind, pa.StructType):
        return struct_of(kind)
    if isinstance(kind, pa.ListType):
        element = type_of(kind.value_type)
        return {"type": "array", "elementType": element, "containsNull": kind.value_field.nullable}
    if isinstance(kind, pa.MapType):
        key, value = type_of(kind.key_type), type_of(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": kind.item_field.nullable}
    if isinstance(kind, pa.Decimal128Type):
        return f"decimal({kind.precision},{kind.scale})"
    return TYPES[kind]
