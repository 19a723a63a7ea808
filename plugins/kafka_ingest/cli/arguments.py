"""Arguments and options that several commands share, and how Spark is started and a commit shown."""

import getpass
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kafka_ingest.assembly import FeedParts, assemble_named
from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.cli.output import progress
from kafka_ingest.errors import SparkFailedError
from kafka_ingest.foundation.foreign_json import storable
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.sinks.choose import import_for_commit
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.verbs.answer import committed_lines
from kafka_ingest.write_step import Opened, submission

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
FeedName = Annotated[str, typer.Argument(metavar="FEED", help="A feed's name, as in its file.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the audit journal.")]
ReasonToExecute = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit journal.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; without, only show what would be done.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done and write nothing.")]
MaxRecords = Annotated[int | None, typer.Option(min=1, help="A smaller limit for this run.")]
EndTimestamp = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="End before the first record of this time, e.g. 2026-01-31T00:00:00Z."),
]
EndOffsets = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOPIC:PARTITION=OFFSET", help="Read only this partition, up to this offset; may be repeated."
    ),
]


def feed_parts(feed_name: str) -> FeedParts:
    return assemble_named(feed_name, find_connection_from_shell)


def actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = str(os.getuid())
    return storable(f"cli:{user}@{socket.gethostname()}/{os.getpid()}")


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
