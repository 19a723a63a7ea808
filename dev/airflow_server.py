"""A real Airflow: scheduler, DAG processor and API server as separate processes, driven through the REST API.

Its own tables are in a PostgreSQL, as Airflow wants them: with SQLite's one writer at a time, requests fail.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import airflow_components
import environment
import own_process
from embedded_postgresql import EmbeddedPostgresql
from free_ports import LOOPBACK, free_port_from

COMPONENTS = ("api-server", "scheduler", "dag-processor")
PATIENCE_S = 240.0
GRACE_S = 20.0


class RestError(Exception):
    """The API refused: its status and what it said."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class AirflowServer:
    """What a user does with Airflow's own pages, which do it through this API."""

    def __init__(self, home: Path, port: int) -> None:
        self._home = home
        self._port = port
        self._token: str | None = None

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Make one request and return its JSON answer; raises RestError where it is refused."""
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = HTTPConnection(LOOPBACK, self._port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise RestError(answer.status, content)
        return dict(json.loads(content)) if content else {}

    def log_in(self) -> None:
        """Get the token of the one user."""
        passwords = json.loads(airflow_components.password_file(environment.airflow_home(self._home)).read_text())
        user = {"username": airflow_components.USER, "password": passwords[airflow_components.USER]}
        self._token = self.call("POST", "/auth/token", user)["access_token"]

    def has_dag(self, dag_id: str) -> bool:
        """Whether the DAG processor has found it."""
        return dag_id in {dag["dag_id"] for dag in self.call("GET", "/api/v2/dags")["dags"]}

    def trigger(self, dag_id: str, conf: dict[str, Any]) -> str:
        """Trigger a run, as the form's button does, and return its id."""
        body = {"conf": conf, "logical_date": None}
        return str(self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG, or unpause it."""
        self.call("PATCH", f"/api/v2/dags/{dag_id}?update_mask=is_paused", {"is_paused": paused})

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return how far a run is."""
        return str(self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}")["state"])

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return all that Airflow's API reports of each task of a run."""
        found = self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances?limit=1000")
        return list(found["task_instances"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state of each task, mapped ones with their index."""
        return {
            entry["task_id"] if entry["map_index"] < 0 else f"{entry['task_id']}[{entry['map_index']}]": entry["state"]
            for entry in self.task_instances(dag_id, run_id)
        }

    def clear(self, dag_id: str, run_id: str, task_id: str, map_index: int) -> None:
        """Clear one mapped task and what comes after it in its chunk, as the page's button does."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": [[task_id, map_index]],
            "only_failed": False,
            "reset_dag_runs": True,
            "include_downstream": True,
        }
        self.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", body)


def until(happened: Callable[[], object], what: Callable[[], object]) -> None:
    """Wait for something to happen; ``what`` describes the present state for the error."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not happen within {PATIENCE_S:.0f} s, found {what()}")
        time.sleep(0.5)


def missing(port: int, components: Sequence[str]) -> set[str]:
    """Return which parts do not answer yet; where nothing waits for events, no triggerer is started."""
    unneeded = {"triggerer"} - set(components)
    return set(airflow_components.unhealthy_parts(port)) - unneeded


@contextmanager
def running(
    home: Path,
    bootstrap_servers: str,
    inherited: Mapping[str, str],
    components: Sequence[str] = COMPONENTS,
    grace_s: float = GRACE_S,
) -> Iterator[AirflowServer]:
    """Run Airflow below ``home`` until the block ends; ``inherited`` is the environment that it starts from.

    It is asked to end, and killed after ``grace_s``.
    """
    port = free_port_from(8100)
    logs = home / "airflow-logs"
    logs.mkdir()
    with EmbeddedPostgresql() as postgresql:
        tables = postgresql.create_database("airflow").render_as_string(hide_password=False)
        settings = {
            **inherited,
            **environment.settings(home, bootstrap_servers, port),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": tables,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": tables,
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "PYTHONPATH": os.pathsep.join([str(environment.ROOT / "plugins")]),
        }
        airflow_components.prepare(environment.airflow_home(home), settings, logs / "db.log")
        started = [
            own_process.start(name, airflow_components.COMPONENTS[name], logs / f"{name}.log", settings)
            for name in components
        ]
        try:
            until(lambda: not missing(port, components), lambda: f"{missing(port, components)} still missing")
            server = AirflowServer(home, port)
            server.log_in()
            yield server
        finally:
            own_process.stop(started, grace_s)
