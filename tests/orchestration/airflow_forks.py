"""Scripts that import Airflow, each run in a fork of one process that has imported it."""

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from uuid import uuid4

import psutil
from tests.command_forks import answer_of
from tests.project import Answer, Project

from environment import airflow_home, child_environment

ROOT = Path(__file__).resolve().parents[2]
FORK_AIRFLOW = Path(__file__).with_name("fork_airflow.py")


def fixed_when_imported(environment: dict[str, str]) -> dict[str, str]:
    """Return what Airflow reads once, when it is imported."""
    return {name: value for name, value in environment.items() if name.startswith("AIRFLOW__")}


class AirflowForks:
    """A process with Airflow imported; its AIRFLOW_HOME is a link to that of the project that asks."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-ingest-airflow-")
        home = Path(self._directory.name)
        self._airflow_home = home / "airflow_home"
        # Without connections: what is imported once must not need one, as reading a DAG file must not.
        self._environment = {
            name: value
            for name, value in child_environment(home, "127.0.0.1:1").items()
            if not name.startswith("AIRFLOW_CONN_")
        } | {"AIRFLOW_HOME": str(self._airflow_home), "PYTHONPATH": str(ROOT)}
        self._lead_to(airflow_home(home))
        self._process = subprocess.Popen(
            [sys.executable, str(FORK_AIRFLOW)],
            cwd=home,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def running(self) -> psutil.Process:
        """The fork that runs a script now."""
        [fork] = psutil.Process(self._process.pid).children()
        return fork

    def run(self, project: Project, script: Path, *arguments: str | Path, **environment: str) -> Answer:
        """Run a script to its end, as :meth:`Project.command` runs a program."""
        asked = project.environment | environment | {"AIRFLOW_HOME": str(self._airflow_home)}
        assert fixed_when_imported(asked) == fixed_when_imported(self._environment)
        self._lead_to(airflow_home(project.home))
        said = {name: project.home / f"{uuid4().hex}.{name}" for name in ("stdout", "stderr")}
        request = {
            "arguments": [str(script), *map(str, arguments)],
            "environment": asked,
            "directory": str(project.home),
            **{name: str(path) for name, path in said.items()},
        }
        exit_code = answer_of(self._process, request)
        stdout, stderr = (path.read_text() for path in said.values())
        # As `subprocess` counts: a signal is a negative number.
        return Answer(exit_code, stdout, stderr)

    def end(self) -> None:
        self._process.communicate()
        self._directory.cleanup()

    def _lead_to(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._airflow_home.unlink(missing_ok=True)
        self._airflow_home.symlink_to(home)


@cache
def airflow_forks() -> AirflowForks:
    return AirflowForks()
