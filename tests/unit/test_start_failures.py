"""Why Spark does not start, in the words of Java and Hadoop, and whether another try may help."""

import pytest

from kafka_ingest.errors import InstallationError, SparkFailedError
from kafka_ingest.spark_launch.start_failures import machines_fault, spark_failure


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            'Exception in thread "main" java.lang.UnsupportedOperationException: getSubject is not supported',
            "expected a Java that this Spark runs on",
        ),
        (
            "Caused by: java.lang.NullPointerException: invalid null input: name",
            "expected a user with a name, found one whose number is not in /etc/passwd",
        ),
        (
            "Error opening zip file or JAR manifest missing : /no/such.jar",
            "expected a Java agent that the options of Java name, found no such file",
        ),
        ("Unrecognized VM option 'UseNoGC'", "expected options that this Java takes"),
        (
            'Caused by: java.io.IOException: Cannot run program "/opt/venv/bin/python": error=2, No such file',
            "expected the driver's minor version of Python, with Spark's own modules, where Spark's workers run",
        ),
        (
            'java.io.IOException: Cannot run program "python3.11": Exec failed, error: 13 (Permission denied) ',
            "set spark.pyspark.python",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.9",
            "Found none, or another. Install it there",
        ),
        (
            "Error from python worker:\n  /usr/bin/python3: Error (ModuleNotFoundError: No module named 'pyspark')",
            "with Spark's own modules",
        ),
    ],
)
def test_what_only_a_change_on_the_machine_helps_against_is_named_and_not_tried_again(said: str, expected: str) -> None:
    error = spark_failure("Spark ended with exit code 1", f"Picked up _JAVA_OPTIONS: -Da=b\n{said}\n\tat a.B.c\n")

    assert isinstance(error, InstallationError)
    assert error.exit_code == 2
    assert expected in str(error)
    assert str(error).endswith(f"Spark could not start: {said}")


def test_words_of_a_record_are_not_taken_for_those_of_java() -> None:
    error = spark_failure("Spark ended with exit code 1", 'cannot read "Unrecognized option": invalid null input: name')

    assert isinstance(error, SparkFailedError)


def test_the_failure_that_a_job_leaves_behind_names_them_as_well() -> None:
    fault = machines_fault(
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in "
        'stage 0.0 (TID 3) (10.0.0.1 executor 0): java.io.IOException: Cannot run program "/opt/venv/bin/python": '
        "error=2, No such file or directory\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n"
    )

    assert "where Spark's workers run" in str(fault)


@pytest.mark.parametrize(
    "said",
    [
        'java.io.IOException: Cannot run program "/opt/venv/bin/python": error=12, Cannot allocate memory',
        'java.io.IOException: Cannot run program "chmod": error=2, No such file or directory',
        'a record: java.io.IOException: Cannot run program "python": error=2, x',
    ],
)
def test_a_worker_that_may_start_at_the_next_try_is_no_fault_of_the_installation(said: str) -> None:
    assert isinstance(spark_failure("Spark ended with exit code 1", said), SparkFailedError)


def test_any_other_failure_is_reported_with_the_end_of_what_spark_said_without_secrets() -> None:
    error = spark_failure("Spark ended with exit code 1; the end:", "ERROR login hunter2 failed\n", ["hunter2"])

    assert isinstance(error, SparkFailedError)
    assert "hunter2" not in str(error)
    assert "ERROR login" in str(error)
