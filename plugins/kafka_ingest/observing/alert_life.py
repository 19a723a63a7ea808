"""The life of alerts: begun when a check first finds them, ended when one does not any more, each said once.

What was found is in the control tables before anything is said of it. Each notification is claimed there before it is
given, and noted after. So of two checks at once one gives it, and a notifier that fails is tried again by the next
check. A process that dies in between leaves a claim, which expires, and so does a notifier that takes too long: of
both it is unknown whether the notification arrived, and it is given once more then.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from kafka_ingest.model.alert import Alert, AlertKind, Change, NewAlert, Notifier, Said
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import listing
from kafka_ingest.observing.alert_rules import Look, WatchedFeed
from kafka_ingest.ports.control import AlertTables

MANY_FEEDS: Final = 10
"""From so many feeds on, one notification says what of them has changed in one check, not a thousand mails."""

MOST_LINES: Final = 50


@dataclass(frozen=True, slots=True)
class Notice:
    """What one notifier is given at once: alerts of one kind and change, of one feed, one connection, or many feeds."""

    notifier: Notifier
    change: Change
    kind: AlertKind
    alerts: tuple[Alert, ...]

    @property
    def feeds(self) -> list[str]:
        return sorted({alert.feed for alert in self.alerts})

    @property
    def title(self) -> str:
        names = self.feeds
        what = self.kind.value.replace("_", " ")
        ended = " ended" if self.change is Change.ENDED else ""
        return f"Kafka {'feed' if len(names) == 1 else 'feeds'} {listing(names, 3)}: {what}{ended}"

    @property
    def text(self) -> str:
        """What is said in full: a line for each alert; feeds of one connection share theirs."""
        texts = dict.fromkeys(alert.text for alert in self.alerts)
        if len(self.feeds) > 1 and len(texts) > 1:
            texts = dict.fromkeys(f"{alert.feed}: {alert.text}" for alert in self.alerts)
        lines = [*list(texts)[:MOST_LINES], *([f"and {len(texts) - MOST_LINES:,} more"] * (len(texts) > MOST_LINES))]
        if self.change is Change.ENDED:
            since = min(alert.began_at for alert in self.alerts)
            lines = [f"ended, since {since:%Y-%m-%d %H:%M} UTC: {line}" for line in lines]
        return "\n".join(lines)

    def as_document(self) -> dict[str, Any]:
        return {
            "feed": listing(self.feeds, 3),
            **document_of(self, "kind", "change", "title", "text"),
            "alerts": [alert.as_document() for alert in self.alerts[:MOST_LINES]],
        }


class NotGivenError(Exception):
    """A notice was not given; the words are fit to be stored and shown."""


class StillBeingGivenError(Exception):
    """A notifier takes too long; its notice may arrive yet."""


Notify = Callable[[Notice], None]
"""Gives a notice; raises NotGivenError or StillBeingGivenError, and nothing else."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a check found to be different from before. ``dropped``: what no feed asks about any more; it just ends."""

    begun: Sequence[NewAlert]
    ended: Collection[UUID]
    dropped: Collection[UUID]


def changes_of(
    alerts: Collection[Alert],
    feeds: Mapping[UUID, WatchedFeed],
    looks: Mapping[UUID, Look],
    kept: Collection[UUID] = (),
) -> Changes:
    """Compare what is the case with the alerts there are; ``kept`` are feeds of which nothing is known now."""
    current = {alert.thing: alert for alert in alerts if alert.ended_at is None}
    found = {
        (feed_id, each.kind, each.subject): NewAlert(feed_id, each)
        for feed_id, look in looks.items()
        for each in look.found
    }
    asked = {feed_id: feed.rules.kinds for feed_id, feed in feeds.items()}
    dropped = {
        alert.alert_id
        for alert in alerts
        if alert.feed_id not in kept and alert.kind not in asked.get(alert.feed_id, frozenset())
    }
    ended = {
        alert.alert_id
        for thing, alert in current.items()
        if alert.feed_id in looks and thing not in found and alert.kind not in looks[alert.feed_id].unknown
    }
    return Changes([new for thing, new in found.items() if thing not in current], ended - dropped, dropped)


def note_changes(control: AlertTables, changes: Changes, now: datetime) -> None:
    if changes.begun or changes.ended or changes.dropped:
        control.note_alerts(changes.begun, {*changes.ended, *changes.dropped}, now)
    if changes.dropped:
        control.forget_alerts(changes.dropped)


def due(alerts: Collection[Alert], said: Collection[Said], feeds: Mapping[UUID, WatchedFeed]) -> list[Notice]:
    """Return what has to be said now; what failed before comes last, so that it keeps nothing else from being said.

    Of an end only those hear who may have heard of the beginning.
    """
    known = {(each.alert_id, each.notifier, each.change): each for each in said}
    groups: dict[tuple[bool, str, Change, AlertKind], dict[str, tuple[Notifier, list[Alert]]]] = {}
    for alert in alerts:
        feed = feeds.get(alert.feed_id)
        for notifier in feed.notifiers if feed is not None else ():
            begun = known.get((alert.alert_id, notifier.key, Change.BEGUN))
            change = Change.BEGUN if alert.ended_at is None else Change.ENDED
            if change is Change.ENDED and (begun is None or not begun.may_be_known):
                continue
            before = known.get((alert.alert_id, notifier.key, change))
            if before is not None and before.said_at is not None:
                continue
            has_failed = before is not None
            place = feed.conn_id if feed is not None and alert.kind is AlertKind.UNREACHABLE else alert.feed
            of_kind = groups.setdefault((has_failed, notifier.key, change, alert.kind), {})
            of_kind.setdefault(place, (notifier, []))[1].append(alert)
    return [
        Notice(notifier, change, kind, tuple(some))
        for (_, _, change, kind), of_kind in sorted(groups.items(), key=lambda pair: pair[0][0])
        for notifier, some in together(of_kind)
    ]


def together(places: Mapping[str, tuple[Notifier, list[Alert]]]) -> list[tuple[Notifier, list[Alert]]]:
    if len(places) < MANY_FEEDS:
        return list(places.values())
    notifier, _ = next(iter(places.values()))
    return [(notifier, [alert for _, some in places.values() for alert in some])]


def say(
    control: AlertTables,
    feeds: Mapping[UUID, WatchedFeed],
    notify: Notify,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[str]:
    """Say what is to be said, forget what has ended and was said, and return what failed."""
    failures: list[str] = []
    slow: set[str] = set()
    for notice in due(control.alerts(), control.said(), feeds):
        notifier = notice.notifier
        if notifier.path in slow:
            failures.append(f"{notice.title}: not tried, as {notifier.path} took too long before")
            continue
        ids = control.claim([alert.alert_id for alert in notice.alerts], notifier.key, notice.change, clock())
        if not ids:
            continue
        claimed = replace(notice, alerts=tuple(alert for alert in notice.alerts if alert.alert_id in ids))
        try:
            notify(claimed)
        except NotGivenError as error:
            control.note_said(ids, notifier.key, notice.change, clock(), error=str(error))
            failures.append(f"{notice.title}: {notifier.path} failed: {error}")
        except StillBeingGivenError as error:
            # It is not noted as failed: the next check might give again what arrives a moment later.
            slow.add(notifier.path)
            failures.append(f"{notice.title}: {notifier.path}: {error}")
        else:
            control.note_said(ids, notifier.key, notice.change, clock())
    forget(control, feeds)
    return failures


def forget(control: AlertTables, feeds: Mapping[UUID, WatchedFeed]) -> None:
    alerts = control.alerts()
    if not any(alert.ended_at is not None for alert in alerts):
        return
    unsaid = {alert.alert_id for notice in due(alerts, control.said(), feeds) for alert in notice.alerts}
    gone = {alert.alert_id for alert in alerts if alert.ended_at is not None and alert.feed_id in feeds} - unsaid
    if gone:
        control.forget_alerts(gone)
