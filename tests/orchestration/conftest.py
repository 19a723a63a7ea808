import json
import os
import shutil
import signal
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.killing import wait_for
from tests.like_spark import program_like_spark
from tests.orchestration.airflow_forks import airflow_forks
from tests.project import Project
from tests.quick_project import QuickProject

from embedded_broker import EmbeddedBroker
from environment import airflow_home

RUNNER = Path(__file__).with_name("run_dag_once.py")
ROOT = Path(__file__).resolve().parents[2]


def java_like_spark(java_home: Path, first: str = ":") -> Path:
    """Make a JAVA_HOME whose java runs a stand-in for Spark; spark-submit and Spark's launcher are the real ones.

    ``first`` are lines of a shell that it runs before each.
    """
    java = java_home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
case "$*" in
*launcher.Main*) ;;
*SparkSubmit*--attempt*)
{first}
exec {program_like_spark()} "$@";;
esac
PATH="${{PATH#*:}}" exec java "$@"
"""
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java_home


def lineage_into(file: Path) -> dict[str, str]:
    """Return OpenLineage's settings by which its provider writes events into a file, in the form of environment."""
    transport = {"TYPE": "file", "LOG_FILE_PATH": str(file), "APPEND": "true"}
    return {f"OPENLINEAGE__TRANSPORT__{name}": value for name, value in transport.items()}


def commits_in(file: Path, task: str) -> list[dict[str, Any]]:
    """Return the events that tasks of a name have sent at their ends."""
    said = [json.loads(line) for line in file.read_text().splitlines() if line]
    return [each for each in said if (each["job"]["name"], each["eventType"]) == (task, "COMPLETE")]


class Airflow:
    """Airflow on a database of its own, running the repository's DAG files on a project's feeds.

    What its write tasks submit is a stand-in for Spark, except where a test is about Spark in a task.
    """

    def __init__(self, project: Project, migrated: Path) -> None:
        self.project = project
        # Not airflow.cfg: it names its own database by an absolute path.
        airflow_home(project.home).mkdir(parents=True)
        shutil.copy(migrated / "airflow.db", airflow_home(project.home))
        self.java_like_spark = java_like_spark(project.home / "java-like-spark")

    def killed(self, dag_id: str, when: Callable[[], object], **environment: str) -> None:
        """Run a DAG, and SIGKILL the process that runs its tasks once something has come about."""
        with ThreadPoolExecutor(1) as threads:
            run = threads.submit(self.run, dag_id, spark_is_real=True, **environment)
            wait_for(lambda: when() or run.done(), "what the process is killed for")
            assert not run.done(), self.log
            airflow_forks().running.kill()
            assert run.result() == {}

    def run(
        self,
        dag_id: str,
        *crash_at: str,
        conf: Mapping[str, Any] | None = None,
        spark_is_real: bool = False,
        **environment: str,
    ) -> dict[str, Any]:
        """Run a DAG once and return its state and its tasks' [state, try]; empty where the process died."""
        result = self.project.home / "result.json"
        result.unlink(missing_ok=True)
        path = os.pathsep.join(str(ROOT / folder) for folder in ("dev", "plugins", "tests/orchestration"))
        if not spark_is_real:
            environment = {"JAVA_HOME": str(self.java_like_spark)} | environment
        arguments = (RUNNER, dag_id, result, json.dumps(conf), *crash_at)
        answer = airflow_forks().run(self.project, *arguments, PYTHONPATH=path, **environment)
        (self.project.home / "airflow.log").write_text(answer.stdout + answer.stderr)
        if not result.exists():
            assert answer.exit_code in {137, -signal.SIGKILL}, answer.stdout[-5000:] + answer.stderr[-5000:]
            return {}
        return json.loads(result.read_text())

    @property
    def triggered(self) -> list[tuple[str, Any]]:
        """The runs that a task triggered: each one's id and what it was triggered with."""
        with closing(sqlite3.connect(airflow_home(self.project.home) / "airflow.db")) as database:
            found = database.execute("SELECT run_id, conf FROM dag_run WHERE triggered_by = 'OPERATOR'").fetchall()
        return [(run_id, json.loads(conf)) for run_id, conf in found]

    @property
    def committed(self) -> list[Any]:
        """What the tasks that commit returned."""
        with closing(sqlite3.connect(airflow_home(self.project.home) / "airflow.db")) as database:
            found = database.execute("SELECT value FROM xcom WHERE key = 'return_value' AND task_id LIKE '%commit'")
            return [json.loads(value) for (value,) in found]

    @property
    def labels(self) -> list[str]:
        """What stands beside the mapped tasks in Airflow's grid."""
        with closing(sqlite3.connect(airflow_home(self.project.home) / "airflow.db")) as database:
            found = database.execute("SELECT rendered_map_index FROM task_instance WHERE map_index >= 0")
            return sorted(label for (label,) in found)

    @property
    def announced(self) -> list[str]:
        """The batches of the recorded Asset events, in their order."""
        with closing(sqlite3.connect(airflow_home(self.project.home) / "airflow.db")) as database:
            found = database.execute("SELECT extra FROM asset_event ORDER BY id").fetchall()
        return [json.loads(extra)["batch_id"] for (extra,) in found]

    @property
    def log(self) -> str:
        return (self.project.home / "airflow.log").read_text()


@pytest.fixture(scope="session", autouse=True)
def ending_airflow() -> Iterator[None]:
    """End the process that imported Airflow, if a test has started it."""
    yield
    if airflow_forks.cache_info().currsize:
        airflow_forks().end()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Airflow's own database, migrated once."""
    made = Project(tmp_path_factory.mktemp("airflow") / "project", "127.0.0.1:1")
    answer = airflow_forks().run(made, Path(sys.executable).with_name("airflow"), "db", "migrate")
    assert answer.exit_code == 0, answer.stderr
    return airflow_home(made.home)


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedBroker) -> QuickProject:
    """A project whose commands need no process, and no Spark: what is tested here is what Airflow starts."""
    made = QuickProject(tmp_path / "project", broker.bootstrap_servers)
    made.make_control_tables()
    return made


@pytest.fixture
def airflow(project: Project, migrated: Path) -> Iterator[Airflow]:
    return Airflow(project, migrated)
