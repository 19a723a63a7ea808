"""Read a folder of DAG files as Airflow's DAG processor does, and print the DAGs: `describe_dags.py FOLDER`."""

import json
import sys

from airflow.dag_processing.dagbag import BundleDagBag

bag = BundleDagBag(sys.argv[1], bundle_path=sys.argv[1], bundle_name="dags-folder")
found = {
    "import_errors": bag.import_errors,
    "opened": sorted(name for name in sys.modules if name in {"pyspark", "pyarrow"}),
    "dags": {
        dag_id: {
            "tasks": {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks},
            "retries": {task.task_id: task.retries for task in dag.tasks},
            "owner": dag.owner,
            "tags": sorted(dag.tags),
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs,
            "schedule": str(dag.schedule),
            "run_types": sorted(str(each.value) for each in dag.allowed_run_types or []),
            "doc": dag.doc_md,
            "params": dag.params.dump(),
            "schemas": {name: dag.params.get_param(name).schema for name in dag.params},
            "pools": sorted({task.pool for task in dag.tasks}),
            "weights": {task.task_id: str(task.weight_rule) for task in dag.tasks},
            "rendered": {task.task_id: list(task.template_fields) for task in dag.tasks},
            "at_a_time": {task.task_id: task.max_active_tis_per_dag for task in dag.tasks},
            "trigger_rules": {task.task_id: task.trigger_rule for task in dag.tasks},
            "compared": sorted(task.task_id for task in dag.tasks if getattr(task, "file", None) is not None),
            "paused_at_first": dag.is_paused_upon_creation,
        }
        for dag_id, dag in bag.dags.items()
    },
}
print("RESULT" + json.dumps(found))  # noqa: T201
