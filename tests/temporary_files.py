"""Where tests write: in memory where there is room, since each step of a feed flushes files, and so does a broker.

And never where the user has an Airflow.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 * 2**30
"""Many times what a run takes at once: what passes is removed."""


def write_to_memory() -> None:
    """Let this process, and those that it starts, make their temporary files in memory, where one has the room.

    Where the environment names a place, it is used.
    """
    if "TMPDIR" not in os.environ and has_room():
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # asked for again


def give_airflow_a_home() -> Callable[[], None]:
    """Let Airflow, here and in processes that are started, have a home that is not the user's; return what removes it.

    Where its database and its logs are, Airflow decides when it is imported.
    """
    home = tempfile.TemporaryDirectory(prefix="kafka-ingest-airflow-", ignore_cleanup_errors=True)
    os.environ["AIRFLOW_HOME"] = home.name
    return home.cleanup


def has_room() -> bool:
    """Whether there is a file system in memory with enough room, and as much memory."""
    return (
        MEMORY.is_dir()
        and os.access(MEMORY, os.W_OK)
        and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM_BYTES
    )
