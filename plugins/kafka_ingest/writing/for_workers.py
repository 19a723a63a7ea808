"""Functions for Spark's Python workers, which may be on machines without this package."""

import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar
from zipimport import zipimporter

from pyspark import cloudpickle

P = ParamSpec("P")
R = TypeVar("R")


class Sent(partial[R]):
    """A function where it is sent. In this process it is what it was made of."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object]]:
        return in_a_task, (self.func,)


def for_workers(function: Callable[P, R], *modules: str) -> Callable[P, R]:
    """Return a function that is sent with the code of the modules that it needs, named in full.

    Where it arrives, a task begins.
    """
    for name in (*modules, __name__):
        cloudpickle.register_pickle_by_value(sys.modules[name])
    return Sent(function)


def in_a_task(function: Callable[..., object]) -> Callable[..., object]:
    """Return a function, and let what Spark does between two tasks of a worker take no time.

    After each it looks for garbage, among all that libraries have made. Before each it has Python forget what it knows
    of folders: Python 3.11 reads the list of pyspark.zip again, once for each package that came from there.
    """
    # Its types are none of this module's own: those would be sent by its name.
    if not gc.get_freeze_count():  # once for a worker: what another task was sent would stay for ever
        gc.freeze()
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            vars(finder)["invalidate_caches"] = unchanged
    return function


def unchanged() -> None:
    """Do nothing: no zip file changes while a worker reads from it."""
