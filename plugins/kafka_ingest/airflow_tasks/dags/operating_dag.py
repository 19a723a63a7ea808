"""What an operator decides about a feed, by form: see first what it would do, then do it with a reason.

The form runs the functions of the command line. A dry run is the default: its log and its XCom say what would be done,
and nothing is changed. "Trigger again with this config", on the run's page, opens the form filled in: take the dry run
out, and give a reason. The audit journal keeps the reason, and the Airflow user who triggered the run.

A decision is made once in a run. Its task is not tried again, and refuses after it was cleared.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from kafka_ingest.airflow_tasks.airflow_versions import MANUAL, TRIGGERED, only_runs
from kafka_ingest.airflow_tasks.form_params import NONE, are_all, files_for_form, text, tick
from kafka_ingest.airflow_tasks.operating_tasks import OperateOperator, params_of
from kafka_ingest.settings.feed import NAME
from kafka_ingest.verbs.every import VERBS
from kafka_ingest.verbs.plan import Plan
from kafka_ingest.verbs.request import LONGEST_REASON

DAG_ID = "operate_feed"

EXECUTION_TIMEOUT = timedelta(hours=12)
"""Counting a large output takes long; a decision seconds."""


def feed_param() -> Param:
    """Return the field that names the feed. It has no default, so that no feed is chosen by mistake."""
    files = files_for_form()
    named = {feed.name for file in files if (feed := file.feed or file.contested) is not None}
    # Broken ones too, whose error `doctor` shows. Without any the form still opens, and the task says what is missing.
    broken = {file.path.stem for file in files if file.error is not None}
    names = sorted(named | {name for name in broken if NAME.fullmatch(name)})
    some: dict[str, Any] = {"enum": [*names, None], "values_display": NONE} if are_all(files) else {"examples": names}
    known = some if names else {}
    return text(
        "Feed",
        "Empty only with doctor and clean (all feeds), db-upgrade, explain, and where abandon, restore, "
        "clean or give-up-dead-letters name a batch.",
        **known,
    )


PARAMS = {
    "action": Param(
        Plan.verb,
        type="string",
        enum=list(VERBS),
        title="Action",
        # A table of them would stand before the fields that matter.
        values_display={name: f"{name}: {verb.does}" for name, verb in VERBS.items()},
        description_md="What is to be done; below are the fields that an action takes, under its name.",
    ),
    "dry_run": tick("Dry run", "Show what the action would do, and change nothing.", is_on=True),
    "reason": text(
        "Why",
        "Needed without a dry run. Kept in the audit journal, with your name: no secrets.",
        maxLength=LONGEST_REASON,
    ),
    **params_of(VERBS.values()),
}


def operating_dag() -> DAG:
    with DAG(
        dag_id=DAG_ID,
        description="Decisions about a feed: shown first, then made with a reason",
        doc_md=__doc__,
        schedule=None,
        **only_runs(MANUAL, TRIGGERED),
        params={"feed": feed_param(), **PARAMS},
        tags=["kafka_ingest", "operate"],
    ) as dag:
        # Not tried again: what an operator decides is done once, or the operator looks first.
        OperateOperator(task_id="operate", retries=0, execution_timeout=EXECUTION_TIMEOUT)
    return dag
