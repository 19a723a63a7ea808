"""JSON objects in Arrow batches: what Spark's Python workers read and write, many records at a time.

This module is sent to the workers by value, as :mod:`~.protobuf_batches` is. Arrow reads objects of a schema strictly:
a name twice, a name that the schema does not have, a number that its type cannot hold, half a character, or anything
after a value is an error. It reads one text with all objects of a batch, so no record may complete another: each
begins with ``{`` and ends with ``}``, JSON's strings hold no line's end, and there are as many objects as records.

Where that is not certain of all records of a batch, none of them is taken: Spark decodes these, and says what is dead.
Several of Spark's batches are read as one; where that one is not taken, each is read alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyspark import AccumulatorParam, TaskContext

VALUE, KEY = "value", "key"
IS_LARGE = "kafka_is_large"
"""Of a record too large for a batch: its bytes are not in it, and it is not taken."""

FOLDER = "kafka_folder"
"""Where a table has partitions, the folder of the record's own, with a slash at its end."""

MOST_FOLDERS = 8
"""A task has no more files open; batches with records of others are left to Spark, which sorts them."""

HEAD_BYTES, ID_HEADER = 5, "__value_schema_id"
"""Where the schema id of a value is: before it, or in a header, which would count instead (:mod:`~.schema_ids`)."""

DICTIONARY_BYTES = 256 * 1024
"""How large a column's dictionary may be: with Arrow's 1 MiB, values that differ take a fifth longer to be written."""

LONGEST_NUMBER = 1_000
LONG_NUMBER = "[-+.eE0-9]{1000}"

TOGETHER_BYTES = 4 * 1024 * 1024
"""How much of Spark's batches is read as one: the more, the less time an object takes, up to about here."""

ALONE = 50
"""After a batch that could not be taken, as many are read alone: others like it may follow."""

SEEN = 10_000
"""After as many records, most of which are large, all are left to Spark."""

TRIED = 8
"""After as many batches, of which most could not be taken, a task takes no more."""

MODE = 0o644
"""Of files: Spark's have it, whatever the umask."""

Column = Any
"""An array of Arrow's; the stubs know fewer methods than it has."""


@dataclass(frozen=True)
class SentObjects:
    """What workers are sent. ``fields``: Arrow's schema of the objects. ``constants``: columns that are not sent.

    ``heads``: how values begin, where schema ids are before them. ``given``: the columns that are given back.
    ``columns``: the names of the rows' columns in their order; :data:`VALUE` is where the object goes, as its fields
    where ``flatten`` is set. ``required``: those that are never null. ``row_group_bytes``: how much is kept until it is
    written, as Arrow has it. ``written`` and ``large`` are Spark's accumulators, and so is ``found``: a bit for each
    field that has a value in some row.
    """

    file_prefix: str
    file_suffix: str
    fields: Any
    heads: Sequence[bytes]
    given: Sequence[str]
    constants: Mapping[str, str | None]
    columns: Sequence[str]
    required: frozenset[str]
    without_dictionary: frozenset[str]
    without_statistics: frozenset[str]
    row_group_bytes: int
    flatten: bool
    key_is_text: bool
    written: Any
    large: Any
    found: Any


class EitherOf(AccumulatorParam[int]):
    """Of bits those that some task has set."""

    def zero(self, value: int) -> int:
        """Return where it begins."""
        return value

    def addInPlace(self, value1: int, value2: int) -> int:  # noqa: N802 - Spark's name
        """Return the bits that one of both has."""
        return value1 | value2


class ManyLargeRecordsError(Exception):
    """Most records that a task has seen are too large for a batch."""


def objects_of(values: Column, fields: pa.Schema) -> pa.RecordBatch | None:
    """Return the objects of records, none of which is null; None where not all of them certainly fit."""
    rows = len(values)
    if not rows:
        return pa.RecordBatch.from_pylist([], fields)
    texts = as_text(values)
    if (
        texts is None
        or not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py()
        or has_long_number(texts)
    ):
        return None
    one_list: Column = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), texts)
    joined: Column = pc.binary_join(one_list, "\n")
    together = joined.buffers()[2]
    try:
        read = pj.read_json(
            pa.BufferReader(together),  # type: ignore[arg-type]  # the stubs know none of Arrow's own files
            read_options=pj.ReadOptions(use_threads=False, block_size=together.size),
            parse_options=pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="error"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):  # the latter where its own message quotes half a character
        return None
    if read.num_rows != rows:
        return None
    [objects] = read.combine_chunks().to_batches()
    return objects if all(map(is_certain, objects.columns)) else None


def as_text(column: Column) -> Column | None:
    """Return bytes as texts; None where some are no UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def has_long_number(texts: Column) -> bool:
    """Whether there may be a number of more than 1,000 characters, which Spark's reader refuses (Jackson's limit)."""
    lengths: Column = pc.binary_length(texts)
    longest: int = pc.max(lengths).as_py()
    return longest > LONGEST_NUMBER and bool(pc.any(pc.match_substring_regex(texts, LONG_NUMBER)).as_py())


def is_certain(column: Column) -> bool:
    """Whether all numbers in a column are as Spark reads them.

    Arrow reads ``NaN`` and ``Infinity``, which are no JSON; and of ``-0``, without a fraction, Spark makes 0.0.
    """
    if pa.types.is_struct(column.type):
        return all(map(is_certain, column.flatten()))
    if not pa.types.is_floating(column.type):
        return True
    # Of nothing but nulls each answer is null.
    return pc.all(pc.is_finite(column)).as_py() is not False and not has_minus_zero(column)


def has_minus_zero(column: Column) -> bool:
    """Whether a zero in a column has a sign."""
    zeros: Column = column.filter(pc.equal(column, pa.scalar(0.0)))
    signed: Column = pc.divide(pa.scalar(1.0), zeros)
    return len(zeros) > 0 and pc.any(pc.less(signed, pa.scalar(0.0))).as_py() is True


def rows_of(batch: pa.RecordBatch, sent: SentObjects) -> pa.RecordBatch | None:
    """Return the rows that records become; None where not all of them certainly fit."""
    values: Column = batch.column(VALUE)
    is_there = values.is_valid()
    bodies = bodies_after(values.drop_null(), batch, sent) if sent.heads else values.drop_null()
    objects = None if bodies is None else objects_of(bodies, sent.fields)
    key = as_text(batch.column(KEY)) if sent.key_is_text and KEY in sent.columns else batch.column(KEY)
    if objects is None or key is None:
        return None
    if values.null_count:
        places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int32())), pa.scalar(1, pa.int32()))
        objects = objects.take(pc.if_else(is_there, places, pa.scalar(None, pa.int32())))
    columns: dict[str, Column] = {}
    for name in sent.columns:
        if name == VALUE and sent.flatten:
            columns.update(zip(sent.fields.names, objects.columns, strict=True))
        elif name == VALUE:
            is_null = pc.invert(is_there) if values.null_count else None
            columns[name] = pa.StructArray.from_arrays(objects.columns, fields=list(sent.fields), mask=is_null)
        elif name in sent.constants:
            columns[name] = repeated(sent.constants[name], batch.num_rows)
        else:
            # A slice would keep all of its batch in memory, with the bytes of the values, until it is written.
            columns[name] = (key if name == KEY else batch.column(name)).copy_to(pa.default_cpu_memory_manager())
    fields = [pa.field(name, column.type, nullable=name not in sent.required) for name, column in columns.items()]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def bodies_after(values: Column, batch: pa.RecordBatch, sent: SentObjects) -> Column | None:
    """Return what stands after schema ids; None where some record has another one, or an id in a header."""
    heads = pc.is_in(pc.binary_slice(values, 0, HEAD_BYTES), pa.array(sent.heads, pa.binary()))
    headers: Column = pc.list_flatten(batch.column("kafka_headers"))
    in_headers = pc.equal(headers.field("key"), pa.scalar(ID_HEADER))
    is_certain = pc.all(heads, min_count=0).as_py() and not pc.any(in_headers).as_py()
    return pc.binary_slice(values, HEAD_BYTES) if is_certain else None


def found_in(columns: Iterable[Column]) -> Iterator[bool]:
    """Yield whether some row has a value in each column, and after it in each field within."""
    for column in columns:
        yield column.null_count < len(column)
        if pa.types.is_struct(column.type):
            yield from found_in(column.flatten())


def leaves(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the paths of the columns that a column of a type has in Parquet."""
    column: Any = kind
    if pa.types.is_struct(kind):
        for place in range(column.num_fields):
            yield from leaves(column.field(place).type, f"{path}.{column.field(place).name}")
    elif pa.types.is_list(kind):
        yield from leaves(column.value_type, f"{path}.list.element")
    else:
        yield path


def repeated(text: str | None, rows: int) -> Column:
    """Return a column with the same text in each row, which takes little to make and to write."""
    texts = pa.array([] if text is None else [text], pa.string())
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(None if text is None else 0, pa.int8()), rows), texts)


class ObjectFile:
    """A Parquet file of a task; made once there is something to write."""

    def __init__(self, path: str, sent: SentObjects) -> None:
        self._path = path
        self._sent = sent
        self._writer: pq.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, at_most: int) -> None:
        """Write rows, together with others once they are ``at_most`` bytes, a row group's."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= at_most:
            self._write()

    def close(self) -> None:
        """Write what is left, and the file's end."""
        if self._batches:
            self._write()
        if self._writer is not None:
            self._writer.close()
            Path(self._path).chmod(MODE)

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._batches)
        if self._writer is None:
            sent = self._sent
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            paths = [path for each in rows.schema for path in leaves(each.type, each.name)]
            self._writer = pq.ParquetWriter(
                self._path,
                rows.schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[path for path in paths if path not in sent.without_dictionary],  # type: ignore[arg-type]
                write_statistics=[path for path in paths if path not in sent.without_statistics],
                dictionary_pagesize_limit=DICTIONARY_BYTES,
                write_page_index=True,
                store_schema=False,
            )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._batches, self._bytes = [], 0


def in_task(batches: Iterable[pa.RecordBatch], sent: SentObjects) -> Iterator[pa.RecordBatch]:
    """Do the same with a task's own file; a task that is run again writes the same one."""
    task: Any = TaskContext.get()
    return other_records(batches, sent, f"{sent.file_prefix}{task.partitionId():05d}{sent.file_suffix}")


def other_records(batches: Iterable[pa.RecordBatch], sent: SentObjects, path: str) -> Iterator[pa.RecordBatch]:
    """Write the records of batches that certainly fit to a file, and yield the others.

    Records that are large are neither. Raises ManyLargeRecordsError where most are.
    """
    pa.set_cpu_count(1)
    records = TakenRecords(path, sent)
    for batch in without_large(batches, sent):
        yield from records.add(batch)
    yield from records.close()


def without_large(batches: Iterable[pa.RecordBatch], sent: SentObjects) -> Iterator[pa.RecordBatch]:
    """Yield the records of batches that are not large, and count the others."""
    seen = large = 0
    for given in batches:
        seen += given.num_rows
        batch, is_large = given.drop_columns([IS_LARGE]), given.column(IS_LARGE)
        if pc.any(is_large).as_py():
            batch = batch.filter(pc.invert(is_large))
            large += given.num_rows - batch.num_rows
            if seen >= SEEN and large * 2 > seen:
                raise ManyLargeRecordsError
        if batch.num_rows:
            yield batch
    sent.large.add(large)


class TakenRecords:
    """The records of a task that become rows of its files. Each method yields batches that do not."""

    def __init__(self, path: str, sent: SentObjects) -> None:
        self._path = Path(path)
        self._files: dict[str, ObjectFile] = {}
        self._sent = sent
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._alone = 0
        self._taken = self._left = self._written = self._found = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take the records of a batch, with others once they are enough."""
        size = batch.nbytes
        if size >= TOGETHER_BYTES:
            yield from self._take()
        self._waiting.append(batch)
        self._bytes += size
        if self._alone or self._bytes >= TOGETHER_BYTES:
            yield from self._take()

    def close(self) -> Iterator[pa.RecordBatch]:
        """Take what is left, and write the files' ends."""
        yield from self._take()
        for file in self._files.values():
            file.close()
        self._sent.written.add(self._written)
        self._sent.found.add(self._found)

    def _take(self) -> Iterator[pa.RecordBatch]:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if len(waiting) > 1 and self._is_written(as_one(waiting)):
            self._taken += len(waiting)
            return
        for batch in waiting:
            gives_up = self._left >= TRIED and self._left > self._taken
            if not gives_up and self._is_written(batch):
                self._taken += 1
                self._alone = max(self._alone - 1, 0)
            else:
                self._left += 1
                self._alone = ALONE
                yield batch.select(self._sent.given)

    def _is_written(self, batch: pa.RecordBatch) -> bool:
        """Whether all records of a batch certainly fit, and are rows of files."""
        rows = rows_of(batch, self._sent)
        folders: Column = batch.column(FOLDER) if FOLDER in batch.schema.names else None
        names = [""] if folders is None else pc.unique(folders).to_pylist()
        if rows is None or len(self._files.keys() | set(names)) > MOST_FOLDERS:
            return False
        for name in names:
            path = self._path.parent / name / self._path.name
            file = self._files.setdefault(name, ObjectFile(str(path), self._sent))
            is_in_folder: Column = pc.equal(folders, pa.scalar(name)) if len(names) > 1 else None
            own = rows if is_in_folder is None else rows.filter(is_in_folder)
            file.add(own, self._sent.row_group_bytes // len(self._files))
        self._written += rows.num_rows
        names, is_flat = self._sent.fields.names, self._sent.flatten
        value: Column = None if is_flat else rows.column(VALUE)
        fields = [rows.column(name) for name in names] if is_flat else value.flatten()
        self._found |= sum(found << bit for bit, found in enumerate(found_in(fields)))
        return True


def as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the records of batches as one."""
    [together] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return together
