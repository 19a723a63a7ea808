"""The DAG that looks at all feeds, run by Airflow on real parts."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.orchestration.conftest import Airflow
from tests.project import Project

from embedded_broker import EmbeddedBroker
from environment import airflow_home
from order_events import order_events, produce

NOTIFIERS = "file_notifier"
UNREACHABLE = json.dumps(
    {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "100"}}
)

WAITS = "feed orders: expected its plan to begin within its schedule, found it waiting for a slot of pool 'nowhere'"


def a_plan_is_scheduled(database_file: Path) -> None:
    """Turn the runs in Airflow's database into one of the feed's, two hours ago, that a scheduler gave no slot yet."""
    due = f"{datetime.now(UTC) - timedelta(hours=2):%Y-%m-%d %H:00:00.000000}"
    with closing(sqlite3.connect(database_file)) as database, database:
        database.execute("UPDATE dag_run SET dag_id = 'orders', logical_date = ?", [due])
        database.execute("UPDATE task_instance SET dag_id = 'orders', task_id = 'plan', state = 'scheduled'")


def test_what_feeds_ask_for_is_said_once_when_it_begins_and_once_when_it_ends_whatever_else_fails(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    heard = project.home / "heard.jsonl"
    arguments = {"path": str(heard), "text": "{{ alert.title }}", "html": "{{ alert.html }}", "conn_id": "ops"}
    to_a_file = {"notifier": f"{NOTIFIERS}.FileNotifier", "arguments": arguments}
    nowhere = {"notifier": f"{NOTIFIERS}.RaisingNotifier"}
    alerts = {"lag": 10, "behind": "1d", "stopped": True, "notify": [nowhere, to_a_file]}
    project.write_feed(topic, alerts=alerts, schedule="@hourly", airflow={"pool": "nowhere"})
    produce(broker.bootstrap_servers, topic, list(order_events(50, seed=5)))
    project.run()
    produce(broker.bootstrap_servers, topic, list(order_events(20, seed=6)))
    (project.feeds / "broken.yaml").write_text("name: broken\nkafka: [")
    ops = json.dumps({"conn_type": "http", "login": "ops"})

    def check(**more: str) -> list[dict[str, Any]]:
        """Run the DAG, which fails because of the broken file and notifier; return what was said."""
        heard.unlink(missing_ok=True)
        run = airflow.run("check_feeds", AIRFLOW_CONN_OPS=ops, **more)
        assert run["tasks"] == {"check": ["failed", 1]}, airflow.log[-3000:]
        assert "broken.yaml: cannot be read as YAML" in airflow.log
        return [json.loads(line) for line in heard.read_text().splitlines()] if heard.exists() else []

    said = {"login": "ops", "task": "check"}
    html = "20 offsets can be read, more than 10"
    behind, lag = check()
    assert behind["text"] == "Kafka feed orders: behind"
    assert f"older than 1d, such as the next of {topic}-" in behind["html"]
    assert lag == {"text": "Kafka feed orders: lag", "html": html, "change": "begun", **said}
    assert "Kafka feed orders: lag: file_notifier.RaisingNotifier failed: OSError" in airflow.log
    assert WAITS not in airflow.log
    a_plan_is_scheduled(airflow_home(project.home) / "airflow.db")
    [down] = check(AIRFLOW_CONN_KAFKA_DEFAULT=UNREACHABLE)
    assert WAITS in airflow.log
    assert (down["text"], down["html"][:18]) == ("Kafka feed orders: unreachable", "KAFKA_UNAVAILABLE:")
    project.run()
    assert [(each["text"], each["change"]) for each in check()] == [
        ("Kafka feed orders: behind ended", "ended"),
        ("Kafka feed orders: lag ended", "ended"),
        ("Kafka feed orders: unreachable ended", "ended"),
    ]
