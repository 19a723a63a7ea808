"""The history of a feed: its audit journal, line by line."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.event import Event
from kafka_ingest.observing.event_formatters import FORMATTERS, EventText, format_event
from kafka_ingest.ports.control import ControlObserver


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One event, and its text."""

    event: Event
    text: EventText

    def as_document(self) -> dict[str, Any]:
        """Return the line as ``--json`` shows it."""
        event, text = self.event, self.text
        return {
            **document_of(event, "event_id", "kind", "at", "batch_id"),
            "who": event.actor,
            **document_of(text, "reason", "summary"),
            "changes": [
                document_of(change, "topic_partition", "was") | {"is": change.becomes} for change in text.changes
            ],
            "detail": dict(event.detail),
        }


def history(
    control: ControlObserver,
    feed_id: UUID,
    *,
    kinds: Collection[str] = (),
    since: datetime | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> list[HistoryLine]:
    """Return a feed's events, newest first; raises WrongUseError on a kind that is never written.

    ``before`` is the number of an event: only older ones.
    """
    if unknown := sorted(set(kinds) - FORMATTERS.keys()):
        raise WrongUseError(f"--kind: expected one of {', '.join(sorted(FORMATTERS))}; found {', '.join(unknown)}")
    return [
        HistoryLine(event, format_event(event))
        for event in control.journal(feed_id, kinds=kinds, since=since, before=before, limit=limit)
    ]
