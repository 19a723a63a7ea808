"""What was removed from an output, by whom and why: a published batch that expired, files that were lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from kafka_ingest.foundation.foreign_json import read_as_ours, said
from kafka_ingest.model.batch import require_version
from kafka_ingest.model.documents import Documented, document_of, read_document
from kafka_ingest.model.offsets import OffsetRange

REMOVAL_VERSION = 1


class RemovalCause(StrEnum):
    """Why readers see nothing of a batch that was published."""

    EXPIRED = "expired"
    """An operator expired it (``kafka-ingest expire``)."""

    GONE = "gone"
    """Its files were missing when lost control tables were rebuilt (``kafka-ingest adopt``)."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A published batch that readers no longer see. Its receipt stays, so its offsets stay committed."""

    batch_id: UUID
    cause: RemovalCause
    at: datetime
    actor: str
    reason: str

    def __str__(self) -> str:
        what = "expired" if self.cause is RemovalCause.EXPIRED else "found gone"
        return f"{what} on {self.at:%Y-%m-%d} by {self.actor}: {self.reason}"

    def is_overruled_by(self, later: "Removal") -> bool:
        """Whether another mark replaces this one: missing files may come back, and expire then."""
        return self.cause is RemovalCause.GONE and later.cause is RemovalCause.EXPIRED

    def as_document(self) -> dict[str, Any]:
        found = document_of(self, "batch_id", "cause", "at", "reason")
        return {"version": REMOVAL_VERSION, **found, "who": self.actor}

    @classmethod
    @read_as_ours()
    def from_document(cls, document: Mapping[str, Any]) -> "Removal":
        """Read a removal back; raises ForeignJsonError where it is damaged or of another version."""
        require_version(document, REMOVAL_VERSION, "removal")
        return read_document(cls, document, actor=said(document, "who"))


@dataclass(frozen=True, slots=True)
class RemovedRange:
    """An interval of a topic whose records were committed, then some or all removed from the output on purpose."""

    offset_range: OffsetRange
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class LostRange(Documented):
    """The records of one partition in a published file that was lost or damaged.

    ``offset_range`` reaches from the smallest to the largest offset in the batch's receipt; it contains ``rows``.
    """

    batch_id: UUID
    file: str
    offset_range: OffsetRange
    topic_id: str | None
    rows: int
