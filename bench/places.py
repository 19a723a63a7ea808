"""Where a benchmark keeps its data, and where it leaves its results."""

import argparse
import os
import signal
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from contestant import leave_settings_behind
from talking import INTERRUPTED, BenchmarkError, interrupt, say

from airflow_components import AirflowError
from embedded_broker import BrokerError
from environment import ROOT
from java_command import JavaMissingError

RESULTS = ROOT / ".local" / "bench"


def directory_for_data(text: str) -> Path:
    """Return the directory of an option, as an absolute path: what runs in it is started from elsewhere."""
    found = Path(text).resolve()
    if not found.is_dir():
        raise argparse.ArgumentTypeError(f"expected a directory that is there, found {found}, which is none")
    try:
        with tempfile.TemporaryDirectory(dir=found):
            return found
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"expected a directory to write to, found {found}: {error.strerror}"
        ) from error


def new_results() -> Path:
    """Make a directory for this run's results; its name has the process too, since two may begin in the same second."""
    made = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}-{os.getpid()}"
    made.mkdir(parents=True)
    return made


def run_in_a_directory(measure: Callable[[Path], int | None], above: Path | None = None) -> int:
    """Let a benchmark measure and print in a directory that is removed afterwards; return the exit code.

    What it has started ends with it, on Ctrl-C and SIGTERM, too.
    """
    signal.signal(signal.SIGTERM, interrupt)
    leave_settings_behind()
    try:
        with tempfile.TemporaryDirectory(prefix="kafka-ingest-bench-", dir=above) as name:
            directory = Path(name)
            directory.chmod(0o755)  # PostgreSQL may run as another user
            return measure(directory) or 0
    except (BenchmarkError, AirflowError, BrokerError, JavaMissingError, TimeoutError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; nothing is kept")
        return INTERRUPTED
