"""A job's process ends with its code, whatever a feed's function has left at work."""

import subprocess
import sys

import pytest

LEFT = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from kafka_ingest.writing.driver_process import end_with

def main():
    ThreadPoolExecutor(1).submit(time.sleep, 600)
    threading.Thread(target=time.sleep, args=[600]).start()
    ENDING

end_with(main)
"""


@pytest.mark.parametrize(
    ("ending", "code", "said"), [("pass", 0, ""), ("sys.exit(69)", 69, ""), ("raise OSError('no disk')", 1, "no disk")]
)
def test_threads_that_a_function_leaves_at_work_keep_no_job_from_its_end(ending: str, code: int, said: str) -> None:
    job = [sys.executable, "-c", LEFT.replace("ENDING", ending)]

    done = subprocess.run(job, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == code
    assert said in done.stderr
