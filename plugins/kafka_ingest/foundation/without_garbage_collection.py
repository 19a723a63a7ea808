"""For code that creates very many objects that all live until its end."""

import contextlib
import gc
from collections.abc import Iterator
from threading import Lock
from typing import Final

LOCK: Final = Lock()
INSIDE: Final[list[bool]] = []
"""Of each block that is not left yet, whether the collector was enabled before."""


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector in this block.

    Each collection visits all objects, and those of 10,000 partitions all live until the end. Of threads in such blocks
    the last one enables it again.
    """
    with LOCK:
        INSIDE.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with LOCK:
            # Only the first one found it as it was before.
            was_enabled = INSIDE[0]
            INSIDE.pop()
            if was_enabled and not INSIDE:
                gc.enable()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import modules without garbage collection, now and later: their objects live until the process ends.

    Collections took a seventh of the time of importing the command line.
    """
    with without_garbage_collection():
        yield
        gc.freeze()  # otherwise the first collection afterwards visits them all
