"""`make soak` kills what it means to kill."""

from kafka_ingest.spark_launch.run_spark_submit import driver_environment
from soak import MARK


def test_spark_carries_the_variable_by_which_the_soak_finds_its_victims() -> None:
    assert driver_environment(MARK) == MARK
