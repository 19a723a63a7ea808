"""Runs each step of a benchmark in a separate process: nothing that an earlier step loaded or kept makes it faster."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from one_step import Measured, Task, Work
from talking import BenchmarkError


def in_a_process_of_its_own(program: str, task: Task, timeout_s: float) -> Measured:
    """Do a step with a program of this folder; raises BenchmarkError with what it said where it failed."""
    try:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name(program), json.dumps(asdict(task))],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{task.step}: no end within {timeout_s:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise BenchmarkError(f"{task.step} failed with exit code {error.returncode}:\n{error.stderr}") from error
    document = json.loads(done.stdout)
    return Measured(**{**document, "work": Work(**document["work"])})
