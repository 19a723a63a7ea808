"""Records that may be too large for memory, and which of them is to blame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_ingest.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class LargeRecord:
    """Where a record is, and the bytes of its key, value and headers.

    ``of_batch``: no process of ours can read the record batch that begins there: it takes more than ``size`` in memory.
    """

    offset: int
    size: int
    of_batch: bool = False

    def __str__(self) -> str:
        if self.of_batch:
            return f"the record batch at offset {self.offset:,}, which takes more than {self.size:,} bytes"
        return f"the record at offset {self.offset:,}, which has {self.size:,} bytes"


def too_large(found: Mapping[TopicPartition, Sequence[LargeRecord]], at_most: int) -> dict[TopicPartition, LargeRecord]:
    """Return of each partition the first record to blame for a lack of memory, where there is one.

    Such a record has more bytes than ``at_most``, and at least half as many as the largest of all: where one of a
    gigabyte was too much, one of 20 MB in another partition may well have been read before. ``found``: of each
    partition the records larger than all before.
    """
    largest = max((record.size for records in found.values() for record in records), default=0)
    blamed: dict[TopicPartition, LargeRecord] = {}
    for topic_partition, records in found.items():
        for record in records:
            if record.size > at_most and record.size >= largest / 2:
                blamed.setdefault(topic_partition, record)
    return blamed
