"""The positions of all rows of an output, as runs of offsets by partition and batch. Importing this imports pyarrow.

Rows become runs as they come, in whatever order; only the runs are kept, and compared at the end. 10 million dense rows
take as long as reading their offsets; what a row group's statistics say of its other columns is not read.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.foundation.storage import Opened, open_to_read
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.proof import HeldLog, OffsetRuns
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.tables.replaced_rows import TYPES

OFFSET = "kafka_offset"
PARTS = ("kafka_topic", "kafka_topic_id", "kafka_partition", BATCH_COLUMN)
"""The columns that say whose offset a row has. Earlier versions wrote no id, other programs may leave out the batch."""
NEEDED = ("kafka_topic", "kafka_partition", OFFSET)
ONE = pa.scalar(1, pa.int64())
AT_ONCE = 10_000
"""So many tables of runs become one: each takes 3 KB, also with a single run, and there may be a million files."""

TopicIds = Callable[[UUID | None, str], str | None]
"""Finds the id of a topic by the batch that has read it, for rows that do not say it."""
Log = tuple[str, str | None, int]
Columns = Mapping[str, Any]
"""The columns of some rows: an array, or the one value that all of them have."""


class FoundOffsets:
    """Takes rows in. ``problems`` are files that cannot be read, ``foreign_rows`` those without a position."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.foreign_rows = 0
        self._whose: dict[tuple[Log, UUID | None], int] = {}
        self._files: list[str] = []
        self._runs: list[pa.Table] = []

    def add_file(self, name: str, path: Opened, known: Mapping[str, object]) -> None:
        """Take a Parquet file's rows in; ``known`` are values that all its rows have, if it has not their column."""
        with self.noted(name), open_to_read(path) as source, pyarrow.parquet.ParquetFile(source) as file:
            there = file.schema_arrow.names
            if lacking := [each for each in NEEDED if each not in {*there, *known}]:
                raise ValueError(f"none with a column {', '.join(lacking)}")
            for number in range(file.num_row_groups):
                found = {**known, **constants(file.metadata.row_group(number))}
                read = [each for each in (*PARTS, OFFSET) if each in there and each not in found]
                self.add(name, file.read_row_group(number, columns=read), found)

    @contextlib.contextmanager
    def noted(self, name: str) -> Iterator[None]:
        """Note what reading a damaged or missing file raises; errors of the storage itself are left."""
        try:
            yield
        except (pa.ArrowException, ValueError, TypeError, OSError) as error:
            # Arrow raises OSError for damage, too, but only the system's errors have a number.
            if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
                raise
            self.problems.append(f"{name}: expected a file with the positions of records, found {error}")

    def add(self, name: str, rows: pa.Table, known: Mapping[str, object]) -> None:
        """Take some rows of a file in; ``known`` are the values of columns that all of them have."""
        columns: dict[str, Any] = {each: known.get(each) for each in PARTS}
        for each in {*PARTS, OFFSET}.intersection(rows.column_names):
            column: Any = rows[each].cast(TYPES[each]).combine_chunks()
            columns[each] = column if each in NEEDED else pc.fill_null(column, pa.scalar(""))
        needed = [columns.get(each) for each in NEEDED]
        if any(each is None for each in needed):
            self.foreign_rows += len(rows)
            return
        arrays = [each for each in needed if isinstance(each, pa.Array)]
        if any(each.null_count for each in arrays):
            placed = reduce(pc.and_, map(pc.is_valid, arrays))
            columns = {
                each: column.filter(placed) if isinstance(column, pa.Array) else column
                for each, column in columns.items()
            }
            self.foreign_rows += len(rows) - len(columns[OFFSET])
        if len(columns[OFFSET]):
            self._add_runs(name, columns.pop(OFFSET), columns)

    def _add_runs(self, name: str, offsets: Any, columns: Columns) -> None:  # noqa: ANN401 - Arrow's own
        arrays = [each for each in columns.values() if isinstance(each, pa.Array)]
        breaks: list[Any] = [pc.not_equal(pc.subtract(offsets[1:], offsets[:-1]), ONE)]
        breaks += [pc.not_equal(each[1:], each[:-1]) for each in arrays]
        broken: Any = pc.indices_nonzero(reduce(pc.or_, breaks))
        last = pa.concat_arrays([broken.cast(pa.int64()), pa.array([len(offsets) - 1])])
        first = pa.concat_arrays([pa.array([0]), pc.add(last[:-1], ONE)])
        columns = {k: each.take(first) if isinstance(each, pa.Array) else each for k, each in columns.items()}
        if self._files[-1:] != [name]:
            self._files.append(name)
        runs = {
            "whose": self._whose_are(len(first), columns),
            "file": pa.repeat(pa.scalar(len(self._files) - 1, pa.int32()), len(first)),
            "start": offsets.take(first),
            "end": pc.add(offsets.take(last), ONE),
        }
        self._runs.append(pa.table(runs))
        if len(self._runs) == AT_ONCE:
            self._runs = [pa.concat_tables(self._runs).combine_chunks()]

    def _whose_are(self, rows: int, columns: Columns) -> Any:  # noqa: ANN401 - Arrow's own
        codes: Any = pa.repeat(pa.scalar(0, pa.int64()), rows)
        values: list[list[Any]] = []
        for column in (columns[each] for each in PARTS):
            encoded = column.dictionary_encode() if isinstance(column, pa.Array) else None
            values.append([column] if encoded is None else encoded.dictionary.to_pylist())
            if encoded is not None:
                codes = pc.add(pc.multiply(codes, len(values[-1])), encoded.indices.cast(pa.int64()))
        different = codes.dictionary_encode()
        numbers = [self._number(parts_of(code, values)) for code in different.dictionary.to_pylist()]
        return pa.array(numbers, pa.int32()).take(different.indices)

    def _number(self, parts: list[Any]) -> int:
        topic, topic_id, partition, batch = parts
        return self._whose.setdefault(((topic, topic_id or None, partition), batch_named(batch)), len(self._whose))

    def held(self, topic_ids: TopicIds) -> list[HeldLog]:
        if not self._runs:
            return []
        whose = list(zip(with_ids(self._whose, topic_ids), (batch for _, batch in self._whose), strict=True))
        logs = sorted({log for log, _ in whose}, key=str)
        # In the order of logs and of batches, whose ids have a time: then runs mostly are in order, too.
        places = sorted(set(whose), key=lambda each: (str(each[0]), str(each[1])))
        log_at = {log: number for number, log in enumerate(logs)}
        place_at = {place: number for number, place in enumerate(places)}
        runs = pa.concat_tables(self._runs).combine_chunks()
        runs = with_codes(runs, "log", [log_at[log] for log, _ in whose], "whose")
        runs = with_codes(runs, "place", [place_at[place] for place in whose], "whose")
        spans: list[list[tuple[str, int, int]]] = [[] for _ in logs]
        files: Any = runs.group_by(["log", "file"]).aggregate([("start", "min"), ("end", "max")])
        for each in files.sort_by("start_min").to_pylist():
            spans[each["log"]].append((self._files[each["file"]], each["start_min"], each["end_max"]))
        batches: list[dict[UUID | None, OffsetRuns]] = [{} for _ in logs]
        runs = in_order(runs, "place")
        for number, starts, ends in slices(runs, "place"):
            log, batch = places[number]
            batches[log_at[log]][batch] = joined(starts, ends)
        found: list[HeldLog] = []
        runs = with_codes(runs, "log", [log_at[log] for log, _ in places], "place")
        for number, starts, ends in slices(in_order(runs, "log"), "log"):
            topic, topic_id, partition = logs[number]
            rows = pc.sum(pc.subtract(ends, starts)).as_py()
            of_log = joined(starts, ends), doubled_in(starts, ends), batches[number], spans[number]
            found.append(HeldLog(TopicPartition(topic, partition), topic_id, rows, *of_log))
        return found


def constants(group: pyarrow.parquet.RowGroupMetaData) -> dict[str, object]:
    found: dict[str, object] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        said: Any = column.statistics
        if column.path_in_schema not in PARTS or said is None or not (said.has_min_max and said.has_null_count):
            continue
        if said.min == said.max and not said.null_count:
            found[column.path_in_schema] = said.min
    return found


def parts_of(code: int, values: list[list[Any]]) -> list[Any]:
    parts: list[Any] = []
    for each in reversed(values):
        code, which = divmod(code, len(each))
        parts.append(each[which])
    return parts[::-1]


def batch_named(text: str | None) -> UUID | None:
    """Return a batch's id; None where a row names none, or something else."""
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def with_ids(whose: Iterable[tuple[Log, UUID | None]], topic_ids: TopicIds) -> list[Log]:
    """Return the logs with their topics' ids: the row's, the batch's, or the only one that is known of that topic."""
    logs = [(topic, found or topic_ids(batch, topic), number) for (topic, found, number), batch in whose]
    known: dict[str, set[str]] = {}
    for topic, topic_id, _ in logs:
        known.setdefault(topic, set()).update([topic_id] if topic_id else [])
    only = {topic: next(iter(ids)) for topic, ids in known.items() if len(ids) == 1}
    return [(topic, topic_id or only.get(topic), number) for topic, topic_id, number in logs]


def with_codes(runs: pa.Table, name: str, codes: list[int], by: str) -> pa.Table:
    return runs.append_column(name, pa.array(codes, pa.int32()).take(runs[by]))


def in_order(runs: pa.Table, column: str) -> pa.Table:
    """Return runs by a column and their starts; most are in that order, and sorting takes longer than reading them."""
    runs = runs.select([column, "start", "end"])
    whose, starts = (runs[each].combine_chunks() for each in (column, "start"))
    same = pc.and_(pc.equal(whose[1:], whose[:-1]), pc.greater_equal(starts[1:], starts[:-1]))
    if pc.all(pc.or_(pc.greater(whose[1:], whose[:-1]), same)).as_py() in {True, None}:
        return runs
    if len(scattered := offset_by_offset(runs, column)):
        return scattered
    return runs.sort_by([(column, "ascending"), ("start", "ascending")])


def offset_by_offset(runs: pa.Table, column: str) -> pa.Table:
    """Return runs of one offset each, in order; none where that is not faster, or the numbers are too large.

    Shuffled rows are nearly all runs of their own. Numbers are sorted ten times as fast as rows with several columns.
    """
    whose, starts, ends = (runs[each].to_numpy().astype(np.int64) for each in (column, "start", "end"))
    lengths, base = ends - starts, starts.min()
    span = ends.max() - base
    if lengths.sum() > 2 * len(runs) or (int(whose.max()) + 1) * int(span) >= 2**63:
        return runs.slice(0, 0)
    found = np.repeat(whose * span + starts - base, lengths)
    found += np.arange(len(found)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found.sort()
    whose, starts = np.divmod(found, span)
    starts += base
    return pa.table({column: whose.astype(np.int32), "start": starts, "end": starts + 1})


def slices(runs: pa.Table, column: str) -> Iterator[tuple[int, Any, Any]]:
    starts, ends = (runs[each].combine_chunks() for each in ("start", "end"))
    reached = 0
    counts: Any = runs[column].value_counts()
    for each in counts.to_pylist():
        yield each["values"], starts.slice(reached, each["counts"]), ends.slice(reached, each["counts"])
        reached += each["counts"]


def doubled_in(starts: Any, ends: Any) -> OffsetRuns:  # noqa: ANN401 - Arrow's own
    """Return the offsets of more than one of some runs that are sorted by their starts."""
    before = pc.cumulative_max(ends)[:-1]
    twice = pc.less(starts[1:], before)
    return joined(starts[1:].filter(twice), pc.min_element_wise(ends[1:], before).filter(twice))


def joined(starts: Any, ends: Any) -> OffsetRuns:  # noqa: ANN401 - Arrow's own
    """Return the same offsets in as few runs as can be; they are sorted by their starts."""
    reach = pc.cumulative_max(ends)
    opens = pc.greater(starts[1:], reach[:-1])
    found = [starts[:1], starts[1:].filter(opens)], [reach[:-1].filter(opens), reach[-1:]]
    return OffsetRuns(*(integers(pa.concat_arrays(each)) for each in found))


def integers(array: Any) -> memoryview:  # noqa: ANN401 - Arrow's own
    """Return the 64-bit integers of an array without nulls, where Arrow has them."""
    return memoryview(array.buffers()[1]).cast("q")[array.offset : array.offset + len(array)]
