"""Looks at all feeds every five minutes, and notifies as their files' `alerts` ask.

Each thing is said once when it begins, and once when it ends. A feed that cannot be used, a cluster that does not
answer and a notifier that fails keep nothing else from being said; the task fails then, after all the rest was done.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from kafka_ingest.airflow_tasks.check_tasks import CheckFeedsOperator

DAG_ID = "check_feeds"


def checking_dag() -> DAG:
    """Return the DAG."""
    with DAG(
        dag_id=DAG_ID,
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
    return dag
