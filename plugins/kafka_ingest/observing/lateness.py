"""Whether a feed is late: records wait that a run which was due should have read."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from croniter import CroniterBadDateError, croniter

LEAST_GRACE: Final = timedelta(minutes=10)
MOST_GRACE: Final = timedelta(hours=6)
"""How long a run that is due may take: a quarter of the time between two, at least and at most this."""
WITHOUT_TIMES: Final = timedelta(days=1)
"""How old a waiting record may be where runs are due at no time: with ``schedule: null`` or ``@once``."""


def is_late(schedule: str | None, oldest: timedelta | None, planned_at: datetime | None, now: datetime) -> bool:
    """Whether the records that wait should have been read already.

    ``oldest``: the age of the oldest of them, in Kafka's time; where it is not known, the last plan decides.
    """
    now = now.replace(second=0, microsecond=0)
    limit, grace = longest_wait(schedule, now)
    if oldest is None:
        return planned_at is None or now - planned_at > limit
    # A record's time is its producer's, often somewhat before it was written.
    return oldest > limit + grace


@lru_cache(maxsize=1_000)  # of many feeds most share a few schedules
def longest_wait(schedule: str | None, now: datetime) -> tuple[timedelta, timedelta]:
    """Return how long ago the newest run was due that has had its time, and how much that was."""
    if schedule in {None, "@once"}:
        return WITHOUT_TIMES, timedelta(0)
    if schedule == "@continuous":
        return LEAST_GRACE, LEAST_GRACE
    cron = cron_of(schedule)
    try:
        due = croniter(cron, now)
        newest, before = due.get_prev(datetime), due.get_prev(datetime)
        grace = min(max(LEAST_GRACE, (newest - before) / 4), MOST_GRACE)
        return now - croniter(cron, now - grace).get_prev(datetime), grace
    except CroniterBadDateError:  # due in the future only
        return WITHOUT_TIMES, timedelta(0)


def cron_of(schedule: str) -> str:
    """Return a schedule as croniter knows it, which has not all of Airflow's presets."""
    return "0 0 1 */3 *" if schedule == "@quarterly" else schedule


def due_times(schedule: str | None, now: datetime) -> Iterator[datetime]:
    """Yield when runs were due that have had their time, the newest first; none where runs are due at no time."""
    if schedule in {None, "@once", "@continuous"}:
        return
    now = now.replace(second=0, microsecond=0)
    wait, _ = longest_wait(schedule, now)
    due = croniter(cron_of(schedule), now - wait + timedelta(seconds=1))
    try:
        while True:
            yield due.get_prev(datetime)
    except CroniterBadDateError:
        return
