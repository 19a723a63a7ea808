"""Starts runs of feeds by the records that wait, from the triggerer: nothing runs, and no task starts, while none do.

All triggers of one Kafka connection share one look at its logs (Airflow 3.3's shared streams), made in a thread: the
triggerer's event loop counts as unhealthy where one trigger keeps it for long.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_ingest.errors import KafkaIngestError, WrongUseError
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.offsets import Isolation
from kafka_ingest.model.waiting import AwaitedFeed, StartWhen

if TYPE_CHECKING:
    from kafka_ingest.airflow_tasks.start_checks import StartCheck

log = logging.getLogger(__name__)

PAUSE_S: Final = 4.0
"""Between two looks at the logs of a connection."""
PAUSE_AFTER_FAILURE_S: Final = 30.0
PAUSE_AFTER_REFUSAL_S: Final = 600.0
"""After a wrong connection or a refused login, of which each counts against the account."""

watching: dict[str, set["RecordsWaitTrigger"]] = {}
"""The triggers at work here, by connection: a shared stream is opened with the arguments of one of them."""


class RecordsWaitTrigger(BaseEventTrigger):
    """Fires once for each start of a DAG that the ``start_when`` of its feeds asks for.

    One for each DAG and connection: a triggerer takes a thousand of all kinds, unless it is set otherwise.
    """

    def __init__(
        self, *, dag_id: str, conn_id: str, feeds: Sequence[Sequence[Any]], has_feeds_of_topics: bool = False
    ) -> None:
        """Take each feed as a list that JSON can hold: see :func:`listed`."""
        begin: Callable[[], None] = super().__init__  # Airflow gives it no types
        begin()
        self.dag_id = dag_id
        self.conn_id = conn_id
        self.feeds = [unlisted(dag_id, *each) for each in feeds]
        self.has_feeds_of_topics = has_feeds_of_topics

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow makes the trigger of in the triggerer."""
        return f"{type(self).__module__}.{type(self).__name__}", {
            "dag_id": self.dag_id,
            "conn_id": self.conn_id,
            "feeds": [listed(each) for each in self.feeds],
            "has_feeds_of_topics": self.has_feeds_of_topics,
        }

    def shared_stream_key(self) -> Hashable:
        """Return what all DAGs of a connection have in common."""
        return "kafka_ingest records wait", self.conn_id

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[dict[str, str]]:
        """Yield which DAGs are to be started, and why, whenever there are some; never ends.

        What fails is logged when it begins to fail, and when that changes: an error here would end all triggers.
        """
        conn_id = kwargs["conn_id"]
        thread = ThreadPoolExecutor(1, f"kafka_ingest starts of {conn_id}")
        loop, pause_s, failure = asyncio.get_running_loop(), PAUSE_S, ""
        check: StartCheck | None = None
        try:
            while True:
                await asyncio.sleep(pause_s)
                triggers = list(watching.get(conn_id, ()))
                before, failure, pause_s, starts = failure, "", PAUSE_S, {}
                try:
                    if check is None:
                        check = await loop.run_in_executor(thread, new_check, conn_id)
                    starts = await loop.run_in_executor(thread, starts_of, check, triggers)
                except Exception as error:  # noqa: BLE001 - an error here would end all triggers of the connection
                    failure = f"{error.code}: {error}" if isinstance(error, KafkaIngestError) else repr(error)
                    if check is not None:
                        await loop.run_in_executor(thread, check.close)
                    check = None
                    pause_s = PAUSE_AFTER_REFUSAL_S if isinstance(error, WrongUseError) else PAUSE_AFTER_FAILURE_S
                if failure and failure != before:
                    log.warning("schedules alone start the feeds of connection %s for now: %s", conn_id, failure)
                elif before and not failure:
                    log.warning("what waits starts the feeds of connection %s again", conn_id)
                if starts:
                    yield starts
        finally:
            if check is not None:
                thread.submit(check.close)
            # A question that is not answered must not keep the event loop.
            thread.shutdown(wait=False)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        watching.setdefault(self.conn_id, set()).add(self)
        try:
            async for starts in shared_stream:
                if why := starts.get(self.dag_id):
                    yield TriggerEvent({"why": why})
        finally:
            watching[self.conn_id].discard(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the same without a shared stream, which the triggerer offers."""
        async for event in self.filter_shared_stream(self.open_shared_stream({"conn_id": self.conn_id})):
            yield event


def listed(feed: AwaitedFeed) -> list[Any]:
    """Return a feed without its DAG, as JSON holds it."""
    older = feed.rule.or_older_than
    return [feed.name, feed.isolation.value, feed.rule.records, older.total_seconds() if older is not None else None]


def unlisted(dag_id: str, name: str, isolation: str, records: int | None, older_than_s: float | None) -> AwaitedFeed:
    older = timedelta(seconds=older_than_s) if older_than_s is not None else None
    return AwaitedFeed(name, dag_id, StartWhen(records, older), Isolation(isolation))


def new_check(conn_id: str) -> "StartCheck":
    """Return what looks at a connection; called in a thread, as its imports alone take most of a second."""
    from kafka_ingest.airflow_tasks.start_checks import StartCheck  # noqa: PLC0415

    return StartCheck(conn_id)


def starts_of(check: "StartCheck", triggers: Collection[RecordsWaitTrigger]) -> dict[str, str]:
    """Ask for starts; called in a thread.

    A look at 1,000 feeds would often make Python visit all objects of the process, half a second for the event loop.
    """
    now = datetime.now(UTC)
    with without_garbage_collection():
        feeds = [feed for each in triggers for feed in each.feeds]
        feeds += check.feeds_of_topics({each.dag_id for each in triggers if each.has_feeds_of_topics}, now)
        return check.starts(feeds, now) if feeds else {}
