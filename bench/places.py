"""Where a benchmark keeps its data, and where it leaves its results."""

import argparse
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from environment import ROOT

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
