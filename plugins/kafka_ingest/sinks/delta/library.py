"""The library that reads and writes Delta tables: not part of a plain installation, and imported in the task only.

It starts threads when it is imported, and panics in a process that was forked since; Airflow forks its tasks.
"""

import importlib
from types import ModuleType

from kafka_ingest.sinks import needed_package

VERSION = "1.6.6"
"""As requirements-delta.txt pins it; a test compares the two."""


def check_installed() -> None:
    """Raise InstallationError where the library is missing; imports nothing."""
    needed_package.check_installed("delta", "deltalake", VERSION)


def delta_lake() -> ModuleType:
    """Return the library; raises InstallationError where it is missing."""
    check_installed()
    return importlib.import_module("deltalake")
