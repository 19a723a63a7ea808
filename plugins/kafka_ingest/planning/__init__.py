"""Decides which offsets a batch reads. Pure: :mod:`kafka_ingest.batches.plan_batch` asks and records."""
