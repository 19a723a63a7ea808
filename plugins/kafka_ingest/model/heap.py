"""Sizes of Java's heaps, as Spark's settings have them, and which records may be too large for one."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_ingest.model.offsets import TopicPartition

MIB = 1024 * 1024

DEFAULT_HEAP = "1g"
"""Spark's own, of a driver and of an executor."""

OF_A_RECORD = 10
"""So many times its largest record takes a task, and …"""

OF_ELEMENTS = 10
"""… so many times more where it is decoded: in ``[{},{}]`` an element of three bytes is a row with all columns."""

TASKS = 10

SIZE = re.compile(r"(\d+)\s*(?:([kmgtp])i?b?|b)?", re.IGNORECASE)
UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2, "p": 1024**3}


def heap_bytes(text: str) -> int:
    """Return a size as Spark writes that of a heap, MiB where it has no unit; its default where it is none."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        return heap_bytes(DEFAULT_HEAP)
    return int(int(found[1]) * UNITS[(found[2] or "m").lower()] * MIB)


@dataclass(frozen=True, slots=True)
class Heap:
    """The memory of the tasks of a Spark: the setting, what it says, and whether records are decoded in it."""

    setting: str
    size: str
    decodes: bool

    @property
    def records_at_once(self) -> int:
        """As many times a record is never to blame where the heap is too small."""
        return TASKS * OF_A_RECORD * (OF_ELEMENTS if self.decodes else 1)

    @property
    def surely_fits(self) -> int:
        """How many bytes a record may have that is not to blame."""
        return heap_bytes(self.size) // self.records_at_once

    def size_for(self, record: int) -> str:
        """Return the size in which a record of so many bytes surely fits, as Spark's settings say it."""
        return f"{math.ceil(record * self.records_at_once / MIB)}m"


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
