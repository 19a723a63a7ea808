"""The columns of a staged file as a table has them, and what a snapshot records of it: bounds that hold for all rows.

The library takes a column's bounds from those row groups that have some, also where others have none: texts that are
long in sum, and numbers of which one is NaN. Readers would skip the file for rows that are there. And it fails on some
bounds, however often the commit is tried: see :func:`can_be_written`.

It takes a file's partition from bounds that a table's properties may shorten, and files rows without a value under that
of the others; readers that skip files believe it: see :func:`check_filed`.

Importing this imports pyiceberg and pyarrow.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from pyiceberg import types
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan, parquet_file_to_data_file, pyarrow_to_schema
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.concurrent import ExecutorFactory

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import PartitionTerm, Transform
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import path_of
from kafka_ingest.sinks.iceberg.columns import RAW, in_words, own_fields
from kafka_ingest.sinks.tables.decoded_columns import is_own
from kafka_ingest.sinks.tables.staged_checks import footer

TYPES: Final[dict[pa.DataType, types.PrimitiveType]] = {
    pa.string(): types.StringType(),
    pa.bool_(): types.BooleanType(),
    pa.int16(): types.IntegerType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.float32(): types.FloatType(),
    pa.float64(): types.DoubleType(),
    pa.binary(): types.BinaryType(),
    pa.date32(): types.DateType(),
    pa.timestamp("us", "UTC"): types.TimestamptzType(),
    pa.timestamp("us"): types.TimestampType(),
}


def differences_of_file(schema: pa.Schema, options: TableOptions, unknown: Collection[str] = ()) -> Iterator[str]:
    """Yield where a staged file's columns are not those of the raw format, without those that the table lacks.

    Of decoded records only Kafka's own are read.
    """
    own, may_lack = own_fields(options), options.may_lack
    expected = {field.name for field in own if field.name in schema.names or field.name not in may_lack}
    found_names = {name for name in schema.names if is_own(name) or not options.decoded}
    for name in sorted(set(unknown) & set(schema.names)):
        yield f"column {name}: the table has none"
    for name in sorted(expected ^ found_names):
        yield f"column {name}: {'missing' if name in expected else 'not of the raw format'}"
    for field in own:
        if field.name not in schema.names:
            continue
        try:
            found = pyarrow_to_schema(pa.schema([schema.field(field.name)]), RAW.name_mapping)
        except (ValueError, TypeError) as error:
            yield f"column {field.name}: expected {in_words(field.field_type)}, found {error}"
            continue
        if in_words(found.fields[0].field_type) != in_words(field.field_type):
            kind = in_words(found.fields[0].field_type)
            yield f"column {field.name}: expected {in_words(field.field_type)}, found {kind}"


def schema_of(files: pa.Schema) -> Schema:
    """Return the columns of files as a table has them: all of their parts allow nulls, as a later batch may have some.

    Raises ValueError for a type that Iceberg has not.
    """
    numbers = count(1)
    return Schema(*(field_of(each, numbers, each.name) for each in files))


def field_of(found: "pa.Field[pa.DataType]", numbers: Iterator[int], path: str) -> types.NestedField:
    return types.NestedField(next(numbers), found.name, type_of(found.type, numbers, path), required=False)


def type_of(kind: pa.DataType, numbers: Iterator[int], path: str) -> types.IcebergType:
    """Return a type; raises ValueError for one that Iceberg has not."""
    if isinstance(kind, pa.StructType):
        return types.StructType(*(field_of(each, numbers, path_of(path, each.name)) for each in kind))
    if isinstance(kind, pa.MapType):
        key_id, value_id = next(numbers), next(numbers)
        key, value = type_of(kind.key_type, numbers, f"{path}[]"), type_of(kind.item_type, numbers, f"{path}[]")
        return types.MapType(key_id, key, value_id, value, value_required=False)
    if isinstance(kind, pa.ListType):
        element_id = next(numbers)
        return types.ListType(element_id, type_of(kind.value_type, numbers, f"{path}[]"), element_required=False)
    if isinstance(kind, pa.Decimal128Type):
        return types.DecimalType(kind.precision, kind.scale)
    if kind not in TYPES:
        raise ValueError(f"{path} of type {kind}, which Iceberg tables have not")
    return TYPES[kind]


WITH_NAN = frozenset({"FLOAT", "DOUBLE"})
"""Numbers of which one may be NaN: engines take that for larger than all others, and no bound says that one is there.
"""

WITHOUT_STATISTICS = "PyArrow statistics missing for column"
"""What the library warns of for each such column of each file. Spark writes none for some, and here none are needed."""
logging.getLogger("pyiceberg.io.pyarrow").addFilter(lambda said: not str(said.msg).startswith(WITHOUT_STATISTICS))

BEFORE_HALF_CHARACTERS = chr(0xD7FF)
"""The character whose successor by number is half of one, which no text in UTF-8 has."""


def added_files(io: FileIO, metadata: TableMetadata, files: Mapping[str, Opened]) -> list[DataFile]:
    def added(location: str) -> DataFile:
        counts = {
            f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}": "counts"
            for name in without_bounds(footer(files[location]))
        }
        own = metadata.model_copy(update={"properties": {**metadata.properties, **counts}})
        return parquet_file_to_data_file(io, own, location)

    return list(ExecutorFactory.get_or_create().map(added, files))


def without_bounds(file: "pyarrow.parquet.FileMetaData") -> Iterator[str]:
    for number in range(file.num_columns):
        name = file.schema.column(number).path
        if "." in name:
            continue  # a field of another one, of which the library keeps counts alone
        groups: list[Any] = [file.row_group(group).column(number) for group in range(file.num_row_groups)]
        if any(group.physical_type in WITH_NAN or not has_bounds(group, group.statistics) for group in groups):
            yield name


def has_bounds(group: "pyarrow.parquet.ColumnChunkMetaData", statistics: "pyarrow.parquet.Statistics | None") -> bool:
    """Whether a row group says the smallest and the largest value, or that there is none."""
    if statistics is None or statistics.null_count is None:
        return False
    return can_be_written(statistics) if statistics.has_min_max else statistics.null_count == group.num_values


def can_be_written(statistics: "pyarrow.parquet.Statistics") -> bool:
    """Whether the library can write the bounds: days and times of the years 1 to 9999, and texts that it can shorten.

    It shortens an upper bound by the next character in the place of its last one.
    """
    try:
        bounds = statistics.min, statistics.max
    except (OverflowError, ValueError):
        return False
    return not any(isinstance(each, str) and BEFORE_HALF_CHARACTERS in each for each in bounds)


def missing_bounds(table: Table) -> Iterator[str]:
    """Yield the columns of partitions whose bounds the table's properties leave out.

    The library takes a file's partition from the bounds that it keeps: without them, all rows would be in partition
    null, and queries by the column would find none.
    """
    sources = {field.source_id for field in table.spec().fields}
    try:
        collectors = compute_statistics_plan(table.schema(), table.properties)
    except ValueError as error:
        yield f"properties write.metadata.metrics: {error}"
        return
    for collector in (collectors[each] for each in sorted(sources)):
        if collector.mode.type in {MetricModeTypes.NONE, MetricModeTypes.COUNTS}:
            yield (
                f"write.metadata.metrics of {collector.column_name}: {collector.mode.type.value}, expected full: the "
                "table is partitioned by it"
            )


FIRST_DAY, FIRST_HOUR = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)


def check_filed(
    snapshot: Snapshot, io: FileIO, expected: Mapping[str, Sequence[str | None]], terms: Sequence[PartitionTerm]
) -> None:
    """Raise StagedOutputUnusableError unless a snapshot adds each file under the partition that its rows are of.

    ``expected``: place of a file → the text of each term's value, by the file's own footer.
    """
    found = {file.file_path: file for file in files_added_by(snapshot, io)}
    wrong = [
        f"{path}: expected in partition {list(map(str, values))}, found {'nowhere' if file is None else file.partition}"
        for path, values in expected.items()
        if (file := found.get(path)) is None
        or [file.partition[number] for number in range(len(terms))]
        != [filed(term, value) for term, value in zip(terms, values, strict=True)]
    ]
    if wrong:
        raise StagedOutputUnusableError(f"the library filed files otherwise than their rows say: {listing(wrong)}")


def files_added_by(snapshot: Snapshot, io: FileIO) -> Iterator[DataFile]:
    for manifest in snapshot.manifests(io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(io):
            if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                yield entry.data_file


def filed(term: PartitionTerm, value: str | None) -> str | int | None:
    """Return the value by which Iceberg files what a term's text says: days and hours are counted from 1970."""
    match term.transform:
        case _ if value is None:
            return None
        case Transform.DAY:
            return (date.fromisoformat(value) - FIRST_DAY).days
        case Transform.HOUR:
            return (datetime.fromisoformat(f"{value}:00+00:00") - FIRST_HOUR) // timedelta(hours=1)
        case Transform.IDENTITY:
            return int(value) if term.column == "kafka_partition" else value
