"""The library that reads and writes Delta tables: not part of a plain installation, and imported in the task only.

It starts threads when it is imported, and panics in a process that was forked since; Airflow forks its tasks.
"""

import importlib
import importlib.util
from types import ModuleType

from kafka_ingest.errors import InstallationError

VERSION = "1.6.6"
"""As requirements-delta.txt pins it; a test compares the two."""


def check_installed() -> None:
    """Raise InstallationError where the library is missing; imports nothing."""
    if importlib.util.find_spec("deltalake") is None:
        raise InstallationError(
            "sink.format: delta needs the Python package deltalake, found none here. Install it where the tasks and "
            f"the command line run: pip install deltalake=={VERSION} (requirements-delta.txt), or choose another "
            "sink.format."
        )


def delta_lake() -> ModuleType:
    """Return the library; raises InstallationError where it is missing."""
    check_installed()
    return importlib.import_module("deltalake")
