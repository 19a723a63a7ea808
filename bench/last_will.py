"""Kills what a benchmark started when the benchmark itself has ended, for any reason.

A separate process, which reads process ids from a pipe until the pipe's end. Only the benchmark holds the writing end:
its children do not inherit it. dev/dies_with_parent.py is for one process; a contestant is a tree, and a Spark whose
submitter was killed would continue reading. It wraps no command: the contestants are started as they are.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

GRACE_S = 5.0


class LastWill:
    """While it is open, ``name`` a process and it ends at the latest when this process does."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).resolve())], stdin=subprocess.PIPE, start_new_session=True
        )
        return self

    def name(self, pid: int) -> None:
        """Write down a process that runs now."""
        self._send(f"+{pid}")

    def strike(self, pid: int) -> None:
        """Take back a process that has ended: its number may be given again."""
        self._send(f"-{pid}")

    def _send(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(GRACE_S)


def execute() -> None:
    """Read process ids until the pipe ends, then kill those that still run."""
    named: dict[int, int] = {}
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            with contextlib.suppress(ProcessLookupError):  # it ended already
                named[pid] = os.pidfd_open(pid)  # a handle means this very process, also when its number is given again
        elif pid in named:
            os.close(named.pop(pid))
    for handle in named.values():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


if __name__ == "__main__":
    execute()
