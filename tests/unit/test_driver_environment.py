"""The driver's environment is a list of what it needs."""

from kafka_ingest.spark_launch.run_spark_submit import driver_environment, emptied

TASK = {
    "PATH": "/bin",
    "HOME": "/home/airflow",
    "JAVA_HOME": "/java",
    "KUBECONFIG": "/home/airflow/cluster.yaml",
    "SPARK_LOCAL_DIRS": "/scratch",
    "LC_ALL": "C.UTF-8",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:hunter2@db/airflow",
    "AIRFLOW_CONN_KAFKA_INGEST": "hunter2",
    "_AIRFLOW__TASK": "hunter2",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "DATABASE_URL": "hunter2",
    "SITE_OPTION": "x",
}


def test_the_driver_gets_what_is_listed_and_nothing_else_of_a_tasks_environment() -> None:
    assert driver_environment(TASK).keys() == {"PATH", "HOME", "JAVA_HOME", "KUBECONFIG", "SPARK_LOCAL_DIRS", "LC_ALL"}


def test_a_site_names_what_its_spark_needs_beyond_that() -> None:
    assert "SITE_OPTION" in driver_environment(TASK | {"KAFKA_INGEST_DRIVER_ENVIRONMENT": "OTHER, SITE_OPTION"})


def test_a_starter_that_can_only_add_empties_all_the_others() -> None:
    assert {**TASK, **emptied(TASK)} == dict.fromkeys(TASK, "") | driver_environment(TASK)
