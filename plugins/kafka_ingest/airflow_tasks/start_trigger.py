"""Starts runs of feeds by the records that wait, from the triggerer: nothing runs, and no task starts, while none do.

All triggers of one Kafka connection share one look at its logs (Airflow 3.3's shared streams), made in a thread: the
triggerer's event loop counts as unhealthy where one trigger keeps it for long.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Hashable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_ingest.airflow_tasks.start_checks import StartCheck
from kafka_ingest.errors import KafkaIngestError, WrongUseError
from kafka_ingest.model.offsets import Isolation
from kafka_ingest.model.start_when import AwaitedFeed, StartWhen

log = logging.getLogger(__name__)

PAUSE_S: Final = 4.0
"""Between two looks at the logs of a connection."""
PAUSE_AFTER_FAILURE_S: Final = 30.0
PAUSE_AFTER_REFUSAL_S: Final = 600.0
"""After a wrong connection or a refused login, of which each counts against the account."""

awaited: dict[str, dict["RecordsWaitTrigger", AwaitedFeed]] = {}
"""The feeds that this triggerer watches, by connection: a shared stream is opened with the arguments of one of them."""


class RecordsWaitTrigger(BaseEventTrigger):
    """Fires once for each start that a feed's ``start_when`` asks for."""

    def __init__(
        self,
        *,
        feed: str,
        dag_id: str,
        conn_id: str,
        isolation: str,
        records: int | None = None,
        or_older_than_s: float | None = None,
    ) -> None:
        begin: Callable[[], None] = super().__init__  # Airflow gives it no types
        begin()
        self.arguments: dict[str, Any] = {
            "feed": feed,
            "dag_id": dag_id,
            "conn_id": conn_id,
            "isolation": isolation,
            "records": records,
            "or_older_than_s": or_older_than_s,
        }
        self.conn_id = conn_id
        older = timedelta(seconds=or_older_than_s) if or_older_than_s is not None else None
        self.awaited = AwaitedFeed(feed, dag_id, StartWhen(records, older), Isolation(isolation))

    @classmethod
    def of(cls, feed: AwaitedFeed, conn_id: str) -> "RecordsWaitTrigger":
        """Return the trigger of a feed."""
        older = feed.rule.or_older_than
        return cls(
            feed=feed.name,
            dag_id=feed.dag_id,
            conn_id=conn_id,
            isolation=feed.isolation.value,
            records=feed.rule.records,
            or_older_than_s=older.total_seconds() if older is not None else None,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow makes the trigger of in the triggerer."""
        return f"{type(self).__module__}.{type(self).__name__}", self.arguments

    def shared_stream_key(self) -> Hashable:
        """Return what all feeds of a connection have in common."""
        return "kafka_ingest records wait", self.conn_id

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[dict[AwaitedFeed, str]]:
        """Yield which DAGs are to be started, and why, whenever there are some; never ends.

        What fails is logged when it begins to fail, and when that changes: an error here would end all triggers.
        """
        conn_id = kwargs["conn_id"]
        thread = ThreadPoolExecutor(1, f"kafka_ingest starts of {conn_id}")
        check, pause_s, failure = StartCheck(conn_id), PAUSE_S, ""
        try:
            while True:
                await asyncio.sleep(pause_s)
                feeds = list(awaited.get(conn_id, {}).values())
                before, failure, pause_s, starts = failure, "", PAUSE_S, {}
                try:
                    starts = await asyncio.get_running_loop().run_in_executor(thread, starts_of, check, feeds)
                except Exception as error:  # noqa: BLE001 - an error here would end all triggers of the connection
                    failure = f"{error.code}: {error}" if isinstance(error, KafkaIngestError) else repr(error)
                    check = StartCheck(conn_id)
                    pause_s = PAUSE_AFTER_REFUSAL_S if isinstance(error, WrongUseError) else PAUSE_AFTER_FAILURE_S
                if failure and failure != before:
                    log.warning("schedules alone start the feeds of connection %s for now: %s", conn_id, failure)
                elif before and not failure:
                    log.warning("what waits starts the feeds of connection %s again", conn_id)
                if starts:
                    yield starts
        finally:
            # A question that is not answered must not keep the event loop.
            thread.shutdown(wait=False, cancel_futures=True)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Yield the events of this feed."""
        awaited.setdefault(self.conn_id, {})[self] = self.awaited
        try:
            async for starts in shared_stream:
                if why := starts.get(self.awaited):
                    yield TriggerEvent({"feed": self.awaited.name, "why": why})
        finally:
            awaited[self.conn_id].pop(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the same without a shared stream, which the triggerer offers."""
        async for event in self.filter_shared_stream(self.open_shared_stream(self.arguments)):
            yield event


def starts_of(check: StartCheck, feeds: Collection[AwaitedFeed]) -> dict[AwaitedFeed, str]:
    """Ask for starts; called in a thread."""
    return check.starts(feeds, datetime.now(UTC)) if feeds else {}
