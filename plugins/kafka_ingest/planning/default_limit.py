"""How large a batch becomes where the feed names no limit: what this machine reads in minutes. Pure.

The whole backlog at once would take hours, and a failure or retention would waste them all. Small batches cost little:
some seconds each.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from kafka_ingest.planning.settings import FeedPlanSettings

TIME_OF_A_BATCH = timedelta(minutes=10)
LEAST_RECORDS = 500_000
"""Also the limit of a feed's first batch, whose speed is unknown: seconds for small records, minutes at 100 KB each."""


def with_default_limit(settings: FeedPlanSettings, speeds: Collection[float]) -> FeedPlanSettings:
    """Return the settings with the next batch's limit, where the feed file names none and the limit follows the speed.

    ``max_records`` in such settings is the limit of one run: it makes the batch smaller, never larger. ``speeds`` are
    offsets per second, from an attempt's beginning to its receipt. The highest one counts: in small batches Spark's
    start dominates, and a batch that waited for a busy cluster says nothing about the next.
    """
    in_time = round(max(speeds, default=0.0) * TIME_OF_A_BATCH.total_seconds())
    default = max(LEAST_RECORDS, settings.min_records or 0, in_time)
    return replace(settings, max_records=min(default, settings.max_records or default))
