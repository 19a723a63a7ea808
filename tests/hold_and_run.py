"""Run a program that stops at one of its own calls, so that it can be killed exactly there.

`hold_and_run.py DIRECTORY POINT PROGRAM [ARGUMENT…]`: POINT is `before:MODULE:NAME` or `after:MODULE:NAME`. At that
call the process makes the file DIRECTORY/held and waits: for DIRECTORY/resume, or for its end.
"""

import functools
import importlib
import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

HELD, RESUME = "held", "resume"
POLL_S = 0.01


def hold(directory: Path) -> None:
    if (directory / RESUME).exists():
        return
    (directory / HELD).touch()
    while not (directory / RESUME).exists():
        time.sleep(POLL_S)


@contextmanager
def holding_at(point: str, directory: Path) -> Iterator[None]:
    """Let the call that a point names wait before it begins, or when it is done and its caller does not know yet."""
    when, module_name, path = point.split(":")
    *owners, name = path.split(".")
    module = importlib.import_module(module_name)
    owner = attrgetter(".".join(owners))(module) if owners else module
    call = getattr(owner, name)

    @functools.wraps(call)
    def held(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            hold(directory)
        result = call(*arguments, **options)
        if when == "after":
            hold(directory)
        return result

    setattr(owner, name, held)
    try:
        yield
    finally:
        setattr(owner, name, call)


def main() -> None:
    directory, point, program, *arguments = sys.argv[1:]
    sys.argv = [program, *arguments]
    with holding_at(point, Path(directory)):
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
