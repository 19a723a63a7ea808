"""Outputs for tests."""

from pathlib import Path

from kafka_ingest.model.place import OutputLocation


def parquet_at(path: Path) -> OutputLocation:
    """Return the Parquet output in a directory."""
    return OutputLocation.local("parquet", path)
