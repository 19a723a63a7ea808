"""Starts of feeds and fleets by the records that wait: an Asset each, whose events start the DAG beside its schedule.

From Airflow 3.3 on the triggerer watches; on all versions the DAG ``check_feeds`` looks, too, with the same memory.
"""

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS
from airflow.sdk import Asset, AssetWatcher

from kafka_ingest.airflow_tasks.airflow_versions import BY_ASSETS, MANUAL, SCHEDULED, TRIGGERED, only_runs, timetable
from kafka_ingest.model.start_when import AwaitedFeed
from kafka_ingest.settings.feed import Feed


def awaited_feed(feed: Feed) -> AwaitedFeed | None:
    """Return what is awaited of a feed; None where its schedule alone starts it."""
    if feed.start_when is None:
        return None
    return AwaitedFeed(feed.name, feed.fleet or feed.name, feed.start_when.rule(), feed.kafka.isolation)


def asset_of_starts(dag_id: str, watchers: Sequence[AssetWatcher] = ()) -> Asset:
    """Return the Asset whose events start a DAG."""
    return Asset(name=f"kafka_ingest/start/{dag_id}", watchers=list(watchers))


def starts_by_what_waits(dag_id: str, schedule: str | None, feeds: Sequence[Feed]) -> dict[str, Any]:
    """Return the arguments of DAG that say when the runs of these feeds start."""
    awaited = [(feed.kafka.conn_id, each) for feed in feeds if (each := awaited_feed(feed)) is not None]
    # A task that asks for starts needs no trigger.
    from kafka_ingest.airflow_tasks.start_trigger import RecordsWaitTrigger  # noqa: PLC0415

    watchers = [AssetWatcher(each.name, RecordsWaitTrigger.of(each, conn_id)) for conn_id, each in awaited]
    asset = asset_of_starts(dag_id, watchers if AIRFLOW_V_3_3_PLUS else ())
    by_time = timetable("CronTriggerTimetable", schedule, timezone="UTC") if schedule is not None else None
    either = [asset] if by_time is None else timetable("AssetOrTimeSchedule", timetable=by_time, assets=[asset])
    return {
        "schedule": either,
        **only_runs(SCHEDULED, MANUAL, TRIGGERED, BY_ASSETS),
    }
