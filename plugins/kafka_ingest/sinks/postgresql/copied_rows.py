"""A staged attempt's rows in a table of their own, into which they are copied before the batch is COMMITTING.

The copy is unlogged, since the staged files can make it again, and no reader knows it. Arrow batches go there by ADBC
in one transaction: all rows, or no table. A crash of the server may empty it, so the publisher counts what it inserts.
Importing this imports pyarrow and the driver, which a process that is forked later must not have used.
"""

import base64
import json
import math
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from psycopg.conninfo import make_conninfo
from sqlalchemy import Column, MetaData, Table, Text
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from kafka_ingest.errors import ColumnsChangedError, OutputUnavailableError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import open_to_read
from kafka_ingest.model.written_columns import kind_of
from kafka_ingest.sinks.arrow_types import struct_of
from kafka_ingest.sinks.postgresql.columns import has_parts, type_of
from kafka_ingest.sinks.postgresql.database import DatabaseSettings
from kafka_ingest.sinks.tables.staged_checks import footer
from kafka_ingest.sinks.tables.table_format import Staged

PIECE = 20_000
"""Rows of one Arrow batch; larger ones need more memory, and are not faster."""
NUL = "\0"


class NulCharacterError(ValueError):
    """A text holds the one character that PostgreSQL has not."""


def name_of_copy(batch_id: UUID, attempt: int | str) -> str:
    """Return the name of the table with an attempt's rows."""
    return f"kafka_ingest_{batch_id.hex}_{attempt}"


def columns_of_files(staged: Staged) -> dict[str, str]:
    """Return the columns that an attempt's files have, as receipts list them, without what is in them."""
    schema = footer(staged.data / staged.receipt.files[0].name).schema.to_arrow_schema()
    return {field.name: kind_of(field.type) for field in struct_of(schema).fields}


def copied_table(staged: Staged, schema: str) -> Table:
    """Return the table with an attempt's rows: of what is jsonb in the output, it has the text."""
    kinds = columns_of_files(staged)
    columns = [Column(name, Text() if has_parts(kind) else type_of(kind)) for name, kind in kinds.items()]
    name = name_of_copy(staged.receipt.batch_id, staged.receipt.attempt)
    return Table(name, MetaData(schema=schema), *columns, prefixes=["UNLOGGED"])


def copy_rows(staged: Staged, table: Table, settings: DatabaseSettings) -> None:
    """Make the table with an attempt's rows; raises ColumnsChangedError where PostgreSQL cannot hold one of them.

    StagedOutputUnusableError where a file is damaged, OutputUnavailableError after any other failure; then there is no
    table, unless another process was faster.
    """
    schema = schema_of_copy(staged)
    # Not in a style in which % has a meaning, also in names.
    statement = str(CreateTable(table).compile(dialect=postgresql.dialect(paramstyle="named")))
    try:
        with adbc.connect(make_conninfo("", **settings.parameters)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            reader = pa.RecordBatchReader.from_batches(schema, batches_of(staged, schema))
            cursor.adbc_ingest(table.name, reader, mode="append", db_schema_name=table.schema)
            connection.commit()
    except adbc_driver_manager.Error as error:
        refuse_nul(staged)
        said = settings.without_secrets(str(error).partition("\n")[0])
        raise OutputUnavailableError(
            f"{table.schema}.{table.name}: rows of batch {staged.receipt.batch_id} could not be copied through "
            f"connection {settings.conn_id!r}: {said}. Nothing was published and no offset was moved; run this again."
        ) from None


def batches_of(staged: Staged, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield an attempt's rows as they are copied; raises ColumnsChangedError on a NUL character in what has parts."""
    for batch in raw_batches(staged):
        yield pa.record_batch([as_copied(batch, name) for name in batch.schema.names], schema=schema)


def raw_batches(staged: Staged) -> Iterator[pa.RecordBatch]:
    """Yield an attempt's rows, a piece at a time; raises StagedOutputUnusableError where a file is damaged."""
    for each in staged.receipt.files:
        path = staged.data / each.name
        try:
            with (
                open_to_read(path) as source,
                pyarrow.parquet.ParquetFile(source, page_checksum_verification=True) as file,
            ):
                yield from file.iter_batches(PIECE)
        except (pa.ArrowException, OSError) as error:
            # Arrow raises OSError for damage, too, but only the system's errors have a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise StagedOutputUnusableError(f"{path} cannot be read: {error}") from error


def schema_of_copy(staged: Staged) -> pa.Schema:
    """Return the columns of an attempt's files, with text for what has parts."""
    found = footer(staged.data / staged.receipt.files[0].name).schema.to_arrow_schema()
    return pa.schema([(each.name, pa.string() if pa.types.is_nested(each.type) else each.type) for each in found])


def as_copied(batch: pa.RecordBatch, name: str) -> "pa.Array[Any]":
    """Return a column as it is copied: what has parts as JSON."""
    column: pa.Array[Any] = batch.column(name)
    if not pa.types.is_nested(column.type):
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    texts: list[str | None] = []
    for number, value in enumerate(column.to_pylist()):
        try:
            found = None if value is None else json.dumps(json_of(value, column.type), ensure_ascii=False)
        except NulCharacterError:
            raise nul_in(batch, name, number) from None
        texts.append(found)
    return pa.array(texts, pa.string())


def json_of(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any value of any type
    """Return a value as JSON has it: bytes in base64; decimals, times and what is no number in JSON as text."""
    match value:
        case None | bool() | int():
            found: Any = value
        case str():
            if NUL in value:
                raise NulCharacterError
            found = value
        case float():
            found = value if math.isfinite(value) else str(value)
        case bytes():
            found = base64.b64encode(value).decode()
        case dict():
            found = {json_of(each.name, None): json_of(value[each.name], each.type) for each in kind}
        case list() if pa.types.is_map(kind):
            found = {json_of(str(key), None): json_of(each, kind.item_type) for key, each in value}
        case list():
            found = [json_of(each, kind.value_type) for each in value]
        case _:
            found = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return found


def refuse_nul(staged: Staged) -> None:
    """Raise ColumnsChangedError where a text holds a NUL character, on which the copy has failed."""
    for batch in raw_batches(staged):
        for name in batch.schema.names:
            column: pa.Array[Any] = batch.column(name)
            if pa.types.is_nested(column.type):
                as_copied(batch, name)  # what it raised while rows were read, the driver has made another error of
            elif pa.types.is_string(column.type) and pc.any(found := pc.match_substring(column, NUL)).as_py():
                raise nul_in(batch, name, found.index(True).as_py())


def nul_in(batch: pa.RecordBatch, name: str, row: int) -> ColumnsChangedError:
    """Return the error that names the record."""
    topic, partition, offset = (batch.column(each)[row] for each in ("kafka_topic", "kafka_partition", "kafka_offset"))
    return ColumnsChangedError(
        f"{topic}-{partition}@{offset}: expected texts that PostgreSQL can hold, found a NUL character in column "
        f"{name}. Nothing was published and no offset was moved; the next run writes the batch again. Let the feed "
        f"leave the character out (select: {{{name}: \"translate({name}, '\\u0000', '')\"}}), take the field as "
        "binary, or leave such records out (where)."
    )
