"""What a fork of a process that has imported much does to run a script as a process of its own would."""

import atexit
import contextlib
import gc
import os
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from tests.submitted_jobs import clients_of, job_of


def ready_to_fork() -> None:
    """Take what was imported from the garbage collector.

    A fork shares memory with its parent until it writes to it, which the collector does with every object.
    """
    gc.collect()
    gc.freeze()


def serve_forks(place: str, run: Callable[[list[str], dict[str, str], list[int]], object]) -> None:
    """Run something in a fork for each client of a socket, with its arguments, environment, output and error.

    The client gets the exit code.
    """
    ready_to_fork()
    for client in clients_of(place):
        if os.fork() == 0:  # it waits for the other, so that this process can take the next client
            if (fork := os.fork()) == 0:
                run(*job_of(client))
                sys.exit()
            _, status = os.waitpid(fork, 0)
            client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def forked(request: dict[str, Any], answers: TextIO) -> int:
    """Start a fork that runs a script, and return its process id; ``answers`` are this process's own."""
    assert threading.active_count() == 1, "a fork has no thread but the one that forked"
    fork = os.fork()
    if fork == 0:
        answers.close()
        run_in_this_fork(request)
    return fork


def run_in_this_fork(request: dict[str, Any]) -> None:
    """Run the script that is the first of the arguments, and end; SystemExit and errors are left to Python.

    A script that came to its end ends the process at once. Python would take everything apart, which writes to most
    of the memory, and so copies it.
    """
    become(request)
    runpy.run_path(request["arguments"][0], run_name="__main__")
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Take over what a process of its own would have been started with."""
    with (
        Path(os.devnull).open() as stdin,
        Path(request["stdout"]).open("wb") as stdout,
        Path(request["stderr"]).open("wb") as stderr,
    ):
        streams = [stream.fileno() for stream in (stdin, stdout, stderr)]
        take_over(request["arguments"], request["environment"], request["directory"], streams)
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))


def take_over(arguments: Sequence[str], environment: Mapping[str, str], directory: str, streams: Sequence[int]) -> None:
    """Let this process be as one that was started so; ``streams`` are its first files."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.argv[:] = arguments
