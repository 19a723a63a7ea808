"""Airflow's DAG that reads offsets of a feed again, or skipped ones, without moving its stored offsets."""

from kafka_ingest.airflow_tasks.dags import single_dag

globals().update(single_dag("backfill_offsets"))
