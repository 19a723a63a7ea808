"""What the commands that write batches have in common: Spark's start, and what a commit has done."""

from collections.abc import Sequence
from pathlib import Path

from kafka_ingest.cli.output import progress
from kafka_ingest.committing.commit_batch import Committed
from kafka_ingest.errors import SparkFailedError
from kafka_ingest.sinks.choose import import_for_commit
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.verbs.restore import committed_lines
from kafka_ingest.write_step import Opened, submission


def submit(opened: Sequence[Opened]) -> None:
    """Let one Spark write attempts, with its log beside the only one of them."""
    call, directory = submission(opened), opened[0].attempt.directory

    def import_for_commits() -> None:
        for output in {each.plan.output.format: each.plan.output for each in opened}.values():
            import_for_commit(output)

    beside = directory if len(opened) == 1 and isinstance(directory, Path) else call.workplace
    try:
        run_spark_submit(call, beside / "spark.log", while_running=import_for_commits)
    except SparkFailedError as error:
        error.log = str(beside / "spark.log")
        raise


def print_committed(committed: Committed, about: str = "") -> None:
    """Print what a commit has done; ``about``: of which feed, where there are several."""
    for line in committed_lines(committed):
        progress.print(f"  {about}{line.text}", style=line.style, markup=False, soft_wrap=True)
