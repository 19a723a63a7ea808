"""Whether feeds wait for pools that give them no slot: one that does not exist never does, and only schedulers log it.

A task may not ask Airflow for its pools, but for the states of tasks.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from kafka_ingest.observing.lateness import due_times
from kafka_ingest.settings.feed import DEFAULT_POOL, Feed
from kafka_ingest.settings.feed_file import FeedFile

PLAN: Final = "plan"
MOST_RUNS: Final = 50
"""How many of the newest runs are asked for: while one waits, Airflow makes no other."""


def waiting_for_pools(files: Sequence[FeedFile], now: datetime) -> Iterator[str]:
    """Yield which feeds with a pool of their own have a run whose plan should have begun and has no slot."""
    for file in files:
        feed = file.feed
        if feed is not None and feed.airflow.pool != DEFAULT_POOL and waits(feed, now):
            pool = feed.airflow.pool
            yield (
                f"feed {feed.name}: expected its plan to begin within its schedule, found it waiting for a slot of "
                f"pool {pool!r}, which may not exist: `airflow pools get {pool}`. Make it, give it more slots, or "
                "correct airflow.pool"
            )


def waits(feed: Feed, now: datetime) -> bool:
    """Whether the plan of a run that was due waits for a slot."""
    due = [each.astimezone(UTC) for each in islice(due_times(feed.schedule, now), MOST_RUNS)]
    count: Any = RuntimeTaskInstance.get_ti_count
    return (
        bool(due)
        and count(dag_id=feed.fleet or feed.name, task_ids=[PLAN], logical_dates=due, states=["scheduled"]) > 0
    )
