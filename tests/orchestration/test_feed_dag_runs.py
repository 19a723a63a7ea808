"""`dag.test()` of the real DAG on real parts: every task in Airflow's own runner, Spark through the provider's hook."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.kafka_faults import delete_records
from tests.orchestration.conftest import Airflow, commits_in, java_like_spark, lineage_into
from tests.project import Project, positions_of

from embedded_broker import EmbeddedBroker
from environment import airflow_home
from kafka_ingest.settings.run_request import RunRequest
from kafka_ingest.sinks.delta.columns import RAW_COLUMNS
from order_events import OrderEvent, order_events, produce


def java_that_fails_once(home: Path) -> Path:
    """Return a JAVA_HOME whose Spark fails at its first start, and is a stand-in afterwards."""
    fail = f"if mkdir {home}/java-failed 2>/dev/null; then echo 'made to fail' >&2; exit 3; fi"
    return java_like_spark(home / "java", fail)


def test_a_run_commits_what_is_there_and_a_run_with_nothing_new_is_green_with_skipped_tasks(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic)
    events = list(order_events(500, seed=1))
    produce(broker.bootstrap_servers, topic, events)

    first = airflow.run("orders")
    first_log = airflow.log
    second = airflow.run("orders")

    states = {task: state for task, (state, _) in first["tasks"].items()}
    assert first["state"] == "success"
    assert states == {"plan": "success", "write": "success", "commit": "success", "next_batch": "skipped"}
    assert project.positions() == positions_of(events)
    assert project.group_offsets() == project.stored_offsets()
    [batch] = project.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert batch["committed_by"] == f"airflow:orders/{first['run_id']}"
    assert "kafka_ingest/orders" in first_log
    ranges = sum(end > 0 for end in project.stored_offsets().values())
    assert re.search(rf"topic +partition +from offset +to before +offsets\b.*\b{ranges} +500\b", first_log, re.DOTALL)
    [counts] = airflow.committed
    [of_topic] = counts.pop("topics")
    assert (of_topic["topic"], of_topic["rows"]) == (topic, 500)
    assert counts == {
        "batch_id": batch["batch_id"],
        "feed": "orders",
        "kind": "live",
        "rows": 500,
        "filtered": 0,
        "dead_letters": 0,
        "topics_left_out": 0,
    }
    states = {task: state for task, (state, _) in second["tasks"].items()}
    assert second["state"] == "success"
    assert states == {"plan": "success", "write": "skipped", "commit": "skipped", "next_batch": "skipped"}


def test_a_spark_failure_is_retried_with_a_new_attempt_of_the_same_plan(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic)
    events = list(order_events(300, seed=2))
    produce(broker.bootstrap_servers, topic, events)

    run = airflow.run("orders", JAVA_HOME=str(java_that_fails_once(project.home)))

    assert run["state"] == "success", airflow.log[-3000:]
    assert run["tasks"]["write"] == ["success", 2]
    assert "Task failed with exception: SPARK_FAILED: Spark ended with exit code 3; " in airflow.log
    assert "Traceback" not in airflow.log
    assert project.positions() == positions_of(events)
    [batch_directory] = (project.output / "orders.kafka-ingest" / "staging").iterdir()
    assert sorted(path.name for path in batch_directory.iterdir()) == ["1", "2"]


def test_a_crash_between_publish_and_commit_is_finished_by_the_next_run_without_spark_and_nothing_is_doubled(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic)
    events = list(order_events(300, seed=3))
    produce(broker.bootstrap_servers, topic, events)

    assert airflow.run("orders", "kafka_ingest.control.batch_life.BatchLife.complete_commit") == {}
    assert project.positions() == positions_of(events), "the output was published before the crash"
    assert set(project.stored_offsets().values()) == {0}
    assert project.status()["open_batch"]["state"] == "COMMITTING"
    run = airflow.run("orders")

    assert run["state"] == "success", airflow.log[-3000:]
    assert "is written already: no need for Spark" in airflow.log
    assert project.positions() == positions_of(events)
    assert sum(project.stored_offsets().values()) == 300
    assert project.group_offsets() == project.stored_offsets()


def test_a_batch_whose_commit_task_died_before_announcing_it_is_announced_by_the_next_run(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic)
    produce(broker.bootstrap_servers, topic, order_events(60, seed=3))

    assert airflow.run("orders", "kafka_ingest.airflow_tasks.asset_events.Announcements.add") == {}
    [batch] = project.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert (batch["state"], airflow.announced) == ("COMMITTED", [])

    assert airflow.run("orders")["tasks"]["commit"] == ["skipped", 0]
    assert airflow.announced == [batch["batch_id"]]
    airflow.run("orders")
    assert airflow.announced == [batch["batch_id"]], "once it was recorded, it is not announced again"


def test_a_batch_that_a_limit_cut_triggers_the_next_run_once_it_is_committed_and_openlineage_gets_its_lineage(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic, limits={"max_records": 100})
    produce(broker.bootstrap_servers, topic, order_events(250, seed=4))
    events = project.home / "lineage.jsonl"

    run = airflow.run("orders", **lineage_into(events))

    assert run["tasks"]["write"] == run["tasks"]["next_batch"] == ["success", 1]
    [batch] = project.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert batch["rows"] == 100
    assert f"next_batch__{batch['batch_id']}" in airflow.log
    [triggered] = airflow.triggered
    assert RunRequest.of(triggered[1]) == RunRequest(), "the provider says in it by which task it is triggered"

    [commit] = commits_in(events, "orders.commit")
    [read], [written] = commit["inputs"], commit["outputs"]
    assert (read["namespace"], read["name"]) == (f"kafka://{broker.bootstrap_servers}", topic)
    ranges = {
        each["partition"]: each["endOffset"] for each in read["inputFacets"]["kafkaIngest_offsetRanges"]["ranges"]
    }
    assert ranges == {partition: end for partition, end in project.stored_offsets().items() if end}
    assert (written["namespace"], written["name"]) == ("file", str(project.output / "orders"))
    columns = [each["name"] for each in written["facets"]["schema"]["fields"]]
    assert columns == list(RAW_COLUMNS)
    files = list((project.output / "orders").rglob("*.parquet"))
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (100, len(files))
    assert statistics["size"] == sum(file.stat().st_size for file in files)
    assert commit["run"]["facets"]["kafkaIngest_batch"]["batchId"] == batch["batch_id"]


def test_a_run_that_resumed_an_open_batch_triggers_the_next_run_for_what_arrived_since(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic)
    produce(broker.bootstrap_servers, topic, order_events(60, seed=4))
    open_batch = project.kafka_ingest("plan", "orders", "--json").document["batch_id"]
    produce(broker.bootstrap_servers, topic, order_events(40, seed=5))

    resuming = airflow.run("orders")
    following = airflow.run("orders", conf={})

    assert resuming["tasks"]["next_batch"] == ["success", 1]
    assert [run_id for run_id, _ in airflow.triggered] == [f"next_batch__{open_batch}"]
    assert following["tasks"]["next_batch"] == ["skipped", 0], "its batch is its own, and reached the end"
    newest, oldest = project.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert (oldest["batch_id"], oldest["rows"], newest["rows"]) == (open_batch, 60, 40)


def test_a_manual_run_that_a_limit_cut_continues_to_the_end_that_it_was_asked_for(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic, limits={"max_records": 40})
    produce(broker.bootstrap_servers, topic, order_events(250, seed=5))
    conf = {"end_offsets": {topic: {"0": 60, "1": 0}}}

    run = airflow.run("orders", conf=conf)

    assert run["tasks"]["next_batch"] == ["success", 1]
    [batch] = project.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert batch["rows"] == 40
    assert airflow.triggered == [(f"next_batch__{batch['batch_id']}", conf)]
    assert {partition: offset for partition, offset in project.stored_offsets().items() if offset} == {0: 40}


def test_a_manual_run_that_asks_for_few_records_gets_one_small_batch(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic)
    produce(broker.bootstrap_servers, topic, order_events(250, seed=5))

    run = airflow.run("orders", conf={"max_records": 40, "end_timestamp": None, "end_offsets": None})

    assert run["tasks"]["next_batch"] == ["skipped", 0], "by the commit: it was never started"
    [batch] = project.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert batch["rows"] == 40
    assert airflow.triggered == []


def test_a_run_that_asks_for_what_it_cannot_have_fails_at_once_and_plans_nothing(
    airflow: Airflow, project: Project, topic: str
) -> None:
    project.write_feed(topic)

    run = airflow.run("orders", conf={"max_record": 40})

    assert run["tasks"]["plan"] == ["failed", 1]
    assert "INVALID_RUN_REQUEST" in airflow.log
    assert "max_record: unknown key" in airflow.log
    assert project.kafka_ingest("batches", "orders", "--json").document["batches"] == []


def test_the_plan_task_s_log_names_what_was_lost_and_what_is_left_out(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(
        topic,
        kafka={"topics": [topic, "no-such-topic"]},
        on_data_loss="record_gap",
        on_missing_topic="hold",
    )
    produce(broker.bootstrap_servers, topic, order_events(100, seed=6))
    assert project.kafka_ingest("plan", "orders", "--end-offset", f"{topic}:0=0").exit_code == 0
    delete_records(broker.bootstrap_servers, topic, 0, 3)

    run = airflow.run("orders")

    assert run["state"] == "success", airflow.log[-3000:]
    assert f"gap {topic}-0[0, 3) (retention)" in airflow.log
    assert "no-such-topic" in airflow.log


def test_a_broker_that_is_down_is_retried(airflow: Airflow, project: Project) -> None:
    project.write_feed("orders")
    unreachable = '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 100}}'

    run = airflow.run("orders", AIRFLOW_CONN_KAFKA_DEFAULT=unreachable)

    assert run["tasks"]["plan"] == ["failed", 2]
    assert "Task failed with exception: KAFKA_UNAVAILABLE: " in airflow.log
    assert "Traceback" not in airflow.log


def test_a_missing_spark_connection_fails_the_plan_and_nothing_is_submitted_to_yarn(
    airflow: Airflow, project: Project, topic: str
) -> None:
    project.write_feed(topic, spark={"conn_id": "spark_elsewhere"})

    run = airflow.run("orders")

    assert run["tasks"]["plan"] == ["failed", 1]
    assert "MISSING_CONNECTION" in airflow.log
    assert "yarn" not in airflow.log.lower()


def test_a_broken_feed_file_has_a_dag_of_its_own_that_fails_with_the_message(
    airflow: Airflow, project: Project
) -> None:
    path = project.write_feed("orders", name="broken")
    path.write_text(path.read_text().replace("topics:", "topicz:"))

    run = airflow.run("feed_error__broken.yaml")

    assert run["tasks"] == {"feed_error": ["failed", 1]}
    assert "kafka.topicz: unknown key" in airflow.log


def test_a_feed_that_shares_its_group_with_another_and_was_never_planned_is_not_planned(
    airflow: Airflow, project: Project
) -> None:
    project.write_feed("orders")
    project.write_feed("orders", name="copy", kafka={"topics": ["orders"], "group": "orders-ingest"})

    run = airflow.run("orders")

    assert run["tasks"]["plan"] == ["failed", 1]
    assert "INVALID_FEED" in airflow.log
    assert "kafka.group 'orders-ingest' is also that of" in airflow.log


def test_complete_hours_are_announced_once_each_by_their_keys_over_a_crash_and_again_with_late_rows(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=4)
    project.write_feed(topic, complete={"by": "hour", "delay": "1s", "idle_after": "1s", "success_file": True})
    produce(broker.bootstrap_servers, topic, records_at(hour, hour + timedelta(hours=3, minutes=1)))
    expected = [f"{hour + timedelta(hours=number):%Y-%m-%dT%H:00:00}" for number in range(5)]

    first = airflow.run("orders", "kafka_ingest.control.completion_store.CompletionStore.note_periods_announced")

    assert first == {}, "it died after Airflow had recorded the events"
    announced = [(key, 0) for key in expected if key < f"{datetime.now(UTC):%Y-%m-%dT%H:00:00}"]
    assert complete_events(airflow) == announced
    quiet = airflow.run("orders")
    assert (quiet["state"], quiet["tasks"]["complete"][0]) == ("success", "skipped"), airflow.log[-3000:]
    assert complete_events(airflow) == announced

    produce(broker.bootstrap_servers, topic, records_at(hour, hour + timedelta(minutes=1)))
    late = airflow.run("orders")

    assert late["tasks"]["complete"][0] == "success", airflow.log[-3000:]
    assert complete_events(airflow) == [*announced, (expected[0], 2)]
    assert airflow.run("orders")["tasks"]["complete"][0] == "skipped"
    found = project.kafka_ingest("partitions", "orders", "--json").document
    newest_first = [(each["key"], each["late_rows"]) for each in found["complete"]]
    assert newest_first == [*((key, 0) for key, _ in reversed(announced[1:])), (expected[0], 2)]
    # The late rows are those of the batch after it.
    _, before = project.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert found["complete"][-1]["late_after_batch"] == before["batch_id"]
    assert found["waiting"]["waits_for"][0]["reason"].startswith("it is over at ")
    folders = sorted(path.parent.name for path in project.output.glob("orders.kafka-ingest/complete/*/_SUCCESS"))
    assert folders == [f"hour={key[:13]}" for key, _ in announced]


def records_at(*times: datetime) -> Iterator[OrderEvent]:
    """Return an event of each time, all of one partition."""
    stamps = [round(each.timestamp() * 1000) for each in times]
    return (replace(each, partition=0) for each in order_events(len(stamps), seed=6, timestamps_ms=stamps))


def complete_events(airflow: Airflow) -> list[tuple[str, int]]:
    """Return the keys of the recorded events of complete hours, each with its late rows."""
    with closing(sqlite3.connect(airflow_home(airflow.project.home) / "airflow.db")) as database:
        query = "SELECT partition_key, extra FROM asset_event WHERE partition_key IS NOT NULL ORDER BY id"
        found = database.execute(query).fetchall()
    events = [(key, json.loads(extra)["late_rows"].get(key, 0)) for key, extra in found]
    first = len({key for key, _ in events})
    # Airflow's own order of the keys of one task is that of a set.
    return sorted(events[:first]) + events[first:]
