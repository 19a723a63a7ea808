"""Starts of feeds and fleets by the records that wait: an Asset each, whose events start the DAG beside its schedule.

From Airflow 3.3 on the triggerer watches; on all versions the DAG ``check_feeds`` looks, too, with the same memory.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS
from airflow.sdk import Asset, AssetWatcher

from kafka_ingest.airflow_tasks.airflow_versions import BY_ASSETS, MANUAL, SCHEDULED, TRIGGERED, only_runs, timetable
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.start_when import AwaitedFeed
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile


def awaited_feed(feed: Feed) -> AwaitedFeed | None:
    """Return what is awaited of a feed; None where its schedule alone starts it."""
    if feed.start_when is None:
        return None
    return AwaitedFeed(feed.name, feed.fleet or feed.name, feed.start_when.rule(), feed.kafka.isolation)


def awaited_feeds(files: Iterable[FeedFile]) -> dict[str, list[AwaitedFeed]]:
    """Return what is awaited of the feeds that can be used, by their connections."""
    feeds = [file.feed for file in files if file.feed is not None]
    return grouped((feed.kafka.conn_id, each) for feed in feeds if (each := awaited_feed(feed)) is not None)


def asset_of_starts(dag_id: str, watchers: Sequence[AssetWatcher] = ()) -> Asset:
    return Asset(name=f"kafka_ingest/start/{dag_id}", watchers=list(watchers))


def starts_by_what_waits(
    dag_id: str, schedule: str | None, feeds: Sequence[Feed], of_topics: Sequence[Feed] = ()
) -> dict[str, Any]:
    """Return the arguments of DAG that say when the runs of these feeds start.

    Each of ``of_topics`` stands for feeds that plans find, and that the triggerer has to look for.
    """
    awaited = grouped((feed.kafka.conn_id, each) for feed in feeds if (each := awaited_feed(feed)) is not None)
    with_topics = {feed.kafka.conn_id for feed in of_topics if feed.start_when is not None}
    # A task that asks for starts needs no trigger.
    from kafka_ingest.airflow_tasks.start_trigger import RecordsWaitTrigger, listed  # noqa: PLC0415

    watchers = [
        AssetWatcher(
            conn_id,
            RecordsWaitTrigger(
                dag_id=dag_id,
                conn_id=conn_id,
                feeds=[listed(each) for each in awaited.get(conn_id, ())],
                has_feeds_of_topics=conn_id in with_topics,
            ),
        )
        for conn_id in sorted(awaited.keys() | with_topics)
    ]
    asset = asset_of_starts(dag_id, watchers if AIRFLOW_V_3_3_PLUS else ())
    by_time = timetable("CronTriggerTimetable", schedule, timezone="UTC") if schedule is not None else None
    either = [asset] if by_time is None else timetable("AssetOrTimeSchedule", timetable=by_time, assets=[asset])
    return {
        "schedule": either,
        **only_runs(SCHEDULED, MANUAL, TRIGGERED, BY_ASSETS),
    }
