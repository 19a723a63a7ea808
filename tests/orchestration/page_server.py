"""A real API server that serves the page "Kafka offsets", and requests to it as users of each role."""

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.orchestration.airflow_forks import airflow_forks
from tests.orchestration.guest import GUEST
from tests.project import Project

import own_process
from airflow_components import password_file
from environment import airflow_home
from free_ports import LOOPBACK, random_free_ports

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
ROLES = {"viewer": "viewer", "user": "user", "operator": "op", "admin": "admin", GUEST: "viewer"}
"""The users, and each one's role."""


@dataclass(frozen=True)
class Page:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    text: str


class PageServer:
    """The API server of a project, until it is ended."""

    def __init__(self, project: Project, port: int, passwords: Mapping[str, str]) -> None:
        self.project = project
        self.port = port
        self.passwords = passwords
        self.tokens: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def token(self, user: str) -> str:
        """Return what the browser of a user who signed in keeps as a cookie."""
        if user not in self.tokens:
            body = json.dumps({"username": user, "password": self.passwords[user]})
            answer = self.ask("POST", "/auth/token", body=body, headers={"Content-Type": "application/json"})
            assert answer.status == 201, answer.text
            self.tokens[user] = json.loads(answer.text)["access_token"]
        return self.tokens[user]

    def ask(self, method: str, path: str, *, body: str | None = None, headers: Mapping[str, str] | None = None) -> Page:
        connection = HTTPConnection(LOOPBACK, self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Page(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def page(self, path: str, user: str | None = "viewer", method: str = "GET") -> Page:
        """Ask for a page below the plugin's prefix, with a user's cookie."""
        headers = {} if user is None else {"Cookie": f"_token={self.token(user)}"}
        return self.ask(method, f"/kafka-offsets{path}", headers=headers)

    def page_with_kafka(self, path: str) -> str:
        """Ask until Kafka's answer is in the page, as the page does by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while 'data-refresh="2"' in (found := self.page(path)).text:
            assert time.monotonic() < deadline, found.text
            time.sleep(0.2)
        assert found.status == 200, found.text
        return found.text

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.ask("GET", "/api/v2/version").status == 200:
                    return
            except (OSError, HTTPException):
                assert time.monotonic() < deadline, (self.project.home / "api-server.log").read_text()[-5000:]
            time.sleep(0.2)


@contextmanager
def serving(project: Project, migrated: Path) -> Iterator[PageServer]:
    """Run the API server on the project's feeds; Airflow's database holds the DAGs of those that are there now.

    And runs, where tests had some.
    """
    home = airflow_home(project.home)
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "airflow.db").exists():
        (home / "airflow.db").write_bytes((migrated / "airflow.db").read_bytes())
    path = os.pathsep.join(str(ROOT / folder) for folder in ("dev", "plugins"))
    stored = airflow_forks().run(project, Path(__file__).with_name("store_dags.py"), PYTHONPATH=path)
    assert stored.exit_code == 0, stored.stdout + stored.stderr
    passwords = {user: secrets.token_urlsafe(12) for user in ROLES}
    password_file(home).write_text(json.dumps(passwords))
    [port] = random_free_ports(1)
    settings = project.environment | {
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://{LOOPBACK}:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.orchestration.auth_of_one_feed.OneFeedAuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in (ROOT / "plugins", ROOT)),
    }
    server = PageServer(project, port, passwords)
    process = own_process.start("api-server", ["airflow", "api-server"], project.home / "api-server.log", settings)
    try:
        server.wait_until_it_answers()
        yield server
    finally:
        own_process.stop([process], 0)
