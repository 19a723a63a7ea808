"""The positions of all rows of an output, as runs of offsets by partition and batch. Importing this imports pyarrow.

Rows become runs as they come, in whatever order; only the runs are kept, and compared at the end. 10 million dense rows
take as long as reading their offsets; what a row group's statistics say of its other columns is not read.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import IO, Any
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
MOST = 2**62
"""An offset that no log reaches."""
SMALL_BYTES = 2**18
FEW = 100_000
"""Rows that threads are not worth their start for."""
AT_ONCE = 10_000
"""So many arrays of runs become one: a small one takes much more than its runs, and there may be a million files."""
Numbers = Any
"""Numpy's array of integers."""
Runs = tuple[Numbers, Numbers, Numbers, Numbers]
"""Whose they are, in which file, where they start and where they end."""

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
        self._runs: list[Runs] = []

    def add_file(self, name: str, path: Opened, known: Mapping[str, object]) -> None:
        """Take a Parquet file's rows in; ``known`` are values that all its rows have, if it has not their column."""
        with self.noted(name), open_to_read(path) as source, pyarrow.parquet.ParquetFile(small_whole(source)) as file:
            for number in range(file.num_row_groups):
                self._add_group(name, file, number, known)

    def _add_group(
        self, name: str, file: pyarrow.parquet.ParquetFile, number: int, known: Mapping[str, object]
    ) -> None:
        group = file.metadata.row_group(number)
        there = bounds_in(group)
        if lacking := [each for each in NEEDED if each not in {*there, *known}]:
            raise ValueError(f"none with a column {', '.join(lacking)}")
        one = {each: bounds[0] for each, bounds in there.items() if bounds is not None and bounds[0] == bounds[1]}
        found = {**known, **one}
        read = [each for each in PARTS if each in there and each not in found]
        if group.num_rows == 1 and not read and is_position(found):
            self._add_row(name, found)
            return
        found.pop(OFFSET, None)
        self.add(name, file.read_row_group(number, columns=[*read, OFFSET], use_threads=group.num_rows > FEW), found)

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
        if any(each is None or (isinstance(each, int) and each < 0) for each in needed):
            self.foreign_rows += len(rows)
            return
        arrays = [each for each in needed if isinstance(each, pa.Array)]
        if not all(map(all_placed, arrays)):
            placed = pc.fill_null(reduce(pc.and_, map(placed_in, arrays)), pa.scalar(value=False))
            columns = {
                each: column.filter(placed) if isinstance(column, pa.Array) else column
                for each, column in columns.items()
            }
            self.foreign_rows += len(rows) - len(columns[OFFSET])
        if len(columns[OFFSET]):
            self._add_runs(name, columns.pop(OFFSET), columns)

    def _add_row(self, name: str, found: dict[str, Any]) -> None:
        """Take in the one row of which the metadata say all: Arrow would take five times as long."""
        parts: Any = (found.get(each) for each in PARTS)
        whose, offset = self._number(*parts), found[OFFSET]
        self._keep(
            (np.array([whose], np.int32), np.array([self._file(name)], np.int32), *np.array([[offset], [offset + 1]]))
        )

    def _file(self, name: str) -> int:
        if self._files[-1:] != [name]:
            self._files.append(name)
        return len(self._files) - 1

    def _keep(self, runs: Runs) -> None:
        self._runs.append(runs)
        if len(self._runs) == AT_ONCE:
            self._runs = [self._together()]

    def _add_runs(self, name: str, offsets: Any, columns: Columns) -> None:  # noqa: ANN401 - Arrow's own
        numbers = offsets.to_numpy()
        is_broken = np.diff(numbers) != 1
        for each in columns.values():
            if isinstance(each, pa.Array):
                is_broken |= pc.not_equal(each[1:], each[:-1]).to_numpy(zero_copy_only=False)
        broken = np.flatnonzero(is_broken)
        first, last = np.append(0, broken + 1), np.append(broken, len(numbers) - 1)
        whose, files = self._whose_are(first, columns), np.full(len(first), self._file(name), np.int32)
        self._keep((whose, files, numbers[first], numbers[last] + 1))

    def _together(self) -> Runs:
        whose, files, starts, ends = (np.concatenate(each) for each in zip(*self._runs, strict=True))
        return whose, files, starts, ends

    def _whose_are(self, rows: Numbers, columns: Columns) -> Numbers:
        parts = [
            columns[each].take(pa.array(rows)).dictionary_encode() if isinstance(columns[each], pa.Array) else None
            for each in PARTS
        ]
        values = [
            [columns[name]] if part is None else part.dictionary.to_pylist()
            for name, part in zip(PARTS, parts, strict=True)
        ]
        places = [np.zeros(len(rows), int) if part is None else part.indices.to_numpy() for part in parts]
        sizes = list(map(len, values))
        codes: Any = pa.array(np.ravel_multi_index(places, sizes)).dictionary_encode()
        different = zip(*np.unravel_index(codes.dictionary.to_numpy(), sizes), strict=True)
        numbers = [self._number(*(of[place] for of, place in zip(values, each, strict=True))) for each in different]
        return np.array(numbers, np.int32)[codes.indices.to_numpy()]

    def _number(self, topic: str, topic_id: str | None, partition: int, batch: str | None) -> int:
        return self._whose.setdefault(((topic, topic_id or None, partition), batch_named(batch)), len(self._whose))

    def held(self, topic_ids: TopicIds) -> list[HeldLog]:
        """Return the logs of all rows, which are forgotten then."""
        if not self._runs:
            return []
        whose, files, starts, ends = self._together()
        self._runs = []  # which may be as large
        places = list(zip(with_ids(self._whose, topic_ids), (batch for _, batch in self._whose), strict=True))
        logs = sorted({log for log, _ in places}, key=str)
        log_at = {log: number for number, log in enumerate(logs)}
        log_of = np.array([log_at[log] for log, _ in places], np.int32)[whose]
        spans: list[list[tuple[str, int, int]]] = [[] for _ in logs]
        of_files: Any = pa.table({"log": log_of, "file": files, "start": starts, "end": ends})
        of_files = of_files.group_by(["log", "file"]).aggregate([("start", "min"), ("end", "max")])
        for each in of_files.sort_by("start_min").to_pylist():
            spans[each["log"]].append((self._files[each["file"]], each["start_min"], each["end_max"]))
        del files, of_files
        order = np.argsort(starts, kind="stable")
        whose, log_of, starts, ends = (each[order] for each in (whose, log_of, starts, ends))
        batches: list[dict[UUID | None, OffsetRuns]] = [{} for _ in logs]
        different = sorted(set(places), key=lambda each: (str(each[0]), str(each[1])))
        numbers = {place: number for number, place in enumerate(different)}
        for number, of_batch in in_groups(
            np.array([numbers[place] for place in places], np.int32)[whose], starts, ends
        ):
            log, batch = different[number]
            batches[log_at[log]][batch] = joined(*of_batch)
        found: list[HeldLog] = []
        for number, of_log in in_groups(log_of, starts, ends):
            topic, topic_id, partition = logs[number]
            rows = int((of_log[1] - of_log[0]).sum())
            parts = joined(*of_log), doubled_in(*of_log), batches[number], spans[number]
            found.append(HeldLog(TopicPartition(topic, partition), topic_id, rows, *parts))
        return found


def all_placed(column: Any) -> bool:  # noqa: ANN401 - Arrow's own
    """Whether each of some topics, partitions or offsets is one that Kafka can have."""
    if column.null_count or not pa.types.is_integer(column.type) or not len(column):
        return not column.null_count
    found: Any = pc.min_max(column).as_py()
    return bool(found["min"] >= 0 and found["max"] < MOST)


def placed_in(column: Any) -> Any:  # noqa: ANN401 - Arrow's own
    if not pa.types.is_integer(column.type):
        return pc.is_valid(column)
    return pc.and_(pc.greater_equal(column, pa.scalar(0)), pc.less(column, pa.scalar(MOST)))


def small_whole(source: Path | IO[bytes]) -> Path | IO[bytes] | pa.BufferReader:
    """Return a small file on a disk as its content: Arrow's own reading takes longer than all the rest."""
    if not isinstance(source, Path):
        return source
    with source.open("rb") as file:
        content = file.read(SMALL_BYTES + 1)
    return pa.BufferReader(content) if len(content) <= SMALL_BYTES else source


def bounds_in(group: pyarrow.parquet.RowGroupMetaData) -> dict[str, tuple[Any, Any] | None]:
    """Return positions' columns, with the bounds of those that statistics say, and that none is null."""
    found: dict[str, tuple[Any, Any] | None] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        if (name := column.path_in_schema) in PARTS or name == OFFSET:
            said: Any = column.statistics
            is_said = said is not None and said.has_min_max and said.has_null_count and not said.null_count
            found[name] = (said.min, said.max) if is_said else None
    return found


def is_position(found: Mapping[str, Any]) -> bool:
    """Whether values are those of a row that Kafka can have."""
    topic, *numbers = (found.get(each) for each in NEEDED)
    return isinstance(topic, str) and all(type(each) is int and 0 <= each < MOST for each in numbers)


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


def in_groups(codes: Numbers, starts: Numbers, ends: Numbers) -> Iterator[tuple[int, tuple[Numbers, Numbers]]]:
    """Yield the runs of each code, in the order that they have."""
    order = np.argsort(codes, kind="stable")
    codes, starts, ends = codes[order], starts[order], ends[order]
    bounds = np.flatnonzero(np.diff(codes)) + 1
    for each in zip(*(np.split(array, bounds) for array in (codes, starts, ends)), strict=True):
        yield int(each[0][0]), each[1:]


def doubled_in(starts: Numbers, ends: Numbers) -> OffsetRuns:
    """Return the offsets of more than one of some runs that are sorted by their starts."""
    before = np.maximum.accumulate(ends)[:-1]
    twice = starts[1:] < before
    return joined(starts[1:][twice], np.minimum(ends[1:], before)[twice])


def joined(starts: Numbers, ends: Numbers) -> OffsetRuns:
    """Return the same offsets in as few runs as can be; they are sorted by their starts."""
    reach = np.maximum.accumulate(ends)
    opens = starts[1:] > reach[:-1]
    found: Any = [starts[:1], starts[1:][opens]], [reach[:-1][opens], reach[-1:]]
    return OffsetRuns(*(np.concatenate(each).data.cast("B").cast("q") for each in found))
