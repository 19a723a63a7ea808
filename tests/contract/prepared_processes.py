"""Processes of their own that have the libraries of all table formats from the start.

Importing those takes a process some seconds. One process does so, and the others are its forks: it only imports, and
has neither threads nor Delta's runtime, with which a fork panics.
"""

import multiprocessing
import os
import sys
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from unittest.mock import patch

LIBRARIES = [
    "tests.contract.rest_output",
    "tests.contract.rival_programs",
    "tests.contract.racing_publishers",
    # What leads to a store is imported where one is opened.
    "s3fs",
    "gcsfs",
    "adlfs",
]


@cache
def prepared_processes() -> ForkServerContext:
    """Return what starts them; they end with this process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    # Python 3.11 does not hand on where to import from.
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()
    return context
