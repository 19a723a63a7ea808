"""What every benchmark says, and how it is ended; nothing else of the benchmarks, so that each module can import it."""

import sys
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


class BenchmarkError(RuntimeError):
    """Something cannot be measured, or did not do the work that it should have: says what was expected and found."""


def say(line: str) -> None:
    """Say what is going on; stdout is for the result."""
    print(line, file=sys.stderr, flush=True)


def interrupt(_number: int, _frame: object) -> NoReturn:
    """End as on Ctrl-C, so that all that was started is stopped."""
    raise KeyboardInterrupt
