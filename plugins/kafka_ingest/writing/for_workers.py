"""Functions for Spark's Python workers, which may be on machines without this package."""

import gc
import sys
from collections.abc import Callable
from typing import Any
from zipimport import zipimporter

from pyspark import cloudpickle


class ForWorkers:
    """A function that is sent with the code of the modules that it needs, named in full.

    Where it arrives, a task begins. In this process it is what it was made of.
    """

    def __init__(self, function: Callable[..., Any], *modules: str) -> None:
        self._function = function
        for name in (*modules, __name__):
            cloudpickle.register_pickle_by_value(sys.modules[name])

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - whatever the function says
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return in_a_task, (self._function,)


def in_a_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function, and let what Spark does between two tasks of a worker take no time.

    After each it looks for garbage, among all that libraries have made. Before each it has Python forget what it knows
    of folders: Python 3.11 reads the list of pyspark.zip again, once for each package that came from there.
    """
    gc.freeze()
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            vars(finder)["invalidate_caches"] = unchanged
    return function


def unchanged() -> None:
    """Do nothing: no zip file changes while a worker reads from it."""
