"""The audit journal, and the ledger of seeds, gaps and resets that is a part of it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select

from kafka_ingest.control.database import Store, reads, transaction
from kafka_ingest.control.feed_statements import append_event, lock_feed
from kafka_ingest.control.rows import batch_row, events_of
from kafka_ingest.control.schema import LEDGER_KINDS, event
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.gap import Event


class JournalStore(Store):
    """The lines of the audit journal."""

    journal = reads(events_of)

    def backfill_request(self, feed_id: UUID, actor: str) -> Mapping[str, Any] | None:
        query = select(event.c.detail).where(
            event.c.feed_id == feed_id, event.c.kind == "backfill_planned", event.c.actor == actor
        )
        with self.reading() as connection:
            detail = connection.execute(query.order_by(event.c.event_id.desc()).limit(1)).scalar()
        return None if detail is None else detail.get("request")

    def ledger_of_feed(self, feed_id: UUID) -> list[Event]:
        with self.reading() as connection:
            return events_of(connection, feed_id, kinds=LEDGER_KINDS)[::-1]

    def ledger(self, batch_id: UUID) -> list[Event]:
        with self.reading() as connection:
            row = batch_row(connection, batch_id)
            if row["ledger_after"] is None:
                raise BatchStateError(
                    f"batch {batch_id} is {row['state']}: only a COMMITTING one has a place in the ledger"
                )
            after, upto = row["ledger_after"], row["ledger_upto"]
            found = events_of(connection, row["feed_id"], kinds=LEDGER_KINDS, after=after, before=upto + 1)
            return found[::-1]

    def record_event(
        self, feed_id: UUID, kind: str, *, actor: str, batch_id: UUID | None, detail: Mapping[str, Any]
    ) -> None:
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            append_event(connection, feed_id, kind, actor, batch_id, detail)
