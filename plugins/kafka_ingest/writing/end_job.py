"""How a job's process ends: at once, also where a feed's function has left threads at work."""

import os
import sys
import threading
from collections.abc import Callable


def end_with(main: Callable[[], object]) -> None:
    """Call a job's main function, and end the process with it where Python would wait for other threads."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    finally:
        here = threading.current_thread()
        if any(not each.daemon for each in threading.enumerate() if each is not here):
            if (error := sys.exc_info()[1]) is not None and not isinstance(error, SystemExit):
                sys.excepthook(type(error), error, error.__traceback__)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
