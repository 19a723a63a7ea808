"""The library that reads and writes Iceberg tables: not part of a plain installation, and imported in the task only.

It starts threads and opens connections that a process forked since cannot use; Airflow forks its tasks. So it is
imported by :mod:`.table`, and that by :class:`.output.IcebergOutput` when the table is first needed.
"""

import importlib.util

from kafka_ingest.errors import InstallationError
from kafka_ingest.sinks import needed_package
from kafka_ingest.sinks.iceberg.catalog_settings import GLUE, CatalogSettings

VERSION = "0.12.0"
"""As requirements-iceberg.txt pins it; a test compares the two."""


def check_installed() -> None:
    """Raise InstallationError where the library is missing; imports nothing."""
    needed_package.check_installed("iceberg", "pyiceberg", VERSION)


def check_can_reach(settings: CatalogSettings) -> None:
    """Raise InstallationError where the library reaches a kind of catalog by a package that is missing."""
    if settings.kind == GLUE and importlib.util.find_spec("boto3") is None:
        raise InstallationError(
            f"connection {settings.conn_id!r}: an Iceberg catalog of type {GLUE} needs the Python package boto3, found "
            "none here. Install it where the tasks and the command line run: pip install "
            f'"pyiceberg[glue]=={VERSION}", or use another catalog.'
        )
