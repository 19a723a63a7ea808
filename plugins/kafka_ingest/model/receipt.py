"""What an attempt wrote: the last thing it writes, and the only evidence a commit accepts."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.foundation.foreign_json import read_as_ours, read_foreign_object, said, whole
from kafka_ingest.model.batch import BatchKind, BatchPlan, canonical_json, require_version
from kafka_ingest.model.documents import Documented, document_of, read_document
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, by_partition, span_of, union
from kafka_ingest.model.omissions import LeftOut, NeverFound, ranges_read, wrongly_left_out
from kafka_ingest.model.partition_term import is_late
from kafka_ingest.model.read_again import numbers_of
from kafka_ingest.model.table_options import TableOptions

ONE_PARTITION_A_FILE = 1
SEVERAL_PARTITIONS_A_FILE = 2
RANGES_LEFT_OUT = 3
DEAD_LETTERS = 4
RESHAPED = 5
"""Format versions. A receipt is written in the oldest one that can hold it, byte for byte as earlier versions did."""

NEEDED_FOR = {
    SEVERAL_PARTITIONS_A_FILE: "has a file of several partitions",
    RANGES_LEFT_OUT: "leaves ranges out",
    DEAD_LETTERS: "has dead letters",
    RESHAPED: "has filtered records",
}
"""What a receipt of each version has, which an older one could not hold."""

WRITTEN = ("batch_id", "attempt", "plan_fingerprint", "document_sha256", "rows_read", "written_at", "written_by")
"""What every version of a receipt has."""


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """What a data file holds of one partition."""

    topic_partition: TopicPartition
    rows: int
    smallest_offset: int
    largest_offset: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One data file: its name, size in bytes, and what it holds of each partition.

    The name is relative to the directory that the attempt's data was written to; partitioned tables have folders in it.
    """

    name: str
    size_bytes: int
    partitions: tuple[WrittenPartition, ...]
    without_date: int = 0
    """Records whose ``kafka_timestamp`` is null."""

    def __post_init__(self) -> None:
        # A part that begins with a dot is hidden, or leads out of the directory; an empty one begins an absolute path.
        if any(not part or part.startswith(".") for part in self.name.split("/")):
            raise ValueError(
                f"a data file's name is plain, or relative with plain folders in it, without '..', found {self.name!r}"
            )
        found = [held.topic_partition for held in self.partitions]
        if not found or found != sorted(set(found)):
            raise ValueError(f"{self.name}: a data file names its partitions sorted, each once, found {found}")

    @classmethod
    def of_one(
        cls,
        name: str,
        size_bytes: int,
        rows: int,
        topic_partition: TopicPartition,
        smallest_offset: int,
        largest_offset: int,
        without_date: int = 0,
    ) -> "WrittenFile":
        held = WrittenPartition(topic_partition, rows, smallest_offset, largest_offset)
        return cls(name, size_bytes, (held,), without_date)

    @property
    def is_late(self) -> bool:
        """Whether its rows are of hours or days that were complete before: they are in a dataset of their own."""
        return is_late(self.name)

    @property
    def rows(self) -> int:
        return sum(held.rows for held in self.partitions)

    def of_partition(self, topic_partition: TopicPartition) -> WrittenPartition | None:
        """Return what the file holds of a partition, None where it holds nothing of it."""
        return next((held for held in self.partitions if held.topic_partition == topic_partition), None)

    @property
    def spans(self) -> list[tuple[OffsetRange, int]]:
        """The offsets it spans, of each partition from the smallest to the largest, and how many rows are in them."""
        return [
            (OffsetRange(held.topic_partition, held.smallest_offset, held.largest_offset + 1), held.rows)
            for held in self.partitions
        ]


def rows_by_partition(files: Iterable[WrittenFile]) -> Counter[TopicPartition]:
    """Return how many rows files hold of each partition."""
    rows: Counter[TopicPartition] = Counter()
    for held in (each for file in files for each in file.partitions):
        rows[held.topic_partition] += held.rows
    return rows


@dataclass(frozen=True, slots=True)
class RangeCount:
    """What was written of one planned range; smallest and largest are None where no row was written."""

    offset_range: OffsetRange
    rows: int
    smallest_offset: int | None
    largest_offset: int | None
    dead_letters: int = 0
    filtered: int = 0

    @property
    def invisible(self) -> int:
        """Offsets without a record: compacted, aborted, or transaction markers; of a replay also what it leaves."""
        return self.offset_range.span - self.rows - self.dead_letters - self.filtered


@dataclass(frozen=True, slots=True, order=True)
class Filtered(Documented):
    """How many records of a partition the feed's ``where`` or ``transform`` has left out."""

    topic_partition: TopicPartition
    records: int

    def __post_init__(self) -> None:
        if self.records < 1:
            raise ValueError(f"{self.topic_partition}: expected at least 1 filtered record, found {self.records}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """An attempt's receipt. ``rows_read`` is Spark's own count while reading; the files' rows come from their footers.

    ``left_out`` are the planned ranges that it did not read, since Kafka had deleted records of them. ``dead_letters``
    are the files of the records that could not be decoded, in their own output. ``filtered``: records that became no
    row, of each partition that has some. ``in_any_order``: the files of a partition may overlap, since a task wrote two
    of them, or the feed's ``transform`` may have moved rows between tasks; the job has looked for duplicates itself.
    """

    batch_id: UUID
    attempt: int
    plan_fingerprint: str
    document_sha256: str
    rows_read: int
    files: tuple[WrittenFile, ...]
    written_at: datetime
    written_by: str
    left_out: tuple[LeftOut, ...] = ()
    dead_letters: tuple[WrittenFile, ...] = ()
    filtered: tuple[Filtered, ...] = ()
    in_any_order: bool = False
    columns: Mapping[str, str] | None = None
    """The columns of decoded rows, as :mod:`kafka_ingest.model.written_columns` lists them; None: unknown.

    Versions that do not know them pass over them.
    """
    never_found: tuple[NeverFound, ...] = ()
    """The fields that no record has. Earlier versions did not look for them, and pass over them."""

    def of_dead_letters(self) -> "Receipt":
        """Return the receipt of the dead letters alone, by which they are published in their own output."""
        return replace(
            self,
            rows_read=self.dead_letter_rows,
            files=self.dead_letters,
            dead_letters=(),
            filtered=(),
            in_any_order=False,
            columns=None,
            never_found=(),
        )

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def late_rows(self) -> int:
        """How many of the rows are in the dataset of late rows."""
        return sum(file.rows for file in self.files if file.is_late)

    def part(self, *, late: bool) -> "Receipt":
        """Return the receipt with the files of late rows alone, or with the others."""
        return replace(self, files=tuple(file for file in self.files if file.is_late is late))

    @property
    def dead_letter_rows(self) -> int:
        return sum(file.rows for file in self.dead_letters)

    @property
    def filtered_records(self) -> int:
        return sum(each.records for each in self.filtered)

    @property
    def without_date(self) -> int:
        """How many records have a timestamp that is no date; what it is instead is in ``kafka_timestamp_ms``."""
        return sum(file.without_date for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def ranges_read(self, plan: BatchPlan) -> tuple[OffsetRange, ...]:
        """Return the planned ranges that were read, in the plan's order."""
        return ranges_read(plan.ranges, self.left_out)

    def range_counts(self, plan: BatchPlan) -> list[RangeCount]:
        """Return what was written of each range that was read, in the plan's order."""
        return self.counts_of(self.ranges_read(plan))

    def counts_of(self, ranges: Iterable[OffsetRange]) -> list[RangeCount]:
        """Return what was written of ranges of the plan that were read."""
        held_of: dict[TopicPartition, list[WrittenPartition]] = {}
        for _, held in self._held():
            held_of.setdefault(held.topic_partition, []).append(held)
        dead_letters = rows_by_partition(self.dead_letters)
        filtered = {each.topic_partition: each.records for each in self.filtered}
        return [
            RangeCount(
                offset_range=offset_range,
                rows=sum(held.rows for held in found),
                smallest_offset=min((held.smallest_offset for held in found), default=None),
                largest_offset=max((held.largest_offset for held in found), default=None),
                dead_letters=dead_letters[offset_range.topic_partition],
                filtered=filtered.get(offset_range.topic_partition, 0),
            )
            for offset_range in ranges
            for found in [held_of.get(offset_range.topic_partition, [])]
        ]

    def _held(self) -> Iterator[tuple[WrittenFile, WrittenPartition]]:
        return ((file, held) for file in self.files for held in file.partitions)

    def contradictions(self, plan: BatchPlan) -> list[str]:
        """Return what in this receipt cannot be true of that plan; empty where all fits."""
        if self.batch_id != plan.batch_id:
            return [f"expected batch {plan.batch_id}, found {self.batch_id}"]
        if self.plan_fingerprint != plan.fingerprint:
            return [f"expected the plan with fingerprint {plan.fingerprint}, found {self.plan_fingerprint}"]
        found: list[str] = []
        if self.dead_letters:
            found += [f"dead letters: {problem}" for problem in self.of_dead_letters().contradictions(plan)]
        held_by_files = self.rows + self.dead_letter_rows
        if held_by_files + self.filtered_records != self.rows_read:
            filtered = f" and {self.filtered_records:,} were filtered" if self.filtered else ""
            found.append(
                f"Spark read {counted(self.rows_read, 'record')}, the files hold {held_by_files:,}{filtered}: "
                "a file did not reach the storage where the receipt was written"
            )
        planned = {offset_range.topic_partition for offset_range in plan.ranges}
        if [each.topic_partition for each in self.filtered] != sorted({each.topic_partition for each in self.filtered}):
            found.append("the filtered records are not named by partition, sorted, each once")
        found += [
            f"{counted(each.records, 'record')} of {each.topic_partition} {were(each.records)} filtered, which "
            f"the plan does not read"
            for each in self.filtered
            if each.topic_partition not in planned
        ]
        found += [
            f"{file.name} holds {held.topic_partition}, which the plan does not read"
            for file, held in self._held()
            if held.topic_partition not in planned
        ]
        for count in self.range_counts(plan):
            offset_range = count.offset_range
            if (records := count.rows + count.dead_letters + count.filtered) > offset_range.span:
                filtered = " with those that were filtered" if count.filtered else ""
                found.append(
                    f"{offset_range} can hold {counted(offset_range.span, 'record')}, the files hold "
                    f"{records:,}{filtered}"
                )
            if count.smallest_offset is not None and count.smallest_offset < offset_range.start_offset:
                found.append(f"{offset_range} was planned, the files begin at offset {count.smallest_offset}")
            if count.largest_offset is not None and count.largest_offset >= offset_range.end_offset:
                found.append(f"{offset_range} was planned, the files go up to offset {count.largest_offset}")
        # A file of a replay has the letters of many files: in any order, and with other letters' offsets in between.
        may_overlap = self.in_any_order or bool(plan.replays)
        may_overlap = may_overlap or any(file.is_late for file in self.files)
        may_overlap = may_overlap or bool(TableOptions.of(dict(plan.output.options)).partition_by)
        return found + self._wrongly_left_out(plan) + self._records_that_come_twice(may_overlap=may_overlap)

    def not_replayed(self, plan: BatchPlan) -> list[str]:
        """Return of which partitions a replay has other numbers of records than its plan names; else empty."""
        counts = {each.offset_range.topic_partition: each for each in self.range_counts(plan)}
        return [
            f"{topic_partition}: expected {counted(number, 'dead letter')} to be replayed, found {found:,}"
            for topic_partition, number in numbers_of(plan.replays).items()
            for count in [counts[topic_partition]]
            if (found := count.offset_range.span - count.invisible) != number
        ]

    def _wrongly_left_out(self, plan: BatchPlan) -> list[str]:
        """Return what contradicts the ranges left out. Only live batches leave any out; the next plan decides."""
        if not self.left_out:
            return []
        found = [f"a {plan.kind} batch leaves no range out"] if plan.kind is not BatchKind.LIVE else []
        partitions = {each.offset_range.topic_partition for each in self.left_out}
        found += [
            f"{file.name} holds {held.topic_partition}, which is left out"
            for file, held in self._held()
            if held.topic_partition in partitions
        ]
        found += [
            f"{counted(each.records, 'record')} of {each.topic_partition} {were(each.records)} filtered, which "
            f"is left out"
            for each in self.filtered
            if each.topic_partition in partitions
        ]
        return found + wrongly_left_out(plan.ranges, self.left_out)

    def _records_that_come_twice(self, *, may_overlap: bool) -> list[str]:
        # Each Spark task reads an interval of one partition's offsets, so files of a partition never overlap, except
        # where a task divides what it reads among partitions of a table.
        found = [
            f"{file.name} holds {counted(held.rows, 'record')} of {held.topic_partition} between offsets "
            f"{held.smallest_offset:,} and {held.largest_offset:,}: some are duplicates"
            for file, held in self._held()
            if held.rows > held.largest_offset - held.smallest_offset + 1
        ]
        if may_overlap:
            return found + self._more_records_than_offsets()
        in_order = sorted(self._held(), key=lambda each: (each[1].topic_partition, each[1].smallest_offset))
        return found + [
            f"{one.name} and {other.name} both hold offsets of {later.topic_partition} from {later.smallest_offset:,} "
            f"to {min(earlier.largest_offset, later.largest_offset):,}: duplicate records"
            for (one, earlier), (other, later) in itertools.pairwise(in_order)
            if earlier.topic_partition == later.topic_partition and later.smallest_offset <= earlier.largest_offset
        ]

    def _more_records_than_offsets(self) -> list[str]:
        rows = rows_by_partition(self.files)
        spans = by_partition(span for file in self.files for span, _ in file.spans)
        offsets = {topic_partition: span_of(union(held)) for topic_partition, held in spans.items()}
        return [
            f"the files hold {counted(rows[topic_partition], 'record')} of {topic_partition} in "
            f"{counted(number, 'offset')}: some are duplicates"
            for topic_partition, number in offsets.items()
            if rows[topic_partition] > number
        ]

    @property
    def version(self) -> int:
        """The format version that can hold this receipt."""
        if self.filtered or self.in_any_order:
            return RESHAPED
        if self.dead_letters:
            return DEAD_LETTERS
        if self.left_out:
            return RANGES_LEFT_OUT
        several = any(len(file.partitions) > 1 for file in self.files)
        return SEVERAL_PARTITIONS_A_FILE if several else ONE_PARTITION_A_FILE

    def as_document(self) -> dict[str, Any]:
        """Return the receipt as JSON-able data, with its format version."""
        version = self.version  # which is found by looking through all files
        rare = [name for name in ("left_out", "filtered", "in_any_order", "never_found") if getattr(self, name)]
        document = document_of(self, *WRITTEN, *rare)
        if self.dead_letters:
            document["dead_letters"] = [file_document(file, version) for file in self.dead_letters]
        if self.columns is not None:
            document["columns"] = dict(self.columns)
        return document | {"version": version, "files": [file_document(file, version) for file in self.files]}

    def as_bytes(self) -> bytes:
        return canonical_json(self.as_document())

    @classmethod
    @read_as_ours()
    def from_document(cls, document: Mapping[str, Any]) -> "Receipt":
        """Read a receipt back; raises ForeignJsonError where it is damaged or of another version."""
        require_version(document, (ONE_PARTITION_A_FILE, *NEEDED_FOR), "receipt")
        receipt = read_document(
            cls,
            document,
            files=tuple(map(file_of, document["files"])),
            dead_letters=tuple(map(file_of, document.get("dead_letters", ()))),
            columns=columns_of(document),
        )
        version, holds = document["version"], receipt.version
        if holds < version:
            raise ValueError(f"a receipt of format version {version} {NEEDED_FOR[version]}, found none")
        if holds > version:
            raise ValueError(f"expected format version {holds} of a receipt with what it holds, found {version}")
        return receipt

    @classmethod
    def from_bytes(cls, content: bytes) -> "Receipt":
        """Read a receipt back; raises ForeignJsonError where it is damaged or of another version."""
        return cls.from_document(read_foreign_object(content))


def columns_of(document: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Read the columns that a receipt keeps; raises TypeError where they are no types by paths."""
    columns = document.get("columns")
    if columns is None:
        return None
    if not isinstance(columns, dict) or not all(isinstance(kind, str) for kind in columns.values()):
        raise TypeError(f"a receipt has columns, a JSON object of texts, found {str(columns)[:100]}")
    return columns


def file_document(file: WrittenFile, version: int) -> dict[str, Any]:
    named = {"name": file.name, "size_bytes": file.size_bytes}
    named |= {"without_date": file.without_date} if file.without_date else {}
    partitions = [
        {
            "rows": held.rows,
            "topic": held.topic_partition.topic,
            "partition": held.topic_partition.partition,
            "smallest_offset": held.smallest_offset,
            "largest_offset": held.largest_offset,
        }
        for held in file.partitions
    ]
    return named | (partitions[0] if version == ONE_PARTITION_A_FILE else {"partitions": partitions})


def file_of(entry: Mapping[str, Any]) -> WrittenFile:
    return WrittenFile(
        name=said(entry, "name"),
        size_bytes=whole(entry, "size_bytes"),
        without_date=whole({"without_date": 0, **entry}, "without_date"),
        partitions=tuple(
            WrittenPartition(
                topic_partition=TopicPartition.from_document(held),
                rows=whole(held, "rows"),
                smallest_offset=whole(held, "smallest_offset"),
                largest_offset=whole(held, "largest_offset"),
            )
            for held in entry.get("partitions", [entry])
        ),
    )
