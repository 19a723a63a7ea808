"""What the job says about an attempt besides its result, on standard error."""

import sys
import threading


def say(text: str) -> None:
    """Write a line; where there are several attempts, with the name of the thread, which says which one it is about."""
    thread = threading.current_thread()
    about = "" if thread is threading.main_thread() else f"{thread.name}: "
    sys.stderr.write(f"{about}{text}\n")
