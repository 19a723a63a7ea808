"""Run one DAG once, in this process, as `airflow dags test` does, and print what became of its tasks.

`run_dag.py DAG_ID RESULT_FILE` writes {"state": ..., "tasks": {task id: state}} to the file: Airflow's own lines go to
stdout, so the answer must not.
"""

import json
import sys
from pathlib import Path

from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk import DAG

DAGS = Path(__file__).resolve().parent.parent / "dags"


def find_dag(dag_id: str) -> DAG:
    """Return a DAG of the repository; SystemExit says which there are, and what failed to import."""
    bag = BundleDagBag(DAGS, bundle_path=DAGS, bundle_name="dags-folder")
    dag = bag.dags.get(dag_id)
    if dag is None:
        sys.exit(f"expected one of the DAGs {sorted(bag.dags)}, found {dag_id!r}; import errors: {bag.import_errors}")
    return dag


def main() -> None:
    """Run the DAG named on the command line."""
    dag_id, result_file = sys.argv[1:]
    dag_run = find_dag(dag_id).test()
    tasks = {task.task_id: str(task.state) for task in dag_run.get_task_instances()}
    result = {"run_id": dag_run.run_id, "state": str(dag_run.state), "tasks": tasks}
    Path(result_file).write_text(json.dumps(result), encoding="utf-8")
    if dag_run.state != "success":
        sys.exit(f"the run of {dag_id} ended as {dag_run.state}: {tasks}")


if __name__ == "__main__":
    main()
