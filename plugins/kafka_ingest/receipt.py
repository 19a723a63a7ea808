"""What an attempt wrote: the last thing it writes, and the only evidence a commit accepts."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.batch import BatchPlan, canonical_json, require_version
from kafka_ingest.offsets import OffsetRange, TopicPartition

RECEIPT_VERSION = 1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One data file: its name inside the attempt's ``data`` directory, size in bytes, and what its footer says."""

    name: str
    size_bytes: int
    rows: int
    topic_partition: TopicPartition
    smallest_offset: int
    largest_offset: int

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ValueError(f"a data file's name is plain, without a path, found {self.name!r}")


@dataclass(frozen=True, slots=True)
class RangeCount:
    """What was written of one planned range; smallest and largest are None where nothing was."""

    offset_range: OffsetRange
    rows: int
    smallest_offset: int | None
    largest_offset: int | None

    @property
    def invisible(self) -> int:
        """Offsets without a record: compacted, aborted, or transaction markers."""
        return self.offset_range.span - self.rows


@dataclass(frozen=True, slots=True)
class Receipt:
    """An attempt's receipt. ``rows_read`` is Spark's own count while reading; the files' rows come from their footers."""

    batch_id: UUID
    attempt: int
    plan_fingerprint: str
    document_sha256: str
    rows_read: int
    files: tuple[WrittenFile, ...]
    written_at: datetime
    written_by: str

    @property
    def rows(self) -> int:
        """How many rows the files hold."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """How many bytes the files hold."""
        return sum(file.size_bytes for file in self.files)

    def range_counts(self, plan: BatchPlan) -> list[RangeCount]:
        """Return what was written of each planned range, in the plan's order."""
        files_of: dict[TopicPartition, list[WrittenFile]] = {}
        for file in self.files:
            files_of.setdefault(file.topic_partition, []).append(file)
        return [
            RangeCount(
                offset_range=offset_range,
                rows=sum(file.rows for file in files),
                smallest_offset=min((file.smallest_offset for file in files), default=None),
                largest_offset=max((file.largest_offset for file in files), default=None),
            )
            for offset_range in plan.ranges
            for files in [files_of.get(offset_range.topic_partition, [])]
        ]

    def contradictions(self, plan: BatchPlan) -> list[str]:
        """Return what in this receipt cannot be true of that plan; empty where all fits."""
        if self.batch_id != plan.batch_id:
            return [f"expected batch {plan.batch_id}, found {self.batch_id}"]
        if self.plan_fingerprint != plan.fingerprint:
            return [f"expected the plan with fingerprint {plan.fingerprint}, found {self.plan_fingerprint}"]
        found: list[str] = []
        if self.rows != self.rows_read:
            found.append(
                f"Spark read {self.rows_read:,} records, the files hold {self.rows:,}: "
                "a file did not reach the storage where the receipt was written"
            )
        planned = {offset_range.topic_partition for offset_range in plan.ranges}
        found += [
            f"{file.name} holds {file.topic_partition}, which the plan does not read"
            for file in self.files
            if file.topic_partition not in planned
        ]
        for count in self.range_counts(plan):
            offset_range = count.offset_range
            if count.rows > offset_range.span:
                found.append(f"{offset_range} can hold {offset_range.span:,} records, the files hold {count.rows:,}")
            if count.smallest_offset is not None and count.smallest_offset < offset_range.start_offset:
                found.append(f"{offset_range} was planned, the files begin at offset {count.smallest_offset}")
            if count.largest_offset is not None and count.largest_offset >= offset_range.end_offset:
                found.append(f"{offset_range} was planned, the files go up to offset {count.largest_offset}")
        return found + self._records_that_come_twice()

    def _records_that_come_twice(self) -> list[str]:
        # Each Spark task reads an interval of one partition's offsets, so files of a partition never overlap.
        found = [
            f"{file.name} holds {file.rows:,} records of {file.topic_partition} between offsets {file.smallest_offset:,} and "
            f"{file.largest_offset:,}: some come twice"
            for file in self.files
            if file.rows > file.largest_offset - file.smallest_offset + 1
        ]
        in_order = sorted(self.files, key=lambda file: (file.topic_partition, file.smallest_offset))
        return found + [
            f"{earlier.name} and {later.name} both hold offsets of {later.topic_partition} from {later.smallest_offset:,} to "
            f"{min(earlier.largest_offset, later.largest_offset):,}: records come twice"
            for earlier, later in itertools.pairwise(in_order)
            if earlier.topic_partition == later.topic_partition and later.smallest_offset <= earlier.largest_offset
        ]

    def as_document(self) -> dict[str, Any]:
        """Return the receipt as JSON-able data, with its format version."""
        return {
            "version": RECEIPT_VERSION,
            "batch_id": str(self.batch_id),
            "attempt": self.attempt,
            "plan_fingerprint": self.plan_fingerprint,
            "document_sha256": self.document_sha256,
            "rows_read": self.rows_read,
            "files": [
                {
                    "name": file.name,
                    "size_bytes": file.size_bytes,
                    "rows": file.rows,
                    "topic": file.topic_partition.topic,
                    "partition": file.topic_partition.partition,
                    "smallest_offset": file.smallest_offset,
                    "largest_offset": file.largest_offset,
                }
                for file in self.files
            ],
            "written_at": self.written_at.isoformat(),
            "written_by": self.written_by,
        }

    def as_bytes(self) -> bytes:
        """Return the receipt as it lies in the attempt's directory."""
        return canonical_json(self.as_document())

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Receipt":
        """Read a receipt back; raises ValueError, KeyError or TypeError where it is damaged or of another version."""
        require_version(document, RECEIPT_VERSION, "receipt")
        return cls(
            batch_id=UUID(document["batch_id"]),
            attempt=int(document["attempt"]),
            plan_fingerprint=document["plan_fingerprint"],
            document_sha256=document["document_sha256"],
            rows_read=int(document["rows_read"]),
            files=tuple(
                WrittenFile(
                    name=entry["name"],
                    size_bytes=int(entry["size_bytes"]),
                    rows=int(entry["rows"]),
                    topic_partition=TopicPartition(entry["topic"], int(entry["partition"])),
                    smallest_offset=int(entry["smallest_offset"]),
                    largest_offset=int(entry["largest_offset"]),
                )
                for entry in document["files"]
            ),
            written_at=datetime.fromisoformat(document["written_at"]),
            written_by=document["written_by"],
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> "Receipt":
        """Read a receipt back; raises ValueError, KeyError or TypeError where it is damaged or of another version."""
        document = json.loads(content)
        if not isinstance(document, dict):
            raise TypeError(f"expected a receipt, a JSON object; found {type(document).__name__}")
        return cls.from_document(document)
