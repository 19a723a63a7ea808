"""Kafka, behind :mod:`kafka_ingest.ports.cluster`.

:mod:`.kafka_cluster` puts the questions together; they share one client, :mod:`.kafka_client`.
"""
