"""Run spark-submit as a child process, for the command line; in Airflow the provider's hook does it."""

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka_ingest.errors import InstallationError, KafkaIngestError, SparkFailedError
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.spark_launch.start_failures import spark_failure
from kafka_ingest.spark_launch.workplace import begun_in, remove_workplace

MORE_VARIABLE = "KAFKA_INGEST_DRIVER_ENVIRONMENT"
"""Names what a site's Spark needs beyond this list, with commas between the names."""

NAMES = frozenset(
    {
        *("HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "PATH", "HOSTNAME", "PWD"),
        *("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX", "NSS_WRAPPER_PASSWD"),
        *("JAVA_HOME", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"),
        *("KRB5CCNAME", "KRB5_CONFIG", "KUBECONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV"),
        # An empty one is an error to the client of S3.
        *("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
PREFIXES = ("LC_", "SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "YARN_")
"""Spark's own settings by environment: bin/load-spark-env.sh, bin/spark-class, and Hadoop's configuration folders."""

OTHER_SPARK = (
    *("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_", "SPARK_API_MODE"),
    *("SPARK_TESTING", "SPARK_ANSI_SQL_MODE"),
)
"""These make another Spark of it: a client of a server elsewhere, one that tests itself, one with other SQL."""


def is_needed(name: str, environment: Mapping[str, str]) -> bool:
    more = {each.strip() for each in environment.get(MORE_VARIABLE, "").split(",")}
    return (name in NAMES or name.startswith(PREFIXES) or name in more) and not name.startswith(OTHER_SPARK)


def driver_environment(environment: Mapping[str, str]) -> dict[str, str]:
    # What is named here and no more: a task's environment holds connections, a database's password, and whatever else a
    # site puts there.
    return {name: value for name, value in environment.items() if is_needed(name, environment)}


def emptied(environment: Mapping[str, str]) -> dict[str, str]:
    """Return all the others, empty: for a starter that can only add to its own environment, as Airflow's hook."""
    return {name: "" for name in environment if not is_needed(name, environment)}


MAY_PASS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""The system's errors of a moment; with any other the same program never starts."""


def run_spark_submit(
    submission: SparkSubmission,
    log_file: Path,
    environment: Mapping[str, str] = os.environ,
    *,
    while_running: Callable[[], object] = lambda: None,
) -> None:
    """Run Spark to its end with its output in a log file; raises SparkFailedError with the end of that log.

    Its standard output never reaches ours, which may be a ``--json`` document. ``while_running`` is called once Spark
    has been started; what it raises ends Spark.
    """
    exit_code = None
    try:
        exit_code = exit_code_of(submission, log_file, environment, while_running)
        if exit_code:
            said = log_file.read_text(encoding="utf-8", errors="replace")
            ended = f"Spark {ending(exit_code)}; nothing it wrote is visible. The end of {log_file}:"
            raise spark_failure(ended, said, submission.secrets, begun_in(submission.workplace))
    finally:
        # The log of a failure stays; the key of a store's account, which Hadoop reads from a file, never does.
        remove_workplace(submission.workplace, but=log_file if exit_code != 0 else None)


def exit_code_of(
    submission: SparkSubmission, log_file: Path, environment: Mapping[str, str], while_running: Callable[[], object]
) -> int:
    if shutil.which(submission.spark_binary, path=submission.environment["PATH"]) is None:
        raise InstallationError(
            f"expected {submission.spark_binary} on the PATH, found none. It comes with pyspark: install that."
        )
    with log_file.open("wb") as log:
        try:
            child = subprocess.Popen(
                submission.command(),
                env={**driver_environment(environment), **submission.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise not_started(submission.spark_binary, error) from error
        try:
            while_running()
            exit_code = child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
    return exit_code


def not_started(binary: str, error: OSError) -> KafkaIngestError:
    """Return why the system does not start a program: by its own number, whether another try may."""
    if error.errno in MAY_PASS:
        return SparkFailedError(f"expected the system to start {binary}, found: {error}. The next try may find more.")
    found = "its settings are too long" if error.errno == errno.E2BIG else str(error)
    return InstallationError(
        f"expected to start {binary}, found: {found}. Shorten spark.conf in the feed file and the environment, or "
        "correct the program and its rights; another try would fail the same way."
    )


def ending(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "was killed (by the system because memory ran out, or by an operator)"
    return f"ended with exit code {exit_code}" if exit_code > 0 else f"was ended by {signal.Signals(-exit_code).name}"
