"""The command line: ``kafka-ingest``. Shares the tasks' functions, and does not import Airflow where it need not."""

import gc

from kafka_ingest.without_garbage_collection import without_garbage_collection

# Modules live until the end: looking for garbage among them took a seventh of what importing them takes.
with without_garbage_collection():
    from kafka_ingest.cli.app import main

gc.freeze()

__all__ = ["main"]
