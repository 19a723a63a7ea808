"""Python programs of this project, each run in a fork of one process that has imported the command line.

Importing it takes 0.7 s of CPU, a fork some milliseconds.
"""

import atexit
import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

FORK_COMMANDS = Path(__file__).with_name("fork_commands.py")
POLL_S = 0.01


def answer_of(process: subprocess.Popen[str], request: object) -> Any:
    """Return what a process that forks answers to a request; each is a line of JSON."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer, "expected an answer, found that the process that forks has ended"
    return json.loads(answer)


class Fork:
    """One that runs, or has run; with what is used of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = command_forks().ask(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"expected process {self.pid} to end within {timeout:.0f} s")
            time.sleep(POLL_S)
        return code


class CommandForks:
    """The process that forks; it ends, and its forks with it, when this one does."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(FORK_COMMANDS)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._process.communicate)

    def start(
        self, arguments: list[str], *, directory: Path, environment: dict[str, str], stdout: Path, stderr: Path
    ) -> Fork:
        """Start a script with its arguments."""
        request = {
            "arguments": arguments,
            "directory": str(directory),
            "environment": environment,
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        return Fork(self.ask(request))

    def ask(self, request: object) -> Any:
        return answer_of(self._process, request)


@cache
def command_forks() -> CommandForks:
    return CommandForks()
