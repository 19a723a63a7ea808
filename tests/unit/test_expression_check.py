"""How doctor asks Spark about a feed's expressions, and what it says of a function that Python does not find."""

import shlex
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka_ingest.model.decoding import Decoding
from kafka_ingest.model.written_columns import Shape
from kafka_ingest.spark_launch.installation import Installation
from kafka_ingest.spark_launch.java_options import ChosenJavaOptions
from kafka_ingest.verbs.check_feed import environment_of
from kafka_ingest.writing.check_feed import problem_of

INSTALLED = Installation(
    application=Path("/opt/jobs/write_batch.py"),
    jars=(Path("/opt/my jars/a.jar"), Path("/opt/my jars/b.jar")),
    python=Path("/opt/bin/python"),
    search_path="/opt/bin",
    spark_home=Path("/opt/spark"),
)


def test_its_java_starts_as_that_of_a_small_batch_does_with_what_the_site_has_set() -> None:
    installed = replace(INSTALLED, java_options=ChosenJavaOptions(driver_defaults="-Dsite=1"))

    environment = environment_of(installed, {})

    arguments = shlex.split(environment["PYSPARK_SUBMIT_ARGS"])
    [java] = [each for each in arguments if each.startswith("spark.driver.defaultJavaOptions=")]
    assert java.partition("=")[2].split() == ["-Dsite=1", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    assert arguments[arguments.index("--driver-class-path") + 1] == "/opt/my jars/a.jar:/opt/my jars/b.jar"
    assert environment["SPARK_LAUNCHER_OPTS"].startswith("-XX:TieredStopAtLevel=1")
    assert arguments[-1] == "pyspark-shell"


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("json:nope", "expected a function that the driver's Python can import, found none: module 'json' has no"),
        ("no_such:nope", "expected a function that the driver's Python can import, found none: No module named"),
        ("json:__name__", "expected a function, found str"),
    ],
)
def test_a_function_that_python_does_not_find_is_named(function: str, problem: str) -> None:
    found = problem_of(Mock(), Decoding(shape=Shape(where="true", transform=function)))

    assert found is not None
    assert found.startswith(f"transform {function}: {problem}")
