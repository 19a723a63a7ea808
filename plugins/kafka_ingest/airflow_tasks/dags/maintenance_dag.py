"""Maintains all feeds once a day.

Removes expired staged output, folds old batches in the control tables, repairs mirrors, and warns about headroom.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, get_parsing_context

from kafka_ingest.airflow_tasks.feed_tasks import FeedErrorOperator
from kafka_ingest.airflow_tasks.maintenance_tasks import (
    CleanOperator,
    FoldOperator,
    HeadroomOperator,
    MaintainFleetOperator,
    MirrorOperator,
)
from kafka_ingest.settings.feed_file import FEED_ERROR, FeedFile, error_id
from kafka_ingest.settings.files_for_dags import files_for_dags
from kafka_ingest.settings.fleets import feed_in

DAG_ID = "maintain_feeds"


def maintain(file: FeedFile) -> None:
    if file.error is not None:
        # Fails once a day, next to the tasks of the other feeds; the file's own DAG fails more often.
        FeedErrorOperator(task_id=error_id(file.path), file=file, retries=0)
    feed = file.feed or file.contested
    if feed is None:
        return
    # No task groups: their ids may not hold a dot, as a feed's name may.
    of_feed: dict[str, Any] = {"feed": feed, "owner": feed.airflow.owner, "pool": feed.airflow.pool}
    clean = CleanOperator(task_id=f"{feed.name}.clean", **of_feed)
    HeadroomOperator(task_id=f"{feed.name}.headroom", **of_feed)
    if feed.control_retention is not None and file.contested is None:
        # Afterwards: batches are folded once their staged output is removed. A failed clean-up does not stop this.
        clean >> FoldOperator(task_id=f"{feed.name}.fold", trigger_rule="all_done", file=file, **of_feed)
    if feed.kafka.group is not None and file.contested is None:
        MirrorOperator(task_id=f"{feed.name}.mirror", file=file, **of_feed)


def name_in(task_id: str | None) -> str | None:
    """Return the feed, or the broken file's DAG, that a task belongs to: its start makes no other feed's tasks."""
    return task_id if task_id is None or task_id.startswith(FEED_ERROR) else task_id.rpartition(".")[0]


def maintenance_dag() -> DAG:
    """Return the DAG; where Airflow starts a task, with that feed's tasks alone."""
    with DAG(
        dag_id=DAG_ID,
        description="Expired staged output, consumer groups that drifted, partitions that retention is about to reach",
        schedule="@daily",
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["kafka_ingest", "maintenance"],
        default_args={"retries": 3, "retry_delay": timedelta(minutes=5), "execution_timeout": timedelta(hours=2)},
    ) as dag:
        fleets: dict[str, Any] = {}
        for file in files_for_dags(name_in(get_parsing_context().task_id)):
            feed = feed_in(file) if file.error is None else None
            if feed is None or feed.fleet is None:
                maintain(file)
            else:
                fleets.setdefault(feed.fleet, feed.airflow)
        for fleet, of_fleet in fleets.items():
            MaintainFleetOperator(task_id=f"{fleet}.fleet", fleet=fleet, owner=of_fleet.owner, pool=of_fleet.pool)
    return dag
