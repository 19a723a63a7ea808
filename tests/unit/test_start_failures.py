"""Why Spark does not start, in the words of Java and Hadoop, and whether another try may help."""

import pytest

from kafka_ingest.errors import InstallationError, SparkFailedError
from kafka_ingest.spark_launch.start_failures import spark_failure


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


def test_any_other_failure_is_reported_with_the_end_of_what_spark_said_without_secrets() -> None:
    error = spark_failure("Spark ended with exit code 1; the end:", "ERROR login hunter2 failed\n", ["hunter2"])

    assert isinstance(error, SparkFailedError)
    assert "hunter2" not in str(error)
    assert "ERROR login" in str(error)
