"""Files of a Delta table with rows that a batch replaces. Importing this imports pyarrow.

Rows are known by ``kafka_batch`` and partition, wherever other programs have moved them. A file that holds such rows
alone leaves the table; of any other, the rows that stay are written to a new file, which the same commit adds.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.storage import Opened, changed_at, flush, make_folder, open_to_read, open_to_write, size_of
from kafka_ingest.model.partition_term import folder_of
from kafka_ingest.model.written_columns import BATCH_COLUMN, POSITION
from kafka_ingest.sinks.delta.add_actions import statistics
from kafka_ingest.sinks.delta.log_entry import BATCHES, AddedFile
from kafka_ingest.sinks.delta.table_log import PLAIN, action_of, removed
from kafka_ingest.sinks.delta.table_rows import DeltaRows
from kafka_ingest.sinks.parquet_contents import may_hold
from kafka_ingest.sinks.tables.replaced_rows import TYPES, ReplacedRows, read_to_replace, types_of
from kafka_ingest.sinks.tables.staged_checks import footer
from kafka_ingest.sinks.tables.table_format import ReplacedFile

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction

POSITIONS = pa.schema([(name, TYPES[name]) for name in POSITION])
OF_PARTITIONS = {"string": pa.string(), "integer": pa.int32(), "date": pa.date32()}
"""The types of columns by which a table may be partitioned."""
KEYS = POSITIONS.append(pa.field(BATCH_COLUMN, TYPES[BATCH_COLUMN]))


def may_be_in(path: str, wanted: ReplacedRows) -> bool:
    """Whether a file may hold such rows, by its place: one below ``batches/`` holds one batch."""
    return not path.startswith(f"{BATCHES}/") or path.split("/")[1] in map(str, wanted.batches)


def may_be_in_group(group: pyarrow.parquet.RowGroupMetaData, wanted: ReplacedRows) -> bool:
    return any(may_hold(group, BATCH_COLUMN, str(batch_id)) for batch_id in wanted.batches)


def replaced_files(rows: DeltaRows, wanted: ReplacedRows) -> Iterator[ReplacedFile]:
    """Yield the files with rows that are replaced, with these rows' positions.

    Raises OutputNotUsableError where one of them cannot be taken out of the log by its name.
    """
    for path, size_bytes in sorted(rows.files.items()):
        if not may_be_in(path, wanted):
            continue
        found: list[pa.Table] = []
        place = rows.opened(path)
        with read_to_replace(place), open_to_read(place) as source, pyarrow.parquet.ParquetFile(source) as file:
            known = rows.partitions.get(path, {})
            in_file = [name for name in KEYS.names if name in file.schema_arrow.names]
            if not set(KEYS.names) <= {*in_file, *known}:
                continue  # another writer's, from before the table had these columns
            for group in range(file.num_row_groups):
                if may_be_in_group(file.metadata.row_group(group), wanted):
                    read = with_known(file.read_row_group(group, columns=in_file), known, KEYS)
                    there = read.select(KEYS.names).cast(KEYS)
                    found.append(there.filter(wanted.are(there)).select(POSITIONS.names))
            leaving = pa.concat_tables(found) if found else POSITIONS.empty_table()
            if leaving.num_rows:
                check_plain(rows, path)
                yield ReplacedFile(path, size_bytes, file.metadata.num_rows, leaving)


def actions_for(rows: DeltaRows, wanted: ReplacedRows) -> "list[AddAction | RemoveAction]":
    """Return the actions that take replaced rows out of one snapshot; rows that stay are in new files by then."""
    found: list[AddAction | RemoveAction] = []
    for file in replaced_files(rows, wanted):
        if file.stays:
            partition = rows.partitions.get(file.path, {})
            new = without(rows.opened(file.path), wanted, rows, partition)
            found.append(added(rows, new, rows.partition_values(file.path)))
        found.append(removed(rows, file.path))
    return found


def check_plain(rows: DeltaRows, path: str) -> None:
    """Raise OutputNotUsableError where the log may have a file by another name."""
    if not PLAIN.fullmatch(path):
        raise OutputNotUsableError(
            f"{rows.output}: expected files with plain names, found {path!r}, which holds rows that are to be "
            "replaced. Nothing was replaced. OPTIMIZE the table, which gives its rows other files, and run this "
            "again."
        )


def with_known(table: "pa.Table", known: Mapping[str, Any], schema: pa.Schema) -> "pa.Table":
    """Return rows of a file with the columns of a schema that it lacks, and that have the same value in all of them.

    These are columns that the table is partitioned by: other writers leave them out of files.
    """
    for name in schema.names:
        if name in known and name not in table.column_names:
            table = table.append_column(name, pa.array([known[name]] * len(table), schema.field(name).type))
    return table


def without(source_path: Opened, wanted: ReplacedRows, rows: DeltaRows, partition: Mapping[str, Any]) -> str:
    """Write a file's rows that stay to a new file of the table, durably; return its name.

    ``partition``: the values of the columns that the table is partitioned by. Polars takes them from the names of
    folders. Nothing names the file before the commit. If there is none, VACUUM deletes it.
    """
    folders = [folder_of(name, None if value is None else str(value)) for name, value in partition.items()]
    name = "/".join([*filter(None, folders), f"part-{uuid4()}.parquet"])
    target = rows.opened(name)
    make_folder(target.parent)
    with (
        read_to_replace(source_path),
        open_to_read(source_path) as source,
        # Spark writes timestamps as INT96, of which nanoseconds would hold the years 1677 to 2262 only.
        pyarrow.parquet.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
        open_to_write(target) as sink,
    ):
        types = rows.column_types
        fields = [each.with_type(plain(each.type, types.get(each.name))) for each in file.schema_arrow]
        missing = [name for name in partition if name not in file.schema_arrow.names]
        schema = pa.schema([*fields, *(pa.field(name, OF_PARTITIONS[str(types[name])]) for name in missing)])
        # Spark reads no nanoseconds, as which those of another writer may come out of its file.
        options: dict[str, Any] = {"compression": "zstd", "coerce_timestamps": "us", "store_schema": False}
        # Of what may be NaN they would hold the other numbers' bounds, by which engines skip rows with NaN.
        found = (file.schema.column(number) for number in range(len(file.schema)))
        options["write_statistics"] = [each.path for each in found if each.physical_type not in {"FLOAT", "DOUBLE"}]
        with pyarrow.parquet.ParquetWriter(sink, schema, **options) as writer:
            for group in range(file.num_row_groups):
                there = with_known(file.read_row_group(group), partition, schema).cast(schema)
                staying = there.filter(pc.invert(wanted.are(there)))
                if staying.num_rows:
                    writer.write_table(staying)
    flush(target)
    flush(target.parent)
    return name


def plain(kind: pa.DataType, of_table: object = None) -> pa.DataType:
    """Return a type that Arrow can filter, as the table has it: ``of_table`` is the column's type in its schema.

    delta-rs notes in its files that it read texts and bytes as views. And INT96 does not say that times are in UTC.
    """
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.string() if pa.types.is_string_view(kind) else pa.binary()
    if pa.types.is_timestamp(kind) and of_table == "timestamp":
        return pa.timestamp(kind.unit, "UTC")
    inner: Mapping[str, Any] = of_table if isinstance(of_table, Mapping) else {}
    if isinstance(kind, pa.StructType):
        types = {each["name"]: each["type"] for each in inner.get("fields", ())}
        return pa.struct([each.with_type(plain(each.type, types.get(each.name))) for each in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(kind.value_field.with_type(plain(kind.value_type, inner.get("elementType"))))
    if isinstance(kind, pa.MapType):
        return pa.map_(plain(kind.key_type, inner.get("keyType")), plain(kind.item_type, inner.get("valueType")))
    return kind


def added(rows: DeltaRows, name: str, partition: Mapping[str, str | None]) -> "AddAction":
    path = rows.opened(name)
    metadata = footer(path)
    of_file = statistics(metadata, metadata.num_rows, partition.keys())
    return action_of(AddedFile(name, size_of(path), partition, round(changed_at(path) * 1000), of_file), rows.searched)


def rows_of_file(
    path: Opened, columns: list[str], batch_id: UUID | None, known: Mapping[str, Any] = MappingProxyType({})
) -> Iterator["pa.Table"]:
    """Yield some columns of a file's rows, of one batch or of all; row groups without the batch are not read.

    ``known`` are values that all rows have, by the columns that the table is partitioned by.
    """
    read = [*columns, *([BATCH_COLUMN] if batch_id is not None and BATCH_COLUMN not in columns else [])]
    types = types_of(read)
    with (
        open_to_read(path) as source,
        pyarrow.parquet.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
    ):
        there = [name for name in read if name in file.schema_arrow.names]
        missing = set(read).difference(there, known)
        if missing & TYPES.keys():
            return  # another writer's, from before the table had these columns: no batch has rows in it
        for group in range(file.num_row_groups):
            if batch_id is not None and not may_hold(file.metadata.row_group(group), BATCH_COLUMN, str(batch_id)):
                continue
            for batch in file.iter_batches(row_groups=[group], columns=there):
                table = pa.Table.from_batches([batch])
                for name in set(read).difference(there):
                    values = [known.get(name)] * len(table)
                    table = table.append_column(name, pa.array(values, types.field(name).type))
                table = table.select(read).cast(types)
                if batch_id is not None:
                    table = table.filter(pc.equal(table[BATCH_COLUMN], pa.scalar(str(batch_id))))
                if table.num_rows:
                    yield table.select(columns)
