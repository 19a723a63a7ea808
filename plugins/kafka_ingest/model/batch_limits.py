"""What of a written batch keeps it from being committed, as its feed says."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from kafka_ingest.model.never_found import LEAST_RECORDS, NeverFound
from kafka_ingest.model.receipt import Receipt


class OnNeverFound(StrEnum):
    """What to do with a batch in whose records fields of the schema were never found."""

    STOP = "stop"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may have; None is the default.

    That is no limit for dead letters. For the others it is none either, but for the first batch of an output: not all
    its records may be filtered, and none of the schema's fields may be missing in all of them. Percentages are of the
    records read. ``fetched``: parts of which a registry or a file has the schema, which may have fields that no
    producer fills in; of these one of the fields has to be found.
    """

    max_dead_letters: int | None = None
    max_dead_letter_percent: int | None = None
    max_filtered_percent: int | None = None
    on_never_found: OnNeverFound | None = None
    fetched: Collection[str] = ()

    def too_many_dead_letters(self, receipt: Receipt) -> str | None:
        """Return which limit a batch's dead letters exceed, None where they keep to them."""
        number = receipt.dead_letter_rows
        if self.max_dead_letters is not None and number > self.max_dead_letters:
            return f"max_dead_letters: {self.max_dead_letters:,}"
        if self.max_dead_letter_percent is not None and number * 100 > self.max_dead_letter_percent * receipt.rows_read:
            return f"max_dead_letter_percent: {self.max_dead_letter_percent}"
        return None

    def too_many_filtered(self, receipt: Receipt) -> str | None:
        """Return which limit a batch's filtered records exceed; the default is one for the first batch only."""
        number, most = receipt.filtered_records, self.max_filtered_percent
        if most is not None:
            return f"limits.max_filtered_percent: {most}" if number * 100 > most * receipt.rows_read else None
        return "of an output's first batch not all" if number >= LEAST_RECORDS and not receipt.rows else None

    def never_found(self, receipt: Receipt) -> list[NeverFound]:
        """Return the fields that the records of a batch should have and do not."""
        return [
            each
            for each in receipt.never_found
            if each.records >= LEAST_RECORDS and not (each.is_alone and each.part in self.fetched)
        ]


NO_LIMITS = BatchLimits()
