"""Looks after all feeds once a day: removes staged output that is over, repairs mirrors, and warns about headroom."""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from kafka_ingest.airflow_tasks.maintenance_tasks import CleanOperator, HeadroomOperator, MirrorOperator
from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.feed import Feed
from kafka_ingest.feed_files import feeds_directory, read_feed_files


def feeds() -> list[Feed]:
    """Return the feeds that can be used; a broken one has a DAG of its own that says so."""
    try:
        return [file.feed for file in read_feed_files(feeds_directory()) if file.feed is not None]
    except (InvalidFeedError, OSError):
        return []


with DAG(
    dag_id="maintain_feeds",
    description="Staged output that is over, consumer groups that drifted, partitions that retention is about to reach",
    schedule="@daily",
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["kafka_ingest", "maintenance"],
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
):
    for feed in feeds():
        # No task groups: their ids may not hold a dot, as a feed's name may.
        of_feed: dict[str, Any] = {"feed": feed, "owner": feed.airflow.owner, "pool": feed.airflow.pool}
        CleanOperator(task_id=f"{feed.name}.clean", **of_feed)
        HeadroomOperator(task_id=f"{feed.name}.headroom", **of_feed)
        if feed.kafka.group is not None:
            MirrorOperator(task_id=f"{feed.name}.mirror", **of_feed)
