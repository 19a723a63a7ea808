"""The environment in which the demo and the playground run Airflow, Spark and kafka-ingest.

Everything lies under one directory, the `home` of a run, and listens on the loopback interface only.
"""

import json
import os
from pathlib import Path

from free_ports import LOOPBACK

ROOT = Path(__file__).resolve().parent.parent

# What a shell may carry of other installations. One AIRFLOW__DATABASE__… of a production system, inherited here, and
# `airflow db migrate` would be run on that.
_NOT_INHERITED = ("AIRFLOW", "KAFKA_INGEST_", "SPARK_", "PYSPARK_", "PYTHONDONTWRITEBYTECODE", "PYTHONHOME")


def airflow_home(home: Path) -> Path:
    """Return where Airflow keeps its own database, configuration and task logs."""
    return home / "airflow"


def control_tables(home: Path) -> Path:
    """Return the SQLite file of the control tables."""
    return home / "control.db"


def output(home: Path) -> Path:
    """Return the directory that the feeds' relative sink paths are under."""
    return home / "output"


def settings(home: Path, bootstrap_servers: str, api_port: int = 8080) -> dict[str, str]:
    """Return the variables that a run with this `home` (an absolute path) sets itself. None of them is a secret."""
    return {
        "AIRFLOW_HOME": str(airflow_home(home)),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(api_port),
        "AIRFLOW__API__BASE_URL": f"http://{LOOPBACK}:{api_port}",
        "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(
            {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap_servers}}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        "AIRFLOW_CONN_KAFKA_INGEST": json.dumps({"conn_type": "sqlite", "host": str(control_tables(home))}),
        "KAFKA_INGEST_DATA": str(output(home)),
        "SPARK_LOCAL_IP": LOOPBACK,
    }


def child_environment(home: Path, bootstrap_servers: str, api_port: int = 8080) -> dict[str, str]:
    """Return a child process's whole environment: `settings`, and of this process's own what does no harm."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    path = os.pathsep.join(filter(None, [str(ROOT / ".venv" / "bin"), inherited.get("PATH")]))
    return {**inherited, "PATH": path, **settings(home, bootstrap_servers, api_port)}
