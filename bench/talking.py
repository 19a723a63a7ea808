"""Progress lines, errors and the interruption of all benchmarks; imports no other module of theirs."""

import sys
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class BenchmarkError(RuntimeError):
    """Something cannot be measured, or did not do its work: says what was expected and found."""


def say(line: str) -> None:
    """Print a line of progress; stdout is for the result."""
    print(line, file=sys.stderr, flush=True)


def interrupt(_number: int, _frame: object) -> NoReturn:
    """End as on Ctrl-C, so that all that was started is stopped."""
    raise KeyboardInterrupt
