"""A heap that was too small: how it is known, and what is said to do."""

import pytest
from tests.fakes import a_plan, span

from kafka_ingest.errors import WrongUseError
from kafka_ingest.spark_launch.spark_submission import SparkMaster
from kafka_ingest.spark_launch.start_failures import may_have_run_out_of_memory, out_of_memory, ran_out_of_memory

LOCAL = SparkMaster("spark_default", "local[8]")
CLUSTER = SparkMaster("spark_default", "spark://host:7077")


@pytest.mark.parametrize(
    "said",
    [
        "Spark ended with exit code 52; nothing it wrote is visible. The end of /x/spark.log:",
        "Cannot execute: spark-submit --master local[8] write_batch.py. Error code is: 52.",
        "26/11/23 03:01:44 ERROR Executor: Exception in task\njava.lang.OutOfMemoryError: Java heap space",
        (
            "ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command exited with "
            "code 52"
        ),
        "Caused by: java.lang.OutOfMemoryError: GC overhead limit exceeded",
    ],
)
def test_an_error_of_memory_is_known_however_it_is_said(said: str) -> None:
    assert ran_out_of_memory(said)


@pytest.mark.parametrize(
    "said", ["", "Spark ended with exit code 1", "exit code 520", "Error code is: 152.", "orders-52 at offset 52"]
)
def test_another_failure_is_none_of_memory(said: str) -> None:
    assert not ran_out_of_memory(said)


def test_a_driver_that_was_killed_may_have_taken_all_memory() -> None:
    killed = [
        "Spark was killed (by the system because memory ran out, or by an operator); nothing it wrote is visible",
        "Cannot execute: spark-submit --master local[8] write_batch.py. Error code is: -9.",
        "Container exited with a non-zero exit code 137",
    ]
    assert all(map(may_have_run_out_of_memory, killed))
    others = [
        "Spark ended with exit code 1, record of 137 bytes",
        "Error code is: -90.",
        "Spark ended with exit code 52",
    ]
    assert not any(map(may_have_run_out_of_memory, others))


def test_it_names_the_setting_what_it_is_and_how_many_run_at_once() -> None:
    plan = a_plan(span(0, 0, 150), span(1, 0, 150))

    said = str(out_of_memory(plan, LOCAL, {"spark.driver.memory": "2g"}))

    assert "spark.driver.memory is 2g in the feed's spark.conf" in said
    assert "up to 300 records of 2 partitions" in said
    assert "connection 'spark_default' says local[8]" in said
    assert "No offset was moved" in said


def test_without_a_setting_it_says_the_default_and_on_a_cluster_it_is_the_executors() -> None:
    assert "spark.driver.memory is not set in the feed, 1g by default" in str(out_of_memory(a_plan(), LOCAL, {}))
    said = str(out_of_memory(a_plan(), CLUSTER, {"spark.driver.memory": "2g"}))
    assert "spark.executor.memory is not set in the feed" in said
    assert "spark.executor.cores" in said


def test_it_is_not_tried_again_without_a_change() -> None:
    assert isinstance(out_of_memory(a_plan(), LOCAL, {}), WrongUseError)
