"""Whether the package that a format needs is installed. It is no part of a plain installation."""

import importlib.util

from kafka_ingest.errors import InstallationError


def check_installed(sink_format: str, package: str, version: str) -> None:
    """Raise InstallationError where a format's package is missing; imports nothing."""
    if importlib.util.find_spec(package) is None:
        raise InstallationError(
            f"sink.format: {sink_format} needs the Python package {package}, found none here. Install it where the "
            f"tasks and the command line run: pip install {package}=={version} (requirements-{sink_format}.txt), or "
            "choose another sink.format."
        )
