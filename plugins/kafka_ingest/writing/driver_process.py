"""The process of Spark's driver: imports that take half as long, and its end, also where threads are left at work."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
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


def end_with(main: Callable[[], object]) -> None:
    """Call a job's main function, and end the process with it where Python would wait for other threads."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    finally:
        here = threading.current_thread()
        if any(not each.daemon for each in threading.enumerate() if each is not here):
            if (error := sys.exc_info()[1]) is not None and not isinstance(error, SystemExit):
                sys.excepthook(type(error), error, error.__traceback__)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
