"""Run one DAG as `dev/run_dag.py` does, without the waits between retries, and die where a test says so.

`run_dag_once.py DAG_ID RESULT_FILE CONF [OBJECT.METHOD]`: CONF is what the run is triggered with, as JSON; the process
ends, as by SIGKILL, when that method is called.
"""

import importlib
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG

from run_dag import find_dag


def die_when_called(path: str) -> None:
    module_name, class_name, method = path.rsplit(".", 2)
    setattr(getattr(importlib.import_module(module_name), class_name), method, lambda *_, **__: os._exit(137))


def without_waits_for_others() -> None:
    """Let `dag.test()` look again at once where it can schedule nothing: no other process changes anything here."""
    sleep = time.sleep

    def sleep_unless_in_test(seconds: float) -> None:
        if sys._getframe(1).f_code is not DAG.test.__code__:
            sleep(seconds)

    time.sleep = sleep_unless_in_test


def name_of(task: TaskInstance) -> str:
    return task.task_id if task.map_index < 0 else f"{task.task_id}[{task.map_index}]"


def main() -> None:
    dag_id, result_file, conf, *crash_at = sys.argv[1:]
    dag = find_dag(dag_id)
    for task in dag.tasks:
        task.retry_delay = timedelta(seconds=0)
        task.retry_exponential_backoff = 0
    for path in crash_at:
        die_when_called(path)
    without_waits_for_others()
    dag_run = dag.test(run_conf=json.loads(conf))
    tasks = {name_of(task): [str(task.state), task.try_number] for task in dag_run.get_task_instances()}
    Path(result_file).write_text(json.dumps({"run_id": dag_run.run_id, "state": str(dag_run.state), "tasks": tasks}))


if __name__ == "__main__":
    main()
