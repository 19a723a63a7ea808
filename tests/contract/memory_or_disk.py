"""Where tests keep what is to be fast: in memory, where there is room."""

import shutil
from pathlib import Path


def memory_or_disk() -> Path | None:
    """Return a directory in memory where one has room for databases, which makes them fast.

    None, for a disk, elsewhere.
    """
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else None
