"""JSON objects in Arrow batches: what Spark's Python workers read, and may write, many records at a time.

This module is sent to the workers by value, as :mod:`~.protobuf_batches` is. Arrow reads objects of a schema strictly:
a name twice, a number that its type cannot hold, half a character, or anything after a value is an error, and a name
that the schema does not have where that is asked. It reads one text with all objects of a batch, so no record may
complete another: each begins with ``{`` and ends with ``}``, JSON's strings hold no line's end, and there are as many
objects as records.

Where that is not certain of all records of a batch, none of them is taken: Spark decodes these, and says what is dead.
Several of Spark's batches are read as one; where that one is not taken, each is read alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

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
"""Of more characters Spark's reader refuses one (Jackson's limit)."""

LONGEST = 2_000_000
"""From as many bytes on a text may have too many elements (MANY_BYTES)."""

SURE_LEVELS = 900
"""Of a text in which all of ``{`` and ``[`` together are no more, none is too deep (MOST_LEVELS)."""

NO_NUMBER = r"[\[:,\s]-?(NaN|Inf)"
"""What Arrow reads as a number, and JSON does not have."""

SPACE = " \t\r\n"

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

Made = TypeVar("Made")
Column = Any
"""An array of Arrow's; the stubs know fewer methods than it has."""


@dataclass(frozen=True)
class SentObjects:
    """What workers are sent. ``fields``: Arrow's schema of the objects, which ``may_have_unknown`` ones besides.

    ``heads``: how values begin, where schema ids are before them. ``constants``: columns that are not sent. ``given``:
    those that are given back. ``columns``: the names of the rows' columns in their order; :data:`VALUE` is where the
    object goes, as its fields where ``flatten`` is set. ``required``: those that are never null. ``row_group_bytes``:
    how much is kept until it is written, as Arrow has it. ``written`` and ``large`` are Spark's accumulators, and so is
    ``found``: a bit for each field that has a value in some row.
    """

    file_prefix: str
    file_suffix: str
    fields: Any
    may_have_unknown: bool
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
        return value

    def addInPlace(self, value1: int, value2: int) -> int:  # noqa: N802 - Spark's name
        return value1 | value2


class ManyLargeRecordsError(Exception):
    """Most records that a task has seen are too large for a batch."""


@dataclass(frozen=True)
class ObjectColumn:
    """Objects that workers read and hand back, as the column ``name``. ``body``: the column of their bytes."""

    name: str
    body: str
    fields: Any
    may_have_unknown: bool


def with_objects(
    batches: Iterable[pa.RecordBatch], columns: Sequence[ObjectColumn], *, with_bytes: bool
) -> Iterator[pa.RecordBatch]:
    """Yield batches with more columns at their end, of ``struct<fits, sure, value>``, as Spark is given them.

    ``fits``: the object is exactly what ``value`` says. ``sure``: no name of it is that of a null field in other case.
    Without ``with_bytes`` those of objects that fit are none, which is less to hand back.
    """
    pa.set_cpu_count(1)
    for batch, read in Attempts(lambda batch: read_beside(batch, columns)).each(batches):
        found = read or [unread(batch.num_rows, each.fields) for each in columns]
        emptied = {each.body for each in columns} if read and not with_bytes else set()
        names = batch.schema.names
        given = [
            emptied_of(column) if name in emptied else column for name, column in zip(names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays([*given, *found], names=[*names, *(each.name for each in columns)])


def emptied_of(column: Column) -> Column:
    """Return no bytes where there are some, null where there are none."""
    return pc.if_else(column.is_valid(), pa.scalar(b""), pa.scalar(None, pa.binary()))


def read_beside(batch: pa.RecordBatch, columns: Sequence[ObjectColumn]) -> list[Column] | None:
    """Return the objects of each column; None where not all of them certainly fit."""
    found = []
    for each in columns:
        bodies: Column = batch.column(each.body)
        objects, is_sure = objects_of(bodies.drop_null(), each.fields, may_have_unknown=each.may_have_unknown)
        if objects is None:
            return None
        value: Column = pa.StructArray.from_arrays(objects.columns, fields=list(each.fields))
        found.append(of_each(in_place(value, bodies.is_valid()), fits=True, sure=is_sure))
    return found


def unread(rows: int, fields: pa.Schema) -> Column:
    """Return what Spark is given of records that do not all certainly fit."""
    return of_each(pa.nulls(rows, pa.struct(list(fields))), fits=False, sure=False)


def of_each(values: Column, *, fits: bool, sure: bool) -> Column:
    flags = (pa.repeat(pa.scalar(flag), len(values)) for flag in (fits, sure))
    return pa.StructArray.from_arrays([*flags, values], names=["fits", "sure", "value"])


def in_place(values: Column, is_there: Column) -> Column:
    """Return the values of records, null of those that have none."""
    if len(values) == len(is_there):
        return values
    places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int32())), pa.scalar(1, pa.int32()))
    return values.take(pc.if_else(is_there, places, pa.scalar(None, pa.int32())))


def objects_of(
    values: Column, fields: pa.Schema, *, may_have_unknown: bool = False
) -> tuple[pa.RecordBatch | None, bool]:
    """Return the objects of records, none of which is null, and whether all of their names are known.

    None where not all of them certainly fit.
    """
    rows = len(values)
    if not rows:
        return pa.RecordBatch.from_pylist([], fields), True
    texts = as_objects(values)
    if texts is None:
        return None, False
    one_list: Column = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), texts)
    joined: Column = pc.binary_join(one_list, "\n")
    together = joined.buffers()[2]
    found = read_as_one(together, rows, fields, "error")
    if found is not None or not may_have_unknown or not unknown_is_json(texts):
        return found, True
    return read_as_one(together, rows, fields, "ignore"), False


def read_as_one(together: pa.Buffer, rows: int, fields: pa.Schema, unknown: Any) -> pa.RecordBatch | None:  # noqa: ANN401 - one of two texts
    """Return the objects of a text, None where it has others, or not as many."""
    try:
        read = pj.read_json(
            pa.BufferReader(together),  # type: ignore[arg-type]  # the stubs know none of Arrow's own files
            read_options=pj.ReadOptions(use_threads=False, block_size=together.size),
            parse_options=pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior=unknown),
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


def as_objects(values: Column) -> Column | None:
    """Return texts that begin and end as objects do, and are not too long; None where some are none."""
    texts = as_text(values)
    if texts is not None and not are_braced(texts):
        texts = pc.ascii_trim(texts, SPACE)
        texts = texts if are_braced(texts) else None
    if texts is None:
        return None
    lengths: Column = pc.binary_length(texts)
    longest: int = pc.max(lengths).as_py()
    has_long_number = longest > LONGEST_NUMBER and pc.any(pc.match_substring_regex(texts, LONG_NUMBER)).as_py()
    return None if has_long_number or longest >= LONGEST else texts


def are_braced(texts: Column) -> bool:
    """Whether texts begin and end as objects do."""
    return bool(pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py())


def unknown_is_json(texts: Column) -> bool:
    """Whether fields that are not read are certainly JSON: no other numbers, and not too deep."""
    words = pc.or_(pc.match_substring(texts, "NaN"), pc.match_substring(texts, "Inf"))
    if pc.any(words).as_py() and pc.any(pc.match_substring_regex(texts, NO_NUMBER)).as_py():
        return False
    lengths: Column = pc.binary_length(texts)
    if pc.max(lengths).as_py() <= SURE_LEVELS:
        return True
    levels: Column = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    return bool(pc.max(levels).as_py() <= SURE_LEVELS)


def is_certain(column: Column) -> bool:
    """Whether all numbers in a column are as Spark reads them.

    Arrow reads ``NaN`` and ``Infinity``, which are no JSON, and decimals of more digits; and of ``-0``, without a
    fraction, Spark makes 0.0.
    """
    if pa.types.is_struct(column.type):
        return all(map(is_certain, column.flatten()))
    if pa.types.is_list(column.type):
        return is_certain(column.flatten())
    if pa.types.is_decimal(column.type):
        return has_its_digits(column)
    if not pa.types.is_floating(column.type):
        return True
    # Of nothing but nulls each answer is null.
    return pc.all(pc.is_finite(column)).as_py() is not False and not has_minus_zero(column)


def has_its_digits(column: Column) -> bool:
    """Whether decimals have no more digits than their type."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def has_minus_zero(column: Column) -> bool:
    zeros: Column = column.filter(pc.equal(column, pa.scalar(0.0)))
    signed: Column = pc.divide(pa.scalar(1.0), zeros)
    return len(zeros) > 0 and pc.any(pc.less(signed, pa.scalar(0.0))).as_py() is True


def rows_of(batch: pa.RecordBatch, sent: SentObjects) -> pa.RecordBatch | None:
    """Return the rows that records become; None where not all of them certainly fit."""
    values: Column = batch.column(VALUE)
    is_there = values.is_valid()
    bodies = bodies_after(values.drop_null(), batch, sent) if sent.heads else values.drop_null()
    if bodies is None:
        return None
    objects, is_sure = objects_of(bodies, sent.fields, may_have_unknown=sent.may_have_unknown)
    key = as_text(batch.column(KEY)) if sent.key_is_text and KEY in sent.columns else batch.column(KEY)
    # A name that is not known may be that of a field that is missing, in other case.
    if objects is None or key is None or not (is_sure or all(not each.null_count for each in objects.columns)):
        return None
    objects = in_place(objects, is_there)
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
    files = ObjectFiles(path, sent)
    for batch, written in Attempts(files.written).each(without_large(batches, sent)):
        if written is None:
            yield batch.select(sent.given)
    files.close()


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


class Attempts(Generic[Made]):
    """Makes something of batches: of several as one where that can be done, else of each alone.

    ``attempt`` returns None of a batch of which it makes nothing. Where that is so of most, the others are not tried.
    """

    def __init__(self, attempt: Callable[[pa.RecordBatch], Made | None]) -> None:
        self._attempt = attempt
        self._alone = self._taken = self._left = 0

    def each(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Made | None]]:
        """Yield batches, in their order, and what was made of them."""
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for batch in batches:
            if batch.nbytes >= TOGETHER_BYTES:
                yield from self._made_of(waiting)
                waiting, waiting_bytes = [], 0
            waiting.append(batch)
            waiting_bytes += batch.nbytes
            if self._alone or waiting_bytes >= TOGETHER_BYTES:
                yield from self._made_of(waiting)
                waiting, waiting_bytes = [], 0
        yield from self._made_of(waiting)

    def _made_of(self, waiting: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Made | None]]:
        if len(waiting) > 1 and (made := self._attempt(together := as_one(waiting))) is not None:
            self._taken += len(waiting)
            yield together, made
            return
        for batch in waiting:
            gives_up = self._left >= TRIED and self._left > self._taken
            made = None if gives_up else self._attempt(batch)
            if made is None:
                self._left += 1
                self._alone = ALONE
            else:
                self._taken += 1
                self._alone = max(self._alone - 1, 0)
            yield batch, made


class ObjectFiles:
    """The files of a task, one for each folder."""

    def __init__(self, path: str, sent: SentObjects) -> None:
        self._path = Path(path)
        self._files: dict[str, ObjectFile] = {}
        self._sent = sent
        self._written = self._found = 0

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._sent.written.add(self._written)
        self._sent.found.add(self._found)

    def written(self, batch: pa.RecordBatch) -> int | None:
        """Write all records of a batch, and return how many they are; None where they do not certainly fit."""
        rows = rows_of(batch, self._sent)
        folders: Column = batch.column(FOLDER) if FOLDER in batch.schema.names else None
        names = [""] if folders is None else pc.unique(folders).to_pylist()
        if rows is None or len(self._files.keys() | set(names)) > MOST_FOLDERS:
            return None
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
        return rows.num_rows


def as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    [together] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return together
