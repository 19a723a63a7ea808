"""Alerts of feeds, and what each notifier was given of them.

No step of the protocol depends on them, so they take no feed's lock and raise no revision; checks at the same time
take turns with a lock of their own.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import uuid6
from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select, update

from kafka_ingest.control.database import Store, reads, transaction
from kafka_ingest.control.rows import batched, insert_rows
from kafka_ingest.control.schema import alert, alert_notice, feed
from kafka_ingest.model.alert import Alert, AlertKind, Change, NewAlert, Said
from kafka_ingest.model.documents import read_row

ALERTS_LOCK = 0x6B61666B62  # any number that nothing else locks in this database
CLAIM_EXPIRES = timedelta(minutes=10)
"""After that the process that claimed a notification is taken for dead: notifiers have less time."""


def alerts_of(connection: Connection, *conditions: ColumnElement[bool]) -> list[Alert]:
    query = select(alert, feed.c.name.label("feed")).join(feed, feed.c.feed_id == alert.c.feed_id).where(*conditions)
    found = [read_row(Alert, row) for row in connection.execute(query).mappings()]
    return sorted(found, key=lambda each: (each.began_at, each.feed, each.kind, each.subject))


class AlertStore(Store):
    """Begins and ends alerts, and lends their notifications to one process at a time."""

    alerts = reads(alerts_of)

    def said(self) -> list[Said]:
        columns = (alert_notice.c[name] for name in ("alert_id", "notifier", "change", "said_at", "error"))
        with self.reading() as connection:
            return [
                Said(row.alert_id, row.notifier, Change(row.change), row.said_at, row.error)
                for row in connection.execute(select(*columns))
            ]

    def note_alerts(self, begun: Sequence[NewAlert], ended: Collection[UUID], now: datetime) -> None:
        with transaction(self._engine, "write") as connection:
            take_turn(connection)
            holding = {each.thing for each in alerts_of(connection, alert.c.ended_at.is_(None))}
            rows: dict[tuple[UUID, AlertKind, str], dict[str, Any]] = {}
            for new in begun:
                found = new.finding
                thing = (new.feed_id, found.kind, found.subject)
                if thing not in holding:
                    rows[thing] = {
                        "alert_id": uuid6.uuid7(),
                        "feed_id": new.feed_id,
                        "kind": found.kind.value,
                        "subject": found.subject,
                        "text": found.text,
                        "began_at": now,
                        "ended_at": None,
                    }
            insert_rows(connection, alert, list(rows.values()))
            for some in batched(sorted(ended)):
                # Clocks of several machines: none ends before it began.
                later = func.max if connection.dialect.name == "sqlite" else func.greatest
                connection.execute(
                    update(alert)
                    .where(alert.c.alert_id.in_(some), alert.c.ended_at.is_(None))
                    .values(ended_at=later(alert.c.began_at, bindparam("now", now, type_=alert.c.ended_at.type)))
                )

    def forget_alerts(self, alert_ids: Collection[UUID]) -> None:
        with transaction(self._engine, "write") as connection:
            take_turn(connection)
            for some in batched(sorted(alert_ids)):
                gone = select(alert.c.alert_id).where(alert.c.alert_id.in_(some), alert.c.ended_at.is_not(None))
                connection.execute(delete(alert_notice).where(alert_notice.c.alert_id.in_(gone)))
                connection.execute(delete(alert).where(alert.c.alert_id.in_(some), alert.c.ended_at.is_not(None)))

    def claim(self, alert_ids: Collection[UUID], notifier: str, change: Change, now: datetime) -> set[UUID]:
        with transaction(self._engine, "write") as connection:
            take_turn(connection)
            claimed: set[UUID] = set()
            for some in batched(sorted(alert_ids)):
                there = set(connection.execute(select(alert.c.alert_id).where(alert.c.alert_id.in_(some))).scalars())
                of_these = (*of_notifier(notifier, change), alert_notice.c.alert_id.in_(some))
                query = select(alert_notice.c.alert_id, alert_notice.c.said_at, alert_notice.c.claimed_at)
                known = connection.execute(query.where(*of_these)).all()
                open_again = {
                    row.alert_id
                    for row in known
                    if row.said_at is None and (row.claimed_at is None or row.claimed_at <= now - CLAIM_EXPIRES)
                }
                if open_again:
                    connection.execute(
                        update(alert_notice)
                        .where(*of_notifier(notifier, change), alert_notice.c.alert_id.in_(open_again))
                        .values(claimed_at=now, error=None)
                    )
                new = there - {row.alert_id for row in known}
                insert_rows(
                    connection,
                    alert_notice,
                    [
                        {"alert_id": each, "notifier": notifier, "change": change.value, "claimed_at": now}
                        for each in new
                    ],
                )
                claimed |= open_again | new
            return claimed

    def note_said(
        self, alert_ids: Collection[UUID], notifier: str, change: Change, now: datetime, *, error: str | None = None
    ) -> None:
        values = {"said_at": now, "error": None} if error is None else {"claimed_at": None, "error": error}
        with transaction(self._engine, "write") as connection:
            for some in batched(sorted(alert_ids)):
                of_these = (*of_notifier(notifier, change), alert_notice.c.alert_id.in_(some))
                connection.execute(
                    update(alert_notice).where(*of_these, alert_notice.c.said_at.is_(None)).values(**values)
                )


def of_notifier(notifier: str, change: Change) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return alert_notice.c.notifier == notifier, alert_notice.c.change == change.value


def take_turn(connection: Connection) -> None:
    """Wait for other checks; on SQLite the transaction itself is the lock (BEGIN IMMEDIATE)."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(ALERTS_LOCK)))
