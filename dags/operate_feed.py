"""Airflow's DAG for what an operator decides about a feed, by form."""

from kafka_ingest.airflow_tasks.dags import single_dag

globals().update(single_dag("operate_feed"))
