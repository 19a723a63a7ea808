"""Looks at all feeds every five minutes, and notifies as their files' `alerts` ask.

Each thing is said once when it begins, and once when it ends. A feed that cannot be used, a cluster that does not
answer and a notifier that fails keep nothing else from being said; the task fails then, after all the rest was done.
The task `start` starts feeds with `start_when` by what waits, where the triggerer has not.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, get_parsing_context

from kafka_ingest.airflow_tasks.check_tasks import CheckFeedsOperator
from kafka_ingest.airflow_tasks.start_checks import StartFeedsOperator
from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.settings.defaults import defaults_of
from kafka_ingest.settings.feed import CHECKING_DAG
from kafka_ingest.settings.feed_files import feed_folders, feed_paths, feeds_directory, texts_of

START = "start"


def some_start_by_what_waits() -> bool:
    """Whether a feed may say ``start_when``; a task that is started says itself what there is.

    By the texts alone, in a fifth of the time: Airflow asks every half minute, and there may be thousands of feeds.
    """
    started = get_parsing_context().task_id
    if started is not None:
        return started == START
    try:
        folders = feed_folders(feeds_directory())
        in_defaults = any("start_when" in (defaults_of(folder).document or ()) for folder in folders)
        return in_defaults or any("start_when" in text for _, text in texts_of(feed_paths(folders[0])))
    except (InvalidFeedError, OSError):
        return False


def checking_dag() -> DAG:
    with DAG(
        dag_id=CHECKING_DAG,
        description="Alerts of all feeds: lag, records that wait for too long, headroom, holds, gaps",
        doc_md=__doc__,
        schedule="*/5 * * * *",
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["kafka_ingest", "alerts"],
        # The next run tries again what failed.
        default_args={"retries": 0, "execution_timeout": timedelta(hours=1)},
    ) as dag:
        CheckFeedsOperator(task_id="check")
        if some_start_by_what_waits():
            StartFeedsOperator(task_id=START)
    return dag
