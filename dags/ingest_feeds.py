"""A scheduled DAG for each feed file: plan >> write >> commit >> next_batch."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from kafka_ingest.airflow_tasks import (
    CommitOperator,
    FeedErrorOperator,
    NextBatchOperator,
    PlanOperator,
    WriteOperator,
)
from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.feed import Feed
from kafka_ingest.feed_files import FeedFile, feeds_directory, read_feed_files

# Airflow's own converter takes names; its annotation names an enum that the SDK does not export.
RUN_TYPES: Any = ("scheduled", "manual", "operator_triggered")
START_DATE = datetime(2024, 1, 1, tzinfo=UTC)


def feed_dag(feed: Feed) -> DAG:
    """Return the feed's DAG. Its runs read on from the stored offsets; dates decide only when they start."""
    topics = ", ".join(topic.name for topic in feed.kafka.topics)
    with DAG(
        dag_id=feed.name,
        description=f"Kafka {topics} → {feed.sink.path}",
        schedule=feed.schedule,
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        # A backfill by dates would make live batches; offsets know no dates.
        allowed_run_types=RUN_TYPES,
        tags=["kafka_ingest", *feed.airflow.tags],
        default_args={
            "owner": feed.airflow.owner,
            "pool": feed.airflow.pool,
            "retries": feed.airflow.retries,
            "retry_delay": timedelta(seconds=30),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=10),
        },
    ) as dag:
        plan = PlanOperator(task_id="plan", feed=feed)
        batch_id = "{{ ti.xcom_pull(task_ids='plan') }}"
        write = WriteOperator(task_id="write", feed=feed, batch_id=batch_id)
        commit = CommitOperator(task_id="commit", feed=feed, batch_id=batch_id)
        next_batch = NextBatchOperator(task_id="next_batch", feed=feed, batch_id=batch_id)
        plan >> write >> commit >> next_batch
    return dag


def feed_error_dag(path: Path, error: InvalidFeedError) -> DAG:
    """Return a DAG that says what is wrong with a feed file; raising here would take the other feeds down."""
    with DAG(
        dag_id="feed_error__" + re.sub(r"[^A-Za-z0-9_.-]", "_", path.name),
        description=f"{path.name} cannot be used",
        schedule=None,
        tags=["kafka_ingest", "feed-error"],
        doc_md=f"This feed file cannot be used:\n\n```\n{error}\n```\n",
    ) as dag:
        FeedErrorOperator(task_id="feed_error", message=str(error), retries=0)
    return dag


def feed_files() -> list[FeedFile]:
    """Return the feed files, or one with an error where the folder itself cannot be read."""
    directory = feeds_directory()
    try:
        return read_feed_files(directory)
    except (InvalidFeedError, OSError) as error:
        return [FeedFile(directory, None, InvalidFeedError(str(error)))]


for file in feed_files():
    if file.feed is not None:
        globals()[f"feed_{file.feed.name}"] = feed_dag(file.feed)
    elif file.error is not None:
        globals()[f"feed_error_{file.path.name}"] = feed_error_dag(file.path, file.error)
