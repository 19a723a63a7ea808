"""Airflow on one machine, as `airflow standalone` runs it, except that nothing of it listens beyond the loopback.

`airflow standalone` starts the scheduler and the triggerer each with a log server on all interfaces, and no setting
binds those elsewhere; only their own commands can leave them out. They are not needed: the API server reads the files.
"""

import json
import os
import secrets
import subprocess
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from free_ports import LOOPBACK

USER = "admin"
COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("airflow", "api-server"),
    "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),
    "dag-processor": ("airflow", "dag-processor"),
    "triggerer": ("airflow", "triggerer", "--skip-serve-logs"),
}

_ANSWER_TIMEOUT_S = 5.0


class AirflowError(RuntimeError):
    """Airflow's database could not be prepared."""


def password_file(airflow_home: Path) -> Path:
    """Where the simple auth manager looks for the passwords, and where the user finds theirs."""
    return airflow_home / "simple_auth_manager_passwords.json.generated"


def prepare(airflow_home: Path, environment: Mapping[str, str], log: Path) -> None:
    """Give the user a password, once, and bring Airflow's own database up to date."""
    airflow_home.mkdir(parents=True, exist_ok=True)
    _write_password(password_file(airflow_home))
    with log.open("ab") as output:
        migrated = subprocess.run(
            ["airflow", "db", "migrate"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if migrated.returncode != 0:
        raise AirflowError(f"expected airflow db migrate to succeed, it ended with {migrated.returncode}: see {log}")


def unhealthy_parts(api_port: int) -> list[str]:
    """Ask the API server which parts of Airflow are not up yet: none when all of it is."""
    connection = HTTPConnection(LOOPBACK, api_port, timeout=_ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/api/v2/monitor/health")
        health = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, json.JSONDecodeError):
        return ["api-server"]
    finally:
        connection.close()
    return [part for part, state in health.items() if state["status"] != "healthy"]


def _write_password(path: Path) -> None:
    """Airflow prints a password that it makes itself into its log, so it finds one made already."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as file:
        json.dump({USER: secrets.token_urlsafe(12)}, file)
