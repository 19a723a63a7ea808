"""The last two steps of a batch on the command line, with their progress on stderr."""

from pathlib import Path
from uuid import UUID

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.freeze_schemas import ROUNDS
from kafka_ingest.cli.arguments import actor
from kafka_ingest.cli.output import progress, step
from kafka_ingest.commands.committed_lines import committed_lines
from kafka_ingest.committing.commit_batch import Committed
from kafka_ingest.errors import SparkFailedError
from kafka_ingest.model.batch import Attempt
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit


def write_batch(parts: FeedParts, batch_id: UUID) -> None:
    """Let Spark write a batch, unless it is written; once more where it found schema ids to ask for."""
    with step("write (Spark)"):
        for tries_left in reversed(range(ROUNDS)):
            attempt = parts.open_attempt(batch_id, actor=actor())
            if attempt is None or is_written(parts, attempt, may_fail=tries_left > 0):
                return


def is_written(parts: FeedParts, attempt: Attempt, *, may_fail: bool) -> bool:
    """Let Spark write an attempt and pin it; False where the next one has to ask for schemas."""
    submission, imports = parts.submission(attempt), parts.commit_imports(attempt)
    beside = attempt.directory if isinstance(attempt.directory, Path) else submission.workplace
    log_file = beside / "spark.log"
    try:
        run_spark_submit(submission, log_file, while_running=imports)
    except SparkFailedError as error:
        if may_fail and parts.needs_schemas(attempt):
            return False
        parts.explain_failure(attempt, str(error))
        raise  # its log stays, as the error says
    parts.pin(attempt)
    return True


def commit_batch(parts: FeedParts, batch_id: UUID) -> Committed:
    """Commit a batch, and print the result."""
    with step("commit"):
        committed = parts.commit(batch_id, actor=actor())
    for line in committed_lines(committed):
        progress.print(f"  {line.text}", style=line.style, markup=False, soft_wrap=True)
    return committed
