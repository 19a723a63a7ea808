"""A line of the audit journal."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the audit journal."""

    event_id: int
    kind: str
    at: datetime
    actor: str
    batch_id: UUID | None
    detail: Mapping[str, Any]
