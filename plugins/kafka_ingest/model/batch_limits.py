"""What of a written batch keeps it from being committed, as its feed says."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from kafka_ingest.model.omissions import LEAST_RECORDS, NeverFound
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.summaries import ReadCounts

MOST_PERCENT = 99
"""Of an output's first records: more are nearly all."""


class OnNeverFound(StrEnum):
    """What to do with a batch in whose records fields of the schema were never found."""

    STOP = "stop"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may have; None is the default.

    That is no limit, but for the first batch of an output: not nearly all its records may be dead letters, nor those
    that are none be filtered, and none of the schema's fields may be missing in all of them. Percentages are of the
    records read. ``fetched``: parts of which a registry or a file has the schema, which may have fields that no
    producer fills in; of these one of the fields has to be found.
    """

    max_dead_letters: int | None = None
    max_dead_letter_percent: int | None = None
    max_filtered_percent: int | None = None
    on_never_found: OnNeverFound | None = None
    fetched: Collection[str] = ()

    def too_many_dead_letters(self, read: ReadCounts, first: ReadCounts) -> str | None:
        """Return which limit a batch's dead letters exceed, None where they keep to them.

        ``first``: all that was read for the output so far, where it has no first batch yet.
        """
        number, most = read.dead_letters, self.max_dead_letter_percent
        if self.max_dead_letters is not None and number > self.max_dead_letters:
            return f"limits.max_dead_letters: {self.max_dead_letters:,}"
        if most is not None:
            return f"limits.max_dead_letter_percent: {most}" if number * 100 > most * read.records else None
        is_exceeded = first.records >= LEAST_RECORDS and nearly_all_dead(first)
        return f"limits.max_dead_letter_percent: {MOST_PERCENT} for an output's first batch" if is_exceeded else None

    def too_many_filtered(self, read: ReadCounts, first: ReadCounts) -> str | None:
        """Return which limit a batch's filtered records exceed, as with dead letters."""
        most = self.max_filtered_percent
        if most is not None:
            return f"limits.max_filtered_percent: {most}" if read.filtered * 100 > most * read.records else None
        is_exceeded = first.rows + first.filtered >= LEAST_RECORDS and nearly_all_filtered(first)
        return f"limits.max_filtered_percent: {MOST_PERCENT} for an output's first batch" if is_exceeded else None

    def to_name(self, missing: Iterable[NeverFound]) -> list[NeverFound]:
        """Return those of the fields never found that records should have."""
        return [each for each in missing if not (each.is_part_found and each.part in self.fetched)]

    def never_found(self, receipt: Receipt) -> list[NeverFound]:
        """Return the fields that the records of a batch should have and do not.

        Of few records these are reported only where none of the fields is there.
        """
        missing = self.to_name(receipt.never_found)
        return [each for each in missing if each.records >= LEAST_RECORDS or not each.is_part_found]


NO_LIMITS = BatchLimits()


def nearly_all_dead(counts: ReadCounts) -> bool:
    return counts.dead_letters * 100 > MOST_PERCENT * counts.records


def nearly_all_filtered(counts: ReadCounts) -> bool:
    """Whether of the records that can be decoded nearly all are filtered."""
    return counts.filtered * 100 > MOST_PERCENT * (counts.rows + counts.filtered)
