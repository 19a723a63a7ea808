"""Run spark-submit as a child process, for the command line; in Airflow the provider's hook does it."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka_ingest.cluster.client_settings import without_secrets
from kafka_ingest.errors import InstallationError, SparkFailedError
from kafka_ingest.spark_launch.driver_environment import driver_environment
from kafka_ingest.spark_launch.spark_output import informative_lines
from kafka_ingest.spark_launch.spark_submission import SparkSubmission


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
    try:
        exit_code = exit_code_of(submission, log_file, environment, while_running)
    finally:
        # The log of a failure stays; the key of a store's account, which Hadoop reads from a file, never does.
        clear_workplace(submission, but=log_file)
    if exit_code:
        said = log_file.read_text(encoding="utf-8", errors="replace")
        end = without_secrets(informative_lines(said), submission.secrets)
        raise SparkFailedError(f"Spark {ending(exit_code)}; nothing it wrote is visible. The end of {log_file}:\n{end}")


def exit_code_of(
    submission: SparkSubmission, log_file: Path, environment: Mapping[str, str], while_running: Callable[[], object]
) -> int:
    """Run Spark to its end; return its exit code."""
    if shutil.which(submission.spark_binary, path=submission.environment["PATH"]) is None:
        raise InstallationError(
            f"expected {submission.spark_binary} on the PATH, found none. It comes with pyspark: run `make setup`."
        )
    with log_file.open("wb") as log:
        child = subprocess.Popen(
            submission.command(),
            env={**driver_environment(environment), **submission.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while_running()
            exit_code = child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
    return exit_code


def clear_workplace(submission: SparkSubmission, *, but: Path) -> None:
    """Remove what a submission brought to this machine for one attempt, but one file."""
    if submission.workplace is None:
        return
    for each in submission.workplace.iterdir():
        if each != but and each.is_file():
            each.unlink()


def ending(exit_code: int) -> str:
    """Return how a child process ended."""
    if exit_code == -signal.SIGKILL:
        return "was killed (by the system because memory ran out, or by an operator)"
    return f"ended with exit code {exit_code}" if exit_code > 0 else f"was ended by {signal.Signals(-exit_code).name}"
