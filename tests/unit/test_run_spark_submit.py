"""Spark as a child process of the command line: what is done while it runs. A script stands in for spark-submit."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_ingest.errors import InstallationError, SparkFailedError
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkSubmission

WAITS_FOR_A_SIGN = """#!/bin/sh
cd "$(dirname "$0")" || exit
echo $$ > running
for _ in $(seq 1500); do
  [ -e go ] && exit
  sleep 0.02
done
exit 1
"""


def submission(directory: Path) -> SparkSubmission:
    script = directory / "spark-submit"
    script.write_text(WAITS_FOR_A_SIGN)
    script.chmod(0o755)
    return SparkSubmission(
        master="local[*]",
        deploy_mode=None,
        spark_binary=str(script),
        queue=None,
        name="a batch",
        application="write_batch.py",
        arguments=(),
        conf={},
        jars=None,
        driver_class_path="",
        environment={"PATH": os.environ["PATH"]},
        workplace=directory / "workplace",
    )


def wait_until_it_runs(directory: Path) -> None:
    running = directory / "running"
    deadline = time.monotonic() + 30
    while not (running.exists() and running.read_text()):
        assert time.monotonic() < deadline, "expected the script to have been started, found no sign of it"
        time.sleep(0.02)


def test_what_is_to_be_done_while_running_is_done_while_spark_runs(tmp_path: Path) -> None:
    def let_it_continue() -> None:
        wait_until_it_runs(tmp_path)
        (tmp_path / "go").touch()

    run_spark_submit(submission(tmp_path), tmp_path / "spark.log", while_running=let_it_continue)


def test_what_fails_while_spark_runs_ends_spark(tmp_path: Path) -> None:
    def fail() -> None:
        wait_until_it_runs(tmp_path)
        raise ImportError("no pyarrow here")

    with pytest.raises(ImportError, match="no pyarrow here"):
        run_spark_submit(submission(tmp_path), tmp_path / "spark.log", while_running=fail)

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "running").read_text()), 0)


def test_where_spark_fails_its_log_stays_and_the_key_of_a_store_does_not(tmp_path: Path) -> None:
    call = submission(tmp_path)
    workplace = call.workplace
    workplace.mkdir()
    (workplace / "key.json").write_text("a private key")
    Path(call.spark_binary).write_text("#!/bin/sh\nexit 1\n")

    with pytest.raises(SparkFailedError):
        run_spark_submit(call, workplace / "spark.log")

    assert [each.name for each in workplace.iterdir()] == ["spark.log"]


def test_the_place_of_a_call_is_gone_when_spark_has_ended_well(tmp_path: Path) -> None:
    call = submission(tmp_path)
    call.workplace.mkdir()
    (call.workplace / "settings.json").write_text("a password")
    Path(call.spark_binary).write_text("#!/bin/sh\n")

    run_spark_submit(call, call.workplace / "spark.log")

    assert not call.workplace.exists()


def test_what_the_system_does_not_start_is_named_and_not_tried_again(tmp_path: Path) -> None:
    too_long = replace(submission(tmp_path), conf={"spark.some.setting": "x" * 131_072})
    with pytest.raises(InstallationError, match="found: its settings are too long") as error:
        run_spark_submit(too_long, tmp_path / "spark.log")
    assert error.value.exit_code == 2

    no_program = submission(tmp_path)
    Path(no_program.spark_binary).write_bytes(b"\x7fELF")
    with pytest.raises(InstallationError, match="Exec format error"):
        run_spark_submit(no_program, tmp_path / "spark.log")
