"""Where tests keep what is to be fast: in memory, where there is room."""

import os
import shutil
from pathlib import Path

GIB = 2**30


def memory_or_disk(room_bytes: int = GIB) -> Path | None:
    """Return a directory in memory where one has that much room, which makes databases, brokers and flushes fast.

    None, for a disk, elsewhere.
    """
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > room_bytes
    return memory if has_room else None
