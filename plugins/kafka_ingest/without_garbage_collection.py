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
