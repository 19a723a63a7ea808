"""Imports inside Spark's driver that take half as long."""

import contextlib
import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from kafka_ingest.foundation.without_garbage_collection import importing


@contextlib.contextmanager
def fast_imports(
    search_path: list[str] = sys.path, environment: MutableMapping[str, str] = os.environ
) -> Iterator[None]:
    """Import what lives until the end, from where it is compiled already."""
    # Where it is there at all, even empty, pyspark's functions are those of Spark Connect.
    environment.pop("SPARK_CONNECT_MODE_ENABLED", None)
    search_path[:] = installed_before_zipped(search_path, environment.get("SPARK_HOME"))
    with importing():
        yield


def installed_before_zipped(search_path: list[str], spark_home: str | None) -> list[str]:
    """Return Python's search path without Spark's archives of pyspark and py4j, where the same pyspark is installed.

    Spark puts them in front, and there is no place in an archive where Python could keep what it compiled: it would
    compile half of pyspark in each run.
    """
    if not spark_home:
        return search_path
    home = Path(spark_home)
    installed = (home / "__init__.py").is_file() and (home.parent / "py4j").is_dir() and str(home.parent) in search_path
    archives = home / "python" / "lib"
    return [entry for entry in search_path if not (installed and Path(entry).parent == archives)]
