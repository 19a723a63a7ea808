"""The DAG ``operate_feed``, run by Airflow: shown first, then done in the name of who triggered it."""

import json
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.orchestration.conftest import Airflow
from tests.project import Project

from embedded_broker import EmbeddedBroker
from environment import airflow_home
from kafka_ingest.airflow_tasks.dags import operating_dag
from kafka_ingest.airflow_tasks.dags.operating_dag import LARGEST_DOCUMENT, OperateOperator, said, small
from kafka_ingest.verbs.answer import Answer, Line
from kafka_ingest.verbs.operate_form import OperateForm
from order_events import order_events, produce


def returned(project: Project) -> list[Any]:
    """Return the XComs of the runs, the oldest first."""
    with closing(sqlite3.connect(airflow_home(project.home) / "airflow.db")) as database:
        found = database.execute("SELECT value FROM xcom WHERE key = 'return_value' ORDER BY timestamp")
        return [json.loads(value) for (value,) in found]


def test_a_dry_run_changes_nothing_and_a_decision_is_made_in_the_users_name(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic, start="latest")
    project.run(JAVA_HOME=str(airflow.java_like_spark))
    start = project.stored_offsets()[0]
    produce(broker.bootstrap_servers, topic, list(order_events(50, seed=1)))
    conf = {"feed": "orders", "action": "skip", "offset_range": f"{topic}:0={start}-{start + 2}"}
    decision = conf | {"dry_run": False, "reason": "poisoned"}

    shown = airflow.run("operate_feed", conf=conf)
    log = airflow.log
    assert shown["tasks"] == {"operate": ["success", 1]}, log[-5000:]
    assert f"would file gap {topic}-0[{start}, {start + 2}), 2 offsets" in log
    assert "Nothing was changed: trigger again with this config" in log
    assert project.stored_offsets()[0] == start

    done = airflow.run("operate_feed", conf=decision)

    assert done["tasks"] == {"operate": ["success", 1]}, airflow.log[-5000:]
    assert project.stored_offsets()[0] == start + 2
    events = project.kafka_ingest("history", "orders", "--json").document["events"]
    [skipped] = [each for each in events if each["kind"] == "gap"]
    assert skipped["who"] == f"airflow:dag_test@operate_feed/{done['run_id']}"
    assert "poisoned" in json.dumps(skipped)
    assert [(each["version"], each["executed"]) for each in returned(project)] == [(1, False), (1, True)]


# ── What the task makes of an answer ──────────────────────────────────────────────────────────────────────────────────


class Pushed:
    """A task instance that keeps what is pushed."""

    def __init__(self, try_number: int = 1) -> None:
        self.try_number = try_number
        self.pushed: list[Any] = []

    def xcom_push(self, _key: str, value: Any) -> None:
        self.pushed.append(value)


def operate(pushed: Pushed, user: str | None = "alice", **form: Any) -> dict[str, Any]:
    """Run the task."""
    run = SimpleNamespace(dag_id="operate_feed", run_id="manual__1", triggering_user_name=user)
    context: Any = {"params": form, "dag_run": run, "ti": pushed}
    return OperateOperator(task_id="operate").execute(context)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who asks for something; each form answers that something is not as it should be."""
    found: list[str] = []

    def answer(_form: OperateForm, actor: str, *_: Any) -> Answer:
        found.append(actor)
        return Answer({"drift": [1]}, [Line("orders-0: group 1, stored 4")], exit_code=1)

    monkeypatch.setattr(OperateForm, "answer", answer)
    return found


@pytest.mark.parametrize(
    ("user", "actor"),
    [
        ("alice@example.com", "airflow:alice@example.com@operate_feed/manual__1"),
        ("eve\n\x1b[31m", "airflow:eve\n\\x1b[31m@operate_feed/manual__1"),
        (None, "airflow:(no user)@operate_feed/manual__1"),
    ],
)
def test_the_actor_is_the_user_who_triggered_the_run(asked: list[str], user: str | None, actor: str) -> None:
    operate(Pushed(), user, action="mirror", feed="orders")
    assert asked == [actor]


def test_the_log_says_who_asked_for_what_records_hold() -> None:
    form = OperateForm.of({"action": "preview", "feed": "orders", "show_values": True})
    text = "airflow:alice@d/1 shows preview of feed orders, and what records hold"
    assert said(form, "airflow:alice@d/1") == text


def test_what_a_dry_run_finds_is_no_failure_and_what_a_decision_leaves_is(asked: list[str]) -> None:
    pushed = Pushed()
    assert operate(pushed, action="mirror", feed="orders") == {"version": 1, "drift": [1]}
    for action in ("mirror", "verify-coverage"):
        with pytest.raises(AirflowFailException, match=f"{action} found what is not as it should be"):
            operate(pushed, action=action, feed="orders", dry_run=False, reason="why")
    assert pushed.pushed == [{"version": 1, "drift": [1]}] * 2
    assert len(asked) == 3


def test_an_error_is_named_in_the_log_and_the_xcom_as_json_names_it() -> None:
    pushed = Pushed()
    with pytest.raises(AirflowFailException, match="INVALID_OPERATION: expected with action mirror no other field"):
        operate(pushed, action="mirror", feed="orders", to="latest")
    [document] = pushed.pushed
    assert (document["version"], document["error"]["code"]) == (1, "INVALID_OPERATION")
    assert document["error"]["exit_code"] == 2


def test_a_task_that_was_cleared_makes_no_decision_again_and_shows_again(asked: list[str]) -> None:
    cleared = Pushed(try_number=2)
    with pytest.raises(AirflowFailException, match="a decision to be made once in a run"):
        operate(cleared, action="reset", feed="orders", shift_by=-1, dry_run=False, reason="why")
    assert asked == []
    assert cleared.pushed[0]["error"]["code"] == "INVALID_OPERATION"
    operate(cleared, action="reset", feed="orders", shift_by=-1)
    assert len(asked) == 1


def test_a_document_that_an_xcom_cannot_hold_is_shortened_and_says_so() -> None:
    entry = {"topic": "orders", "partition": 1, "live": [{"start_offset": 1, "end_offset": 2}] * 50}
    document = {"version": 1, "feed": "orders", "partitions": [entry] * 1_000}
    found = small(document)
    assert len(json.dumps(found)) <= LARGEST_DOCUMENT
    assert (found["version"], found["feed"], found["shortened"]) == (1, "orders", True)
    assert found["partitions"][0]["topic"] == "orders"
    assert small({"version": 1}) == {"version": 1}
    assert operating_dag.cut([1, 2, 3], 2) == [1, 2]
    wide = {f"column_{number}": "bigint" for number in range(3_000)}
    for columns in (wide, {"body": f"struct<{', '.join(wide)}>" * 2}):
        found = small({"version": 1, "columns": {"written": columns, "new": []}})
        assert (len(json.dumps(found)) <= LARGEST_DOCUMENT, found["shortened"]) == (True, True)
        assert found["columns"]["written"].keys() <= columns.keys()
        assert found["columns"]["written"]
