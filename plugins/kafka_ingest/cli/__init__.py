"""The command line: ``kafka-ingest``. Shares the tasks' functions, and does not import Airflow where it need not."""

from kafka_ingest.foundation.without_garbage_collection import importing

with importing():
    from kafka_ingest.cli.app import main

__all__ = ["main"]
