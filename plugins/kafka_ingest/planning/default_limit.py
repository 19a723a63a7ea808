"""How large a batch becomes where the feed names no limit: what this machine reads in minutes. Pure.

The whole backlog at once would take hours of which a failure, or retention, leaves nothing. Small batches cost little: some
seconds each.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from kafka_ingest.planning.settings import FeedPlanSettings

TIME_OF_A_BATCH = timedelta(minutes=10)
LEAST_RECORDS = 500_000
"""Also of a feed's first batch, of whose speed nothing is known yet: seconds where records are small, minutes at 100 KB each."""


def with_default_limit(settings: FeedPlanSettings, speeds: Collection[float]) -> FeedPlanSettings:
    """Return the settings with the limit of the next batch of a feed that leaves it to what its newest batches came to.

    The ``max_records`` that such settings have is what one run asks for: it makes the batch smaller, never larger.
    ``speeds`` are offsets a second, from an attempt's beginning to its receipt. The best one counts: small batches are slow by
    Spark's start, and one that waited for a busy cluster says nothing of the next.
    """
    in_time = round(max(speeds, default=0.0) * TIME_OF_A_BATCH.total_seconds())
    default = max(LEAST_RECORDS, settings.min_records or 0, in_time)
    return replace(settings, max_records=min(default, settings.max_records or default))
