"""Complete hours and days: what a feed asks for, and what the control tables record of each. All in UTC."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

from kafka_ingest.model.documents import document_of

KEY = "%Y-%m-%dT%H:%M:%S"
"""The form of a partition's key in Airflow, by which its own mappers roll hours up to days (their input_format)."""

IN_OUTPUT: Final = "in_output"


class Unit(StrEnum):
    """What is complete."""

    HOUR = "hour"
    DAY = "day"

    @property
    def length(self) -> timedelta:
        return timedelta(hours=1) if self is Unit.HOUR else timedelta(days=1)

    def start_of(self, at: datetime) -> datetime:
        """Return when the hour or day of a time begins."""
        hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        return hour if self is Unit.HOUR else hour.replace(hour=0)


class OnLate(StrEnum):
    """What happens once rows of an hour land that is complete already."""

    ANNOUNCE = "announce"
    COUNT = "count"
    DATASET = "dataset"
    """Those of hours that were complete when the attempt was opened go to a dataset of their own; others announce."""


@dataclass(frozen=True, slots=True)
class CompletionRules:
    """When an hour or a day is complete, and what follows. ``delay`` and ``idle_after`` begin at its end."""

    by: Unit
    delay: timedelta
    idle_after: timedelta
    on_late: OnLate = OnLate.ANNOUNCE
    success_file: bool | Literal["in_output"] = False

    def due_at(self, began_at: datetime) -> datetime:
        """Return from which time on records show that the hour or day has ended."""
        return began_at + self.by.length + self.delay


@dataclass(frozen=True, slots=True)
class LateCount:
    """How many late rows a batch has of an hour or a day; those ``aside`` are in the dataset of late rows."""

    rows: int
    aside: int = 0


@dataclass(frozen=True, slots=True)
class Period:
    """An hour or a day. ``completed_at`` is None of the one that is waited for, the newest.

    ``late_rows``: how many have landed since it was complete, all in batches after ``counted_batch``;
    ``announced_rows`` of them are announced.
    """

    began_at: datetime
    completed_at: datetime | None
    completed_by: str | None
    late_rows: int
    announced_at: datetime | None
    announced_rows: int
    success_file_at: datetime | None
    counted_batch: UUID | None

    @property
    def key(self) -> str:
        return self.began_at.strftime(KEY)

    def as_document(self) -> dict[str, Any]:
        names = ("key", "completed_at", "completed_by", "late_rows", "announced_at", "success_file_at")
        after = str(self.counted_batch) if self.counted_batch and self.completed_at else None
        return document_of(self, *names) | {"late_after_batch": after}
