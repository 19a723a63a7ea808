"""What differs between the versions of Airflow, besides the places of names (``airflow.providers.common.compat``)."""

from importlib import import_module
from inspect import signature
from typing import Any

from airflow import sdk
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS
from airflow.sdk import DAG, Context
from airflow.utils.types import DagRunType

from kafka_ingest.errors import InvalidRunRequestError

MANUAL, SCHEDULED, TRIGGERED, BY_ASSETS = "manual", "scheduled", "operator_triggered", "asset_triggered"

NOT_DURABLE: dict[str, Any] = {"durable": False} if AIRFLOW_V_3_3_PLUS else {}
"""Arguments of SparkSubmitOperator, which resumes an earlier application on some clusters from 3.3 on."""

OLDER_TIMETABLES = ("airflow.timetables.assets", "airflow.timetables.trigger")
"""Where 3.1 has the timetables that are in ``airflow.sdk`` from 3.2 on."""


def timetable(name: str, *arguments: object, **more: object) -> object:
    places = (sdk, *map(import_module, () if hasattr(sdk, name) else OLDER_TIMETABLES))
    return next(getattr(place, name) for place in places if hasattr(place, name))(*arguments, **more)


def only_runs(*types: str) -> dict[str, Any]:
    """Return the argument of DAG that allows runs of these types alone; none where Airflow has no such argument (3.1).

    Before 3.3 a run that a task triggers is a manual one.
    """
    if "allowed_run_types" not in signature(DAG).parameters:
        return {}
    return {"allowed_run_types": [each.value for each in DagRunType if each.value in types]}


def check_is_no_backfill(context: Context) -> None:
    """Raise InvalidRunRequestError for a run of a backfill by dates, which Airflow 3.1 lets each DAG have."""
    if context["dag_run"].run_type == "backfill":
        raise InvalidRunRequestError(
            "expected a scheduled run or one by hand, found one of a backfill by dates. It would make a live batch: "
            "offsets know no dates. Read ranges again with DAG backfill_offsets or `kafka-ingest backfill`"
        )
