"""Looks after all feeds once a day: removes staged output that is over, repairs mirrors, and warns about headroom."""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from kafka_ingest.airflow_tasks.feed_tasks import FeedErrorOperator
from kafka_ingest.airflow_tasks.maintenance_tasks import CleanOperator, HeadroomOperator, MirrorOperator
from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.feed_files import FeedFile, error_id, feeds_directory, read_feed_files, unusable


def feed_files() -> list[FeedFile]:
    """Return the feed files, or one with an error where the folder itself cannot be read."""
    directory = feeds_directory()
    try:
        return read_feed_files(directory)
    except (InvalidFeedError, OSError) as error:
        return [unusable(directory, str(error))]


with DAG(
    dag_id="maintain_feeds",
    description="Staged output that is over, consumer groups that drifted, partitions that retention is about to reach",
    schedule="@daily",
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["kafka_ingest", "maintenance"],
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5), "execution_timeout": timedelta(hours=2)},
):
    for file in feed_files():
        if file.error is not None:
            # Red once a day, beside the tasks of the others; the file has a DAG of its own that says it more often.
            FeedErrorOperator(task_id=error_id(file.path), message=str(file.error), retries=0)
        feed = file.feed or file.contested
        if feed is None:
            continue
        # No task groups: their ids may not hold a dot, as a feed's name may.
        of_feed: dict[str, Any] = {"feed": feed, "owner": feed.airflow.owner, "pool": feed.airflow.pool}
        CleanOperator(task_id=f"{feed.name}.clean", **of_feed)
        HeadroomOperator(task_id=f"{feed.name}.headroom", **of_feed)
        if feed.kafka.group is not None and file.contested is None:
            MirrorOperator(task_id=f"{feed.name}.mirror", **of_feed)
