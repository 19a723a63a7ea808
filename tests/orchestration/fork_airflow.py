"""A process that imports Airflow and the project's tasks once, and forks for each script that it is given.

It reads requests from stdin, a line of JSON each, and runs each request's script as ``__main__`` in a fork of its own,
with that request's arguments, environment, working directory, stdout and stderr. The answer is a line with the exit
code. Importing takes three seconds of CPU, a fork some milliseconds.

A script finds Airflow and the modules of the project's tasks as they are after their import: no database is opened
here, no thread started, and neither a DAG file nor a plugin imported. Airflow reads ``AIRFLOW_HOME`` and most of
``AIRFLOW__…`` when it is imported, so those are what this process was started with.
"""

import importlib
import json
import os
import sys
from functools import cache

from tests.forked_script import forked, ready_to_fork

IMPORTED = (
    "airflow.api_fastapi.common.dagbag",
    "airflow.dag_processing.bundles.local",
    "airflow.dag_processing.collection",
    "airflow.dag_processing.dagbag",
    "airflow.providers.apache.spark.operators.spark_submit",
    "airflow.providers.standard.operators.empty",
    "airflow.providers.standard.operators.trigger_dagrun",
    "airflow.sdk.definitions.decorators",
    "airflow.sdk.execution_time.task_runner",
    "airflow.serialization.serialized_objects",
    "airflow.timetables.trigger",
    "anyio._backends._asyncio",
    "jinja2.ext",
    "kafka_ingest.airflow_tasks.feed_tasks",
    "kafka_ingest.sinks.parquet_contents",
    *(f"kafka_ingest.airflow_tasks.dags.{name}_dag" for name in ("checking", "maintenance", "operating")),
)


def import_airflow() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    from airflow._shared.observability.metrics import stats
    from airflow.api_fastapi.execution_api import versions
    from airflow.sdk.execution_time import supervisor
    from cadwyn import HeadVersion, Version, VersionBundle
    from sqlalchemy.orm import configure_mappers

    # `dag.test()` puts the same API together for each of its tasks, which takes some seconds of CPU each time: one to
    # make it, and more at its first request, when it makes its routes of every version. Tasks ask for the newest
    # of nine; a route that it has no more is in the third again.
    *newest, third = versions.bundle.versions[:3]
    for change in (change for version in newest for change in version.changes):
        change._bound_version_bundle = None
    versions.bundle = VersionBundle(HeadVersion(), *newest, Version(third.value))
    supervisor.in_process_api_server = cache(supervisor.in_process_api_server)
    supervisor.in_process_api_server().app._cadwyn_initialize()
    configure_mappers()
    stats._get_registry()  # reads a long YAML file


def main() -> None:
    # Airflow writes to stdout, so the answers must not go there.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import_airflow()
    ready_to_fork()
    for line in sys.stdin:
        _, status = os.waitpid(forked(json.loads(line), answers), 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


if __name__ == "__main__":
    main()
