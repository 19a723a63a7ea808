"""The last two steps of a batch on the command line, with their progress on stderr."""

from functools import partial
from pathlib import Path
from uuid import UUID

from kafka_ingest.answers.committed_lines import committed_lines
from kafka_ingest.assembly import FeedParts
from kafka_ingest.cli.arguments import actor
from kafka_ingest.cli.output import progress, step
from kafka_ingest.committing.commit_batch import Committed
from kafka_ingest.model.batch import Attempt
from kafka_ingest.sinks.choose import import_for_commit
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.write_step import submission
from kafka_ingest.write_step import write_batch as write


def write_batch(parts: FeedParts, batch_id: UUID) -> None:
    """Let Spark write a batch, unless it is written, with its log beside the attempt."""

    def submit(attempt: Attempt) -> None:
        plan = parts.control.batch(batch_id).plan
        call = submission(parts, plan, attempt)
        beside = attempt.directory if isinstance(attempt.directory, Path) else call.workplace
        run_spark_submit(call, beside / "spark.log", while_running=partial(import_for_commit, plan.output))

    with step("write (Spark)"):
        write(parts, batch_id, submit, actor=actor())


def commit_batch(parts: FeedParts, batch_id: UUID) -> Committed:
    """Commit a batch, and print the result."""
    with step("commit"):
        committed = parts.commit(batch_id, actor=actor())
    for line in committed_lines(committed):
        progress.print(f"  {line.text}", style=line.style, markup=False, soft_wrap=True)
    return committed
