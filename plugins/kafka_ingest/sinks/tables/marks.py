"""What became of a batch, as its table says."""

from dataclasses import dataclass
from enum import Enum
from uuid import UUID


class Outcome(Enum):
    """What became of a batch. The first mark that is committed is final."""

    PUBLISHED = "published"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one batch; with the fingerprint of its plan where it is published and the table can say it."""

    batch_id: UUID
    outcome: Outcome
    fingerprint: str = ""
