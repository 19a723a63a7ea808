"""The library that reads and writes Delta tables: not part of a plain installation, and imported in the task only.

It starts threads when it is imported, and panics in a process that was forked since; Airflow forks its tasks.
"""

import importlib
import re
from types import ModuleType

from kafka_ingest.sinks.usable_places import check_has_package

VERSION = "1.6.6"
"""As requirements-delta.txt pins it; a test compares the two."""
OF_A_STORE = re.compile(r"Generic \w+ error|S3")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CODE = re.compile(r"<Code>(\w+)</Code>")
"""What a store calls the reason why it refuses something."""


def check_installed() -> None:
    """Raise InstallationError where the library is missing; imports nothing."""
    check_has_package("delta", "deltalake", VERSION)


def delta_lake() -> ModuleType:
    """Return the library; raises InstallationError where it is missing."""
    check_installed()
    return importlib.import_module("deltalake")


def failures() -> tuple[type[Exception], ...]:
    """Return what the library raises when a call fails; the log shows whether something was done by then."""
    return (delta_lake().exceptions.DeltaError, OSError, ValueError, RuntimeError)


def brief(error: Exception | None) -> str:
    """Return the library's message, without the stack that may follow it; of a store's failure with its cause."""
    first, *others = COLOURS.sub("", str(error)).splitlines() or [""]
    if not OF_A_STORE.search(first) or not others:
        return first[:300]
    code = CODE.search("".join(others))
    return f"{first}: {code[1] if code is not None else others[-1].strip(' ↳')}"[:300]
