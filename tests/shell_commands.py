"""A shell whose `kafka-ingest` runs in a fork of one process that has imported it.

Its Spark is the kept one, or a stand-in.

The command is the real one, with the arguments, environment, folder and outputs that the shell gives it. Starting
Python and Spark for each takes most of what it takes; that they start is tested with the README's commands.
"""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.forked_script import serve_forks, take_over
from tests.kept_spark import SUBMIT
from tests.like_spark import LikeSpark
from tests.project import KAFKA_INGEST

from dies_with_parent import dying_with_this_process
from kafka_ingest.cli import arguments as shared_by_commands
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.verbs import preview


@contextmanager
def forking_commands(folder: Path, *spark: Path) -> Iterator[Path]:
    """Yield a file for BASH_ENV; ``spark`` is the folder of a spark-submit, otherwise a stand-in writes."""
    folder.mkdir()
    command = folder / "kafka-ingest"
    command.write_text(SUBMIT)
    command.chmod(0o755)
    functions = folder / "functions.sh"
    functions.write_text(f'kafka-ingest() {{ "{command}" "$@"; }}\n')
    server = subprocess.Popen(
        dying_with_this_process([sys.executable, __file__, str(folder / "jobs"), *map(str, spark)]),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield functions
    finally:
        server.terminate()
        server.communicate()


def with_spark_of(folder: str) -> Callable[..., None]:
    """Return what runs a submission with the spark-submit of a folder."""

    def run(submission: SparkSubmission, *others: Any, **named: Any) -> None:
        path = os.pathsep.join([folder, submission.environment["PATH"]])
        run_spark_submit(replace(submission, environment={**submission.environment, "PATH": path}), *others, **named)

    return run


def run_in_this_fork(arguments: list[str], variables: dict[str, str], outputs: list[int]) -> None:
    take_over([str(KAFKA_INGEST), *arguments], variables, variables["PWD"], [0, *outputs])
    runpy.run_path(str(KAFKA_INGEST), run_name="__main__")


def main() -> None:
    place, *spark = sys.argv[1:]
    run = with_spark_of(*spark) if spark else LikeSpark().write_like_spark
    shared_by_commands.run_spark_submit = preview.run_spark_submit = run
    serve_forks(place, run_in_this_fork)


if __name__ == "__main__":
    main()
