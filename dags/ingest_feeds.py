"""A scheduled DAG for each feed file: plan >> write >> commit >> next_batch."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

from airflow.sdk import DAG

from kafka_ingest.airflow_tasks.feed_tasks import (
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
    with DAG(
        dag_id=feed.name,
        description=f"Kafka {feed.kafka.described()} → {feed.sink.path}",
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
    # Two file names may come to one readable id; the sum keeps them apart.
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name)[:150]
    with DAG(
        dag_id=f"feed_error__{readable}"
        if readable == path.name
        else f"feed_error__{readable}_{crc32(path.name.encode()):08x}",
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


def dag_of(file: FeedFile) -> DAG:
    """Return the DAG of one file; whatever is wrong with it concerns this file alone."""
    if file.feed is None:
        return feed_error_dag(file.path, file.error or InvalidFeedError(f"{file.path} holds no feed"))
    try:
        dag = feed_dag(file.feed)
        dag.validate()
    except Exception as error:  # noqa: BLE001 - Airflow has rules of its own, and an error here would take all feeds down
        return feed_error_dag(file.path, InvalidFeedError(f"{file.path}: Airflow refuses its DAG: {error}"))
    return dag


# Names that are no identifiers: a feed called like something in this file must not replace it.
globals().update({f"dag of {dag.dag_id}": dag for dag in map(dag_of, feed_files())})
