"""The tasks of a fleet's DAG, without Airflow's scheduler: what a run is for, which runs follow, what is no success."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch
from uuid import UUID

import pytest
import yaml
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

from kafka_ingest.airflow_tasks import fleet_tasks
from kafka_ingest.airflow_tasks.fleet_tasks import (
    FleetCommitOperator,
    FleetPlanOperator,
    FleetWriteOperator,
    NextFleetOperator,
    check_some_left,
)
from kafka_ingest.batches.plan_batch import PlanOutcome, PlanResult
from kafka_ingest.errors import InvalidRunRequestError
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.settings.feed_file import read_feed_file
from kafka_ingest.settings.files_for_dags import Fleet, fleets_of


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Feeds a and ab, of which each may be retried twice."""
    for name in ("a", "ab"):
        document = {
            "name": name,
            "fleet": "shop",
            "kafka": {"topics": [name]},
            "sink": {"format": "parquet", "path": str(tmp_path / "output" / name)},
            "airflow": {"retries": 2},
        }
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document))
    [found] = fleets_of(read_feed_file(path) for path in sorted(tmp_path.glob("*.yaml")))
    return found


def context(conf: Any, **steps: Any) -> Any:
    """Return what a task finds: its run's configuration, and what the steps before it returned."""

    def xcom_pull(*, task_ids: str) -> Any:
        return steps.get(task_ids)

    return {
        "dag_run": SimpleNamespace(conf=conf, dag_id="shop", run_id="run 1"),
        "ti": SimpleNamespace(xcom_pull=xcom_pull),
    }


def planned_feeds(fleet: Fleet, conf: Any) -> list[str]:
    """Return which feeds a run plans."""

    class PlannedError(Exception):
        pass

    with patch.object(fleet_tasks, "parts_by_name", side_effect=PlannedError) as asked, pytest.raises(PlannedError):
        FleetPlanOperator(task_id="plan", fleet=fleet).execute(context(conf))
    return list(asked.call_args.args[1])


def test_a_run_is_for_the_feeds_that_it_names_or_for_all(fleet: Fleet) -> None:
    assert planned_feeds(fleet, None) == planned_feeds(fleet, {}) == ["a", "ab"]
    assert planned_feeds(fleet, {"feeds": "ab"}) == planned_feeds(fleet, {"feeds": ["ab"]}) == ["ab"]
    assert planned_feeds(fleet, {"feeds": ["a"], "openlineage": {"parentRunId": "1"}}) == ["a"]


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ({"feeds": ["a", "c"]}, "feeds: expected names of feeds of this fleet, found c; it has a, ab"),
        ({"feeds": "a,ab"}, "feeds: expected names of feeds of this fleet, found a,ab; it has a, ab"),
        ({"feeds": []}, "feeds: "),
        ({"feeds": {"a": 1}}, "feeds: "),
        ({"max_records": 5}, "max_records: unknown key"),
    ],
)
def test_what_a_run_cannot_be_for_is_refused_before_anything_is_planned(fleet: Fleet, conf: Any, why: str) -> None:
    with patch.object(fleet_tasks, "parts_by_name") as asked, pytest.raises(AirflowFailException) as found:
        FleetPlanOperator(task_id="plan", fleet=fleet).execute(context(conf))
    assert why in str(found.value)
    asked.assert_not_called()


def test_a_feed_that_left_the_fleet_is_left_out_of_the_run_that_follows(fleet: Fleet) -> None:
    assert planned_feeds(fleet, {"feeds": ["ab", "gone"], "retry": {"gone": 1}}) == ["ab"]


def following(fleet: Fleet, conf: Any, *, again: list[str], failed: dict[str, bool]) -> Any:
    """Return what the run that follows is triggered with; ``failed`` says which may be tried again."""
    steps = {
        "commit": {"again": again, "failed": {}},
        "write": {"failed": {name: {"may_retry": may_retry} for name, may_retry in failed.items()}},
    }
    operator = NextFleetOperator(task_id="next_batch", fleet=fleet)
    with patch.object(TriggerDagRunOperator, "execute"):
        operator.execute(context(conf, **steps))
    return operator.conf


def test_runs_for_a_backlog_take_no_retry_from_a_feed_that_fails(fleet: Fleet) -> None:
    conf = following(fleet, {}, again=["a"], failed={})
    assert conf == {"feeds": ["a"], "retry": {}}
    for _ in range(5):
        conf = following(fleet, conf, again=["a"], failed={})
    conf = following(fleet, conf, again=["a"], failed={"ab": True})
    assert conf == {"feeds": ["a", "ab"], "retry": {"ab": 1}}
    conf = following(fleet, conf, again=["a"], failed={"ab": True})
    assert conf == {"feeds": ["a", "ab"], "retry": {"ab": 2}}
    assert following(fleet, conf, again=["a"], failed={"ab": True}) == {"feeds": ["a"], "retry": {}}
    with pytest.raises(AirflowSkipException):
        following(fleet, conf, again=[], failed={"ab": True})
    assert following(fleet, conf, again=["ab"], failed={"a": True}) == {"feeds": ["a", "ab"], "retry": {"a": 1}}
    with pytest.raises(AirflowSkipException):
        following(fleet, {}, again=[], failed={"a": False})


def test_a_write_task_that_was_killed_is_no_success_although_some_batches_are_written(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = {name: str(UUID(int=number)) for number, name in enumerate(("a", "ab"))}
    operator = FleetWriteOperator(task_id="write", fleet=fleet)

    def killed_after_the_first(works: Any, *_: Any, **__: Any) -> Iterator[dict[UUID, Exception | None]]:
        yield {works[0].batch_id: None}
        operator.on_kill()
        yield {works[1].batch_id: AirflowException("ended while Spark ran")}

    monkeypatch.setattr(fleet_tasks, "write_batches", killed_after_the_first)
    monkeypatch.setattr(fleet_tasks, "parts_by_name", lambda _, names: dict.fromkeys(names))
    with pytest.raises(AirflowException, match="the task was ended before all batches of fleet shop were written"):
        operator.execute(context({}, plan={"batches": batches}))


@pytest.mark.parametrize("task", [FleetWriteOperator, FleetCommitOperator])
def test_a_step_that_was_marked_as_success_by_hand_is_named(fleet: Fleet, task: Any) -> None:
    with pytest.raises(AirflowFailException, match="UNKNOWN_BATCH: expected batches from task plan, found none"):
        task(task_id="task", fleet=fleet).execute(context({}))


def test_a_step_that_fails_for_all_is_tried_again_where_that_may_succeed_for_one(fleet: Fleet) -> None:
    lasting, unexpected = InvalidRunRequestError("never"), OSError("the disk is away")
    check_some_left(fleet, {"a": lasting}, all_failed=False)
    with pytest.raises(OSError, match="the disk is away"):
        check_some_left(fleet, {"a": lasting, "ab": unexpected}, all_failed=True)
    with pytest.raises(AirflowFailException, match=r"2 of 2 feeds of fleet shop failed: a: .* never, ab: .* never"):
        check_some_left(fleet, {"a": lasting, "ab": lasting}, all_failed=True)


@pytest.mark.parametrize(
    ("result", "rows", "is_for_all", "runs", "hours", "is_left"),
    [
        (PlanResult.PLANNED, 999_999, True, False, 0, False),
        (PlanResult.PLANNED, 1_000_000, True, False, 0, True),
        # The runs that follow are of a feed whose DAG is paused, or did not hear of it: else there would be none.
        (PlanResult.PLANNED, 1_000_000, False, False, 0, False),
        (PlanResult.RESUMED, 1_000_000, True, False, 0, False),
        (PlanResult.RESUMED, 1_000_000, True, True, 11, True),
        (PlanResult.RESUMED, 5, False, True, 11, True),
        # A DAG that was paused while it ran has that run for ever.
        (PlanResult.RESUMED, 1_000_000, True, True, 12, False),
    ],
)
def test_a_large_batch_is_left_to_the_feeds_own_dag_which_may_be_paused(
    fleet: Fleet, *, result: PlanResult, rows: int, is_for_all: bool, runs: bool, hours: int, is_left: bool
) -> None:
    planned_at = datetime.now(UTC) - timedelta(hours=hours)
    batch = Mock(spec=BatchPlan, batch_id=UUID(int=1), max_rows=rows, planned_at=planned_at)
    outcome = Mock(spec=PlanOutcome, batch=batch, result=result)
    operator = FleetPlanOperator(task_id="plan", fleet=fleet)
    with patch.object(fleet_tasks, "has_active_run", return_value=runs):
        assert operator.is_left(Mock(feed=fleet.members[1].feed), outcome, is_for_all=is_for_all) is is_left


def test_only_a_new_batch_starts_the_dag_that_it_is_left_to(fleet: Fleet) -> None:
    operator = FleetPlanOperator(task_id="plan", fleet=fleet)
    assert operator.starts in operator.outlets
    events: Any = {operator.starts: Mock()}
    for result in (PlanResult.PLANNED, PlanResult.RESUMED):
        operator.leave("ab", Mock(spec=PlanOutcome, result=result), {"outlet_events": events})
    [started] = events[operator.starts].add.call_args_list
    assert started.args[0].name == "kafka_ingest/start/ab"


def test_a_feed_without_a_batch_and_a_topics_feed_which_has_no_dag_are_left_to_nothing(fleet: Fleet) -> None:
    operator, feed = FleetPlanOperator(task_id="plan", fleet=fleet), fleet.members[0].feed
    nothing = Mock(spec=PlanOutcome, batch=None, result=PlanResult.NOTHING_NEW)
    large = Mock(spec=PlanOutcome, batch=Mock(spec=BatchPlan, max_rows=1_000_000), result=PlanResult.PLANNED)
    assert not operator.is_left(Mock(feed=feed), nothing, is_for_all=True)
    assert operator.is_left(Mock(feed=feed), large, is_for_all=True)
    of_topic = feed.model_copy(update={"name": "shop-orders"})
    assert not operator.is_left(Mock(feed=of_topic), large, is_for_all=True)
