"""For what makes very many objects that all live until its end."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Let nothing look for cycles meanwhile: each look visits all objects, and of 10,000 partitions all live until the end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import modules, which live until the end: nothing looks for cycles among their objects, now or later.

    Looking took a seventh of the time of importing the command line.
    """
    with without_garbage_collection():
        yield
        gc.freeze()  # otherwise the first look after it visits them all
