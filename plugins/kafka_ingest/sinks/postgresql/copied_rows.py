"""A staged attempt's rows in a table of their own, into which they are copied before the batch is COMMITTING.

The copy is unlogged, since the staged files can make it again, and no reader knows it. Arrow batches go there by ADBC
in one transaction: all rows, or no table. A crash of the server may empty it, so the publisher counts what it inserts.
Importing this imports pyarrow and the driver, which a process that is forked later must not have used.
"""

import base64
import json
import math
import re
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from typing import Any

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
from kafka_ingest.model.table_options import CHANGE, UNAVAILABLE_COLUMNS, CurrentState
from kafka_ingest.model.written_columns import POSITION, kind_of
from kafka_ingest.sinks.change_events import ChangeEvents
from kafka_ingest.sinks.parquet_contents import struct_of
from kafka_ingest.sinks.postgresql.columns import has_parts, type_of
from kafka_ingest.sinks.postgresql.database import NEXT_STEP, QUOTES, DatabaseSettings
from kafka_ingest.sinks.postgresql.named_table import LETTERS, NamedTable, name_of_copy
from kafka_ingest.sinks.tables.staged_checks import footer
from kafka_ingest.sinks.tables.table_format import Staged

PIECE = 20_000
"""Rows of one Arrow batch; larger ones need more memory, and are not faster."""
NUL = "\0"
A_NUL = "a NUL character"
DATA_EXCEPTION, TOO_LARGE = "22", "54"
"""How the server's codes begin of values that it cannot hold, and of rows."""
LEAVE_OUT = "Let where leave such records out; a batch of raw records has to be abandoned before."
EARLIEST = pa.scalar(-210_866_803_200_000_000, pa.int64())
"""PostgreSQL's first time, in microseconds since 1970."""
AS_IT_IS = json.JSONEncoder(ensure_ascii=False)
OF_EVENTS = {CHANGE, UNAVAILABLE_COLUMNS}


class NulCharacterError(ValueError):
    """A text holds the one character that PostgreSQL has not."""


def events_of(staged: Staged, state: CurrentState) -> ChangeEvents:
    """Return what makes events of an attempt's records; raises ColumnsChangedError where they have no key any more."""
    return ChangeEvents(schema_of_files(staged), state)


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """Return columns as receipts list them, without what is in them."""
    return {field.name: kind_of(field.type) for field in struct_of(schema).fields}


class Letters:
    """Makes rows of dead letters, none of which may stop a batch: U+FFFD stands for a NUL character in a text."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([without_nul(column) for column in batch.columns], schema=self.schema)


def without_nul(column: Any) -> Any:  # noqa: ANN401 - Arrow's own
    if pa.types.is_string(column.type):
        return pc.replace_substring(column, NUL, "\ufffd")
    if not pa.types.is_nested(column.type) or column.null_count == len(column):
        return column
    rows = column.to_pylist()
    keys = [[{**each, "key": each["key"].replace(NUL, "\ufffd")} for each in row or ()] for row in rows]
    return pa.array([each if row is not None else None for each, row in zip(keys, rows, strict=True)], column.type)


MakesRows = ChangeEvents | Letters
"""What makes other rows of those that were staged."""


def copied(staged: Staged, to: NamedTable) -> Table:
    """Return the table with an attempt's rows for one of the output, which is made, or gets their columns.

    They are copied where they are not yet. Of what is jsonb in the output, the copy has the text.
    """
    schema = schema_of_files(staged)
    events = ChangeEvents(schema, to.state) if to.state is not None else None
    makes = Letters(schema) if to.beside is LETTERS else events
    kinds = columns_of(makes.schema if makes is not None else schema)
    to.fit({name: kinds[name] for name in kinds if name not in OF_EVENTS}, events.key if events is not None else ())
    columns = [Column(name, Text() if has_parts(kind) else type_of(kind)) for name, kind in kinds.items()]
    name = name_of_copy(staged.receipt.batch_id, staged.receipt.attempt) + to.end_of_copies
    table = Table(name, MetaData(schema=to.schema), *columns, prefixes=["UNLOGGED"])
    for last in (False, True):
        with to.transaction() as connection:
            if to.has(connection, table):
                return table
            settings, mend = to.database.settings, connection.execute(QUOTES).scalar_one_or_none()
        try:  # with names that are quoted ADBC would not know any type
            copy_rows(staged, table, settings.without_quotes() if mend else settings, makes)
        except OutputUnavailableError as error:
            if last and mend:
                raise OutputUnavailableError(
                    f"{error} quote_all_identifiers is on: where a pooler does not pass on that a session is to have "
                    f"it off, run {mend}"
                ) from error
            if last:
                raise
    return table


def copy_rows(staged: Staged, table: Table, settings: DatabaseSettings, events: MakesRows | None = None) -> None:
    """Make the table with an attempt's rows; raises ColumnsChangedError where PostgreSQL cannot hold one of them.

    With ``events`` these are its rows, and one that cannot be an event is refused like a value.

    StagedOutputUnusableError where a file is damaged, OutputUnavailableError after any other failure; then there is no
    table, unless another process was faster.
    """
    schema = schema_of_copy(events.schema if events is not None else schema_of_files(staged))
    # Not in a style in which % has a meaning, also in names.
    failed: list[Exception] = []
    statement = str(CreateTable(table).compile(dialect=postgresql.dialect(paramstyle="named")))
    try:
        with adbc.connect(make_conninfo("", **settings.parameters)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            reader = pa.RecordBatchReader.from_batches(schema, batches_of(staged, schema, failed, events))
            cursor.adbc_ingest(table.name, reader, mode="append", db_schema_name=table.schema)
            if events is not None:  # it is joined with the output, which may be large
                cursor.execute(f"ANALYZE {postgresql.dialect().identifier_preparer.format_table(table)}")
            connection.commit()
    except adbc_driver_manager.Error as error:
        if failed:
            raise failed[0] from None  # the driver has made another error of it
        if (error.sqlstate or "").startswith((DATA_EXCEPTION, TOO_LARGE)):
            raise refused_value(staged, table.name, error, events) from None
        said = settings.without_secrets(str(error).partition("\n")[0])
        next_step = NEXT_STEP.get(error.sqlstate or "", "run this again")
        raise OutputUnavailableError(
            f"{table.schema}.{table.name}: rows of batch {staged.receipt.batch_id} could not be copied through "
            f"connection {settings.conn_id!r}: {said}. Nothing was published and no offset was moved; {next_step}."
        ) from None


def batches_of(
    staged: Staged, schema: pa.Schema, failed: list[Exception], events: MakesRows | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield an attempt's rows as they are copied; what is raised is ``failed``, too.

    Raises ColumnsChangedError where PostgreSQL cannot hold a value of what has parts.
    """
    try:
        for batch in raw_batches(staged, events):
            yield pa.record_batch([as_copied(batch, name) for name in batch.schema.names], schema=schema)
    except Exception as error:
        failed.append(error)
        raise


def raw_batches(staged: Staged, events: MakesRows | None) -> Iterator[pa.RecordBatch]:
    """Yield an attempt's rows, or its events, a piece at a time.

    Raises StagedOutputUnusableError where a file is damaged.
    """
    for each in staged.receipt.files:
        path = staged.data / each.name
        try:
            with (
                open_to_read(path) as source,
                pyarrow.parquet.ParquetFile(source, page_checksum_verification=True) as file,
            ):
                for batch in file.iter_batches(PIECE):
                    yield events.of(batch) if events is not None else batch
        except (pa.ArrowException, OSError) as error:
            # Arrow raises OSError for damage, too, but only the system's errors have a number.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise StagedOutputUnusableError(f"{path} cannot be read: {error}") from error


def schema_of_files(staged: Staged) -> pa.Schema:
    return footer(staged.data / staged.receipt.files[0].name).schema.to_arrow_schema()


def schema_of_copy(rows: pa.Schema) -> pa.Schema:
    """Return the columns of a copy of rows, with text for what has parts."""
    return pa.schema([(each.name, pa.string() if pa.types.is_nested(each.type) else each.type) for each in rows])


def as_copied(batch: pa.RecordBatch, name: str) -> "pa.Array[Any]":
    """Return a column as it is copied: what has parts as JSON."""
    column: pa.Array[Any] = batch.column(name)
    if pa.types.is_timestamp(column.type):  # of the lowest one the driver says nothing, and another is -infinity
        early: Any = pc.less(column.cast(pa.int64()), EARLIEST)
        if pc.any(early).as_py():
            raise bad_value(batch, name, pc.index(early, value=True).as_py(), "a time before 4713 BC")
    if not pa.types.is_nested(column.type):
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    try:
        texts = pa.array(json_texts(column), pa.string())
    except (ValueError, OverflowError):
        row, why = first_bad(column)
        raise bad_value(batch, name, row, str(why)) from None
    found: pa.Array[Any] = pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
    return found


def json_texts(column: Any) -> list[str]:  # noqa: ANN401 - Arrow's own
    """Return the values of a column as JSON: bytes in base64; decimals, times and what is no number in JSON as text.

    Part by part, since a value of Python for each row would take ten times as long.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        names = [f"{text_in_json(field.name)}: " for field in kind]
        parts = [[name + text for text in json_texts(part)] for name, part in zip(names, column.flatten(), strict=True)]
        found = [f"{{{', '.join(values)}}}" for values in zip(*parts, strict=True)]
    elif pa.types.is_map(kind):
        keys, values = (json_texts(each) for each in (inside(column, column.keys), inside(column, column.items)))
        names = [key if key.startswith('"') else AS_IT_IS.encode(key) for key in keys]  # in JSON they are texts
        entries = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
        found = [f"{{{', '.join(each)}}}" for each in divided(column, entries)]
    elif pa.types.is_list(kind):
        found = [f"[{', '.join(each)}]" for each in divided(column, json_texts(inside(column, column.values)))]
    else:
        found = [json_text(value) for value in column.to_pylist()]
    if column.null_count and pa.types.is_nested(kind):
        found = [text if valid else "null" for text, valid in zip(found, column.is_valid().to_pylist(), strict=True)]
    return found


def inside(column: Any, values: Any) -> Any:  # noqa: ANN401 - Arrow's own
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return values.slice(first, last - first)


def divided(column: Any, texts: list[str]) -> Iterator[list[str]]:  # noqa: ANN401 - Arrow's own
    """Yield for each list of a column the texts of what it holds."""
    offsets = column.offsets.to_pylist()
    for start, end in pairwise(offsets):
        yield texts[start - offsets[0] : end - offsets[0]]


def json_text(value: object) -> str:
    match value:
        case None:
            text = "null"
        case bool():
            text = "true" if value else "false"
        case int():
            text = str(value)
        case float() if math.isfinite(value):
            text = repr(value)
        case bytes():
            text = f'"{base64.b64encode(value).decode()}"'
        case date():
            text = f'"{value.isoformat()}"'
        case _:
            text = text_in_json(str(value))
    return text


def text_in_json(text: str) -> str:
    """Return a text as JSON; raises NulCharacterError."""
    if NUL in text:
        raise NulCharacterError(A_NUL)
    return AS_IT_IS.encode(text)


def first_bad(column: Any) -> tuple[int, Exception]:  # noqa: ANN401 - Arrow's own
    """Return the first row whose value cannot become JSON that PostgreSQL holds, and why."""
    for number in range(len(column)):
        try:
            json_texts(column.slice(number, 1))
        except (ValueError, OverflowError) as error:
            return number, error
    raise ValueError("expected a value that cannot be JSON in one of the rows, found none")


def refused_value(
    staged: Staged, table: str, error: adbc_driver_manager.Error, events: MakesRows | None
) -> ColumnsChangedError:
    """Return the error that names the record on whose value a copy has failed: the server says its number."""
    details = {as_text(name): as_text(value) for name, value in error.details}
    said = details.get("PG_DIAG_MESSAGE_PRIMARY", "another value")
    found = A_NUL if said.endswith(": 0x00") else said
    context = rf"\S+ {re.escape(table)}, [^\d,]*(\d+)[^,]*, \S+ (.*)"  # "COPY …, line 5, column note", in any language
    if (place := re.fullmatch(context, details.get("PG_DIAG_CONTEXT", ""), re.DOTALL)) is not None:
        row = int(place[1]) - 1
        for batch in raw_batches(staged, events):
            if row < batch.num_rows:
                return bad_value(batch, place[2], row, found)
            row -= batch.num_rows
    together = f"Let select put fields together in a struct, which is one column. Or: {LEAVE_OUT}"
    advice = together if (error.sqlstate or "").startswith(TOO_LARGE) else LEAVE_OUT
    return ColumnsChangedError(
        f"batch {staged.receipt.batch_id}: expected values that PostgreSQL can hold, found {found}. {advice}"
    )


def as_text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def bad_value(batch: pa.RecordBatch, name: str, row: int, found: str) -> ColumnsChangedError:
    topic, partition, offset = (batch.column(each)[row] for each in POSITION)
    select = f"{{name: {name}, type: string, sql: \"translate(`{name}`, chr(0), '')\"}}"
    is_event = CHANGE in batch.schema.names  # whose columns are within the record's value
    is_text = found == A_NUL and not is_event and pa.types.is_string(batch.column(name).type)
    also = f"Let the feed leave the character out (select: [{select}], keep_other_columns: true). Or: " * is_text
    return ColumnsChangedError(
        f"{topic}-{partition}@{offset}: expected values that PostgreSQL can hold, found {found} in column {name}. "
        f"{also}{LEAVE_OUT}"
    )
