"""Kafka, behind :mod:`kafka_ingest.ports.cluster`."""
