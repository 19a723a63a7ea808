"""How the job gets its Spark: Java begins while Python imports, and is stopped at the end."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.killing import wait_for
from tests.spark.quick_start import run_script

from dies_with_parent import dying_with_this_process
from kafka_ingest.model.place import MAX_WAIT_FOR_EXECUTORS
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.java_options import SMALL
from kafka_ingest.writing.java_classes import head_start

JOB = """
import json, sys, time
from kafka_ingest.writing.java_classes import head_start

began = head_start()
if began:
    began.join()
imported, before = "pyspark" in sys.modules, time.time() * 1000
from kafka_ingest.writing.session import spark_session

with spark_session() as spark:
    java, made = spark.sparkContext._jsc.sc(), spark.sparkContext.startTime < before
    rows, shown = spark.range(3).count(), {name: eval(asked) for name, asked in json.loads(sys.argv[1]).items()}
print(json.dumps({"imported": imported, "made": made, "rows": rows, "stopped": java.isStopped(), **shown}))
"""


def run_job(
    home: Path,
    master: str = "local[1]",
    conf: dict[str, str] | None = None,
    asked: Mapping[str, str] | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a job that says how its Spark was made; what it is ``asked`` besides are expressions of Python's."""
    job = home / "job.py"
    job.write_text(JOB)
    return run_script(job, json.dumps(asked or {}), master=master, conf=conf, **environment)


def test_where_java_speaks_py4js_other_protocol_it_is_not_asked_ahead(tmp_path: Path) -> None:
    done = run_job(tmp_path, PYSPARK_PIN_THREAD="false")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"imported": False, "made": False, "rows": 3, "stopped": True}


def test_a_context_that_cannot_be_made_ends_the_job_and_is_reported(tmp_path: Path) -> None:
    done = run_job(tmp_path, master="local[many]")

    assert done.returncode == 1
    assert "Could not parse Master URL: 'local[many]'" in done.stderr


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_java_that_is_gone_is_reported_where_it_is_needed_and_not_ahead() -> None:
    waiting = head_start({"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_GATEWAY_SECRET": "x"})
    assert waiting is not None
    waiting.join()


@pytest.mark.parametrize("environment", [{}, {"PYSPARK_GATEWAY_PORT": "1"}, {"PYSPARK_GATEWAY_SECRET": "x"}])
def test_outside_of_spark_nothing_is_begun(environment: dict[str, str]) -> None:
    assert head_start(environment) is None


@pytest.fixture
def master_without_workers(tmp_path: Path) -> Iterator[str]:
    """A real standalone master that has no cores to give."""
    installed = installation()
    log = tmp_path / "master.log"
    java = ["java", *SMALL, "-cp", f"{installed.spark_home}/jars/*", "org.apache.spark.deploy.master.Master"]
    with log.open("wb") as out:
        master = subprocess.Popen(
            dying_with_this_process([*java, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield wait_for(lambda: re.findall(r"Starting Spark master at (\S+)", log.read_text()), "the master to listen")[
            0
        ]
    finally:
        master.kill()
        master.wait()


def test_an_application_that_gets_no_executor_is_ended_after_the_limit_with_the_reason(
    tmp_path: Path, master_without_workers: str
) -> None:
    done = run_job(tmp_path, master_without_workers, {MAX_WAIT_FOR_EXECUTORS: "1"})

    assert done.returncode != 0
    assert "NO_EXECUTORS: expected an executor within 1 s (spark.max_wait_for_executors), found none" in done.stdout
