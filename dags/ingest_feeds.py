"""A scheduled DAG of Airflow for each feed file: plan >> write >> commit >> next_batch."""

from kafka_ingest.airflow_tasks.dags.feed_dags import feed_dags

globals().update(feed_dags())
