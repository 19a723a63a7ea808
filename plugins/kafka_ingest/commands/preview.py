"""``preview``: what a feed makes of real records, before it ingests any."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.fitting_columns import ComparedColumns
from kafka_ingest.batches.freeze_schemas import ROUNDS
from kafka_ingest.batches.preview import Preview, preview_of
from kafka_ingest.commands.answer import Answer
from kafka_ingest.commands.shown_preview import preview_document, shown_columns, shown_preview
from kafka_ingest.errors import ColumnsChangedError, SparkFailedError
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.sinks.choose import columns_of_file, dead_letters_in_file, rows_of_file
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit

RECORDS = 20


def preview(
    parts: FeedParts,
    records: int,
    *,
    show_values: bool = True,
    decoding: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Answer:
    """Decode about so many of the newest records with Spark on this machine; commits nothing.

    Without ``show_values`` nothing is shown of what the records hold: where they are, what became of them and their
    columns. Nor is what Spark says where it fails. ``decoding`` is entered while Spark runs.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-preview-") as directory:
        found, compared = Preview([], []), None
        plan = parts.preview_plan(Path(directory), records)
        if plan is not None:
            with decoding(), spark_says(show_values=show_values):
                attempt, compared = run_preview(parts, plan)
            found = preview_of(attempt, parts.sinks, plan, rows_of_file, columns_of_file, dead_letters_in_file)
            found = replace(found, never_found=tuple(parts.feed.batch_limits().to_name(found.never_found)))
    name, offsets = parts.feed.name, plan.max_rows if plan is not None else 0
    is_refused = compared is not None and compared.refused is not None
    return Answer(
        preview_document(name, found, compared, show_values=show_values),
        [*shown_preview(name, found, offsets=offsets, show_values=show_values), *shown_columns(compared)],
        exit_code=ColumnsChangedError.exit_code if is_refused else 1 if found.dead_letters else 0,
    )


@contextmanager
def spark_says(*, show_values: bool) -> Iterator[None]:
    """Leave the end of Spark's log out of its error, unless values are shown: it may quote records."""
    try:
        yield
    except SparkFailedError as error:
        if show_values:
            raise
        # Its first line says how Spark ended, and names the log.
        first, *_ = str(error).splitlines()
        raise SparkFailedError(
            f"{first} not shown, since it may quote records. Read it on this machine, or ask with show_values, which "
            "shows it."
        ) from None


def run_preview(parts: FeedParts, plan: BatchPlan) -> tuple[Attempt, ComparedColumns]:
    """Let Spark write a batch that nobody commits; once more where it found schema ids to ask for.

    Return with it how its columns go with those of the feed's output.
    """
    failed: list[Attempt] = []
    while True:
        attempt, submission, compared = parts.preview(plan, failed)
        with log_for_errors() as log_file:
            try:
                run_spark_submit(submission, log_file)
            except SparkFailedError:
                failed.append(attempt)
                parts.check_expressions(attempt, plan)
                if len(failed) == ROUNDS or not parts.needs_schemas(attempt, plan):
                    raise
            else:
                return attempt, compared


@contextmanager
def log_for_errors() -> Iterator[Path]:
    """Yield where Spark's log goes, of which records may be quoted; it stays only where an error names it."""
    # Outside of the directory of the preview, which is removed in any case.
    handle, name = tempfile.mkstemp(prefix="kafka-ingest-preview-", suffix=".log")
    os.close(handle)
    is_named = False
    try:
        yield Path(name)
    except SparkFailedError:
        is_named = True
        raise
    finally:
        if not is_named:
            Path(name).unlink()
