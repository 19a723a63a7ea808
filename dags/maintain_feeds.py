"""Airflow's DAG that maintains all feeds once a day."""

from kafka_ingest.airflow_tasks.dags import single_dag

globals().update(single_dag("maintain_feeds"))
