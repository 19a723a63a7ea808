"""Alerts: conditions of a feed that its owner is notified of, when they begin and when they end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from kafka_ingest.model.documents import document_of


class AlertKind(StrEnum):
    """What an alert is about; the rules of a feed file carry these names."""

    LAG = "lag"
    """More offsets can be read now than the feed's limit."""

    BEHIND = "behind"
    """Records that are older than the feed's limit, in Kafka's time, wait to be read."""

    HEADROOM = "headroom"
    """Retention deletes records that were not read, or will within the feed's limit."""

    OPEN_BATCH = "open_batch"
    """The feed's open batch has not changed its state for longer than the feed's limit."""

    HELD = "held"
    """A topic, or some of its partitions, takes no part in the feed's batches."""

    GAP = "gap"
    """Offsets were passed over, and not read since."""

    STOPPED = "stopped"
    """The next plan stops until an operator decides."""

    FILTERED_PERCENT = "filtered_percent"
    """More of the newest batch's records than the feed's limit were filtered."""

    DEAD_LETTERS = "dead_letters"
    """More dead letters than the feed's limit are left: neither replayed nor given up."""

    UNUSABLE = "unusable"
    """The feed's file cannot be used: nothing is read."""

    UNREACHABLE = "unreachable"
    """Kafka does not answer, so what the feed's other rules say is not known."""


NEED_KAFKA = frozenset({AlertKind.LAG, AlertKind.BEHIND, AlertKind.HEADROOM, AlertKind.STOPPED})
"""What cannot be judged without Kafka's answers."""


class Change(StrEnum):
    """What a notification says of its alert."""

    BEGUN = "begun"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Stops:
    """In which cases the feed's plan stops for an operator, instead of continuing without what is concerned."""

    on_loss: bool = True
    on_missing_topic: bool = True
    on_changed_topic: bool = True


@dataclass(frozen=True, slots=True)
class AlertRules:
    """What a feed's file asks to be notified of, by the values of AlertKind; None and False: not of that."""

    lag: int | None = None
    behind: timedelta | None = None
    headroom: timedelta | None = None
    open_batch: timedelta | None = None
    held: bool = False
    gap: bool = False
    stopped: bool = False
    filtered_percent: int | None = None
    dead_letters: int | None = None
    stops: Stops = Stops()

    @property
    def kinds(self) -> frozenset[AlertKind]:
        """Which kinds of alerts there may be: what keeps the others from being judged is always one of them."""
        limits = {kind: getattr(self, kind.value, None) for kind in AlertKind}
        asked = {kind for kind, limit in limits.items() if limit is not None and limit is not False}
        return frozenset(asked | {AlertKind.UNUSABLE} | ({AlertKind.UNREACHABLE} if asked & NEED_KAFKA else set()))

    @property
    def need_kafka(self) -> bool:
        """Whether some of them cannot be judged without Kafka's answers."""
        return AlertKind.UNREACHABLE in self.kinds


@dataclass(frozen=True, slots=True)
class Notifier:
    """What notifies: a class by its dotted path, and what it is made with. ``key`` names it in the control tables."""

    path: str
    arguments: Mapping[str, Any] = field(repr=False)
    key: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is the case now. ``subject`` distinguishes several of a kind: a topic, a decision."""

    kind: AlertKind
    text: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """A finding from its beginning on. ``ended_at`` is None as long as it holds."""

    alert_id: UUID
    feed_id: UUID
    feed: str
    kind: AlertKind
    subject: str
    text: str
    began_at: datetime
    ended_at: datetime | None = None

    @property
    def thing(self) -> tuple[UUID, AlertKind, str]:
        """What makes it the same alert as a finding of a later check."""
        return self.feed_id, self.kind, self.subject

    def as_document(self) -> dict[str, Any]:
        return document_of(self, "feed", "kind", "subject", "text", "began_at", "ended_at")


@dataclass(frozen=True, slots=True)
class NewAlert:
    """An alert that begins."""

    feed_id: UUID
    finding: Finding


@dataclass(frozen=True, slots=True)
class Said:
    """How far the notifications of an alert's change have come, by one notifier.

    ``said_at`` is None where it failed (``error``), or where the process that claimed it has not come back yet.
    """

    alert_id: UUID
    notifier: str
    change: Change
    said_at: datetime | None
    error: str | None = None

    @property
    def may_be_known(self) -> bool:
        """Whether the notification may have arrived: it did, or the process that sent it died."""
        return self.said_at is not None or self.error is None
