"""The library that reads and writes Iceberg tables: not part of a plain installation, and imported in the task only.

It starts threads and opens connections that a process forked since cannot use; Airflow forks its tasks. So it is
imported by :mod:`.table`, and that by :class:`.output.IcebergOutput` when the table is first needed.
"""

from kafka_ingest.sinks import needed_package

VERSION = "0.12.0"
"""As requirements-iceberg.txt pins it; a test compares the two."""


def check_installed() -> None:
    """Raise InstallationError where the library is missing; imports nothing."""
    needed_package.check_installed("iceberg", "pyiceberg", VERSION)
