"""Find the large records of ranges, some of which may be too large for any process."""

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka_ingest.cluster.first_answers import (
    LITTLE,
    MEMORY_BYTES,
    MUCH,
    FirstAnswer,
    Place,
    asked_in_a_process,
    first_answers,
)
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.spark_settings import LargeRecord

log = logging.getLogger(__name__)

AT_MOST_S: Final = 300.0
"""A batch of 5 million records of 200 bytes takes 20 s."""

PART_S: Final = 30.0
"""How long one process reads; then another continues."""

PROGRESS_S: Final = 10.0

PROGRESS_RECORDS: Final = 1_000


@dataclass(slots=True)
class Search:
    """How far a range was searched: ``start`` is next. ``found``: the records that are larger than all before."""

    place: Place
    start: int
    end: int
    found: list[LargeRecord] = field(default_factory=list)
    largest: int = -1
    is_done: bool = False

    def add(self, answer: FirstAnswer) -> None:
        """Take an answer at :attr:`start` or later."""
        if answer.is_too_large:
            self.found.append(LargeRecord(self.start, MEMORY_BYTES, of_batch=True))
        elif answer.offset is not None and answer.offset < self.end:
            if answer.size > self.largest:
                self.found.append(LargeRecord(answer.offset, answer.size))
                self.largest = answer.size
            self.start = answer.offset + 1
        self.is_done = answer.is_too_large or answer.offset is None or answer.offset >= self.end - 1


def large_records(
    settings: Mapping[str, object], ranges: Collection[OffsetRange], timeout_s: float
) -> dict[TopicPartition, list[LargeRecord]]:
    """Return of each range the records that are larger than all before it; what is not read in time is left out.

    Where the process ends for lack of memory, the ranges are read one by one; where that ends, too, one record batch at
    a time, which says at which offset it is.
    """
    searches = [Search((each.topic, each.partition), each.start_offset, each.end_offset) for each in sorted(ranges)]
    span, ends_at = sum(each.span for each in ranges), time.monotonic() + AT_MOST_S
    one_by_one = batch_by_batch = False
    log.warning("%s offsets may hold a record too large for memory: measured for %g s at most", f"{span:,}", AT_MOST_S)
    while (left := [search for search in searches if not search.is_done]) and time.monotonic() < ends_at:
        some = left[:1] if one_by_one else left
        began_at, starts = time.monotonic(), [search.start for search in some]
        has_ended = searched(settings, some, batch_by_batch=batch_by_batch)
        if has_ended and batch_by_batch:
            # Its last line may be missing.
            some[0].add(answer_at(settings, some[0], timeout_s))
        elif not has_ended and starts == [search.start for search in some]:
            for search in some:
                search.is_done = True  # there is no answer
        batch_by_batch = one_by_one and (has_ended or batch_by_batch) and not some[0].is_done
        one_by_one = one_by_one or has_ended
        if time.monotonic() - began_at > PROGRESS_S:
            still = sum(search.end - search.start for search in searches if not search.is_done)
            log.warning("%s of %s offsets measured", f"{span - still:,}", f"{span:,}")
    return {TopicPartition(*search.place): search.found for search in searches if search.found}


def searched(settings: Mapping[str, object], searches: Collection[Search], *, batch_by_batch: bool) -> bool:
    """Let a process search for a while; return whether it ended before it was done."""
    question = {
        "settings": {**settings, **(LITTLE if batch_by_batch else MUCH)},
        "ranges": [(*search.place, search.start, search.end) for search in searches],
        "timeout_s": PART_S,
        "at_least_each": 1 if batch_by_batch else PROGRESS_RECORDS,
    }
    said, has_ended = asked_in_a_process(question, PART_S)
    by_place = {search.place: search for search in searches}
    for place, answer in said:
        if answer.is_too_large and not batch_by_batch:
            return True  # for what was read before it as well, perhaps
        by_place[place].add(answer)
    return has_ended


def answer_at(settings: Mapping[str, object], search: Search, timeout_s: float) -> FirstAnswer:
    found = first_answers(settings, [(*search.place, search.start)], timeout_s)
    return found.get(search.place, FirstAnswer(error="no answer in time"))
