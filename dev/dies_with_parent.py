"""Run a command that ends when the process that started it ends, however that ended.

    python dies_with_parent.py PARENT_PID COMMAND [ARGUMENT...]

This process *becomes* the command, so its process id, its signals and its exit code are the command's own. Before that
it forks a watcher, which waits for the end of either and kills the command when the parent was first.

The other ways, and why not: PR_SET_PDEATHSIG fires when the *thread* that started the child ends, and has to be set in
a `preexec_fn`, which may deadlock in a parent with threads. The end of a pipe is inherited by every fork of the parent
(Airflow forks its tasks), and then stays open when the parent is gone. A pidfd (Linux 5.3) is about exactly one
process, also when its number is given to another.
"""

import os
import select
import signal
import sys
from pathlib import Path


def dying_with_this_process(command: list[str]) -> list[str]:
    """Return the command to start instead, so that it ends when this process does."""
    # Isolated and without site-packages, it turns into the command after some 20 ms.
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *command]


def main() -> None:
    """Never returns: the process turns into the command, or exits."""
    parent_id, command = int(sys.argv[1]), sys.argv[2:]
    parent, itself = os.pidfd_open(parent_id), os.pidfd_open(os.getpid())
    if os.getppid() != parent_id:  # it ended before the line above: that pidfd may be of any process
        sys.exit(f"not started: process {parent_id} is no longer there to watch")
    if os.fork() == 0:
        _watch(parent, itself)
        os._exit(0)
    os.execvp(command[0], command)  # noqa: S606  (no shell is the point)


def _watch(parent: int, command: int) -> None:
    ended, _, _ = select.select([parent, command], [], [])
    if command not in ended:
        signal.pidfd_send_signal(command, signal.SIGKILL)


if __name__ == "__main__":
    main()
