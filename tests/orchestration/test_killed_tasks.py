"""`kill -9` of the process that runs a feed's tasks: the DAG is run again, and every record is there once."""

import os
import sys
from collections.abc import Iterator

import pytest
from tests.kafka_faults import create_topic
from tests.killing import (
    Processes,
    Produced,
    Running,
    SparkAttempt,
    check_every_record_once,
    ending_all,
    records_of,
    slowly,
    wait_for,
)
from tests.orchestration.conftest import ROOT, RUNNER, Airflow
from tests.project import Project

from embedded_broker import EmbeddedBroker


@pytest.fixture
def processes(project: Project) -> Iterator[Processes]:
    with ending_all(project) as made:
        yield made


@pytest.fixture
def produced(project: Project, broker: EmbeddedBroker) -> Produced:
    """Records that Spark needs some seconds for, where it reads slowly."""
    topic = f"orders-{os.urandom(4).hex()}"
    create_topic(broker.bootstrap_servers, topic, 3)
    project.write_feed(topic)
    made = Produced(broker.bootstrap_servers, topic)
    made.add(0, 5, batches=10)
    made.add(1, 3)
    return made


def start_dag(project: Project, processes: Processes, **environment: str) -> Running:
    """Start a run of the feed's DAG in a process of its own."""
    path = os.pathsep.join(str(ROOT / folder) for folder in ("dev", "plugins"))
    result = project.home / "result-of-the-killed.json"
    return processes.start(sys.executable, RUNNER, "orders", result, "null", PYTHONPATH=path, **environment)


def test_spark_continues_when_its_task_is_killed_and_the_next_dag_run_commits_what_it_wrote_without_spark(
    airflow: Airflow, project: Project, processes: Processes, produced: Produced
) -> None:
    spark = SparkAttempt(project, 1)
    run = start_dag(project, processes, **slowly(project))
    run.wait_until(spark.is_writing, "the write task's Spark to write")
    run.kill()
    assert not spark.has_receipt()
    wait_for(spark.has_receipt, "the orphan to finish its output")
    assert records_of(project) == []
    assert project.status()["open_batch"]["state"] == "PLANNED"

    again = airflow.run("orders")
    assert again["state"] == "success", airflow.log[-3000:]
    assert "attempt 1 had written it already" in airflow.log
    assert "is written already: no need for Spark" in airflow.log
    check_every_record_once(project, produced)
