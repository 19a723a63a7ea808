"""What the job says about an attempt besides its result, on standard error."""

import contextlib
import sys
import threading


def say(text: str) -> None:
    """Write a line; where there are several attempts, with the name of the thread, which says which one it is about.

    Where Java is gone nobody listens any more, and nothing is written.
    """
    thread = threading.current_thread()
    about = "" if thread is threading.main_thread() else f"{thread.name}: "
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{about}{text}\n")
