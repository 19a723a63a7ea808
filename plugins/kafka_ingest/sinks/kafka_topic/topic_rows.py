"""What the marks of an output topic say of batches, and where their records are. Which one a record was, none says."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafka_ingest.foundation.foreign_json import read_as_ours, whole
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.proof import Proof
from kafka_ingest.sinks.tables.table_format import Mark, RowsByMarks

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError, Message

    from kafka_ingest.sinks.found_offsets import FoundOffsets

COLUMNS = ("partition", "start_offset", "end_offset", "records")
"""Of the ranges in a mark."""
MOST_RANGES = 10_000
"""Of a mark: with twice as many it may have more bytes than a topic takes by default, and no batch would land."""
TOPIC_ID = "topic_id"
"""What a mark says of the topic that has the batch's records: one that is made again under its name has another."""


@dataclass(frozen=True, slots=True)
class KafkaRows(RowsByMarks):
    """All marks of one topic, read once: a :class:`.TableRows`."""

    marks: Mapping[UUID, Mark]
    are_newest_states = False

    def visible(self, batch_ids: set[str]) -> set[str]:
        return batch_ids & self.published()

    def is_visible(self, batch_id: UUID) -> bool:
        return str(batch_id) in self.published()

    def count_elsewhere(self, batch_id: UUID) -> int:
        """Return how many rows a batch's transaction has added; the topic's own clean-up may have taken some since."""
        mark = self.mark(batch_id)
        proof = Proof.from_text(mark.proof) if mark is not None and mark.proof else None
        return proof.rows - proof.late_rows if proof is not None else 0

    def rows_elsewhere(self, batch_id: UUID) -> "Iterator[pa.Table]":
        del batch_id
        return iter(())

    def holds_elsewhere(self, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
        del batch_id, topic_partition, offset
        return False  # no record says which one it was

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        yield from ((mark.proof, None) for mark in self.marks.values() if mark.proof)

    def add_to(self, found: "FoundOffsets") -> None:
        """Hand in nothing: records are counted (:mod:`.contents`)."""


@dataclass(slots=True)
class SeenMarks:
    """Which marks of a topic were read so far: nothing before ``next_offset`` changes, so that it is read once."""

    topic_id: str | None = ""
    next_offset: int = 0
    offsets: dict[bytes, int] = field(default_factory=dict)
    """Of each mark, by its key."""
    newest: deque[bytes] = field(default_factory=lambda: deque(maxlen=20))
    """The values of the newest ones."""

    def note(self, message: "Message") -> None:
        offset = message.offset() or 0
        if offset >= self.next_offset:
            self.offsets[message.key() or b""] = offset
            self.newest.append(message.value() or b"")
            self.next_offset = offset + 1


@dataclass(frozen=True, slots=True)
class LandedRange:
    """So many records of a batch are in ``[start_offset, end_offset)`` of a partition, perhaps among other batches'."""

    partition: int
    start_offset: int
    end_offset: int
    records: int


@dataclass(slots=True)
class Landing:
    """Takes in where the brokers say that records are: it need not be asked of all between a partition's ends."""

    found: dict[int, list[int]] = field(default_factory=dict)
    """Of each partition the smallest and the largest offset, and how many records."""

    def note(self, error: "KafkaError | None", message: "Message") -> None:
        """Note one record; of one that was sent again, brokers may not say where it is."""
        if error is not None:
            return  # its transaction cannot be committed any more
        offset = message.offset()
        if offset is None:
            offset = -1
        found = self.found.get(message.partition() or 0)
        if found is None:
            self.found[message.partition() or 0] = [offset, offset, 1]
            return
        found[2] += 1
        if offset > found[1]:
            found[1] = offset
        elif offset < found[0]:
            found[0] = offset

    def as_document(self, counts: Mapping[int, int] | None = None) -> list[list[int]] | None:
        """Return the ranges as a mark has them, None where one is unknown, or where no mark could hold so many.

        ``counts``: how many records each partition has, where not all were noted.
        """
        ranges = [
            [number, first, last + 1, noted if counts is None else counts[number]]
            for number, (first, last, noted) in sorted(self.found.items())
        ]
        return ranges if len(ranges) <= MOST_RANGES and all(first >= 0 for _, first, _, _ in ranges) else None


@read_as_ours()
def landed_in(document: Mapping[str, Any]) -> tuple[LandedRange, ...] | None:
    """Return the ranges that a mark says, None where it says none; raises ForeignJsonError where they are wrong."""
    ranges: Iterable[Sequence[object]] | None = document.get("landed")
    if ranges is None:
        return None
    named = [dict(zip(COLUMNS, numbers, strict=True)) for numbers in ranges]
    return tuple(LandedRange(*(whole(each, name) for name in COLUMNS)) for each in named)


@dataclass(frozen=True, slots=True)
class Records:
    """The offsets of the records that readers see in a partition, in their order; all before the log start are gone."""

    log_start_offset: int
    offsets: Sequence[int]
