"""Parse DAG files as the starts of tasks do, and print what each made and which feed files it opened.

`parse_as_a_task.py FOLDER STARTS`: STARTS is a JSON list of DAG file, DAG and task.
"""

import json
import os
import sys
from pathlib import Path

from airflow.dag_processing.dagbag import BundleDagBag
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager

folder, starts = sys.argv[1], json.loads(sys.argv[2])
feeds = Path(os.environ["KAFKA_INGEST_FEEDS"])
opened: list[Path] = []
sys.addaudithook(lambda event, details: opened.append(Path(str(details[0]))) if event == "open" else None)

found = {}
for dag_file, dag_id, task_id in starts:
    opened.clear()
    for name in ("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "_AIRFLOW_PARSING_CONTEXT_TASK_ID"):
        os.environ.pop(name, None)
    with _airflow_parsing_context_manager(dag_id, task_id):
        # As Airflow's task runner does before it runs a task.
        path = Path(folder, dag_file)
        bag = BundleDagBag(path, bundle_path=folder, bundle_name="dags-folder", safe_mode=False, load_op_links=False)
    found[f"{dag_id} {task_id}"] = {
        "import_errors": bag.import_errors,
        "dags": {dag.dag_id: sorted(task.task_id for task in dag.tasks) for dag in bag.dags.values()},
        "form": [
            schema.get("enum", schema.get("examples"))
            for dag in bag.dags.values()
            if "feed" in dag.params
            for schema in [dag.params.get_param("feed").schema]
        ],
        "opened": sorted({path.name for path in opened if path.parent == feeds}),
    }
print("RESULT" + json.dumps(found))  # noqa: T201
