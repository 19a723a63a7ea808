"""What differs between the versions of Airflow that the package runs in."""

import re
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_ingest.airflow_tasks import dag_arguments
from kafka_ingest.airflow_tasks.dag_arguments import MANUAL, SCHEDULED, TRIGGERED, check_is_no_backfill, only_runs
from kafka_ingest.errors import InvalidRunRequestError


class OlderRunType(StrEnum):
    BACKFILL_JOB = "backfill"
    SCHEDULED = "scheduled"
    MANUAL = "manual"


class OlderDag:
    def __init__(self, dag_id: str) -> None:
        self.dag_id = dag_id


def test_a_dag_allows_the_run_types_that_airflow_has() -> None:
    assert only_runs(SCHEDULED, MANUAL, TRIGGERED) == {
        "allowed_run_types": ["scheduled", "manual", "operator_triggered"]
    }


def test_a_run_type_that_an_older_airflow_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag_arguments, "DagRunType", OlderRunType)
    assert only_runs(SCHEDULED, MANUAL, TRIGGERED) == {"allowed_run_types": ["scheduled", "manual"]}


def test_a_dag_of_an_airflow_without_allowed_run_types_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag_arguments, "DAG", OlderDag)
    assert only_runs(MANUAL) == {}


@pytest.mark.parametrize(("run_type", "is_refused"), [("backfill", True), ("scheduled", False), ("manual", False)])
def test_a_run_of_a_backfill_by_dates_is_refused_with_what_to_use_instead(run_type: str, *, is_refused: bool) -> None:
    context: Any = {"dag_run": SimpleNamespace(run_type=run_type)}
    if is_refused:
        with pytest.raises(InvalidRunRequestError, match="DAG backfill_offsets"):
            check_is_no_backfill(context)
    else:
        check_is_no_backfill(context)


def test_a_timetable_that_an_older_airflow_has_elsewhere_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 3.1 ``airflow.sdk`` has neither; without these no DAG file could be imported there."""
    newer = dag_arguments.timetable("CronTriggerTimetable", "@hourly", timezone="UTC")
    monkeypatch.setattr(dag_arguments, "sdk", SimpleNamespace())
    older = dag_arguments.timetable("CronTriggerTimetable", "@hourly", timezone="UTC")
    assert type(newer).__module__.startswith("airflow.sdk")
    assert type(older).__module__ == "airflow.timetables.trigger"


def test_nothing_is_imported_from_airflow_s_sdk_that_3_1_lacks() -> None:
    later = "AssetOrTimeSchedule|CronTriggerTimetable|DeltaTriggerTimetable|CronDataIntervalTimetable|PartitionMapper"
    imports = re.compile(rf"from airflow\.sdk import[^\n(]*(?:\([^)]*)?\b({later})\b")
    package = Path(dag_arguments.__file__).parents[1]
    assert [path.name for path in package.rglob("*.py") if imports.search(path.read_text())] == []
