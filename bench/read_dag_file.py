"""Read one DAG file as Airflow does, in a separate process: `python read_dag_file.py FILE [DAG_ID TASK_ID]`.

With a DAG and a task as the start of that task does, else as the DAG processor does. Airflow has been imported before,
as in the processes that Airflow forks; what this project imports counts.
"""

import json
import logging
import sys
import time

from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager

from environment import ROOT

DAGS = ROOT / "dags"


def main() -> int:
    """Read the file, and print what that took."""
    file, dag_id, task_id = sys.argv[1:]
    logging.disable(logging.INFO)
    started, cpu_started = time.perf_counter(), time.process_time()
    with _airflow_parsing_context_manager(dag_id or None, task_id or None):
        bag = BundleDagBag(
            DAGS / file, bundle_path=DAGS, bundle_name="dags-folder", safe_mode=False, load_op_links=False
        )
    measured = {"seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu_started}
    if bag.import_errors or (dag_id and task_id not in bag.dags[dag_id].task_dict):
        print(
            f"expected task {task_id} of DAG {dag_id}, found {sorted(bag.dags)} and {bag.import_errors}",
            file=sys.stderr,
        )
        return 1
    print("MEASURED" + json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
