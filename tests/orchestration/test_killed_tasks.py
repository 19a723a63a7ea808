"""`kill -9` of the process that runs a feed's tasks: the DAG is run again, and every record is there once."""

import os
from collections.abc import Iterator

import pytest
from tests.kafka_faults import create_topic
from tests.killing import (
    Produced,
    SparkAttempt,
    check_every_record_once,
    ending_all,
    records_of,
    slowly,
    wait_for,
)
from tests.orchestration.conftest import Airflow
from tests.project import Project

from embedded_broker import EmbeddedBroker


@pytest.fixture
def _ending_all(project: Project) -> Iterator[None]:
    with ending_all(project):
        yield


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


@pytest.mark.usefixtures("_ending_all")
def test_spark_continues_when_its_task_is_killed_and_the_next_dag_run_commits_what_it_wrote_without_spark(
    airflow: Airflow, project: Project, produced: Produced
) -> None:
    spark = SparkAttempt(project, 1)
    airflow.killed("orders", spark.is_writing, **slowly(project))
    assert not spark.has_receipt()
    wait_for(spark.has_receipt, "the orphan to finish its output")
    assert records_of(project) == []
    assert project.status()["open_batch"]["state"] == "PLANNED"

    again = airflow.run("orders")
    assert again["state"] == "success", airflow.log[-3000:]
    assert "attempt 1 had written it already" in airflow.log
    assert "is written already: no need for Spark" in airflow.log
    check_every_record_once(project, produced)
