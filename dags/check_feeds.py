"""Airflow's DAG that looks at all feeds every five minutes, and notifies as their files' `alerts` ask."""

from kafka_ingest.airflow_tasks.dags import single_dag

globals().update(single_dag("check_feeds"))
