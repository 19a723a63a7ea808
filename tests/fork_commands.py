"""A process that imports the command line once, and forks for each script that it is given.

It reads requests from stdin, a line of JSON each: a script to run in a fork of its own, which is answered with the
fork's process id at once; or a process id, which is answered with how it ended, null while it runs. At the end of stdin
it kills the forks that are left.
"""

import json
import os
import signal
import sys

import pyarrow.parquet
from tests.forked_script import forked, ready_to_fork

import kafka_ingest.cli.app

kafka_ingest.cli.app.app_of()  # imports all commands
IMPORTED = (kafka_ingest.cli.app, pyarrow.parquet)


def ended(fork: int, running: set[int]) -> int | None:
    """Return how a fork ended, if it has, as `subprocess` counts: a signal is a negative number."""
    found, status = os.waitpid(fork, os.WNOHANG)
    if found == 0:
        return None
    running.remove(fork)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    running: set[int] = set()
    answers = os.fdopen(os.dup(1), "w")
    ready_to_fork()
    for line in sys.stdin:
        request = json.loads(line)
        if isinstance(request, int):
            answer = ended(request, running)
        else:
            answer = forked(request, answers)
            running.add(answer)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    for fork in running:
        os.kill(fork, signal.SIGKILL)


if __name__ == "__main__":
    main()
