"""For code that creates very many objects that all live until its end."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector in this block.

    Each collection visits all objects, and those of 10,000 partitions all live until the end.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import modules without garbage collection, now and later: their objects live until the process ends.

    Collections took a seventh of the time of importing the command line.
    """
    with without_garbage_collection():
        yield
        gc.freeze()  # otherwise the first collection afterwards visits them all
