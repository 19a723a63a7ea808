"""Events of staged records, as columns of Arrow: of which key they are, what they do, and the row after it.

Importing this imports pyarrow.
"""

import base64
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.table_options import (
    CHANGE,
    DELETES,
    OPERATIONS,
    READS,
    TRUNCATES,
    UNAVAILABLE,
    UNAVAILABLE_COLUMNS,
    UNKNOWN,
    WRITES,
    CurrentState,
    EventLayout,
    Path,
)
from kafka_ingest.model.written_columns import POSITION, written_columns
from kafka_ingest.sinks.parquet_contents import struct_of

TEXTS = (UNAVAILABLE, base64.b64encode(UNAVAILABLE.encode()).decode())
"""What stands for an unavailable value in texts: bytes in JSON are base64."""
YES = pa.scalar(True)  # noqa: FBT003
Column = Any
"""A column of Arrow, whose stubs have no class with all that is called."""


class ChangeEvents:
    """Makes events of records with the columns of a schema; ``key``: the names of the columns of the key."""

    def __init__(self, schema: pa.Schema, state: CurrentState) -> None:
        self._state = state
        self._layout = EventLayout.of(written_columns(struct_of(schema)))
        self.key = tuple(self._layout.key)
        self.schema = self._events(pa.RecordBatch.from_pylist([], schema)).schema

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events of some records, in their order; raises ColumnsChangedError on one that cannot be one."""
        events = self._events(batch)
        change: Column = events[CHANGE]
        expected = f"one of op {', '.join(OPERATIONS)}, with the row after it, in {'.'.join(self._layout.value)}"
        self._refuse(events, is_one_of(change, UNKNOWN), expected)
        if not self._state.truncates:
            expected = "no truncation (sink.on_truncate: apply lets it remove what is older)"
            self._refuse(events, is_one_of(change, TRUNCATES), expected)
        of_row = is_one_of(change, WRITES, READS, DELETES)
        for name in self.key:
            expected = f"a key that is not null, found that {name} is"
            self._refuse(events, pc.and_(of_row, pc.is_null(events[name])), expected)
        return events

    def _refuse(self, events: pa.RecordBatch, wrong: Column, expected: str) -> None:
        if pc.any(wrong).as_py():
            row = pc.index(wrong, YES).as_py()
            topic, partition, offset = (events[name][row] for name in POSITION)
            raise ColumnsChangedError(
                f"{topic}-{partition}@{offset}: expected {expected}. A table of the newest state of each key cannot "
                "take this record. Let where leave such records out; a batch of raw records has to be abandoned before."
            )

    def _events(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        layout = self._layout
        change = self._changes(batch)
        kept = is_one_of(change, WRITES, READS)
        rows = pc.if_else(kept, pa.array(range(len(batch)), pa.int64()), None)
        state, unavailable = {}, []
        for name, path in layout.state.items():
            column = at(batch, path).take(rows)
            hidden = unavailable_in(column)
            if pc.any(hidden).as_py():
                column = column.take(pc.if_else(hidden, None, pa.array(range(len(batch)), pa.int64())))
                unavailable.append(pc.if_else(hidden, pa.scalar(name), pa.scalar("")))
            state[name] = column
        columns: dict[str, Column] = {}
        for name in batch.schema.names:
            if name == "key":
                columns |= {each: at(batch, path) for each, path in layout.key.items()}
            elif name == "value":
                columns |= state
            elif name.startswith("kafka_"):
                columns[name] = batch[name]
        columns[CHANGE] = change
        lines: Column = pc.binary_join_element_wise(*unavailable, "\n") if unavailable else None
        columns[UNAVAILABLE_COLUMNS] = lines if unavailable else pa.nulls(len(batch), pa.string())
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _changes(self, batch: pa.RecordBatch) -> Column:
        """Return what each event does; a record without a value deletes, in every form, one without payload is none."""
        layout = self._layout
        found: Column = pa.repeat(pa.scalar(WRITES), len(batch))
        if layout.operation is not None:
            places: Column = pc.index_in(at(batch, layout.operation), pa.array(list(OPERATIONS)))
            found = pa.array(list(OPERATIONS.values())).take(places)
            found = pc.fill_null(found, pa.scalar(UNKNOWN))
        if layout.row is not None:
            lacking = pc.and_(is_one_of(found, WRITES, READS), pc.is_null(at(batch, layout.row)))
            found = pc.if_else(lacking, UNKNOWN, found)
        elif layout.operation is not None:  # an unwrapped event need not say it
            found = pc.if_else(pc.is_null(at(batch, layout.operation)), WRITES, found)
        if layout.deleted is not None:
            is_deleted = is_one_of(at(batch, layout.deleted).cast(pa.string()), "true")
            found = pc.if_else(is_deleted, DELETES, found)
        found = pc.if_else(pc.is_null(at(batch, layout.value)), UNKNOWN, found)
        return pc.if_else(pc.is_null(batch[layout.value[0]]), DELETES, found)


def at(batch: pa.RecordBatch, path: Path) -> Column:
    """Return the column at a path; of a struct that is null, its fields are."""
    column: Column = batch[path[0]]
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def unavailable_in(column: Column) -> Column:
    """Return for each value whether it stands for one that Debezium does not have."""
    kind = column.type
    if pa.types.is_string(kind):
        return is_one_of(column, *TEXTS)
    if pa.types.is_binary(kind):
        return is_one_of(column, UNAVAILABLE.encode())
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        is_single = is_one_of(pc.list_value_length(column), 1)
        return is_one_of(pc.list_element(pc.if_else(is_single, column, pa.scalar([""], kind)), 0), *TEXTS)
    return pc.and_(pc.is_null(column), pc.is_valid(column))


def is_one_of(column: Column, *values: object) -> Column:
    return pc.is_in(column, pa.array(values, column.type))
